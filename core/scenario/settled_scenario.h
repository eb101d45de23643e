// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/partition/partition.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/scenario.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/recompute.h"
#include "core/schedule/schedule.h"

namespace pipetwin {

class Model;
struct Profile;
struct Stack;

/// A scenario of which nothing has to be planned any more: what a plan is made from. Partition and
/// channel capacity may still be "auto", as every plan has its own.
struct SettledScenario : ScenarioParts {
    using PipelinePart = PipelineKeys<Known>;
    PipelinePart pipeline;

    /// The scenario as its user would have written it, to be printed.
    Scenario as_scenario() const;

    bool operator==(const SettledScenario&) const = default;
};

/// The scenario with plain values. Throws Error(BadInput), naming the key and a value to set, for
/// every "auto" that has to be planned yet.
SettledScenario settle(const Scenario& scenario);

/// The scenario with its default in place of every "auto" that has to be planned.
SettledScenario with_defaults(const Scenario& scenario);

/// Whether a key is "auto" that has to be planned.
bool is_open(const Scenario& scenario);

/// Samples of a mini-batch that one replica takes. Throws Error(BadInput) naming both numbers if
/// the mini-batch cannot be shared out equally.
int replica_batch(const SettledScenario& scenario);

/// What replicas divide from the first micro-batch of a step to the last: `pipeline.shard`, or less
/// where the stack (null: none) keeps weights together that were gathered once. Then a pipeline
/// gathers weights and sums gradients once a step, as where replicas divide the optimizer's state,
/// and a single stage keeps the weights that it gathers, as where they divide gradients, too.
Shard divided_all_step(const SettledScenario& scenario, const Stack* stack);

/// What each of a `group` of replicas has of a stage's state, where the stack (null: none) may
/// leave gradients whole until the end of a run of micro-batches.
StateShards shards_among(int group, const SettledScenario& scenario, const Stack* stack);

/// Replicas that have a stage's state between them, each a part; 1: each has all of it. Throws as
/// `stack_of`.
StateShards state_shards(const SettledScenario& scenario, const Profile& profile);

/// Whether the scenario's order comes from the user's own file.
bool has_schedule_file(const SettledScenario& scenario);

/// Whether the scenario's gradients would belong to older weights.
bool has_stale_gradients(const SettledScenario& scenario);

/// The order of the actions: generated, or as it stands in the scenario's schedule file, with
/// whatever recomputes, communication and updates it has; receives that are posted
/// (pipeline.receives, without a channel capacity) stand where their tensors are used. Throws
/// Error(Infeasible) naming the rule that the shape breaks or what is wrong with the file, and
/// Error(BadInput) as parse_schedule_csv, or if the file's ranks, chunks or micro-batches are not
/// those of the scenario.
Schedule scenario_schedule(const SettledScenario& scenario, const GeneratorOptions& options = {});

/// The partition that the scenario writes down, in units of `model`; none for "auto". Throws as
/// `written_partition`.
std::optional<Partition> scenario_partition(const SettledScenario& scenario, const Model& model);

}  // namespace pipetwin
