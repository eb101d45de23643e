#pragma once

#include <cstdint>
#include <vector>

#include <queue>

#include "core/units.h"

namespace pipetwin::sim {

/// What can happen in a pipeline.
enum class EventKind {
    RankFree,        ///< a rank has finished an action and turns to the next
    MessageArrived,  ///< an edge has delivered a message to its receiver
    RoomMade,        ///< a receiver has made room on an edge for its sender
    GradientsCame,   ///< a stage has the gradients of the other pipeline
};

struct Event {
    Duration time{};
    std::int64_t sequence = 0;  ///< how many events were announced before this one
    EventKind kind{};
    int index = 0;  ///< of the rank, the edge or the stage
};

/// Events ordered by time; equal times by the order in which they were announced, so that a run is
/// the same on every machine.
class EventQueue {
  public:
    void announce(Duration time, EventKind kind, int index) {
        events_.push({.time = time, .sequence = announced_, .kind = kind, .index = index});
        ++announced_;
    }

    bool empty() const { return events_.empty(); }

    Event take_next() {
        const Event next = events_.top();
        events_.pop();
        return next;
    }

  private:
    struct Later {
        bool operator()(const Event& a, const Event& b) const {
            return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
        }
    };
    std::priority_queue<Event, std::vector<Event>, Later> events_;
    std::int64_t announced_ = 0;
};

}  // namespace pipetwin::sim
