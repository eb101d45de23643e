// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/interop/traces/torch_trace.h"

namespace pipetwin {

/// What a rank did in one step of the training loop.
struct RankStep {
    std::optional<int> number;        ///< of its ProfilerStep; none: the trace has no marks
    std::vector<Span> row;            ///< in order; messages are not in it
    std::map<Action, Span> messages;  ///< SEND and RECV, as they were pending
};

/// Cuts the spans of a trace into steps: by the marks ProfilerStep#5 where there are any, else
/// where an action comes again. What stands before the first forward, or in no marked step, belongs
/// to a step that was not recorded whole and is left out; `problems` says so.
std::vector<RankStep> rank_steps(const TorchTrace& trace,
                                 int rank,
                                 std::vector<std::string>& problems);

/// Leaves only the steps that all ranks have, where all that have steps number them.
void keep_common_steps(std::vector<std::vector<RankStep>>& ranks,
                       std::vector<std::string>& problems);

/// The compute action that makes or uses a message: F of SEND_F and RECV_F; B or I of SEND_B and
/// RECV_B, as `backward` says.
Action partner_of(const Action& message, Op backward);

/// The row with each receive before the action that uses it and each send behind the action that
/// made it. A message takes the time from when the rank has nothing else to do until it is there,
/// so one that was pending while the rank computed takes none.
std::vector<Span> with_messages(const RankStep& step);

/// Shortens messages of a row so that its spans follow each other: no message begins before the
/// action in front of it ends, or ends after the one behind it begins.
void make_room_for_compute(std::vector<Span>& row);

}  // namespace pipetwin
