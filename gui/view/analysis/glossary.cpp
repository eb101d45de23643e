// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/glossary.h"

#include <algorithm>
#include <array>

namespace pipetwin::gui {

std::span<const GlossaryEntry> glossary() {
    static constexpr std::array entries{
        GlossaryEntry{"stage", "consecutive layers of the model that one rank computes"},
        GlossaryEntry{"chunk",
                      "one of several stages on the same rank. Megatron calls it a virtual stage"},
        GlossaryEntry{"virtual stage",
                      "Megatron's word for a chunk: one of several stages on the same rank"},
        GlossaryEntry{"rank",
                      "the device that computes one stage or several chunks. With tensor "
                      "parallelism a rank is a group of devices. The option --stages and the key "
                      "pipeline.stages are the number of ranks: with 2 chunks per rank, the model "
                      "is cut into twice as many stages. Each replica has its own ranks; "
                      "launch --ranks counts the devices of all ranks and replicas"},
        GlossaryEntry{"shape",
                      "how a plan uses the devices: the numbers of ranks, of replicas, and of "
                      "devices per rank. "
                      "8x2x4 has 8 ranks, 2 replicas, and 4 devices for each rank"},
        GlossaryEntry{"micro-batch",
                      "a part of the mini-batch. It passes through the stages by itself"},
        GlossaryEntry{
            "step",
            "the work on one mini-batch, from the first forward to the update of the weights"},
        GlossaryEntry{
            "pipeline",
            "the part of a step from the first forward to the last backward or message. Sums of "
            "gradients over replicas, and the update of the weights, are not part of it"},
        GlossaryEntry{
            "1F2",
            "the forward of micro-batch 2 on stage 1. In place of F, B is a backward, I and W are "
            "its halves (gradient of the input, gradients of the weights), and R is a recompute"},
        GlossaryEntry{"forward", "computes the output of a stage from its input"},
        GlossaryEntry{"backward",
                      "computes the gradients of a stage's input and weights from the gradient of "
                      "its output"},
        GlossaryEntry{"input gradient",
                      "the half of a backward whose result the previous stage waits for"},
        GlossaryEntry{"weight gradient",
                      "the half of a backward whose result no other stage waits for"},
        GlossaryEntry{"recompute",
                      "a forward that runs again just before its backward, so that its activations "
                      "need not be kept until then"},
        GlossaryEntry{"stash", "the activations that a forward keeps in memory for its backward"},
        GlossaryEntry{"stashed",
                      "the largest number of stashes that a rank holds at once. Each forward makes "
                      "a stash, and its backward frees it; if the backward is in two parts, the "
                      "weight gradient frees it. In tables that compare schedules, a stash counts "
                      "as 1/V if each rank has V chunks: 11 stashes with 2 chunks are 5.5, and 23 "
                      "with 5 chunks are 4.6"},
        GlossaryEntry{"boundary",
                      "the output of a stage that the next stage reads. In tables of memory: the "
                      "messages with such outputs, and with their gradients, that a rank holds"},
        GlossaryEntry{"workspace", "the memory that a layer needs only while it computes"},
        GlossaryEntry{"context",
                      "the memory that the runtime of a device takes even without a model, and the "
                      "buffers for messages between devices"},
        GlossaryEntry{"skip message",
                      "a message to or from a stage that is not a neighbour. 0SEND_F2>3 sends the "
                      "output of stage 0 for micro-batch 2 to stage 3"},
        GlossaryEntry{"busy",
                      "the time in which a rank computes. In tables it includes the overhead "
                      "between its actions"},
        GlossaryEntry{"idle",
                      "the time in which a rank is not busy: it waits for a message or for "
                      "other ranks, or it has nothing more to do"},
        GlossaryEntry{"bubble",
                      "the share of rank time that is idle, for any reason, between the first "
                      "forward and the last backward or message. Overhead counts as work"},
        GlossaryEntry{"communication wait",
                      "the idle time that would vanish if messages took no time"},
        GlossaryEntry{
            "imbalance",
            "idle time that comes from unequal stages: the other ranks wait for the slowest one. "
            "It is the time that equal stages would save in a step whose messages already take no "
            "time"},
        GlossaryEntry{"fill and drain",
                      "idle time that would remain with equal stages and instant messages: the "
                      "pipeline fills at the start of a step and drains at its end"},
        GlossaryEntry{"reduction",
                      "sums of gradients over replicas, or over stages that share weights"},
        GlossaryEntry{"optimizer", "updates of the weights, and norms of gradients"},
        GlossaryEntry{"overhead",
                      "time between actions in which a rank neither computes nor waits, such as "
                      "the dispatch of the next action"},
        GlossaryEntry{"wait",
                      "the time from the moment a rank reaches an action until the inputs of that "
                      "action have arrived"},
        GlossaryEntry{"rank busy",
                      "a cause of a wait: the rank that makes the input was busy with an action "
                      "that comes earlier in its own order"},
        GlossaryEntry{"unexplained",
                      "the part of a measured wait that does not occur when the step is simulated "
                      "with its measured durations"},
        GlossaryEntry{"critical path",
                      "the chain of actions and messages that determines the length of the step. A "
                      "shorter action elsewhere changes nothing"},
        GlossaryEntry{"slack",
                      "the time by which an action can become longer before the step does"},
        GlossaryEntry{"peak memory", "the most bytes that a rank holds at any time of a step"},
        GlossaryEntry{"time stolen by others",
                      "the share of the compute time in which a rank's thread had no processor "
                      "core, because another program or thread used it"},
        GlossaryEntry{"p90 / p10",
                      "90 % of the steps take at most p90, and 10 % take at most p10. The quotient "
                      "is 1 if all steps take the same time"},
        GlossaryEntry{
            "quiet step",
            "a step that nothing disturbed: its threads had their cores, and it took at "
            "most 5 % longer than the fastest steps. Only quiet steps are compared. If too "
            "few steps were quiet, the errors say nothing about the prediction; if none was, "
            "one other step is shown"},
        GlossaryEntry{"MAPE",
                      "mean absolute percentage error: the mean of the errors without their signs, "
                      "in percent of the measured time"},
        GlossaryEntry{"replay",
                      "a simulation of a measured step with its measured durations in place of "
                      "predicted costs. Its remaining error comes from the way waits are modelled"},
        GlossaryEntry{"emulated",
                      "measured on devices or links that were slowed down to take the "
                      "planned time. On a machine with too few free cores they may take longer"},
        GlossaryEntry{"twin",
                      "the same action in the other timeline: the measured one of a predicted "
                      "action, or the predicted one of a measured action"},
    };
    return entries;
}

std::string_view meaning_of(std::string_view word) {
    const std::span<const GlossaryEntry> all = glossary();
    const auto found = std::ranges::find(all, word, &GlossaryEntry::word);
    return found == all.end() ? std::string_view() : found->meaning;
}

}  // namespace pipetwin::gui
