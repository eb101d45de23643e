// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/schedule/recompute.h"
#include "sim/engine/conditions.h"
#include "sim/explain/task_graph.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::sim {

/// Kind of a cost that could be smaller.
enum class Part {
    Forward,         ///< of a stage
    Backward,        ///< of a stage: B, and I and W where they are apart
    BackwardInput,   ///< I, of all stages
    BackwardWeight,  ///< W, of all stages
    Recompute,       ///< of a stage
    Update,          ///< of all stages
    Reduction,       ///< of gradients, of all stages
    Link,            ///< over a boundary, both ways: latency, and time on the link
    NodeLinks,       ///< all links between nodes (sim/explain/cluster_links.h)
    InnerLinks,      ///< all links inside of nodes (sim/explain/cluster_links.h)
    HostLink,        ///< stashes to host memory and back, of all ranks
    Rank,            ///< all that a rank computes, its updates included
    Dispatch,        ///< the host's time before each action
    Cores,           ///< processors that ranks share: a factor more of them
};

/// Index of a target that is all stages, boundaries or ranks.
constexpr int everywhere = -1;

/// Costs that could be smaller: of one kind, everywhere or at one stage, boundary or rank.
struct Target {
    Part part{};
    int index = everywhere;  ///< the stage, boundary or rank

    bool operator==(const Target&) const = default;
};

/// Step time if the costs of a target were smaller.
struct WhatIf {
    Target target;
    double factor = 1;      ///< how many times as fast
    Duration step{};        ///< the step time then
    Duration least_step{};  ///< infinitely fast: no factor brings it below this
};

/// Factor of costs that vanish.
constexpr double infinitely = std::numeric_limits<double>::infinity();

/// Changes of a plan's step time with its costs: found by evaluating its tasks again or, where
/// ranks or messages share something, by playing the step through again; so exactly. Keeps a
/// reference to the plan.
class Sensitivity {
  public:
    explicit Sensitivity(const Plan& plan);

    /// The step time of the plan as it is.
    Duration step() const { return step_; }

    /// All targets that take any time: every stage's forward, backward and recompute, every link
    /// and every rank; and each kind of work everywhere.
    const std::vector<Target>& targets() const { return targets_; }

    /// False for one half of the backward where both halves together hide messages of shards: how
    /// much longer the other half would wait is not known.
    bool can_answer(const Target& target) const;

    /// The step time if all targets were `factor` times as fast: times are divided by it, and
    /// rounded down to a nanosecond. Messages inside of an action take as long as they do
    /// (`Plan::with_computation`).
    Duration step_if(std::span<const Target> targets, double factor) const;
    Duration step_if(const Target& target, double factor) const {
        return step_if(std::span(&target, 1), factor);
    }

    /// The `most` of `among` with the largest gain, best first, equal ones in the order given;
    /// those without gain are left out. After `evaluations` of the step it settles for what it has.
    ///
    /// A target gains no more than it takes off one longest chain, so most need not be tried. Where
    /// something is shared that does not hold, and all are tried, in the order given.
    std::vector<WhatIf> best(std::span<const Target> among,
                             double factor,
                             std::size_t most,
                             std::int64_t evaluations) const;

    /// [rank][cell]: time by which each action could end later without making the step longer.
    /// Throws InternalError for plans with contention, where an action that ends later gives way to
    /// others.
    std::vector<std::vector<Duration>> slack() const;

    std::size_t task_count() const { return graph_.tasks().size(); }

  private:
    /// The action or message whose cost or lag an entry of the graph is.
    struct Owner {
        enum class Kind : std::uint8_t { Nobody, Action, Reduction, Message, Copy };
        Kind kind = Kind::Nobody;
        Op op{};
        int stage = 0;
        int micro_batch = 0;  ///< one of those with the same cost
        int rank = 0;
        int boundary = 0;
    };
    static bool concerns(const Target& target, const Owner& owner);

    /// Places among the costs and lags of a stage, rank or boundary, so that they are found at
    /// once.
    struct Entries {
        std::vector<std::uint32_t> costs;
        std::vector<std::uint32_t> lags;
    };
    /// The entries that a target may concern.
    const Entries& entries_of(const Target& target) const;
    bool takes_time(const Target& target) const;

    void know_owners();
    void know_targets();
    void know_longest_chain(std::span<const Duration> ends);
    Duration faster(std::size_t cost, std::span<const Target> targets, double factor) const;
    Duration largest_gain(const Target& target, double factor) const;

    Conditions faster_conditions(std::span<const Target> targets,
                                 double factor,
                                 std::span<const Duration> costs) const;

    const Plan& plan_;
    bool shares_;                    ///< ranks or messages
    Conditions conditions_;          ///< of the plan, with room for other costs
    TaskGraph graph_;                ///< of the step without sharing
    std::vector<Owner> owners_;      ///< of costs
    std::vector<Owner> lag_owners_;  ///< of lags
    Entries all_;
    std::vector<Entries> of_stage_;
    std::vector<Entries> of_rank_;
    std::vector<Entries> of_boundary_;
    std::vector<Target> targets_;
    std::vector<std::int64_t> in_chain_;      ///< how often each cost is in one longest chain
    std::vector<std::int64_t> lag_in_chain_;  ///< how often each lag is in it
    Duration step_{};
};

}  // namespace pipetwin::sim
