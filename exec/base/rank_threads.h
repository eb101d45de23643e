// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/units.h"

namespace pipetwin::exec {

/// A fixed set of threads, one per rank, that all run the same function at the same time, again and
/// again.
class RankThreads {
  public:
    /// Starts the threads, which wait for work. Throws std::system_error where the system has no
    /// thread left.
    explicit RankThreads(std::size_t size);
    RankThreads(const RankThreads&) = delete;
    RankThreads& operator=(const RankThreads&) = delete;
    /// Waits until no thread is busy.
    ~RankThreads();

    /// Lets every thread call work(its index) once, which must not throw. Returns at once; to be
    /// called while none is busy.
    void run(std::function<void(std::size_t)> work);

    /// Waits until no thread is busy, but no longer than this; whether none is.
    bool wait(Duration patience);

    /// The indices of the threads whose work has not returned.
    std::vector<std::size_t> busy();

  private:
    struct Member {
        int started = 0;   ///< how many runs
        int finished = 0;  ///< how many of those
        std::jthread thread{};
    };
    void end();
    void live(std::size_t index);
    bool is_idle() const { return busy_ == 0; }

    std::mutex mutex_;
    std::condition_variable work_or_end_;
    std::condition_variable idle_;
    std::function<void(std::size_t)> work_;
    std::size_t busy_ = 0;
    bool ends_ = false;
    std::vector<Member> members_;
};

}  // namespace pipetwin::exec
