// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/units.h"
#include "core/schedule/edge.h"

namespace pipetwin::sim {

/// Times at which the messages of every edge were handed over and taken, from which follows how
/// many waited in between.
class Occupancy {
  public:
    /// Room for `messages` messages on each edge.
    Occupancy(std::size_t edges, int messages)
        : messages_(as_index(messages)),
          sent_(edges),
          times_(std::make_unique_for_overwrite<Times[]>(edges * messages_)) {}

    /// Records the hand-over of a message; each message of an edge once, in the order of their
    /// numbers.
    void hand_over(int edge, int number, Duration time) {
        Times* const times = &times_[place(edge, number)];
        times->handed_over = time;
        sent_[as_index(edge)] = number + 1;
        // With many edges written in turn the hardware prefetcher cannot follow.
        constexpr int ahead = 6;  // it may be beyond the edge, where nothing is fetched
        constexpr int to_write = 1;
        __builtin_prefetch(times + ahead, to_write);
    }
    /// Records that the receiver has taken a message.
    void take(int edge, int number, Duration time) { times_[place(edge, number)].taken = time; }

    /// Most messages that waited on an edge at a time; on one of a skip, for each boundary that it
    /// leads over.
    struct Room {
        bool any = false;      ///< message
        int most_waiting = 0;  ///< handed over and not yet taken
        /// Most that waited, if a message that is taken at the moment at which another is handed
        /// over does not make room for it.
        int most_without_ties = 0;
    };

    /// The room that messages took, once every message was handed over and taken. The edges are
    /// those of the schedule.
    Room room(const Schedule& schedule) const {
        Room room;
        for (std::size_t edge = 0; edge < sent_.size(); ++edge) {
            room.any = room.any || sent_[edge] > 0;
            const Times* const times = &times_[edge * messages_];
            int most_waiting = 0;
            int most_without_ties = 0;
            int before = 0;   // taken before the hand-over
            int at_once = 0;  // or at its moment
            for (int number = 0; number < sent_[edge]; ++number) {
                const Duration time = times[number].handed_over;
                while (before <= number && times[before].taken < time) {
                    ++before;
                }
                at_once = std::max(at_once, before);
                while (at_once <= number && times[at_once].taken <= time) {
                    ++at_once;
                }
                most_waiting = std::max(most_waiting, number + 1 - at_once);
                most_without_ties = std::max(most_without_ties, number + 1 - before);
            }
            const int apart = distance(stages_of_pair(schedule, edge / 2));
            room.most_waiting = std::max(room.most_waiting, (most_waiting + apart - 1) / apart);
            room.most_without_ties =
                std::max(room.most_without_ties, (most_without_ties + apart - 1) / apart);
        }
        return room;
    }

  private:
    struct Times {
        Times() {
        }  // NOLINT(*-member-init, *-use-equals-default): each is written before it is read
        Duration handed_over;
        Duration taken;
    };

    std::size_t place(int edge, int number) const {
        return as_index(edge) * messages_ + as_index(number);
    }

    std::size_t messages_;
    std::vector<int> sent_;           ///< [edge]
    std::unique_ptr<Times[]> times_;  ///< [edge][message], each written before it is read
};

}  // namespace pipetwin::sim
