// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gui/view/run/run_data.h"

/// Texts of the window: numbers to words, without a widget.
namespace pipetwin::gui {

/// A line of a table: a quantity on both sides. Texts that do not apply are empty.
struct DetailLine {
    std::string name;
    std::string predicted;
    std::string measured;
    std::string error;  ///< (predicted - measured) / measured, or a difference of times
};

/// Texts about one action on both sides.
struct ActionDetails {
    std::string title;  ///< "1F2"
    /// "forward, rank 1, stage 1, micro-batch 2"; a skip message: "..., to stage 3, past 2 stages".
    std::string subtitle;
    std::vector<DetailLine> lines;
    std::string note;  ///< the rank that a message comes from, or the number of steps measured
};

/// Texts about the action that `ref` points to, on both sides; empty if it points nowhere.
ActionDetails details_of(const RunData& run, const SpanRef& ref);

/// One sentence for the tooltip and for screen readers: "1F2, forward, rank 1, measured: 1.200 ms
/// at 3.400 ms".
std::string sentence_of(const RunData& run, const SpanRef& ref);

/// Lines about a step: step time, pipeline time and the share of the bubble.
std::vector<DetailLine> step_lines(const RunData& run, int step);

/// The bubble of a side: that of the comparison, or of its step nearest the median where there is
/// nothing to compare; none where the side is missing.
std::optional<double> bubble_of(const RunData& run, Side side);

/// Peak memory of the fullest rank: counted in the run where it was, else predicted; none where no
/// file says it.
std::optional<Bytes> peak_of(const RunData& run);

/// " (110 to 150 ms)": where a measured step is to be expected, for a run that was
/// predicted from estimated costs; "" for every other run.
std::string expected_range(const RunData& run);

/// Lines about the whole run: the medians of step time, pipeline time and bubble; empty where there
/// is one step, or nothing to compare.
std::vector<DetailLine> run_lines(const RunData& run);

/// A line per compute op of a step: the sum over ranks, without the dispatch where a plan says it,
/// as in the breakdown. Empty for a step that is missing.
std::vector<DetailLine> op_lines(const RunData& run, int step);

/// What the lines of `op_lines` are.
std::string op_heading(const RunData& run);

/// Says that durations are compared without `compared_dispatch`; "" where that is zero.
std::string dispatch_note(const RunData& run);

/// Which steps the trace of a run has: "3 steps", "31 of the 105 quiet steps of a run of 200".
std::string steps_words(const RunData& run);

/// Lines about where the time of the main step went, in the words of the command line. Empty where
/// neither side knows.
std::vector<DetailLine> breakdown_lines(const RunData& run);

/// "gpipe, 4 ranks of 8 devices, 8 micro-batches, 2 replicas".
std::string plan_line(const RunData& run);

/// "+2.8 %"; "" if it is not finite.
std::string percent_text(double percent);

/// "+0.1 points", of shares in percent.
std::string points_text(double points);

}  // namespace pipetwin::gui
