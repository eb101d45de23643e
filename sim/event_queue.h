#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/units.h"

namespace pipetwin::sim {

/// What can happen in a pipeline.
enum class EventKind : std::uint8_t {
    RankFree,       ///< a rank has finished an action and turns to the next
    MessageCame,    ///< what a rank waits for to receive has arrived
    GradientsCame,  ///< a stage has gradients that its update needs
    CoresMoved,     ///< an action on shared cores may be done
    LinksMoved,     ///< a message on shared links may be through
};

struct Event {
    Duration time{};
    EventKind kind{};
    int index = 0;  ///< of the rank, the edge or the stage
};

/// Events ordered by time; equal times by the order in which they were announced, so that a run is
/// the same on every machine. A heap with four children to a node, which lie in one cache line.
class EventQueue {
  public:
    void announce(Duration time, EventKind kind, int index) {
        const Entry entry{.time = time.count(),
                          .rest = announced_++ << 32U | static_cast<std::uint64_t>(kind) << 29U |
                                  static_cast<std::uint64_t>(index)};
        std::size_t hole = size_++;
        if (heap_.size() < size_ + children) {
            heap_.resize(2 * heap_.size(), never);
        }
        while (hole > 0) {
            const std::size_t parent = (hole - 1) / children;
            if (!comes_before(entry, heap_[parent])) {
                break;
            }
            heap_[hole] = heap_[parent];
            hole = parent;
        }
        heap_[hole] = entry;
    }

    bool empty() const { return size_ == 0; }

    Event take_next() {
        const Entry next = heap_.front();
        --size_;
        const Entry last = std::exchange(heap_[size_], never);
        if (size_ > 0) {
            sink(last);
        }
        constexpr std::uint64_t kinds = 7;
        constexpr std::uint64_t indices = (std::uint64_t{1} << 29U) - 1;
        return {.time = Duration{next.time},
                .kind = static_cast<EventKind>(next.rest >> 29U & kinds),
                .index = static_cast<int>(next.rest & indices)};
    }

  private:
    /// `rest` is, from the highest bits down, how many events were announced before this one, its
    /// kind and its index.
    struct Entry {
        std::int64_t time = 0;
        std::uint64_t rest = 0;
    };
    static constexpr std::size_t children = 4;
    static constexpr Entry never{std::numeric_limits<std::int64_t>::max(),
                                 std::numeric_limits<std::uint64_t>::max()};

    static bool comes_before(const Entry& a, const Entry& b) {
        __extension__ using Key = unsigned __int128;
        const auto key = [](const Entry& entry) {
            return static_cast<Key>(static_cast<std::uint64_t>(entry.time)) << 64U | entry.rest;
        };
        return key(a) < key(b);
    }

    /// Behind the last entry there is always a node's worth of `never`, so no child is missing.
    void sink(const Entry& entry) {
        Entry* const heap = heap_.data();
        std::size_t hole = 0;
        while (true) {
            const std::size_t first = children * hole + 1;
            if (first >= size_) {
                break;
            }
            const std::size_t low = first + (comes_before(heap[first + 1], heap[first]) ? 1 : 0);
            const std::size_t high =
                first + (comes_before(heap[first + 3], heap[first + 2]) ? 3 : 2);
            const std::size_t least = comes_before(heap[high], heap[low]) ? high : low;
            if (!comes_before(heap[least], entry)) {
                break;
            }
            heap[hole] = heap[least];
            hole = least;
        }
        heap[hole] = entry;
    }

    std::vector<Entry> heap_ = std::vector<Entry>(64, never);
    std::size_t size_ = 0;
    std::uint64_t announced_ = 0;
};

}  // namespace pipetwin::sim
