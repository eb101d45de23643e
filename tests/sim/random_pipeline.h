// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <optional>
#include <vector>

#include "core/plan/plan.h"
#include "core/schedule/generators/generate.h"

/// Random shapes and random integer costs of every kind of schedule, for RapidCheck: to be called
/// from inside of a relation.
namespace pipetwin::sim {

/// A shape and its costs: integers, in milliseconds.
struct Pipeline {
    ScheduleKind kind = ScheduleKind::GPipe;
    ScheduleShape shape;
    std::vector<int> forward;  ///< per piece of the model
    std::vector<int> backward_input;
    std::vector<int> backward_weight;
    std::vector<int> recompute;
    std::vector<int> latency;  ///< per pair of stages that exchange, both directions alike
    /// A message and the size at which links reach half of their rate, in MB at 1 GB/s; empty: no
    /// time.
    std::vector<int> transfer;
    RecomputeRules mode;
    RecomputeTiming timing = RecomputeTiming::Eager;
    std::vector<StagePair> skips{};  ///< pieces of the model that are no neighbours, ascending
};

std::ostream& operator<<(std::ostream& out, const Pipeline& x);

/// One drawn value, which a report shows as a whole. Shapes up to 6 ranks, 3 chunks and 12
/// micro-batches.
Pipeline random_pipeline(ScheduleKind kind);

/// Of any kind.
Pipeline random_pipeline();

/// A number from `lowest` to `highest`, both included.
int number(int lowest, int highest);
std::vector<int> numbers(std::size_t count, int lowest, int highest);

/// Whether a kind accepts a shape.
bool exists(ScheduleKind kind, const ScheduleShape& shape);

/// The plan of a pipeline, with channels of a capacity.
Plan plan_of(const Pipeline& x, std::optional<int> capacity = std::nullopt);

/// The same with updates, reductions of the gradients of shared weights, and, drawn, all-reduces
/// over replicas and another mode of transfer.
Plan plan_with_updates(const Pipeline& x, std::optional<int> capacity = std::nullopt);

/// The same plan with bytes in its stashes and a link to host memory that they are offloaded over,
/// all drawn.
Plan with_offload(const Plan& plan);

}  // namespace pipetwin::sim
