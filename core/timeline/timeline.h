// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/schedule/action.h"

namespace pipetwin {

/// Source of a timeline: the simulator, the executor, or the executor with paced devices.
enum class Origin { Predicted, Measured, Emulated };

/// The word in files: "predicted", "measured" or "emulated".
std::string_view to_string(Origin origin);

/// When each kind of span begins and ends - the same words for the simulator and the executor.
/// `begin`: the rank turns to the action. `ready`, and then `end`:
///
/// - F B I W R: ready = begin, but where a stash has to come back from host memory: it is there;
///   the result is complete.
/// - SEND: the channel took the message (waits only at full capacity); the rank may go on.
/// - RECV: the message has arrived, or begin if it was there before; the rank owns the message.
/// - REDUCE_GRAD: ready = begin; the gradients have set out.
/// - NORM: the gradients that another stage adds have come, where one does; the sums are known.
/// - OPT: the same, and where there are NORMs all of them are done; the weights are new.
///
/// Wait = ready - begin. Transfer = end - ready. Idle time is never stored: it is what lies between
/// spans, plus the waits. Sends and receives are not compute. A row's spans do not overlap and
/// follow each other.
struct Span {
    Action action;
    Duration begin{};  ///< since the start of the step
    Duration ready{};
    Duration end{};

    bool operator==(const Span&) const = default;
};

/// When every rank did what, in one step: ranks[r][i] is the span of schedule.ranks[r][i].
struct Timeline {
    Origin origin = Origin::Predicted;
    std::vector<std::vector<Span>> ranks;

    /// The link's own time, a row per boundary and direction that carries messages: [2*b] forward
    /// over boundary b, [2*b + 1] backward. Action is the send. Predicted timelines only; else
    /// empty.
    std::vector<std::vector<Span>> links;

    /// Copies of stashes between a rank and its host memory (core/plan/offload.h), in the order of
    /// their beginnings: [2*r] out, where the action is the F that made it, [2*r + 1] in, where it
    /// is the one that needs it. `ready`: the last byte is on the link, which is free for the next;
    /// `end`: the copy is complete. Predicted timelines of plans that offload only; else empty.
    std::vector<std::vector<Span>> host_copies;

    /// [rank][cell]: part of end - ready that an action passes in messages of the groups that
    /// divide its layers (tensor parallelism, ZeRO-2 and ZeRO-3). Empty: there are no such groups,
    /// or nothing is known of them.
    std::vector<std::vector<Duration>> in_groups{};

    /// [replica - 1][rank]: rows of the plan's other replicas, alike. Measured timelines only; what
    /// is said of a timeline is said of the first replica.
    std::vector<std::vector<std::vector<Span>>> replicas;

    bool operator==(const Timeline&) const = default;

    /// The row at `place` = replica * ranks + rank: rows of all replicas, one replica after the
    /// other.
    std::vector<Span>& row_at(std::size_t place) {
        return place < ranks.size() ? ranks[place]
                                    : replicas[place / ranks.size() - 1][place % ranks.size()];
    }
    const std::vector<Span>& row_at(std::size_t place) const {
        return const_cast<Timeline*>(this)->row_at(place);
    }
    std::size_t row_count() const { return (1 + replicas.size()) * ranks.size(); }
};

/// Pipeline time: from the first begin to the last end over all F, B, I, W, R and their sends and
/// receives.
Duration pipeline_time(const Timeline& timeline);

/// Step time: the same with gradient reduction and optimizer.
Duration step_time(const Timeline& timeline);

/// Writes `in_groups` of one cell, and 0 for all that are not known yet.
void note_in_groups(Timeline& timeline, std::size_t rank, std::size_t cell, Duration time);

/// Moves every span so that the first begin of the step, of all replicas, is 0.
Timeline aligned(Timeline timeline);

}  // namespace pipetwin
