// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/timeline/timeline.h"
#include "exec/device/device.h"
#include "exec/memory_plan/cross_rank_dependencies.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::exec {

/// How long an action may last before its rank counts as hanging.
struct HangLimits {
    Duration least = std::chrono::seconds(10);
    int factor = 10;  ///< times what the action was planned to last, or has lasted in a step before
    /// The least in a first step, in which libraries choose kernels and memory is touched.
    Duration first_step = std::chrono::seconds(60);
    /// How long the other ranks may take to stop; a rank that has not come back then is left alone.
    Duration grace = std::chrono::seconds(1);
};

/// Where a worker is in its row; else the cell that it has turned to, and the row's size when it
/// has left the row.
constexpr int preparing = -2;
constexpr int prepared = -1;  ///< waits for the others to begin

/// A rank that does not go on, although it waits for no other rank.
struct Hang {
    int rank = 0;
    std::optional<int> cell{};  ///< of its row; none: before the first
    std::string text{};         ///< what and for how long; a line for each rank
};

/// Finds ranks that hang, from looks at where all of them are. A rank that waits for another is
/// excused: at the root of every chain of waits is one that does something, or one whose message
/// should have come. Knows no clock of its own: time between two looks that is longer than
/// `interval` does not count, for then the looking itself was held up - the process was stopped, or
/// the machine slept.
class Watchdog {
  public:
    /// `group_wait`: the text of what a rank waits for in a group of devices or replicas, as in
    /// "the all-reduce of layer 'block1.mlp' among devices 0-1: device 1 has not come"; empty where
    /// it waits for none. Called for the ranks that are passed to `look`.
    Watchdog(const Plan& plan,
             const HangLimits& limits,
             std::function<std::string(int rank)> group_wait = {});

    /// How long to wait between two looks.
    Duration interval() const { return interval_; }

    /// Starts the watch of a step: every rank is taken to have moved just now.
    void begin_step(TimePoint now);

    /// `cells`: where each rank is. `waits_in_group`: whether it waits for other devices of its
    /// stage, which have executors of their own; empty: none does. The hang that has gone on
    /// longest beyond its limit.
    std::optional<Hang> look(std::span<const int> cells,
                             TimePoint now,
                             std::span<const char> waits_in_group = {});

    /// What actions lasted in a step that was walked to its end.
    void learn(const std::vector<Span>& row, int rank);
    void end_step() { is_first_step_ = false; }

  private:
    /// How long a rank has been seen in one cell.
    struct Stay {
        int cell = preparing;
        Duration time{};
        Duration own{};  ///< the part of it in which the rank waited for no other
        bool waits_in_group = false;
    };
    const std::vector<Action>& row(int rank) const;
    bool is_in_row(int rank) const;
    std::optional<Cell> awaited_by(int rank) const;
    std::optional<int> waits_for(int rank) const;
    bool is_excused(int rank) const;
    bool waits_for_replicas(int rank) const;
    Duration limit(int rank) const;
    Duration expected(int rank) const;
    std::string report(int rank) const;
    std::string line(int rank) const;
    std::string wait_in_group(int rank) const;

    const Plan& plan_;
    HangLimits limits_;
    std::function<std::string(int rank)> group_wait_;
    Duration interval_{};
    std::vector<std::vector<std::optional<Cell>>> awaited_;
    std::vector<int> last_norms_;                  ///< [rank]
    std::vector<std::vector<Duration>> expected_;  ///< [rank][cell]
    std::vector<Stay> stays_;                      ///< [rank]
    TimePoint last_look_;
    bool is_first_step_ = true;
};

}  // namespace pipetwin::exec
