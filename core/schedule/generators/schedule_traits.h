// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/schedule/generators/generate.h"
#include "core/schedule/recompute.h"
#include "core/schedule/schedule.h"

/// What a schedule is, as the rest of the program sees it: one row per schedule, which stands
/// beside its generator. Nothing else knows a schedule by its name.
namespace pipetwin {

/// How many chunks a rank may have.
enum class ChunkCounts { One, Two, Several };

/// Which ranks hold the pieces of the model, from the first to the last.
enum class StagePlacement {
    Unknown,     ///< no bound takes anything for granted
    OnePerRank,  ///< piece r on rank r
    Loop,        ///< piece s on rank s mod p
    V,           ///< down the ranks, and up again
    BothWays     ///< each piece twice: one pipeline goes down the ranks, another one up
};

/// Whether a backward is cut into I and W, so that W can be put off.
enum class BackwardSplit {
    Never,
    Sometimes,  ///< of some micro-batches, or unknown: no bound counts on either
    Always
};

/// Whether `plan` tries the schedule where a scenario leaves it open.
enum class Searched {
    No,
    Yes,
    /// Before all others; and alone where a pipeline has one rank, on which all are the same.
    First
};

/// How many stashes a rank holds at once, of all its chunks together.
struct LiveStashes {
    int all = 1;
    int pending = 0;  ///< of them, those whose W is still to come
};

/// The row of a schedule. What is left out is the weakest that can be said of any order that
/// trains, so no bound of a search can be wrong for it.
struct ScheduleTraits {
    std::string_view name;          ///< ours: "gpipe"
    std::string_view torch_name{};  ///< PyTorch's class, empty if it has none
    /// Name of a published schedule that is like this one and that is not generated; or empty.
    std::string_view kin{};
    /// How this schedule differs from `kin`, for an error that offers it in the place of `kin`.
    std::string_view kin_differs{};

    /// Compute actions only. Throws Error(Infeasible) naming the rule that the shape breaks. Null
    /// for an order that is read from a file.
    Schedule (*generate)(const ScheduleShape& shape, const GeneratorOptions& options) = nullptr;

    ChunkCounts chunks = ChunkCounts::One;
    StagePlacement placement = StagePlacement::Unknown;
    BackwardSplit split = BackwardSplit::Sometimes;
    bool forwards_first = false;  ///< every rank has all forwards before its first backward
    bool trains = true;           ///< has a backward
    /// Weights are updated while micro-batches are under way, so gradients belong to older weights:
    /// it is simulated only, and says so wherever it is offered.
    bool stale_gradients = false;
    /// The order is searched for with what actions and messages cost. Its stages lie as
    /// `schedules::loop_placement` has them.
    bool order_from_costs = false;
    bool in_megatron = false;               ///< Megatron-LM runs it
    bool has_groups = false;                ///< GeneratorOptions::group_size changes its order
    Recompute recompute = Recompute::None;  ///< where a scenario says nothing
    /// When an R runs where a scenario says nothing. Megatron-LM and PyTorch compute a forward
    /// again within the backward, which begins when its gradient is there.
    RecomputeTiming recompute_timing = RecomputeTiming::Lazy;
    Searched searched = Searched::No;

    /// What the rank holds at least, at the moment when it holds most. Null: one stash, as any
    /// backward needs its own.
    LiveStashes (*stashes)(const ScheduleShape& shape, int rank) = nullptr;

    /// For one chunk to a rank: how many micro-batches are on their way from the rank to the last
    /// one and back, at most. Null: all of them may be.
    int (*in_flight)(const ScheduleShape& shape, int rank) = nullptr;
};

/// The row of a schedule; that of an order from a file claims nothing.
const ScheduleTraits& schedule_traits(ScheduleKind kind);

/// The row of the schedule that we call so; for any other name, as that of a file, the row of an
/// order from a file.
const ScheduleTraits& schedule_traits(std::string_view our_name);

}  // namespace pipetwin
