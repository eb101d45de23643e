#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/units.h"

namespace pipetwin::sim {

/// What can happen in a pipeline.
enum class EventKind : std::uint8_t {
    RankFree,        ///< a rank has finished an action and turns to the next
    MessageArrived,  ///< an edge has delivered a message to its receiver
    GradientsCame,   ///< a stage has gradients that its update needs
    CoresMoved,      ///< an action on shared cores may be done
    LinksMoved,      ///< a message on shared links may be through
};

struct Event {
    Duration time{};
    std::uint32_t sequence = 0;  ///< how many events were announced before this one
    EventKind kind{};
    int index = 0;  ///< of the rank, the edge or the stage
};

/// Events ordered by time; equal times by the order in which they were announced, so that a run is
/// the same on every machine. A heap with four children to a node, as they lie in one cache line.
class EventQueue {
  public:
    void announce(Duration time, EventKind kind, int index) {
        const Event event{time, announced_++, kind, index};
        std::size_t hole = events_.size();
        events_.push_back(event);
        while (hole > 0) {
            const std::size_t parent = (hole - 1) / children;
            if (!comes_before(event, events_[parent])) {
                break;
            }
            events_[hole] = events_[parent];
            hole = parent;
        }
        events_[hole] = event;
    }

    bool empty() const { return events_.empty(); }

    Event take_next() {
        const Event next = events_.front();
        const Event last = events_.back();
        events_.pop_back();
        if (!events_.empty()) {
            sink(last);
        }
        return next;
    }

  private:
    static bool comes_before(const Event& a, const Event& b) {
        return a.time != b.time ? a.time < b.time : a.sequence < b.sequence;
    }

    void sink(const Event& event) {
        const std::size_t size = events_.size();
        std::size_t hole = 0;
        for (std::size_t first = 1; first < size; first = children * hole + 1) {
            std::size_t least = first;
            for (std::size_t child = first + 1; child < size && child < first + children; ++child) {
                least = comes_before(events_[child], events_[least]) ? child : least;
            }
            if (!comes_before(events_[least], event)) {
                break;
            }
            events_[hole] = events_[least];
            hole = least;
        }
        events_[hole] = event;
    }

    static constexpr std::size_t children = 4;
    std::vector<Event> events_;
    std::uint32_t announced_ = 0;
};

}  // namespace pipetwin::sim
