#include "gui/base/glossary.h"

#include <algorithm>
#include <array>

namespace pipetwin::gui {

std::span<const GlossaryEntry> glossary() {
    static constexpr std::array entries{
        GlossaryEntry{"stage", "a part of the model's layers, one after the other"},
        GlossaryEntry{"rank", "a device and what it does; it has one stage, or several chunks"},
        GlossaryEntry{"micro-batch",
                      "a part of the mini-batch that goes through the stages by itself"},
        GlossaryEntry{"step", "one mini-batch, up to the update of the weights"},
        GlossaryEntry{"pipeline",
                      "from the first forward to the last backward or message: the step without "
                      "sums of gradients and updates"},
        GlossaryEntry{
            "1F2",
            "the forward of micro-batch 2 on stage 1; B is a backward, I and W its two "
            "halves: the gradient of the input, then those of the weights; R is a forward "
            "computed again"},
        GlossaryEntry{"skip message",
                      "an output, or its gradient, that goes straight to a stage that is no "
                      "neighbour, past the stages between: 0SEND_F2>3"},
        GlossaryEntry{"wait", "from where a rank turns to an action until it has what it needs"},
        GlossaryEntry{"idle", "a rank does nothing: waits, and what lies between actions"},
        GlossaryEntry{"bubble.total",
                      "the share of all ranks' time in the pipeline that is not compute"},
        GlossaryEntry{"communication_wait",
                      "idle time that goes if every link is free and instant"},
        GlossaryEntry{
            "imbalance",
            "idle time that then goes if the stages are equally long: the others wait for "
            "the longest"},
        GlossaryEntry{"bubble",
                      "idle time that is left: the order of the schedule itself, filling and "
                      "emptying the pipeline"},
        GlossaryEntry{"reduction", "gradients summed over replicas or between stages"},
        GlossaryEntry{"optimizer", "updates of the weights, and norms of gradients"},
        GlossaryEntry{"overhead",
                      "what the actions do not explain: dispatching them, and time between them"},
        GlossaryEntry{"recompute",
                      "a forward done a second time, so that its results need not be kept"},
        GlossaryEntry{
            "critical path",
            "the actions and messages that the step's length consists of: shorten another "
            "and nothing changes"},
        GlossaryEntry{"slack", "by how much an action may last longer without a longer step"},
        GlossaryEntry{"MAPE", "mean of the absolute errors, in percent of what was measured"},
        GlossaryEntry{"replay",
                      "the simulator's step with the measured times of the actions: what is wrong "
                      "then is the model of waiting, not the costs"},
        GlossaryEntry{"emulated",
                      "measured, but on a device or links that only last as long as the plan says"},
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
