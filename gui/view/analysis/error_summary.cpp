// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/error_summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/median.h"
#include "core/base/short_number.h"
#include "gui/view/analysis/action_details.h"

namespace pipetwin::gui {

namespace {

constexpr int bins_per_side = 20;

Duration magnitude(Duration time) {
    return time < Duration{} ? -time : time;
}

Duration off(const Pair& pair) {
    return magnitude(pair.predicted - pair.measured);
}

/// The smallest of the sorted-out values that this share of them does not exceed.
double quantile(std::vector<double> values, double share) {
    const auto rank =
        static_cast<std::ptrdiff_t>(std::ceil(share * static_cast<double>(values.size()))) - 1;
    const auto at = values.begin() + std::max<std::ptrdiff_t>(0, rank);
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

std::vector<double> magnitudes(const std::vector<double>& values) {
    std::vector<double> result(values.size());
    std::ranges::transform(values, result.begin(), [](double value) { return std::abs(value); });
    return result;
}

/// Errors of one cost so far.
struct Seen {
    std::vector<double> percents;
    std::vector<Duration> predicted;
    std::vector<Duration> measured;
    std::vector<SpanRef> refs;
    Pair total{};
    SpanRef worst;
    Duration worst_off{-1};
};

/// The fewest actions whose errors add up to half of the error of all, the furthest off first. None
/// where the error of the median action, taken for all of them, adds up to that much.
struct Outliers {
    std::int64_t count = 0;
    Duration time{};  ///< sum of their errors
    SpanRef first;
};

Outliers outliers_of(const Seen& seen, const Pair& medians) {
    const Duration total = seen.total.predicted - seen.total.measured;
    const int sign = total < Duration{} ? -1 : 1;
    const auto count = static_cast<std::int64_t>(seen.measured.size());
    if (2 * count * sign * (medians.predicted - medians.measured) >= sign * total) {
        return {};
    }
    std::vector<std::pair<Duration, SpanRef>> errors;
    for (std::size_t i = 0; i < seen.measured.size(); ++i) {
        errors.emplace_back(sign * (seen.predicted[i] - seen.measured[i]), seen.refs[i]);
    }
    std::ranges::stable_sort(errors, std::ranges::greater{}, &std::pair<Duration, SpanRef>::first);
    Outliers outliers{.first = errors.front().second};
    Duration sum{};
    while (2 * sum < sign * total) {
        sum += errors[as_index(outliers.count++)].first;
    }
    outliers.time = sign * sum;
    return outliers;
}

class Collector {
  public:
    Collector(const RunData& run, const RangeFilter* range) : run_(run), range_(range) {}

    ErrorSummary collect() {
        result_.steps = static_cast<int>(run_.twin.measured.size());
        result_.measured = side_name(run_, Side::Measured);
        for (const std::string& note : {says_nothing(run_), dispatch_note(run_)}) {
            if (!note.empty()) {
                result_.notes.push_back(note);
            }
        }
        for (int step = 0; step < result_.steps; ++step) {
            for (int rank = 0; rank < run_.twin.rank_count(); ++rank) {
                add_row({.side = Side::Measured, .step = step, .rank = rank});
            }
        }
        std::ranges::sort_heap(result_.worst, further_off);
        summarize();
        return std::move(result_);
    }

  private:
    static bool further_off(const ActionError& a, const ActionError& b) {
        return off(a.duration) > off(b.duration);
    }

    void add_row(SpanRef ref) {
        const RowIndex* const measured = run_.twin.row(ref);
        const RowIndex* const predicted = run_.twin.row(Side::Predicted, ref.step, ref.rank);
        if (measured == nullptr || predicted == nullptr) {
            return;
        }
        const auto [first, end] =
            range_ == nullptr ? std::pair(0, measured->size()) : range_->cells(*measured, ref);
        for (ref.cell = first; ref.cell < end; ++ref.cell) {
            const Action action = measured->action(ref.cell);
            const auto twin = twin_of(run_.twin, ref);
            if (is_message(action.op) || !twin) {
                continue;
            }
            add(ref,
                action,
                {.predicted = compared_length(run_, *twin),
                 .measured = compared_length(run_, ref)});
        }
    }

    void add(const SpanRef& ref, const Action& action, const Pair& duration) {
        const double percent = duration.error_percent();
        if (!std::isfinite(percent)) {
            ++result_.left_out;
            return;
        }
        Seen& seen = costs_[{action.op, action.stage}];
        seen.percents.push_back(percent);
        seen.predicted.push_back(duration.predicted);
        seen.measured.push_back(duration.measured);
        seen.refs.push_back(ref);
        seen.total.predicted += duration.predicted;
        seen.total.measured += duration.measured;
        if (off(duration) > seen.worst_off) {
            seen.worst_off = off(duration);
            seen.worst = ref;
        }
        auto& worst = result_.worst;
        const ActionError error{.ref = ref, .action = action, .duration = duration};
        if (worst.size() == most_worst) {
            if (!further_off(error, worst.front())) {
                return;
            }
            std::ranges::pop_heap(worst, further_off);
            worst.pop_back();
        }
        worst.push_back(error);
        std::ranges::push_heap(worst, further_off);
    }

    void summarize() {
        result_.histogram = empty_histogram();
        for (const auto& [cost, seen] : costs_) {
            result_.costs.push_back(cost_error(cost.first, cost.second, seen));
            const auto& counts = result_.costs.back().histogram.counts;
            for (std::size_t bin = 0; bin < counts.size(); ++bin) {
                result_.histogram.counts[bin] += counts[bin];
            }
            result_.histogram.outside += result_.costs.back().histogram.outside;
        }
        std::ranges::stable_sort(result_.costs, std::ranges::greater{}, [](const CostError& cost) {
            return magnitude(cost.per_step);
        });
    }

    /// Bins in which all but a few of the errors have their place.
    ErrorHistogram empty_histogram() {
        std::vector<double> all;
        for (const auto& [cost, seen] : costs_) {
            all.insert(all.end(), seen.percents.begin(), seen.percents.end());
        }
        const double far = all.empty() ? 0 : quantile(magnitudes(all), 0.95);
        bin_percent_ = 5;
        for (const double width : {2.5, 1.0, 0.5, 0.25, 0.1}) {
            bin_percent_ = far <= bins_per_side * width ? width : bin_percent_;
        }
        return {.bin_percent = bin_percent_,
                .counts = std::vector<std::int64_t>(2 * bins_per_side, 0)};
    }

    /// "1F2"; of several steps "1F2 of step 3".
    std::string name_of(const SpanRef& ref) const {
        const std::string action = to_string(run_.twin.row(ref)->action(ref.cell));
        return result_.steps == 1
                   ? action
                   : fmt::format("{} of step {}", action, run_.step_number(ref.step));
    }

    CostError cost_error(Op op, int stage, const Seen& seen) const {
        const auto count = static_cast<std::int64_t>(seen.percents.size());
        const Pair medians{.predicted = median(seen.predicted), .measured = median(seen.measured)};
        const Outliers outliers = outliers_of(seen, medians);
        CostError error{.op = op,
                        .stage = stage,
                        .count = count,
                        .predicted = medians.predicted,
                        .measured = medians.measured,
                        .per_step = (seen.total.predicted - seen.total.measured) / result_.steps,
                        .error_percent = medians.error_percent(),
                        .outliers = outliers.count,
                        .outlier_time = outliers.time / result_.steps,
                        .outlier = outliers.count == 0 ? "" : name_of(outliers.first),
                        .worst = seen.worst,
                        .histogram = {.bin_percent = bin_percent_, .counts = {}}};
        error.histogram.counts.assign(2 * bins_per_side, 0);
        for (const double percent : seen.percents) {
            error.mape += std::abs(percent) / static_cast<double>(count);
            const double place = std::floor(percent / bin_percent_);
            const double bin = std::clamp(place, -1.0 * bins_per_side, bins_per_side - 1.0);
            error.histogram.outside += place == bin ? 0 : 1;
            ++error.histogram.counts[as_index(bin + bins_per_side)];
        }
        error.p95_percent = quantile(magnitudes(seen.percents), 0.95);
        return error;
    }

    const RunData& run_;
    const RangeFilter* range_;
    ErrorSummary result_;
    std::map<std::pair<Op, int>, Seen> costs_;
    double bin_percent_ = 1;
};

}  // namespace

ErrorSummary error_summary(const RunData& run, const RangeFilter* range) {
    return run.comparison ? Collector(run, range).collect() : ErrorSummary{};
}

namespace {

/// " 1.25 ms of this comes from one of its 4 actions (1B0), which took longer than predicted."
std::string outlier_words(const CostError& cost) {
    if (cost.outliers == 0) {
        return "";
    }
    return fmt::format(
        " {} of this comes from {} of its {} actions{}, which took {} than predicted.",
        short_time(magnitude(cost.outlier_time)),
        cost.outliers == 1 ? "one" : std::to_string(cost.outliers),
        cost.count,
        cost.outliers == 1 ? fmt::format(" ({})", cost.outlier) : "",
        cost.per_step > Duration{} ? "less time" : "longer");
}

}  // namespace

std::string sentence_of(const ErrorSummary& summary) {
    if (summary.costs.empty()) {
        return "Errors need a predicted and a measured timeline with the same actions.";
    }
    const CostError& cost = summary.costs.front();
    const std::string notes =
        summary.notes.empty() ? "" : fmt::format(" {}", fmt::join(summary.notes, " "));
    if (cost.per_step == Duration{}) {
        return "Every cost is as predicted." + notes;
    }
    const bool too_long = cost.per_step > Duration{};
    return fmt::format(
        "The {} of stage {} causes the largest difference: over a whole step, its prediction is {} "
        "{}.{} "
        "The median {} of stage {}: predicted {}, {} {}, error {}.{}",
        op_words(cost.op),
        cost.stage,
        short_time(magnitude(cost.per_step)),
        too_long ? "too long" : "too short",
        outlier_words(cost),
        op_words(cost.op),
        cost.stage,
        short_time(cost.predicted),
        summary.measured,
        short_time(cost.measured),
        percent_text(cost.error_percent),
        notes);
}

}  // namespace pipetwin::gui
