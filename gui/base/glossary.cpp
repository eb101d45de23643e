#include "gui/base/glossary.h"

#include <algorithm>
#include <array>

namespace pipetwin::gui {

std::span<const GlossaryEntry> glossary() {
    static constexpr std::array entries{
        GlossaryEntry{"stage", "a part of the model's layers that one rank computes"},
        GlossaryEntry{"rank", "a device of a pipeline; it computes one stage, or several chunks"},
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
        GlossaryEntry{
            "skip message",
            "an output, or its gradient, that is sent to a stage that is no neighbour: 0SEND_F2>3"},
        GlossaryEntry{
            "wait",
            "the time from the moment a rank turns to an action until its inputs are there"},
        GlossaryEntry{
            "idle",
            "time in which a rank computes nothing: its waits, and the gaps between its actions"},
        GlossaryEntry{"bubble.total",
                      "the share of all ranks' time in the pipeline that is not compute"},
        GlossaryEntry{"communication_wait", "idle time that vanishes with free and instant links"},
        GlossaryEntry{"imbalance",
                      "further idle time that vanishes with equally long stages: the other ranks "
                      "wait for the longest one"},
        GlossaryEntry{"bubble",
                      "the remaining idle time: the schedule fills and drains the pipeline"},
        GlossaryEntry{"reduction", "sums of gradients over replicas or between stages"},
        GlossaryEntry{"optimizer", "updates of the weights, and norms of gradients"},
        GlossaryEntry{"overhead",
                      "time that no action explains: dispatch of actions, and gaps between them"},
        GlossaryEntry{"recompute",
                      "a forward that runs a second time before its backward, so that its results "
                      "need not be kept"},
        GlossaryEntry{"critical path",
                      "the chain of actions and messages that determines the length of the step; a "
                      "shorter action elsewhere changes nothing"},
        GlossaryEntry{"slack", "the time by which an action may take longer without a longer step"},
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
