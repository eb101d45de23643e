// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/schedule/action.h"

namespace pipetwin {

/// Two stages, of which the later one reads what the earlier one made or read.
struct StagePair {
    int from = 0;
    int to = 0;

    auto operator<=>(const StagePair&) const = default;
};

/// One row of actions per rank, and which rank holds which stage. An order is a row: there is no
/// global clock. It may be wrong on purpose - importers and tests must be able to hold and print
/// it.
struct Schedule {
    int micro_batches = 0;
    std::vector<int> rank_of_stage;
    /// [stage]: the stage whose weights it uses. That is itself, except in chimera, where two
    /// pipelines of one model run in opposite directions and share out the micro-batches; stages
    /// p..2p-1 are the second one.
    std::vector<int> weights_of_stage;
    std::vector<std::vector<Action>> ranks;
    /// The first stage and the last have a weight in common: each hands the other its gradient.
    bool tied_ends = false;
    /// Stages on two ranks that are no neighbours and exchange messages all the same: a later stage
    /// reads an output that no stage between the two reads. Ascending; empty where every layer
    /// reads the one before it.
    std::vector<StagePair> skips;

    int rank_count() const { return static_cast<int>(ranks.size()); }
    int stage_count() const { return static_cast<int>(rank_of_stage.size()); }
    bool operator==(const Schedule&) const = default;
};

/// Whether stage + 1 follows stage in a pipeline: not where another pipeline begins.
bool has_next_stage(const Schedule& schedule, int stage);

/// Whether stage - 1 comes before stage in a pipeline.
bool has_stage_before(const Schedule& schedule, int stage);

/// Into how many pieces the model is cut: the stages, each weight counted once. Of a valid
/// schedule.
int model_stage_count(const Schedule& schedule);

/// The piece of the model that a stage computes. Of a valid schedule.
int model_stage_of(const Schedule& schedule, int stage);

/// The stage of the other pipeline that has the same weights; none where a stage's weights are its
/// own. Of a valid schedule.
std::optional<int> weight_sharing_stage(const Schedule& schedule, int stage);

/// The stage whose REDUCE_GRAD hands gradients to this one: the stage with the same weights, or the
/// other end where both ends are tied. None if no stage does. The schedule must be valid.
std::optional<int> gradient_source(const Schedule& schedule, int stage);

/// Whether every update waits for the norm of all gradients: there are NORMs.
bool has_gradient_norms(const Schedule& schedule);

/// The first stage of the pipeline that the stage belongs to: 0, unless there are two.
int first_stage_of_pipeline(const Schedule& schedule, int stage);

/// A schedule without any B, I or W: it cannot train.
bool is_forward_only(const Schedule& schedule);

/// The most actions that a schedule may have: one of 16 bytes each is a gigabyte.
constexpr std::int64_t largest_schedule = 64'000'000;

/// The most actions of one micro-batch on one stage: F, B, R (or F, I, W, R) and two sends and two
/// receives.
constexpr int largest_actions_per_pair = 8;

}  // namespace pipetwin
