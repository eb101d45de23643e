// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/schedule/schedule.h"

namespace pipetwin {

/// The place of a schedule in the list of all (`known_schedules`). A schedule has a name here if
/// code asks for it by name; its row alone says what it is.
enum class ScheduleKind {
    FromFile = -1,  ///< not generated
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
    PipeDream2Bw
};

/// Our name of the schedule that is meant where nothing says another.
inline constexpr std::string_view default_schedule = "gpipe";

/// Order of the backwards of gpipe, by micro-batch.
enum class BackwardOrder { Descending, Ascending };

/// What a generator needs to know. `ranks` is p of one replica, `chunks` is v; stages = ranks *
/// chunks.
struct ScheduleShape {
    int ranks = 1;
    int chunks = 1;
    int micro_batches = 1;
};

/// The largest number of each that a schedule may have.
inline constexpr ScheduleShape largest_shape{.ranks = 4096, .chunks = 64, .micro_batches = 65'536};

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
    /// interleaved-1f1b: micro-batches that a chunk takes in turn; 0: `interleaved_group_size`
    int group_size = 0;
    ZeroBubbleCosts zero_bubble{};  ///< zb-auto
};

/// A schedule that can be generated, and what it is called.
struct ScheduleName {
    ScheduleKind kind;
    std::string_view name;        ///< ours: "gpipe"
    std::string_view torch_name;  ///< PyTorch's class, empty if it has none
};

/// The schedules that can be generated, in the order in which they are listed to a user.
std::vector<ScheduleName> known_schedules();

/// Reads our names and PyTorch's, whatever the case. Throws Error(BadInput) with the nearest known
/// name.
ScheduleKind schedule_kind(std::string_view name);

/// Our name of the schedule: "gpipe"; "file" for an order from a file.
std::string_view to_string(ScheduleKind kind);

/// Compute actions only, no recompute and no communication: `lower` adds those.
/// Throws Error(Infeasible) naming the rule that the shape breaks ("naive: needs one micro-batch,
/// got 4").
Schedule generate(ScheduleKind kind,
                  const ScheduleShape& shape,
                  const GeneratorOptions& options = {});

/// The group size of interleaved-1f1b where `asked` is asked for; 0: the smallest that leaves no
/// group of fewer micro-batches than ranks, or all micro-batches where they are fewer.
int interleaved_group_size(const ScheduleShape& shape, int asked);

/// Throws Error(BadInput) if ranks, chunks or micro-batches are below 1 or above `largest_shape`,
/// or the schedule could have more than `largest_schedule` actions; called by every generator
/// before it allocates.
void check_shape(const ScheduleShape& shape);

}  // namespace pipetwin
