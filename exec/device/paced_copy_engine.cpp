// SPDX-License-Identifier: Apache-2.0
#include "exec/device/paced_copy_engine.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin::exec {
namespace {

/// Moves bytes in the order in which it is asked to. Any thread may wait for them.
class Copier {
  public:
    using Pieces = std::vector<CopyEngine::Piece>;

    void add(Pieces pieces) {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(std::move(pieces));
        changed_.notify_all();
    }

    /// Counts from 0 again. Nothing is under way.
    void restart() {
        const std::lock_guard lock(mutex_);
        done_ = 0;
    }

    /// True if the copy that was added as number `index` is done.
    bool is_done(int index) {
        const std::lock_guard lock(mutex_);
        return done_ > index;
    }

    void wait(int index) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return done_ > index; });
    }

  private:
    void work(const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        while (changed_.wait(lock, stop, [this] { return !waiting_.empty(); })) {
            const Pieces& pieces = waiting_.front();  // a deque's elements stay where they are
            lock.unlock();
            for (const CopyEngine::Piece& piece : pieces) {
                std::memcpy(piece.to, piece.from, piece.bytes);
            }
            lock.lock();
            waiting_.pop_front();
            ++done_;
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::deque<Pieces> waiting_;  ///< the first of them is at work
    int done_ = 0;
    std::jthread thread_{[this](const std::stop_token& stop) { work(stop); }};
};

class PacedCopyEngine final : public CopyEngine {
  public:
    PacedCopyEngine(Device& device, LinkCost link) : device_(device), link_(std::move(link)) {}

    Memory& memory() override { return host_memory(); }

    void restart() override {
        copies_.clear();
        free_ = {};
        copier_.restart();
    }

    int start(Direction direction,
              std::span<const Piece> pieces,
              std::optional<int> after) override {
        Bytes bytes;
        for (const Piece& piece : pieces) {
            bytes += Bytes{static_cast<std::int64_t>(piece.bytes)};
        }
        TimePoint& free = free_.at(as_index(direction));
        const TimePoint earliest = after ? copy(*after).end : TimePoint{};
        const TimePoint begin = std::max({device_.now(), free, earliest});
        free = begin + transfer_time(bytes + link_.half_bandwidth, link_.bytes_per_second);
        copies_.push_back({.begin = begin, .ready = free, .end = free + link_.latency});
        copier_.add({pieces.begin(), pieces.end()});
        return static_cast<int>(copies_.size()) - 1;
    }

    bool is_complete(int number) override {
        return device_.now() >= copy(number).end && copier_.is_done(number);
    }

    void wait(int number) override {
        device_.wait_until(copy(number).end);
        copier_.wait(number);
    }

    Times times(int number) override { return copy(number); }

    std::function<TimePoint()> arrival(int number) override {
        return [this, number, end = copy(number).end] {
            std::this_thread::sleep_until(end);
            copier_.wait(number);
            return end;
        };
    }

  private:
    const Times& copy(int number) const { return copies_.at(as_index(number)); }

    Device& device_;
    LinkCost link_;
    std::vector<Times> copies_;        ///< of this step
    std::array<TimePoint, 2> free_{};  ///< [direction]: when the link has sent its last byte
    Copier copier_;
};

}  // namespace

std::unique_ptr<CopyEngine> make_paced_copy_engine(Device& device, const LinkCost& link) {
    return std::make_unique<PacedCopyEngine>(device, link);
}

}  // namespace pipetwin::exec
