#include "cli/run_folder/report_html.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "cli/run_folder/finished_run.h"
#include "cli/run_folder/learning_curve.h"
#include "cli/text/gpu_text.h"
#include "cli/text/text_output.h"
#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/svg/svg.h"
#include "sim/calibration/step_range.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view style = R"css(
:root { color-scheme: light dark; --ink: #1d2127; --faint: #646b75; --line: #dcdfe4; --page: #ffffff;
        --panel: #f6f7f9; --accent: #0072b2; --second: #b45309; --good: #1a7f4b; --bad: #b42318; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --faint: #9aa2ad; --line: #363c45; --page: #16191d; --panel: #1e2227;
          --accent: #56b4e9; --second: #e69f00; --good: #4cc38a; --bad: #ff8a7a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 2.5rem 2rem 4rem; background: var(--page); color: var(--ink);
       font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif;
       font-variant-numeric: tabular-nums; }
h1 { margin: 0; font-size: 1.7rem; font-weight: 650; letter-spacing: -0.01em; }
h2 { margin: 0 0 .6rem; font-size: 1rem; font-weight: 650; }
.about { margin: .2rem 0 0; color: var(--faint); }
.headline { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); margin: 1.8rem 0 2.2rem;
            padding: 1.1rem 0; border-block: 1px solid var(--line); gap: 1rem; }
.figure b { display: block; font-size: 1.65rem; font-weight: 600; line-height: 1.25; letter-spacing: -0.01em; }
.figure span { color: var(--faint); font-size: .88rem; }
.good b { color: var(--good); } .bad b { color: var(--bad); }
.top { display: grid; grid-template-columns: minmax(0, 1fr); gap: 2.2rem; }
.column { display: grid; gap: 2.2rem; align-content: start; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(25rem, 100%), 1fr)); gap: 2.2rem 3rem;
         margin-top: 2.4rem; }
@media (min-width: 72rem) { .top { grid-template-columns: minmax(0, 1fr) 25rem; } }
figure { margin: 0; } figure svg { display: block; width: 100%; height: auto; }
figure.paper svg { background: #ffffff; border-radius: 4px; }
figcaption { margin-top: .5rem; color: var(--faint); font-size: .88rem; }
table { width: 100%; border-collapse: collapse; font-size: .92rem; }
th, td { padding: .28rem .1rem .28rem .9rem; text-align: right; border-bottom: 1px solid var(--line);
         white-space: nowrap; vertical-align: top; }
th { color: var(--faint); font-weight: 500; font-size: .84rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.note { color: var(--faint); font-size: .88rem; margin: .6rem 0 0; }
pre { margin: 0; padding: 1rem 1.1rem; overflow-x: auto; background: var(--panel); border-radius: 6px;
      font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
summary { cursor: pointer; font-weight: 650; margin-bottom: .6rem; }
details { margin-top: 2.4rem; }
@media print { body { padding: 0; max-width: none; font-size: 11px; }
  .cards { grid-template-columns: 1fr 1fr; gap: 1.2rem 2rem; } section, figure { break-inside: avoid; } }
)css";

using Row = std::vector<std::string>;

/// The first row is the head. Cells are plain text.
std::string html_table(const std::vector<Row>& rows) {
    std::string html = "<table>\n";
    for (std::size_t index = 0; index < rows.size(); ++index) {
        const std::string_view tag = index == 0 ? "th" : "td";
        html += "<tr>";
        for (const std::string& cell : rows[index]) {
            html += fmt::format("<{0}>{1}</{0}>", tag, html_escaped(cell));
        }
        html += "</tr>\n";
    }
    return html + "</table>\n";
}

std::string section(std::string_view title, const std::string& content) {
    return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", html_escaped(title), content);
}

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
    std::vector<Row> rows{{"", "predicted", std::string(measured_word(run)), "error"}};
    rows.push_back(pair_row("step", both.step));
    rows.push_back(pair_row("pipeline", both.makespan));
    rows.push_back({"bubble (total)",
                    percent_text(both.predicted_bubble_total),
                    percent_text(both.measured_bubble_total),
                    ""});
    for (const Comparison::ByOp& by_op : both.by_op) {
        rows.push_back(pair_row(fmt::format("all {}", op_words(by_op.op)), by_op.total));
    }
    return section("Predicted and " + std::string(measured_word(run)), html_table(rows));
}

std::string breakdown_table(const FinishedRun& run) {
    const auto& predicted = run.comparison.predicted_breakdown;
    const auto& measured = run.comparison.measured_breakdown;
    if (!predicted || !measured) {
        return {};
    }
    std::vector<Row> rows{{"mean over ranks, ms", "predicted", std::string(measured_word(run))}};
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
    return section("Where a step's time goes", html_table(rows));
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
    std::vector<Row> rows{{"bytes", "predicted", "counted", "error"}};
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
    return section("Peak memory", html);
}

std::string rank_table(const FinishedRun& run) {
    const Prediction& prediction = run.prediction;
    std::vector<Row> rows{{"rank", "busy", "idle", "live micro-batches"}};
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
    return section("Ranks, predicted", html);
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
    return section("Noise of the machine", html);
}

}  // namespace

std::string html_escaped(std::string_view text) {
    std::string html;
    html.reserve(text.size());
    for (const char letter : printable_lines(text)) {
        switch (letter) {
            case '&':
                html += "&amp;";
                break;
            case '<':
                html += "&lt;";
                break;
            case '>':
                html += "&gt;";
                break;
            case '"':
                html += "&quot;";
                break;
            case '\'':
                html += "&#39;";
                break;
            default:
                html += letter;
        }
    }
    return html;
}

std::string report_html(const FinishedRun& run) {
    const std::string name = html_escaped(printable(run.scenario.file.stem().string()));
    std::string html = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<title>{} - pipetwin</title>\n<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n<p "
        "class=\"about\">{}</p>\n",
        name,
        style,
        name,
        html_escaped(about(run)));
    html += headline(run);
    for (const std::string& note : notes_of(run)) {
        html += fmt::format("<p class=\"note\">Note: {}.</p>\n", html_escaped(note));
    }
    html += "<div class=\"top\">\n<div class=\"column\">\n" + timelines(run);
    html +=
        section("Learning", "<figure>" + learning_curve_svg(run.training.steps) + "</figure>\n");
    html += "</div>\n<div class=\"column\">\n" + summary_table(run) + noise_table(run);
    html += "</div>\n</div>\n<div class=\"cards\">\n";
    html += breakdown_table(run) + memory_table(run) + rank_table(run) + "</div>\n";
    html += fmt::format(
        "<details open>\n<summary>Scenario, every default written "
        "out</summary>\n<pre>{}</pre>\n</details>\n",
        html_escaped(print_scenario(run.scenario.as_scenario())));
    html += fmt::format("<p class=\"note\">pipetwin {}, plan {}</p>\n</body>\n</html>\n",
                        PIPETWIN_VERSION,
                        run.prediction.plan.hash());
    return html;
}

}  // namespace pipetwin::cli
