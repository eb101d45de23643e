#include "exec/paced_host_link.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "core/error.h"

namespace pipetwin::exec {
namespace {

/// Moves bytes in the order in which it is asked to.
class Copier {
  public:
    using Pieces = std::vector<HostLink::Piece>;

    void add(Pieces pieces) {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(std::move(pieces));
        changed_.notify_all();
    }

    /// Whether everything that was asked for is done but for the last `later` of it.
    bool is_done(std::size_t later) {
        const std::lock_guard lock(mutex_);
        return waiting_.size() <= later;
    }

    void wait(std::size_t later) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return waiting_.size() <= later; });
    }

  private:
    void work(const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        while (changed_.wait(lock, stop, [this] { return !waiting_.empty(); })) {
            const Pieces& pieces = waiting_.front();  // a deque's elements stay where they are
            lock.unlock();
            for (const HostLink::Piece& piece : pieces) {
                std::memcpy(piece.to, piece.from, piece.bytes);
            }
            lock.lock();
            waiting_.pop_front();
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::deque<Pieces> waiting_;  ///< the first of them is at work
    std::jthread thread_{[this](const std::stop_token& stop) { work(stop); }};
};

class PacedHostLink final : public HostLink {
  public:
    PacedHostLink(Device& device, LinkCost link) : device_(device), link_(std::move(link)) {}

    Memory& memory() override { return host_memory(); }

    void restart() override {
        copies_.clear();
        free_ = {};
    }

    int start(Direction direction,
              std::span<const Piece> pieces,
              std::optional<int> after) override {
        Bytes bytes;
        for (const Piece& piece : pieces) {
            bytes += Bytes{static_cast<std::int64_t>(piece.bytes)};
        }
        TimePoint& free = free_.at(static_cast<std::size_t>(direction));
        const TimePoint earliest = after ? copy(*after).end : TimePoint{};
        const TimePoint begin = std::max({device_.now(), free, earliest});
        free = begin + transfer_time(bytes + link_.half_bandwidth, link_.bytes_per_second);
        copies_.push_back({.begin = begin, .ready = free, .end = free + link_.latency});
        copier_.add({pieces.begin(), pieces.end()});
        return static_cast<int>(copies_.size()) - 1;
    }

    bool is_complete(int number) override {
        return device_.now() >= copy(number).end && copier_.is_done(later_than(number));
    }

    void wait(int number) override {
        device_.wait_until(copy(number).end);
        copier_.wait(later_than(number));
    }

    Times times(int number) override { return copy(number); }

  private:
    const Times& copy(int number) const { return copies_.at(static_cast<std::size_t>(number)); }
    std::size_t later_than(int number) const {
        return copies_.size() - 1 - static_cast<std::size_t>(number);
    }

    Device& device_;
    LinkCost link_;
    std::vector<Times> copies_;        ///< of this step
    std::array<TimePoint, 2> free_{};  ///< [direction]: when the link has sent its last byte
    Copier copier_;
};

}  // namespace

std::unique_ptr<HostLink> make_paced_host_link(Device& device, const LinkCost& link) {
    return std::make_unique<PacedHostLink>(device, link);
}

}  // namespace pipetwin::exec
