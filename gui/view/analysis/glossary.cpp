#include "gui/view/analysis/glossary.h"

#include <algorithm>
#include <array>

namespace pipetwin::gui {

std::span<const GlossaryEntry> glossary() {
    static constexpr std::array entries{
        GlossaryEntry{"stage", "a part of the model's layers that one rank computes"},
        GlossaryEntry{"chunk", "one of several stages on a rank; Megatron: virtual stage"},
        GlossaryEntry{"virtual stage", "Megatron's word for a chunk"},
        GlossaryEntry{
            "rank",
            "the device, or with tensor parallelism the group of devices, that computes one stage, "
            "or several chunks"},
        GlossaryEntry{"micro-batch",
                      "a part of the mini-batch that passes through the stages by itself"},
        GlossaryEntry{"step", "one mini-batch, up to the update of the weights"},
        GlossaryEntry{"pipeline",
                      "the time from the first forward to the last backward or message: the step "
                      "without reductions and updates"},
        GlossaryEntry{
            "1F2",
            "the forward of micro-batch 2 on stage 1. B is a backward, I and W are its halves: the "
            "gradient of the input and the gradients of the weights. R is a recompute"},
        GlossaryEntry{"forward", "computes the output of a stage from its input"},
        GlossaryEntry{"backward",
                      "computes the gradients of a stage's input and weights from the gradient of "
                      "its output"},
        GlossaryEntry{"input gradient", "the half of a backward that the stage before waits for"},
        GlossaryEntry{"weight gradient", "the half of a backward that no other stage waits for"},
        GlossaryEntry{"recompute",
                      "a forward that runs a second time before its backward, so that its results "
                      "need not be kept"},
        GlossaryEntry{"stash", "what a forward keeps in memory for its backward: the activations"},
        GlossaryEntry{"stashed",
                      "the largest number of stashes that a rank holds at once, one for each "
                      "forward whose backward is still to come"},
        GlossaryEntry{
            "skip message",
            "an output, or its gradient, that is sent to a stage that is no neighbour: 0SEND_F2>3"},
        GlossaryEntry{"busy", "the time in which a rank computes"},
        GlossaryEntry{
            "idle",
            "time in which a rank computes nothing: its waits, and the gaps between its actions"},
        GlossaryEntry{"bubble",
                      "the share of all ranks' time in the pipeline in which they are idle, "
                      "whatever the cause"},
        GlossaryEntry{"communication wait", "idle time that vanishes with free and instant links"},
        GlossaryEntry{
            "imbalance",
            "the further idle time that would vanish if all stages took equally long: the "
            "other ranks wait for the longest one"},
        GlossaryEntry{"fill and drain",
                      "the remaining idle time: the order of the schedule fills the pipeline at "
                      "the start of a step and drains it at its end"},
        GlossaryEntry{"reduction", "sums of gradients over replicas or between stages"},
        GlossaryEntry{"optimizer", "updates of the weights, and norms of gradients"},
        GlossaryEntry{"overhead",
                      "time that no action explains: dispatch of actions, and gaps between them"},
        GlossaryEntry{
            "wait",
            "the time from the moment a rank turns to an action until its inputs are there"},
        GlossaryEntry{
            "rank busy",
            "a cause of a wait: the rank that makes the input was busy with an action that "
            "comes earlier in its own order"},
        GlossaryEntry{"unexplained",
                      "the part of a measured wait that the replay does not reproduce"},
        GlossaryEntry{"critical path",
                      "the chain of actions and messages that determines the length of the step; a "
                      "shorter action elsewhere changes nothing"},
        GlossaryEntry{"slack", "the time by which an action may take longer without a longer step"},
        GlossaryEntry{"peak memory", "the most bytes that a rank holds at any time of a step"},
        GlossaryEntry{"time stolen by others",
                      "the share of the compute time in which a rank's thread had no processor "
                      "core, because something else used it"},
        GlossaryEntry{"p90 / p10",
                      "the time that 90 % of the steps do not exceed, divided by the time that "
                      "10 % do not exceed. 1: all steps take the same time"},
        GlossaryEntry{"quiet step",
                      "a step that nothing disturbed: its threads had their cores, and it took at "
                      "most 5 % longer than the fastest steps. Only quiet steps are compared"},
        GlossaryEntry{"MAPE", "mean absolute error in percent of the measured time"},
        GlossaryEntry{"replay",
                      "the simulated step with the measured durations; its remaining error comes "
                      "from the model of waiting, not from the costs"},
        GlossaryEntry{"emulated",
                      "measured on devices or links that take exactly the planned time"},
        GlossaryEntry{"twin", "the same action on the other side, predicted or measured"},
    };
    return entries;
}

std::string_view meaning_of(std::string_view word) {
    const std::span<const GlossaryEntry> all = glossary();
    const auto found = std::ranges::find(all, word, &GlossaryEntry::word);
    return found == all.end() ? std::string_view() : found->meaning;
}

}  // namespace pipetwin::gui
