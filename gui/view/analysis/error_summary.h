// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gui/view/run/run_data.h"
#include "gui/view/timeline/range_filter.h"

/// Errors of the predicted durations.
namespace pipetwin::gui {

/// Numbers of errors: `counts.size()` bins of `bin_percent` each, as many below 0 as above; what
/// lies outside is in the outermost.
struct ErrorHistogram {
    double bin_percent = 1;
    std::vector<std::int64_t> counts;
    std::int64_t outside = 0;  ///< number of errors beyond the outermost bins
};

/// The errors of one cost: of all actions of a kind on a stage, in all steps. Durations are from
/// ready to end, without waits. An error is 100 (predicted - measured) / measured.
struct CostError {
    Op op{};
    int stage = 0;
    std::int64_t count = 0;
    Duration predicted{};      ///< median
    Duration measured{};       ///< median
    Duration per_step{};       ///< predicted - measured of all its actions, mean over the steps
    double error_percent = 0;  ///< of the medians
    /// The fewest actions that cause half of `per_step`, where most of it comes from actions other
    /// than the median one; else 0.
    std::int64_t outliers = 0;
    Duration outlier_time{};  ///< the part of `per_step` that comes from them
    std::string outlier;      ///< name of the one that is furthest off
    double p95_percent = 0;   ///< 95 % of the errors are no further from 0
    double mape = 0;          ///< mean of the errors without their signs
    SpanRef worst;            ///< the action that was furthest off, in time
    ErrorHistogram histogram;
};

/// The error of one action.
struct ActionError {
    SpanRef ref;  ///< on the measured side
    Action action;
    Pair duration;
};

/// Errors of all actions, by cost, and the largest of them.
struct ErrorSummary {
    std::vector<CostError> costs;    ///< the one that distorts the step most first
    std::vector<ActionError> worst;  ///< furthest off, in time, first; at most `most_worst`
    ErrorHistogram histogram;
    int steps = 0;
    std::string measured = "measured";  ///< or "emulated": what that side is called
    std::vector<std::string> notes{};   ///< what a reader of the errors has to know, in sentences
    std::int64_t left_out = 0;  ///< actions without a measured duration, which have no error
};

/// Most actions in the list of the worst.
constexpr std::size_t most_worst = 50;

/// Summary of the errors of all actions that are no messages, in all measured steps. Empty unless
/// both sides are there and have the same rows. O(actions of all steps): call it on a worker.
/// With `range` only those of the actions that touch it.
ErrorSummary error_summary(const RunData& run, const RangeFilter* range = nullptr);

/// "Furthest off is the backward of stage 1: ..."; says what is missing where there is nothing.
std::string sentence_of(const ErrorSummary& summary);

}  // namespace pipetwin::gui
