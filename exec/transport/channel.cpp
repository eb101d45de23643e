// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/channel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// First in, first out. Grows when it is full and never shrinks, so that a step like the one before
/// asks for no memory.
template <class T>
class Ring {
  public:
    bool empty() const { return count_ == 0; }
    T& front() { return places_[first_]; }
    void push_back(T value) {
        if (count_ == places_.size()) {
            std::ranges::rotate(places_, places_.begin() + static_cast<std::ptrdiff_t>(first_));
            first_ = 0;
            places_.resize(std::max(2 * places_.size(), std::size_t{4}));
        }
        places_[(first_ + count_) % places_.size()] = std::move(value);
        ++count_;
    }
    T take_front() {
        T value = std::move(front());
        first_ = (first_ + 1) % places_.size();
        --count_;
        return value;
    }
    void clear() {
        while (!empty()) {
            static_cast<void>(take_front());
        }
    }

  private:
    std::vector<T> places_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
};

/// A queue behind a mutex. The three counters may be looked at without it, so that a wait can spin
/// on them; whatever is decided is decided under the mutex.
class LocalChannel final : public Channel {
  public:
    LocalChannel(std::optional<int> capacity, Spin spin) : capacity_(capacity), spin_(spin) {
        PIPETWIN_EXPECT(!capacity || *capacity >= 0, "a capacity is not negative");
    }

    TimePoint send(Message message) override;
    Received receive() override;
    void close() override;
    void reopen() override;
    std::optional<int> capacity() const override { return capacity_; }

  private:
    /// Message number `index` may enter the queue. At capacity 0 one may enter, too: its sender
    /// then waits until it was taken.
    bool has_room(std::int64_t index) const {
        return closed_ || !capacity_ || index - taken_ < std::max(*capacity_, 1);
    }
    bool was_taken(std::int64_t index) const { return closed_ || taken_ > index; }
    bool has_message() const { return closed_ || sent_ > taken_; }

    /// Waits until `ready` is true: spinning without the lock, then blocking with it.
    template <class Ready>
    std::unique_lock<std::mutex> wait(const Ready& ready) {
        spin_until(ready, spin_);
        std::unique_lock lock(mutex_);
        changed_.wait(lock, ready);
        return lock;
    }

    const std::optional<int> capacity_;
    const Spin spin_;
    std::mutex mutex_;
    std::condition_variable changed_;
    Ring<Received> queue_;
    std::atomic<std::int64_t> sent_ = 0;   ///< written by the sender
    std::atomic<std::int64_t> taken_ = 0;  ///< written by the receiver
    std::atomic<bool> closed_ = false;
};

TimePoint LocalChannel::send(Message message) {
    const std::int64_t index = sent_;
    {
        const std::unique_lock lock = wait([&] { return has_room(index); });
        if (closed_) {
            throw ChannelClosed();
        }
        const TimePoint arrived = std::max(Clock::now(), message.available);
        queue_.push_back({.message = std::move(message), .arrived = arrived});
        sent_ = index + 1;
    }
    changed_.notify_all();
    if (capacity_ == 0) {
        const std::unique_lock lock = wait([&] { return was_taken(index); });
        if (taken_ <= index) {
            throw ChannelClosed();
        }
    }
    return Clock::now();
}

Channel::Received LocalChannel::receive() {
    std::unique_lock lock = wait([&] { return has_message(); });
    if (queue_.empty()) {
        throw ChannelClosed();
    }
    if (const auto way = std::exchange(queue_.front().message.shared_link, {})) {
        lock.unlock();
        const TimePoint available = way();
        lock.lock();
        queue_.front().arrived = std::max(queue_.front().arrived, available);
    }
    // A message on a paced link has been sent but is still under way. Nothing can come before it,
    // so there is nothing else to wait for; a close does not stop what was sent.
    const TimePoint arrived = queue_.front().arrived;
    while (Clock::now() < arrived) {
        changed_.wait_until(lock, arrived);
    }
    Received received = queue_.take_front();
    ++taken_;
    lock.unlock();
    changed_.notify_all();
    return received;
}

void LocalChannel::close() {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    changed_.notify_all();
}

void LocalChannel::reopen() {
    const std::lock_guard lock(mutex_);
    queue_.clear();
    sent_ = 0;
    taken_ = 0;
    closed_ = false;
}

}  // namespace

bool Channel::has_come() {
    throw InternalError("only the receiving end between processes tells what has come");
}

void Channel::expect(Tensor) {
    throw InternalError("messages within a process bring their own memory");
}

ChannelClosed::ChannelClosed() : std::runtime_error("the other end of the channel has stopped") {}

std::unique_ptr<Channel> make_local_channel(std::optional<int> capacity, Spin spin) {
    return std::make_unique<LocalChannel>(capacity, spin);
}

}  // namespace pipetwin::exec
