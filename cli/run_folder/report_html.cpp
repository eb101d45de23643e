#include "cli/run_folder/report_html.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "cli/run_folder/finished_run.h"
#include "cli/run_folder/learning_curve.h"
#include "cli/run_folder/page.h"
#include "cli/text/gpu_text.h"
#include "cli/text/text_output.h"
#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/svg/svg.h"
#include "sim/calibration/step_range.h"

namespace pipetwin::cli {

namespace {

/// "measured", or "emulated" where the paced device stood in for the hardware.
std::string_view measured_word(const FinishedRun& run) {
    return to_string(median_step(run.training.measured).origin);
}

std::string figure(std::string_view value, std::string_view words, std::string_view kind = {}) {
    return fmt::format("<div class=\"figure {}\"><b>{}</b><span>{}</span></div>\n",
                       kind,
                       html_escaped(value),
                       html_escaped(words));
}

std::string about(const FinishedRun& run) {
    const Plan& plan = run.prediction.plan;
    std::string text = fmt::format("{} model, {}, {}, {}, recompute {}, {}, {}",
                                   to_string(run.scenario.model.kind),
                                   plan->schedule_name,
                                   counted(plan.rank_count(), "stage"),
                                   counted(plan.micro_batches(), "micro-batch"),
                                   to_string(plan->recompute),
                                   run.profile.precision,
                                   run.profile.device);
    if (!run.profile.date.empty()) {
        text += ", " + run.profile.date;
    }
    return text;
}

/// The share of right classes of the last validation; none where they are not counted.
std::optional<double> last_validation(std::span<const exec::StepReport> steps) {
    std::optional<double> last;
    for (const exec::StepReport& step : steps) {
        last = step.validation_accuracy ? step.validation_accuracy : last;
    }
    return last;
}

std::string headline(const FinishedRun& run) {
    constexpr double good_percent = 5;
    const Comparison& both = run.comparison;
    const double error = both.step.error_percent();
    const auto& steps = run.training.steps;
    std::string html = "<div class=\"headline\">\n";
    const std::optional<ErrorRange>& range = run.prediction.outlook.error;
    html += figure(format_duration(both.step.predicted),
                   range ? fmt::format("predicted step time, {} to be expected",
                                       sim::range_text(both.step.predicted, *range))
                         : "predicted step time");
    html += figure(format_duration(both.step.measured),
                   fmt::format("{} step time", measured_word(run)));
    html += figure(error_text(error),
                   "error of the prediction",
                   std::abs(error) <= good_percent ? "good" : "bad");
    html += figure(percent_text(both.measured_bubble_total),
                   fmt::format("bubble, predicted {}", percent_text(both.predicted_bubble_total)));
    html += figure(
        fmt::format("{:.3f}", steps.back().loss),
        fmt::format(
            "loss after {}, from {:.3f}", counted(steps.size(), "step"), steps.front().loss));
    if (steps.back().accuracy && steps.front().accuracy) {
        html += figure(percent_text(*steps.back().accuracy),
                       fmt::format("of the last step's classes right, from {}",
                                   percent_text(*steps.front().accuracy)));
    }
    if (const auto held_out = last_validation(steps)) {
        html += figure(percent_text(*held_out), "of the held-out classes right");
    }
    return html + "</div>\n";
}

std::string timelines(const FinishedRun& run) {
    SvgOptions options;
    options.width = 880;
    options.row_height = run.prediction.timeline.ranks.size() <= 4 ? 36 : 26;
    const std::string picture =
        render_svg_pair(run.prediction.timeline, median_step(run.training.measured), options);
    return fmt::format(
        "<figure class=\"paper\">\n{}\n<figcaption>One step, predicted above {}, on one time axis. "
        "The drawn step is the "
        "one nearest the median.</figcaption>\n</figure>\n",
        picture,
        measured_word(run));
}

std::string summary_table(const FinishedRun& run) {
    const Comparison& both = run.comparison;
    std::vector<HtmlRow> rows{{"", "predicted", std::string(measured_word(run)), "error"}};
    rows.push_back(pair_row("step", both.step));
    rows.push_back(pair_row("pipeline", both.makespan));
    rows.push_back({"bubble (total)",
                    percent_text(both.predicted_bubble_total),
                    percent_text(both.measured_bubble_total),
                    ""});
    for (const Comparison::ByOp& by_op : both.by_op) {
        rows.push_back(pair_row(fmt::format("all {}", op_words(by_op.op)), by_op.total));
    }
    return html_section("Predicted and " + std::string(measured_word(run)), html_table(rows));
}

std::string breakdown_table(const FinishedRun& run) {
    const auto& predicted = run.comparison.predicted_breakdown;
    const auto& measured = run.comparison.measured_breakdown;
    if (!predicted || !measured) {
        return {};
    }
    std::vector<HtmlRow> rows{
        {"mean over ranks, ms", "predicted", std::string(measured_word(run))}};
    for (const BreakdownPart& part : breakdown_parts) {
        if (*predicted.*part.value != Duration{} || *measured.*part.value != Duration{}) {
            rows.push_back({std::string(part.word),
                            fmt::format("{:.3f}", to_milliseconds(*predicted.*part.value)),
                            fmt::format("{:.3f}", to_milliseconds(*measured.*part.value))});
        }
    }
    rows.push_back({"step",
                    fmt::format("{:.3f}", to_milliseconds(predicted->sum())),
                    fmt::format("{:.3f}", to_milliseconds(measured->sum()))});
    return html_section("Where a step's time goes", html_table(rows));
}

/// "5 879 808", with spaces that do not break.
std::string grouped(std::int64_t number) {
    std::string text = std::to_string(number);
    for (auto at = std::ssize(text) - 3; at > 0; at -= 3) {
        text.insert(as_index(at), "\u00a0");
    }
    return text;
}

std::string memory_table(const FinishedRun& run) {
    std::vector<HtmlRow> rows{{"bytes", "predicted", "counted", "error"}};
    for (const PeakDelta& peak : run.comparison.peaks) {
        rows.push_back({fmt::format("rank {}", peak.rank),
                        grouped(peak.predicted.count),
                        grouped(peak.measured.count),
                        error_text(peak.error_percent())});
    }
    std::string html = html_table(rows);
    const std::string beside = memory_beside_text(run.training.memory_beside);
    if (!beside.empty()) {
        html += fmt::format("<p class=\"note\">{}.</p>\n", html_escaped(beside));
    }
    return html_section("Peak memory", html);
}

std::string rank_table(const FinishedRun& run) {
    const Prediction& prediction = run.prediction;
    std::vector<HtmlRow> rows{{"rank", "busy", "idle", "live micro-batches"}};
    for (const DeviceMetrics& device : prediction.metrics.devices) {
        rows.push_back({std::to_string(device.rank),
                        format_duration(device.busy),
                        format_duration(device.idle),
                        std::to_string(device.peak_live_activations)});
    }
    std::string html = html_table(rows);
    if (prediction.plan->partition) {
        std::string cut;
        for (const int layers : prediction.plan->partition->layers_per_stage()) {
            cut += (cut.empty() ? "" : ", ") + std::to_string(layers);
        }
        html += fmt::format("<p class=\"note\">Layers per stage: {}.</p>\n", cut);
    }
    return html_section("Ranks, predicted", html);
}

std::string noise_table(const FinishedRun& run) {
    const Noise& noise = run.comparison.noise;
    std::vector<std::vector<std::string>> rows{
        {"", "value"},
        {"time stolen by others", fmt::format("{:.2f} %", noise.stolen_percent)},
        {"step times, p90 / p10", fmt::format("{:.3f}", noise.p90_over_p10)},
        {"steps kept", std::to_string(noise.steps)},
        {"steps dropped", std::to_string(noise.dropped_steps)}};
    if (const auto& replay = run.comparison.replay) {
        rows.push_back({"replay of the measured durations", error_text(replay->error_percent())});
    }
    std::string html = html_table(rows);
    if (const auto why = noise.not_measurable()) {
        html += fmt::format(
            "<p class=\"note\">Not measurable here, so the errors on this page say nothing: "
            "{}.</p>\n",
            *why);
    }
    return html_section("Noise of the machine", html);
}

}  // namespace

std::string report_html(const FinishedRun& run) {
    const std::string name = printable(run.scenario.file.stem().string());
    std::string html =
        page_begin(name) + fmt::format("<p class=\"about\">{}</p>\n", html_escaped(about(run)));
    html += headline(run);
    for (const std::string& note : notes_of(run)) {
        html += fmt::format("<p class=\"note\">Note: {}.</p>\n", html_escaped(note));
    }
    html += "<div class=\"top\">\n<div class=\"column\">\n" + timelines(run);
    html += html_section("Learning",
                         "<figure>" + learning_curve_svg(run.training.steps) + "</figure>\n");
    html += "</div>\n<div class=\"column\">\n" + summary_table(run) + noise_table(run);
    html += "</div>\n</div>\n<div class=\"cards\">\n";
    html += breakdown_table(run) + memory_table(run) + rank_table(run) + "</div>\n";
    html += fmt::format(
        "<details open>\n<summary>Scenario, every default written "
        "out</summary>\n<pre>{}</pre>\n</details>\n",
        html_escaped(print_scenario(run.scenario.as_scenario())));
    html += fmt::format("<p class=\"note\">pipetwin {}, plan {}</p>\n",
                        PIPETWIN_VERSION,
                        run.prediction.plan.hash());
    return html + page_end();
}

}  // namespace pipetwin::cli
