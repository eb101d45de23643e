#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/units.h"

namespace pipetwin::exec {

/// Threads that all do one thing at the same time, again and again: one per rank.
class RankThreads {
  public:
    /// Throws std::system_error where the system has no thread left.
    explicit RankThreads(std::size_t size);
    RankThreads(const RankThreads&) = delete;
    RankThreads& operator=(const RankThreads&) = delete;
    /// Waits until all are back.
    ~RankThreads();

    /// Every thread calls work(its index) once; it must not throw. All are back.
    void send(std::function<void(std::size_t)> work);

    /// Waits for all to come back, for so long; whether they are.
    bool wait(Duration patience);

    /// Those at work.
    std::vector<std::size_t> away();

  private:
    struct Member {
        int sent = 0;
        int returned = 0;
        std::jthread thread{};
    };
    void live(std::size_t index);
    bool is_back() const { return away_ == 0; }

    std::mutex mutex_;
    std::condition_variable called_;
    std::condition_variable returned_;
    std::function<void(std::size_t)> work_;
    std::size_t away_ = 0;
    bool ends_ = false;
    std::vector<Member> members_;
};

}  // namespace pipetwin::exec
