// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "core/schedule/queues.h"
#include "core/schedule/recompute.h"
#include "core/schedule/schedule.h"

/// Passes from Schedule to Schedule. A generator writes compute actions only; these add the rest,
/// so every schedule gets the same rules.
namespace pipetwin {

/// Order of the sends and receives that `add_communication` puts into the rows.
enum class MessageOrder {
    AsScheduled,     ///< each receive right before, each send right after its action
    LowerRankFirst,  ///< where messages cross, the lower rank receives before it sends
};

/// The word in scenarios and output.
std::string_view to_string(MessageOrder order);

/// The modes that a schedule's recomputes follow, piece by piece; none if those of a piece follow
/// no mode.
std::optional<RecomputeRules> recompute_of(const Schedule& schedule);

/// Whether stages `boundary` and `boundary` + 1 exist and live on two ranks, so that tensors travel
/// between them.
bool exchanges(const Schedule& schedule, int boundary);

/// True if the schedule has any send or receive.
bool has_communication(const Schedule& schedule);

/// Puts R directly before each B (or I) of the stages whose piece of the model is recomputed.
/// `ExceptLast` leaves out the last micro-batch, micro_batches - 1.
Schedule add_recompute(Schedule schedule, const RecomputeRules& recompute);

/// Adds SEND directly after the action that makes a boundary and RECV directly before the action
/// that needs it - with `Eager`, RECV_B stands between R and B; with `Lazy` before R. Stages on one
/// rank exchange nothing. Messages of the schedule's skips stand behind those of neighbours, the
/// shortest way first.
Schedule add_communication(Schedule schedule, RecomputeTiming timing);

/// Puts REDUCE_GRAD behind the last backward of every stage whose weights, or some of them, another
/// stage has, too: it hands its gradients of them over; the other's NORM or OPT waits for them.
/// With `replicas` of the whole pipeline every stage has one: it sums the gradients over them.
/// Stages that have one already get no other.
Schedule add_reduction(Schedule schedule, bool replicas = false);

/// Appends OPT for each stage of a rank, ascending, at the end of its row; nothing to a schedule
/// without any backward, which has no gradients. With `norms`, NORM of each of the rank's stages
/// goes before: an OPT then waits for all NORMs of all ranks, and no NORM for any OPT.
Schedule add_optimizer(Schedule schedule, bool norms = false);

/// Where two neighbours each send and then receive, and neither would go on before the other has
/// taken its message, the lower rank receives first:
///
///     rank 0   ... SEND_F2 RECV_B0 ...        rank 0   ... RECV_B0 SEND_F2 ...
///     rank 1   ... SEND_B0 RECV_F2 ...        rank 1   ... SEND_B0 RECV_F2 ...
///
/// 1f1b then works without any room in its channels. A pair of actions that crosses no such pair is
/// left as it is: swapping every one would only move the deadlock.
Schedule lower_rank_receives_first(Schedule schedule);

/// True if a rank computes the two halves of a backward, I and W, as actions of their own.
bool splits_backward(const Schedule& schedule);

/// Every B becomes I and, directly behind it, W. An overlapped pair stays one.
Schedule split_backward(Schedule schedule);

/// The reverse of recompute, communication, reduction and optimizer: F, B, I and W only.
Schedule compute_only(Schedule schedule);

/// Options of `lower`: what it adds to the compute actions.
struct Lowering {
    RecomputeRules recompute;
    RecomputeTiming timing = RecomputeTiming::Eager;
    MessageOrder messages = MessageOrder::AsScheduled;
    MessageQueues queues = MessageQueues::PerStages;  ///< PerRanks: decides the order of messages
    bool updates = false;                             ///< reductions, NORM and OPT
    bool replicas = false;  ///< every stage reduces its gradients, with a twin or without
    bool norms = false;     ///< updates need the norm of all gradients
};

/// Everything that a valid schedule lacks before it can run. Recomputes, communication and updates
/// that its rows have already stand as they are; nothing is recomputed or updated without a
/// backward. Throws Error(Infeasible) at `place` if the rows recompute some micro-batches of a
/// stage and not others, or not those that `recompute` names.
Schedule lower(Schedule schedule, const Lowering& how, std::string_view place);

}  // namespace pipetwin
