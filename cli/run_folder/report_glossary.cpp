#include "cli/run_folder/report_glossary.h"

#include <array>

#include <fmt/format.h>

#include "cli/run_folder/page.h"

namespace pipetwin::cli {

namespace {

struct Entry {
    std::string_view word;
    std::string_view meaning;
};

/// In the order in which a reader needs them. A page uses a word if it has the part of it before
/// the brackets.
constexpr std::array entries{
    Entry{
        "step",
        "One pass of a mini-batch: forward, backward and the update of the weights. The step time "
        "is its duration."},
    Entry{"stage", "A part of the model's layers that one rank computes."},
    Entry{"rank", "One device of the pipeline, with one stage or several."},
    Entry{
        "micro-batch",
        "A slice of the mini-batch. Micro-batches pass through the stages one behind the other, so "
        "that several ranks work at once."},
    Entry{"forward", "Computes the output of a stage from its input; F0 is that of micro-batch 0."},
    Entry{"backward",
          "Computes the gradients of a stage's input and weights from the gradient of its output; "
          "B0 is that of micro-batch 0."},
    Entry{"backward_input (input gradient)",
          "The half of a backward that the stage before waits for (I)."},
    Entry{"backward_weight (weight gradient)",
          "The half of a backward that no other stage waits for (W)."},
    Entry{"recompute",
          "A forward that is computed a second time just before its backward (R), so that its "
          "results need not stay in memory."},
    Entry{"stash", "What a forward keeps in memory for its backward."},
    Entry{"pipeline",
          "The time from the first forward to the end of the last backward: the step without sums "
          "of gradients over replicas and without the update."},
    Entry{"bubble",
          "Idle time that follows from the order of the schedule: the pipeline fills at the start "
          "of a step and drains at its end. 'Bubble (total)' is the share of all ranks' time in "
          "the pipeline in which they do not compute, whatever the cause."},
    Entry{"imbalance",
          "Idle time because stages take different time: the others wait for the slowest."},
    Entry{"communication_wait", "Idle time while messages are on their way between ranks."},
    Entry{"reduction", "The sum of gradients over replicas, or over stages that share weights."},
    Entry{"optimizer", "The update of the weights, with the norm of the gradients."},
    Entry{"overhead", "Time for starting actions, and gaps between them."},
    Entry{"live micro-batches",
          "The largest number of forwards whose stash a rank holds at the same time."},
    Entry{"peak memory", "The most bytes that a rank holds at any time of a step."},
    Entry{"time stolen by others",
          "The share of the compute time in which a rank's thread had no processor core, because "
          "other programs used it."},
    Entry{"p90 / p10",
          "The time that 90 % of the steps do not exceed, divided by the time that 10 % do not "
          "exceed. 1 means that all steps take the same time."},
    Entry{
        "quiet",
        "A step is quiet if nothing disturbed it: its threads had their cores, and it took at most "
        "5 % longer than the fastest steps. Only quiet steps are compared."},
    Entry{"replay of the measured durations",
          "A simulation that takes the measured duration of every action. Its error is that of the "
          "simulator alone, without the error of the costs."},
    Entry{"emulated",
          "Measured on a device, or on links, that only wait as long as the plan says."},
};

/// Lower-case letters of the Latin alphabet, which all words here consist of.
std::string lower(std::string_view text) {
    std::string result(text);
    for (char& letter : result) {
        letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    }
    return result;
}

}  // namespace

std::string report_glossary(std::string_view page) {
    const std::string used = lower(page);
    std::string html = "<dl>\n";
    for (const Entry& entry : entries) {
        if (used.find(entry.word.substr(0, entry.word.find(" ("))) != std::string::npos) {
            html += fmt::format(
                "<div><dt>{}</dt><dd>{}</dd></div>\n", entry.word, html_escaped(entry.meaning));
        }
    }
    return html_section("Glossary", html + "</dl>\n");
}

}  // namespace pipetwin::cli
