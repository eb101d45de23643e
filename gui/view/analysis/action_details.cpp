// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/action_details.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/base/short_number.h"
#include "gui/view/analysis/step_analysis.h"
#include "gui/view/run/planned_run.h"
#include "sim/calibration/step_range.h"

namespace pipetwin::gui {

namespace {

std::string signed_duration(Duration duration) {
    const std::string text = short_time(duration < Duration{0} ? -duration : duration);
    if (duration == Duration{0}) {
        return text;
    }
    return (duration < Duration{0} ? "-" : "+") + text;
}

std::string relative_error(Duration predicted, Duration measured) {
    return percent_text(Pair{predicted, measured}.error_percent());
}

using Quantity = Duration (*)(const RunData& run, const SpanRef& ref);

Duration begin_of(const RunData& run, const SpanRef& ref) {
    return run.twin.row(ref)->begin(ref.cell);
}

Duration wait_of(const RunData& run, const SpanRef& ref) {
    return wait_before(*run.twin.row(ref), ref.cell);
}

/// Time of the action in messages of groups; 0 where nothing is known of them.
Duration in_groups_of(const RunData& run, const SpanRef& ref) {
    const StepRows& rows = *run.twin.step(ref.side, ref.step);
    return rows.in_groups.empty() ? Duration{0}
                                  : rows.in_groups[as_index(ref.rank)][as_index(ref.cell)];
}

enum class ErrorAs { Difference, Percent };

DetailLine line_of(
    const RunData& run, const SpanRef& ref, std::string name, Quantity quantity, ErrorAs error_as) {
    const Twin& twin = run.twin;
    DetailLine line{.name = std::move(name), .predicted = {}, .measured = {}, .error = {}};
    std::array<std::optional<Duration>, 2> values;
    const std::optional<SpanRef> twin_ref = twin_of(twin, ref);
    for (const std::optional<SpanRef>& place : {std::optional<SpanRef>(ref), twin_ref}) {
        if (place) {
            const Duration value = quantity(run, *place);
            values[place->side == Side::Predicted ? 0 : 1] = value;
            (place->side == Side::Predicted ? line.predicted : line.measured) =
                quantity == begin_of ? time_within(value, twin.length(place->step))
                                     : short_time(value);
        }
    }
    if (values[0] && values[1]) {
        line.error = error_as == ErrorAs::Percent ? relative_error(*values[0], *values[1])
                                                  : signed_duration(*values[0] - *values[1]);
    }
    return line;
}

DetailLine pair_line(std::string name, const Pair& pair) {
    return {.name = std::move(name),
            .predicted = short_time(pair.predicted),
            .measured = short_time(pair.measured),
            .error = percent_text(pair.error_percent())};
}

/// The median over the steps, where there are several.
std::optional<DetailLine> median_line(const RunData& run, const SpanRef& ref) {
    if (!run.comparison || !run.measured || run.measured->steps < 2) {
        return std::nullopt;
    }
    for (const ActionDelta& delta : run.comparison->actions) {
        if (delta.rank == ref.rank && delta.cell == ref.cell) {
            const auto without_dispatch = [&](Duration time, Side side) {
                return pipetwin::is_compute(delta.action.op)
                           ? time - std::min(compared_dispatch(run, side), time)
                           : time;
            };
            return pair_line(
                "duration, median",
                {.predicted = without_dispatch(delta.duration.predicted, Side::Predicted),
                 .measured = without_dispatch(delta.duration.measured, Side::Measured)});
        }
    }
    return std::nullopt;
}

std::string note_of(const RunData& run, const SpanRef& ref) {
    std::string note;
    if (const std::optional<SpanRef> partner = partner_of(run.twin, ref)) {
        const Action action = run.twin.span(*partner)->action;
        note = fmt::format("The other end is {} on rank {}.", to_string(action), partner->rank);
    }
    if (run.comparison && run.measured->steps > 1) {
        note += fmt::format("{}The timeline shows the step nearest the median of {}.",
                            note.empty() ? "" : " ",
                            steps_words(run));
    }
    const std::string dispatch = dispatch_note(run);
    if (!dispatch.empty() && pipetwin::is_compute(run.twin.span(ref)->action.op)) {
        note += (note.empty() ? "" : " ") + dispatch;
    }
    return note;
}

std::string place_of(const Action& action, int rank) {
    std::string text =
        fmt::format("{}, rank {}, stage {}", op_words(action.op), rank, action.stage);
    if (has_micro_batch(action.op)) {
        text += fmt::format(", micro-batch {}", action.micro_batch);
    }
    if (action.hop != 0) {
        text += fmt::format(", {} stage {}, past {}",
                            is_send(action.op) ? "to" : "from",
                            peer_stage(action),
                            counted(action.hop, "stage"));
    }
    return text;
}

/// A percentage with a sign, and as many digits as `short_percent` has; what is rounded to zero has
/// no sign. Without the " %".
std::string signed_text(double percent) {
    std::string text = short_percent(percent / 100);
    text.resize(text.size() - std::string_view(" %").size());
    const bool is_zero = text.find_first_of("123456789") == std::string::npos;
    return is_zero ? "0" : percent > 0 ? "+" + text : text;
}

}  // namespace

ActionDetails details_of(const RunData& run, const SpanRef& ref) {
    const std::optional<Span> span = run.twin.span(ref);
    if (!span) {
        return {};
    }
    const Op op = span->action.op;
    const bool message = is_message(op);
    ActionDetails details{.title = to_string(span->action),
                          .subtitle = place_of(span->action, ref.rank),
                          .lines = {},
                          .note = note_of(run, ref)};
    const auto add = [&](const char* name, Quantity quantity, ErrorAs error_as) {
        details.lines.push_back(line_of(run, ref, name, quantity, error_as));
    };
    add("start", begin_of, ErrorAs::Difference);
    add("duration", compared_length, message ? ErrorAs::Difference : ErrorAs::Percent);
    if (std::optional<DetailLine> median = median_line(run, ref)) {
        median->error = message ? "" : median->error;
        details.lines.push_back(*std::move(median));
    }
    const std::optional<SpanRef> other = twin_of(run.twin, ref);
    if (in_groups_of(run, ref) > Duration{0} ||
        (other && in_groups_of(run, *other) > Duration{0})) {
        add("in messages of groups", in_groups_of, ErrorAs::Difference);
    }
    add(message ? "wait" : "idle before", wait_of, ErrorAs::Difference);
    return details;
}

std::string sentence_of(const RunData& run, const SpanRef& ref) {
    const std::optional<Span> span = run.twin.span(ref);
    if (!span) {
        return {};
    }
    std::string text = fmt::format("{}, {}, {}: starts at {}",
                                   to_string(span->action),
                                   place_of(span->action, ref.rank),
                                   side_name(run, ref.side),
                                   time_within(span->begin, run.twin.length(ref.step)));
    if (span->ready > span->begin) {
        text += fmt::format(", waits {}", short_time(span->ready - span->begin));
    }
    const Duration here = compared_length(run, ref);
    text += fmt::format(", takes {}", short_time(here));
    if (const std::optional<SpanRef> twin = twin_of(run.twin, ref)) {
        const Duration length = compared_length(run, *twin);
        const bool predicted_here = ref.side == Side::Predicted;
        const std::string error =
            predicted_here ? relative_error(here, length) : relative_error(length, here);
        text += fmt::format("; {} {}", side_name(run, twin->side), short_time(length));
        text += is_message(span->action.op) || error.empty() ? "" : ", error " + error;
    }
    return text;
}

namespace {

constexpr std::array both_sides{Side::Predicted, Side::Measured};

std::string& text_of(DetailLine& line, Side side) {
    return side == Side::Predicted ? line.predicted : line.measured;
}

/// [side]: a quantity that a side may not have.
template <class Value>
using OnSides = std::array<std::optional<Value>, 2>;

DetailLine time_line(std::string name, const OnSides<Duration>& times) {
    DetailLine line{.name = std::move(name), .predicted = {}, .measured = {}, .error = {}};
    for (std::size_t side = 0; side < both_sides.size(); ++side) {
        text_of(line, both_sides[side]) = times[side] ? short_time(*times[side]) : "";
    }
    if (times[0] && times[1]) {
        line.error = relative_error(*times[0], *times[1]);
    }
    return line;
}

DetailLine bubble_line(const OnSides<double>& bubbles) {
    DetailLine line{.name = "bubble", .predicted = {}, .measured = {}, .error = {}};
    for (std::size_t side = 0; side < both_sides.size(); ++side) {
        text_of(line, both_sides[side]) = bubbles[side] ? short_percent(*bubbles[side]) : "";
    }
    if (bubbles[0] && bubbles[1]) {
        line.error = points_text(100 * (*bubbles[0] - *bubbles[1]));
    }
    return line;
}

/// Host time of a mean rank that the spans of a step leave out, where the prediction says it.
Duration overhead_of(const RunData& run, const StepRows& rows) {
    const bool is_known = run.comparison && run.comparison->predicted_breakdown;
    return is_known && rows.origin == Origin::Measured
               ? run.comparison->predicted_breakdown->overhead
               : Duration{};
}

/// The share of the ranks' pipeline time in which they do not compute, as `bubble_beside` counts.
double bubble_of(const RunData& run, const StepRows& rows) {
    const auto ranks = static_cast<std::int64_t>(rows.ranks.size());
    Duration work = overhead_of(run, rows) * ranks;
    for (const RowIndex& row : rows.ranks) {
        work += compute_of(row.between(Duration{0}, row.last_end()));
    }
    const Duration all = rows.pipeline * ranks;
    return all > Duration{0} ? to_seconds(all - std::min(work, all)) / to_seconds(all) : 0;
}

}  // namespace

std::optional<double> bubble_of(const RunData& run, Side side) {
    if (run.comparison) {
        return side == Side::Predicted ? run.comparison->predicted_bubble_total
                                       : run.comparison->measured_bubble_total;
    }
    const StepRows* const rows = run.side(side) ? run.twin.step(side, run.main_step()) : nullptr;
    return rows == nullptr ? std::nullopt : std::optional(bubble_of(run, *rows));
}

std::optional<Bytes> peak_of(const RunData& run) {
    if (run.comparison && !run.comparison->peaks.empty()) {
        return std::ranges::max_element(run.comparison->peaks, {}, &PeakDelta::measured)->measured;
    }
    std::optional<Bytes> peak;
    for (const Side side : {Side::Predicted, Side::Measured}) {
        if (run.side(side) && !run.side(side)->memory.empty()) {
            peak = std::ranges::max_element(run.side(side)->memory, {}, &MemoryRow::peak)->peak();
        }
    }
    return peak;
}

std::vector<DetailLine> step_lines(const RunData& run, int step) {
    OnSides<Duration> length;
    OnSides<Duration> pipeline;
    OnSides<double> bubble;
    for (std::size_t side = 0; side < both_sides.size(); ++side) {
        if (const StepRows* const rows = run.twin.step(both_sides[side], step)) {
            length[side] = rows->length;
            pipeline[side] = rows->pipeline;
            bubble[side] = bubble_of(run, *rows);
        }
    }
    if (!length[0] && !length[1]) {
        return {};
    }
    return {time_line("step", length), time_line("pipeline", pipeline), bubble_line(bubble)};
}

std::string expected_range(const RunData& run) {
    if (!run.planned || !run.planned->knows_bytes || !run.predicted) {
        return "";
    }
    const std::optional<ErrorRange> range = sim::step_range(
        run.planned->plan, run.planned->scenario, run.planned->profile, run.predicted->step);
    return range ? fmt::format(" (likely {})", sim::range_text(run.predicted->step, *range)) : "";
}

std::vector<DetailLine> run_lines(const RunData& run) {
    if (!run.comparison || !run.measured || run.measured->steps < 2) {
        return {};
    }
    const Comparison& comparison = *run.comparison;
    return {pair_line("step", comparison.step),
            pair_line("pipeline", comparison.makespan),
            bubble_line({comparison.predicted_bubble_total, comparison.measured_bubble_total})};
}

std::string dispatch_note(const RunData& run) {
    const Duration dispatch = compared_dispatch(run, Side::Predicted);
    if (dispatch == Duration{}) {
        return "";
    }
    const bool is_in_both = compared_dispatch(run, Side::Measured) > Duration{};
    return fmt::format("The durations leave out {} of dispatch: in the timeline {}.",
                       short_time(dispatch),
                       is_in_both ? std::string("every action includes it")
                                  : fmt::format("a predicted action includes it, and a {} one "
                                                "begins after it",
                                                side_name(run, Side::Measured)));
}

std::string steps_words(const RunData& run) {
    const int steps = run.measured ? run.measured->steps : 0;
    if (!run.measured || run.measured->left_out() == 0) {
        return counted(steps, "step");
    }
    const int quiet = run.measured->noise.steps;
    const std::string of_run = fmt::format("of a run of {}", quiet + run.measured->left_out());
    return quiet == 0
               ? fmt::format("{} {}, in which none was quiet", counted(steps, "step"), of_run)
           : steps < quiet ? fmt::format("{} of the {} quiet steps {}", steps, quiet, of_run)
                           : fmt::format("the {} {}", counted(quiet, "quiet step"), of_run);
}

std::vector<DetailLine> op_lines(const RunData& run, int step) {
    std::array<OnSides<Duration>, op_count> totals;
    for (std::size_t side = 0; side < both_sides.size(); ++side) {
        const StepRows* const rows = run.twin.step(both_sides[side], step);
        if (rows == nullptr) {
            continue;
        }
        const Duration dispatch = run.side(both_sides[side])->dispatch.value_or(Duration{});
        for (const RowIndex& row : rows->ranks) {
            for (int cell = 0; cell < row.size(); ++cell) {
                if (const Op op = row.op(cell); pipetwin::is_compute(op)) {
                    std::optional<Duration>& total = totals[as_index(op)][side];
                    const Duration length = row.end(cell) - row.ready(cell);
                    total = total.value_or(Duration{}) + length - std::min(dispatch, length);
                }
            }
        }
    }
    std::vector<DetailLine> lines;
    for (std::size_t op = 0; op < totals.size(); ++op) {
        if (totals[op][0] || totals[op][1]) {
            lines.push_back(time_line(std::string(op_words(static_cast<Op>(op))), totals[op]));
        }
    }
    return lines;
}

std::string op_heading(const RunData& run) {
    if (run.predicted && !run.predicted->dispatch) {
        return "sums over all ranks; predicted sums may include dispatch";
    }
    if (run.measured && !run.measured->dispatch) {
        return "sums over all ranks; measured sums may include dispatch";
    }
    const bool nothing_to_say = run.predicted && run.predicted->dispatch == Duration{};
    return nothing_to_say ? "sums over all ranks" : "sums over all ranks, without dispatch";
}

std::vector<DetailLine> breakdown_lines(const RunData& run) {
    std::vector<DetailLine> lines;
    if (!run.comparison) {
        return lines;
    }
    const auto& predicted = run.comparison->predicted_breakdown;
    const auto& measured = run.comparison->measured_breakdown;
    for (const BreakdownPart& part : breakdown_parts) {
        if (part.value == &Breakdown::communication_wait && run.comparison->in_groups) {
            const Pair& in_groups = *run.comparison->in_groups;
            lines.push_back({.name = std::string(in_groups_words),
                             .predicted = short_time(in_groups.predicted),
                             .measured = short_time(in_groups.measured),
                             .error = signed_duration(in_groups.predicted - in_groups.measured)});
        }
        // Means over ranks are rounded: less than a nanosecond for each rank is nothing.
        const auto mean_of = [&](const std::optional<Breakdown>& breakdown) {
            const Duration mean = breakdown ? (*breakdown).*part.value : Duration{0};
            return mean < Duration{run.twin.rank_count()} ? Duration{0} : mean;
        };
        const Duration p = mean_of(predicted);
        const Duration m = mean_of(measured);
        if (p == Duration{0} && m == Duration{0}) {
            continue;
        }
        lines.push_back({.name = std::string(part.words),
                         .predicted = predicted ? short_time(p) : "",
                         .measured = measured ? short_time(m) : "",
                         .error = predicted && measured ? signed_duration(p - m) : ""});
    }
    return lines;
}

namespace {

/// ", 4 replicas, showing replica 1" of a run that has the rows of each; ", 4 replicas" of a plan.
std::string replica_words(const RunData& run) {
    if (run.replicas > 1) {
        return fmt::format(
            ", {}, showing replica {}", counted(run.replicas, "replica"), run.replica);
    }
    const int replicas = run.plan() == nullptr ? 1 : (*run.plan())->replicas;
    return replicas > 1 ? fmt::format(", {} replicas", replicas) : "";
}

}  // namespace

std::string plan_line(const RunData& run) {
    const int devices = run.plan() == nullptr ? 1 : (*run.plan())->rank_devices();
    return fmt::format("{}{}, {}, {}{}",
                       run.is_what_if ? "What if: " : "",
                       run.schedule_name.empty() ? "unnamed schedule" : run.schedule_name,
                       counted(run.twin.rank_count(), "rank") +
                           (devices > 1 ? fmt::format(" of {} devices", devices) : ""),
                       counted(run.micro_batches, "micro-batch"),
                       replica_words(run));
}

std::string percent_text(double percent) {
    return std::isfinite(percent) ? signed_text(percent) + " %" : "";
}

std::string points_text(double points) {
    return signed_text(points) + " points";
}

}  // namespace pipetwin::gui
