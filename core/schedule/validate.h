// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/schedule/queues.h"
#include "core/schedule/schedule.h"

namespace pipetwin {

/// One broken rule at one place. `cell` is the position in the rank's row; -1 where no cell is to
/// blame (an action that is missing), and `rank` is -1 where no rank is.
struct Violation {
    int rank = 0;
    int cell = -1;
    std::string action;    ///< "1B3"
    std::string why;       ///< a sentence: what is wrong and what was expected
    int second_cell = -1;  ///< of the same action, where a row has it twice
    std::string mend{};    ///< what to do, "give stage 1 to a rank"; empty: correct the action

    bool operator==(const Violation&) const = default;
};

/// All broken rules at once, by rank and cell; empty for a valid schedule. What is broken because
/// an action was written in the place of another one (core/schedule/slips.h) is one violation.
/// Checks, each a function: stages and micro-batches in range; every stage on the rank that the row
/// says; completeness (one F and one B, or one F, I and W, per stage and micro-batch; at most one
/// R, between F and B; R, REDUCE_GRAD, NORM and OPT only where there is a backward); order inside a
/// stage; receives before use and sends after production; k-th send of a queue matches its k-th
/// receive. A compute-only schedule (no SEND or RECV at all) is checked without the communication
/// rules. Never throws for what it finds.
std::vector<Violation> validate(const Schedule& schedule,
                                MessageQueues queues = MessageQueues::PerStages);

/// Whether a lowered schedule runs to its end with FIFO channels of this capacity. Capacity 0: a
/// send waits for its receive; none: no send waits.
struct DeadlockReport {
    bool deadlock_free = true;
    std::vector<Violation> waiting;  ///< actions that wait on each other, in the cycle's order
};

/// One symbolic run, O(actions): ranks are sequential, channels FIFO with one producer and one
/// consumer, so the answer does not depend on timing.
DeadlockReport find_deadlock(const Schedule& schedule,
                             std::optional<int> capacity,
                             MessageQueues queues = MessageQueues::PerStages);

/// Deadlock check for rendezvous channels (capacity 0) whose ranks post all receives before their
/// first action, in the order of their rows, as ranks in processes of their own do
/// (exec/transport): a message leaves as soon as its receive is posted and the messages before it
/// have left. NCCL promises this for a pair of GPUs with a communicator for each direction and no
/// groups.
DeadlockReport find_deadlock_with_preposted_receives(
    const Schedule& schedule, MessageQueues queues = MessageQueues::PerStages);

/// The smallest capacity at which the schedule does not deadlock; -1 if none does.
int smallest_capacity(const Schedule& schedule, MessageQueues queues = MessageQueues::PerStages);

/// Number of violations that a text lists by default.
constexpr std::size_t violations_shown = 20;

/// "rank 1, cell 4: 1B3 comes twice"; without the place where no rank is to blame.
std::string line_of(const Violation& violation);

/// Adds to each violation of `rows` the cell of the file that it belongs to ("; 1F0 is file cell
/// 1"): `written` are the file's rows, and `rows` the same with messages. A receive comes just
/// before the action that needs it, a send just after the one that makes its tensor. Does nothing
/// where the file has messages of its own.
void name_cells_of_file(const Schedule& written,
                        const Schedule& rows,
                        std::vector<Violation>& violations);

/// The grid of the schedule, with an arrow at every violation, then one line for each. Of many rows
/// the first are shown, of the violations the first `most`, and the rest is counted. `written`: the
/// rows of the file that the schedule comes from, where there is one; then two lines say what its
/// ranks and cells are.
std::string explain(const Schedule& schedule,
                    const std::vector<Violation>& violations,
                    std::size_t most = violations_shown,
                    const Schedule* written = nullptr);

/// What to correct, of some violations.
std::string hint_for(const std::vector<Violation>& violations);

/// Throws Error(Infeasible) with `explain` if `validate` finds anything. `place` names the
/// schedule; `written` as for `explain`.
void require_valid(const Schedule& schedule,
                   std::string_view place,
                   std::size_t most = violations_shown,
                   const Schedule* written = nullptr,
                   MessageQueues queues = MessageQueues::PerStages);

/// Throws Error(Infeasible) with the actions that wait on each other and the smallest capacity that
/// works. Without a capacity channels are unbounded. `written` as for `explain`.
void require_deadlock_free(const Schedule& schedule,
                           std::optional<int> capacity,
                           std::string_view place,
                           const Schedule* written = nullptr,
                           MessageQueues queues = MessageQueues::PerStages);

}  // namespace pipetwin
