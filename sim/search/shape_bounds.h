// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/units.h"
#include "core/partition/rank_partition.h"
#include "core/scenario/scenario.h"
#include "core/schedule/schedule.h"
#include "sim/bounds/layer_sums.h"
#include "sim/bounds/order_paths.h"
#include "sim/bounds/paths_bound.h"
#include "sim/bounds/step_bound.h"
#include "sim/search/candidate.h"

namespace pipetwin::sim {

/// Where the pieces of a candidate are, for its bound.
StagePlacement placement_of(const ScheduleChoice& choice);

/// An equal share of the work on every rank; 0 where there may be no backward.
Duration least_of_any(const LayerSums& sums, const BoundQuestion& question);

/// What steps of a shape's candidates do not go below, and which partitions promise most.
class ShapeBounds {
  public:
    /// Keeps a reference to the scenario; `question` and `floor`, which none of them goes below,
    /// are what all candidates have in common.
    ShapeBounds(const Scenario& scenario,
                const Shape& shape,
                std::shared_ptr<const LayerSums> sums,
                BoundQuestion question,
                Duration floor)
        : scenario_(scenario),
          shape_(shape),
          held_sums_(std::move(sums)),
          sums_(*held_sums_),
          of_shape_(std::move(question)),
          floor_(floor) {}

    /// What no candidate goes below. Known from the start.
    Duration floor() const { return floor_; }

    /// What its bound depends on beside the layers.
    BoundQuestion question(const ScheduleChoice& choice) const;

    /// With any partition; none where no partition fits. What is not below `ceiling` may be told as
    /// that.
    std::optional<Duration> least(const ScheduleChoice& choice, Duration ceiling) const;

    /// With the partitions that are tried first: not below `any`, which is `least`. None where they
    /// do not fit.
    std::optional<Duration> least_of_first(const ScheduleChoice& choice, Duration any);

    /// The partitions that promise most, for a choice with that bound. An empty list stands for the
    /// scenario's partition, or the balanced one.
    std::vector<std::vector<int>> partitions(const ScheduleChoice& choice, Duration least);

    /// Whether others than `partitions` may be tried.
    bool has_more_partitions() const { return scenario_.pipeline.partition.is_auto(); }

    /// About what the fullest rank would hold with an even partition: for an order of candidates
    /// that do not fit.
    Bytes even_share_of_memory(const ScheduleChoice& choice) const;

    /// Whether any partition may fit and take less than `best`. Looks at more than `least` does.
    bool may_be_faster(const ScheduleChoice& choice, Duration best) const;

    /// What no partition goes below; takes longer than `least`, and is not below it. What is not
    /// below `ceiling` may be told as that, and what is not below `enough` as that, if it is not
    /// told as `ceiling`.
    Duration closest_bound(const ScheduleChoice& choice,
                           Duration least,
                           Duration ceiling,
                           Duration enough = Duration::max()) const;

    /// The order of a choice whose ranks have several pieces of one pipeline each, if it is the
    /// same for every partition and its ways can be looked at; none else. Throws Error(Infeasible)
    /// where the schedule has no order of the shape.
    std::optional<Schedule> order_with_ways(const ScheduleChoice& choice) const;

    /// What no partition goes below, by the ways through that order; none where no partition fits.
    std::optional<Duration> least_by_ways(const ScheduleChoice& choice,
                                          const OrderPaths& order,
                                          const WaysSearch& search) const;

    /// Every partition that the bounds let be faster than `best`; none where they are more than
    /// `most`, or too many to look at.
    std::optional<std::vector<std::vector<int>>> faster_partitions(const ScheduleChoice& choice,
                                                                   Duration best,
                                                                   std::int64_t most) const;

  private:
    std::optional<std::vector<std::vector<int>>> every_partition(const ScheduleChoice& choice,
                                                                 std::int64_t most) const;
    const std::vector<int>& balanced(int pieces, bool recomputes);
    std::vector<std::vector<int>> balanced_ones(const ScheduleChoice& choice,
                                                const BoundQuestion& question);
    std::vector<std::vector<int>> partitions_by_bound(const BoundQuestion& question,
                                                      Duration least);
    RankChain chain_of(const ScheduleChoice& choice, const BoundQuestion& question) const;
    const RankChain& chain_with_windows(const ScheduleChoice& choice,
                                        const BoundQuestion& question) const;
    bool has_fixed_order(const ScheduleChoice& choice) const;
    double reduction_slope(const BoundQuestion& question) const;
    void add_reductions(RankQuantity& work, const BoundQuestion& question, int chunks) const;
    Duration forced_again(int chunks, const BoundQuestion& question) const;
    Duration mean_of_ranks(int chunks, const BoundQuestion& question) const;
    Bytes least_kept(const ScheduleChoice& choice, const BoundQuestion& question) const;
    bool holds_all(const ScheduleChoice& choice, const BoundQuestion& question) const;

    const Scenario& scenario_;
    const Shape shape_;
    std::shared_ptr<const LayerSums> held_sums_;
    const LayerSums& sums_;
    BoundQuestion of_shape_;
    Duration floor_;
    std::map<std::pair<int, bool>, std::vector<int>> balanced_{};
    mutable std::optional<std::pair<ScheduleChoice, RankChain>> last_chain_{};
};

}  // namespace pipetwin::sim
