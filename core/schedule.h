#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/action.h"
#include "core/units.h"

namespace pipetwin {

/// One row of actions per rank, and which rank holds which stage. An order is a row: there is no
/// global clock. It may be wrong on purpose - importers and tests must be able to hold and print
/// it.
struct Schedule {
    int micro_batches = 0;
    std::vector<int> rank_of_stage;
    /// Whose weights a stage uses: itself, except in chimera, where two pipelines of one model run
    /// in opposite directions and share out the micro-batches. Stages p..2p-1 are the second one.
    std::vector<int> weights_of_stage;
    std::vector<std::vector<Action>> ranks;
    /// The first stage and the last have a weight in common: each hands the other its gradient.
    bool tied_ends = false;

    int rank_count() const { return static_cast<int>(ranks.size()); }
    int stage_count() const { return static_cast<int>(rank_of_stage.size()); }
    bool operator==(const Schedule&) const = default;
};

enum class ScheduleKind {
    Naive,
    GPipe,
    OneFOneB,
    Interleaved1F1B,
    LoopedBfs,
    ZbH1,
    ZbH2,
    ZbAuto,
    ZbV,
    InterleavedZb,
    DualPipeV,
    Chimera,
    Hanayo,
    ForwardOnly,
    PipeDream,
    PipeDream2Bw,
    FromFile
};
/// Whether stage + 1 follows stage in a pipeline: not where another pipeline begins.
bool has_next_stage(const Schedule& schedule, int stage);

/// Whether stage - 1 comes before stage in a pipeline.
bool has_stage_before(const Schedule& schedule, int stage);

/// Into how many pieces the model is cut: the stages, each weight counted once. Of a valid
/// schedule.
int piece_count(const Schedule& schedule);

/// The piece of the model that a stage computes. Of a valid schedule.
int piece_of(const Schedule& schedule, int stage);

/// The stage of the other pipeline that has the same weights; none where a stage's weights are its
/// own. Of a valid schedule.
std::optional<int> twin_of(const Schedule& schedule, int stage);

/// The stage whose REDUCE_GRAD hands gradients to this one: its twin, or the other end where both
/// ends are tied. None: nobody does. Of a valid schedule.
std::optional<int> gradient_source(const Schedule& schedule, int stage);

/// Whether every update waits for the norm of all gradients: there are NORMs.
bool has_gradient_norms(const Schedule& schedule);

/// The first stage of the pipeline that the stage belongs to: 0, unless there are two.
int first_stage_of_pipeline(const Schedule& schedule, int stage);

/// A schedule without any B, I or W: it cannot train.
bool is_forward_only(const Schedule& schedule);

enum class BackwardOrder { Descending, Ascending };

/// What a generator needs to know. `ranks` is p of one replica, `chunks` is v; stages = ranks *
/// chunks.
struct ScheduleShape {
    int ranks = 1;
    int chunks = 1;
    int micro_batches = 1;
};

/// What zb-auto searches with.
struct ZeroBubbleCosts {
    std::vector<Duration> forward{};  ///< [stage], as the two below; empty: 1 each
    std::vector<Duration> backward_input{};
    std::vector<Duration> backward_weight{};
    std::vector<Duration> latency{};  ///< [boundary], one way; empty: 0
    std::vector<int> live_limit{};    ///< [stage], in activations; empty: 2 * ranks each
    /// A live activation weighs `activation` from the start of its F to the end of its I, and
    /// `kept_for_weight` from there to the end of its W; only their ratio counts. One half where
    /// nothing is known, as W is half of B.
    Bytes activation{2};
    Bytes kept_for_weight{1};
};

/// What only some generators look at.
struct GeneratorOptions {
    BackwardOrder gpipe_order = BackwardOrder::Descending;
    int group_size = 0;  ///< interleaved-1f1b: micro-batches that a chunk takes in turn; 0: ranks
    ZeroBubbleCosts zero_bubble{};  ///< zb-auto
};

struct ScheduleName {
    ScheduleKind kind;
    std::string_view name;        ///< ours: "gpipe"
    std::string_view torch_name;  ///< PyTorch's class, empty if it has none
};

/// The schedules that can be generated, in the order in which they are listed to a user.
std::span<const ScheduleName> known_schedules();

/// Reads our names and PyTorch's, whatever the case. Throws Error(BadInput) with the nearest known
/// name.
ScheduleKind schedule_kind(std::string_view name);
std::string_view to_string(ScheduleKind kind);

/// Weights are updated while micro-batches are under way, so gradients belong to older weights:
/// such a schedule is simulated only, and says so wherever it is offered.
bool has_stale_gradients(ScheduleKind kind);

/// Compute actions only, no recompute and no communication: `lower` adds those.
/// Throws Error(Infeasible) naming the rule that the shape breaks ("naive: one micro-batch, got
/// 4").
Schedule generate(ScheduleKind kind,
                  const ScheduleShape& shape,
                  const GeneratorOptions& options = {});

/// The most actions that a schedule may have: one of 16 bytes each is a gigabyte.
constexpr std::int64_t largest_schedule = 64'000'000;

/// The most actions of one micro-batch on one stage: F, B, R (or F, I, W, R) and two sends and two
/// receives.
constexpr int largest_actions_per_pair = 8;

/// Throws Error(BadInput) if ranks, chunks or micro-batches lie outside 1..4096, 1..64, 1..65536,
/// or the schedule could have more than `largest_schedule` actions; called by every generator
/// before it allocates.
void check_shape(const ScheduleShape& shape);

}  // namespace pipetwin
