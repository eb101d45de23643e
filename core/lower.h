#pragma once

#include <optional>
#include <string_view>

#include "core/schedule.h"

/// Passes from Schedule to Schedule. A generator writes compute actions only; these add the rest,
/// so every schedule gets the same rules.
namespace pipetwin {

enum class Recompute { None, Always, ExceptLast };
enum class RecomputeTiming {
    Eager,  ///< R before the gradient is received: it may run while the gradient is still on its
            ///< way
    Lazy,   ///< R after the gradient was received
};

std::string_view to_string(Recompute recompute);
std::string_view to_string(RecomputeTiming timing);

/// Whether the mode recomputes this micro-batch (C18): `ExceptLast` leaves out micro_batches - 1.
bool recomputes(Recompute recompute, int micro_batch, int micro_batches);

/// The mode that a schedule's recomputes follow; none if they follow no mode.
std::optional<Recompute> recompute_of(const Schedule& schedule);

/// Whether stages `boundary` and `boundary` + 1 exist and live on two ranks, so that tensors travel
/// between them.
bool exchanges(const Schedule& schedule, int boundary);

/// True if the schedule has any send or receive.
bool has_communication(const Schedule& schedule);

/// Puts R directly before each B (or I). `ExceptLast` leaves out the last micro-batch,
/// micro_batches - 1, on every stage.
Schedule add_recompute(Schedule schedule, Recompute recompute);

/// Adds SEND directly after the action that makes a boundary and RECV directly before the action
/// that needs it - with `Eager`, RECV_B stands between R and B; with `Lazy` before R. Stages on one
/// rank exchange nothing.
Schedule add_communication(Schedule schedule, RecomputeTiming timing);

/// Puts REDUCE_GRAD behind the last backward of every stage whose weights another pipeline has,
/// too. It hands this stage's gradients over to its twin; the twin's OPT waits for them.
Schedule add_reduction(Schedule schedule);

/// Appends OPT for each stage of a rank, ascending, at the end of its row.
Schedule add_optimizer(Schedule schedule);

/// The reverse of all three: F, B, I and W only.
Schedule compute_only(Schedule schedule);

}  // namespace pipetwin
