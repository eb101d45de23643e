// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/base/console.h"
#include "cli/text/json_output.h"
#include "core/timeline/compare.h"
#include "exec/training/trainer.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::sim {

struct Explanation;
struct Prediction;

}  // namespace pipetwin::sim

/// Results for people: what the JSON holds, as text.
namespace pipetwin::cli {

/// Rows of equal length with aligned columns, the first to the left, the others to the right; the
/// first row is the head. Every line is indented by two, and cells are made `printable`.
std::string text_table(const std::vector<std::vector<std::string>>& cells);

/// The timeline as rows of letters that fit into lines of `width` characters, with lines that say
/// what they mean. Columns are whole units of time where the timeline has a unit and fits.
std::string timeline_text(const Timeline& timeline, int width);

/// "4 stages"; with several on a rank "4 ranks with 2 stages each".
std::string stages_text(int ranks, int chunks);

/// "15.79 %".
std::string percent_text(double share);

/// The axes along which devices share layers, samples and experts: "tensor, expert parallelism".
std::string inner_parallelism(const Plan& plan);

/// A field of CSV, in quotes where it needs them.
std::string csv_field(const std::string& text);

/// The error of a prediction: "+1.25 %".
std::string error_text(double percent);

/// A row of a table that compares a time: its name, predicted, measured, error.
std::vector<std::string> pair_row(std::string name, const Pair& pair);

/// Rows of the parts of a step, means over the ranks: names, predicted, measured, error. Where a
/// side does not know its parts, rows of the kinds of action, summed over the ranks.
std::vector<std::vector<std::string>> part_rows(const Comparison& comparison);

/// A prediction as `simulate` prints it.
std::string prediction_text(const sim::Prediction& prediction, const Console& console);

/// Sentences about where the time goes and what would help; with --verbose the longest waits, too.
std::string explanation_text(const Plan& plan,
                             const sim::Explanation& explanation,
                             const Console& console);

/// One line per step.
std::string step_text(const exec::StepReport& step);

/// Why a model with experts has no range of the measured step.
inline constexpr std::string_view no_runs_with_experts =
    "none of the compared published runs has experts";

/// A comparison as `compare` prints it. `expected` as for `comparison_json`.
std::string comparison_text(const Comparison& comparison,
                            const Console& console,
                            const std::optional<ErrorRange>& expected = {});

}  // namespace pipetwin::cli
