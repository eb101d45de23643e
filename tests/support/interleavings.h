// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/schedule/queues.h"
#include "core/schedule/schedule.h"

namespace pipetwin::testing {

/// The oracle of `validate` and `find_deadlock`: carries out a schedule with communication in every
/// order in which its ranks can take turns.
///
/// It has no rules. Each rank holds tensors, each channel a queue of messages that carry their
/// micro-batch and their stages. An action takes what it needs and leaves what it makes, once: F
/// takes the stage's input and leaves a stash (the bare input, where the row has an R), the output
/// and, on the last stage, the gradient that the loss gives; R turns that input into a stash; B and
/// I take a stash and the gradient of the output; W takes what I left; a SEND takes what it sends;
/// a RECV takes the head of its queue, if that is the message which it names; an OPT of a stage
/// that shares its weights waits until the other pipeline's REDUCE_GRAD is done. What finds nothing
/// to take never happens.
///
/// True if every order comes to the end of every row, each micro-batch has then been through each
/// piece of the model exactly once, and all queues are empty. Without any B, I or W nothing is
/// stashed and going forward is all that is asked for.
/// With a queue for each pair of ranks the schedule must have no skips.
bool every_interleaving_completes(const Schedule& schedule,
                                  int capacity,
                                  MessageQueues queues = MessageQueues::PerStages);

/// Whether every order comes to the end of every row if only channels can hold a rank up: every
/// action has what it needs, and every message is the right one.
bool no_interleaving_blocks(const Schedule& schedule, int capacity);

}  // namespace pipetwin::testing
