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

/// A scenario of which nothing has to be planned any more: what a plan is made from. Partition and
/// channel capacity may still be "auto", as every plan has its own.
struct SettledScenario : ScenarioParts {
    /// [pipeline] with plain values in place of every "auto" that a plan search decides.
    struct PipelinePart : PipelineSettings {
        int stages = 1;
        int micro_batches = 1;
        /// Our name of a generator, or the absolute path of a schedule file ("....csv").
        std::string schedule{default_schedule};
        int chunks = 1;
        RecomputeRules recompute;  ///< of all pieces, or one of each
        RecomputeTiming recompute_timing = RecomputeTiming::Eager;  ///< of the default schedule
        int data_parallel = 1;
        int tensor_parallel = 1;

        /// Into how many pieces the model is cut.
        int pieces() const { return file_pieces > 0 ? file_pieces : stages * chunks; }

        bool operator==(const PipelinePart&) const = default;
    } pipeline;

    /// The scenario as its user would have written it, to be printed.
    Scenario as_scenario() const;

    bool operator==(const SettledScenario&) const = default;
};

/// The scenario with plain values. Throws Error(BadInput), naming the key and a value to set, for
/// every "auto" that has to be planned yet.
SettledScenario settle(const Scenario& scenario);

/// Samples of a mini-batch that one replica takes. Throws Error(BadInput) naming both numbers if
/// the mini-batch cannot be shared out equally.
int replica_batch(const SettledScenario& scenario);

/// Replicas that have a stage's state between them, each a part; 1: each has all of it.
StateShards state_shards(const SettledScenario& scenario);

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
