// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder/report_html.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/base/shell_word.h"
#include "cli/run_folder/finished_run.h"
#include "cli/run_folder/learning_curve.h"
#include "cli/run_folder/page.h"
#include "cli/run_folder/report_glossary.h"
#include "cli/text/explanation_text.h"
#include "cli/text/gpu_text.h"
#include "cli/text/sentences.h"
#include "cli/text/text_output.h"
#include "cli/text/translation_text.h"
#include "core/base/ascii.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/base/version.h"
#include "core/model/model.h"
#include "core/svg/svg.h"
#include "gui/view/run/group_table.h"
#include "sim/calibration/step_range.h"
#include "sim/explain/cluster_links.h"
#include "sim/explain/explanation.h"
#include "sim/questions/doubled_plan.h"

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
                                   stages_text(plan.rank_count(), plan->chunks),
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

/// How to open the run in the desktop program.
std::string window_line(const FinishedRun& run) {
    const std::string where = run.folder.is_absolute() ? "" : " (in the folder where it was run)";
    return fmt::format("<p class=\"note\">Open this run in the window: <code>{}</code>{}</p>\n",
                       html_escaped("pipetwin view " + shell_word(run.folder.string())),
                       where);
}

/// Says why the errors on the page say nothing; empty where they do say something.
std::string warning(const FinishedRun& run) {
    const Noise& noise = run.comparison.noise;
    const std::optional<std::string> why = noise.not_measurable();
    if (!why) {
        return {};
    }
    const std::string stolen =
        noise.machine_was_busy() && noise.stolen_percent >= 1
            ? fmt::format(" Others used {} of the time in which the ranks computed.",
                          rounded_percent(noise.stolen_percent / 100))
            : "";
    return fmt::format(
        "<p class=\"warning\"><b>{}.</b> The errors on this page say nothing about the prediction: "
        "{}.{} {}</p>\n",
        noise.verdict(),
        *why,
        stolen,
        noise.sharing_ranks > 0    ? "Run it on a machine with a core for each rank, or with fewer "
                                     "stages; --set cluster.backend=paced emulates a device for each "
                                     "rank."
        : noise.machine_was_busy() ? "Run it again on a machine that does nothing else."
                                   : "Run it again with more steps, as with --set "
                                     "training.steps=100.");
}

std::string error_figure(const FinishedRun& run) {
    constexpr double good_percent = 5;
    const double error = run.comparison.step.error_percent();
    const std::string text = fmt::format("{:+.1f} %", error);
    if (const Noise& noise = run.comparison.noise; noise.not_measurable()) {
        std::string verdict(noise.verdict());
        verdict.front() = ascii::lower(verdict.front());
        return figure(text, "error of the predicted step, not valid: " + verdict);
    }
    return figure(
        text, "error of the predicted step", std::abs(error) <= good_percent ? "good" : "bad");
}

std::string headline(const FinishedRun& run) {
    const Comparison& both = run.comparison;
    const auto& steps = run.training.steps;
    std::string html = "<div class=\"headline\">\n";
    const std::optional<ErrorRange>& range = run.prediction.outlook.error;
    html += figure(Times(both.step.predicted)(both.step.predicted),
                   range ? fmt::format("predicted step time, {} to be expected",
                                       sim::range_text(both.step.predicted, *range))
                         : "predicted step time");
    html += figure(Times(both.step.measured)(both.step.measured),
                   fmt::format("{} step time", measured_word(run)));
    html += error_figure(run);
    html +=
        figure(rounded_percent(both.measured_bubble_total),
               fmt::format("bubble, predicted {}", rounded_percent(both.predicted_bubble_total)));
    html += figure(
        fmt::format("{:.3f}", steps.back().loss),
        fmt::format(
            "loss after {}, from {:.3f}", counted(steps.size(), "step"), steps.front().loss));
    if (steps.back().accuracy && steps.front().accuracy) {
        html += figure(rounded_percent(*steps.back().accuracy),
                       fmt::format("of the last step's classes right, from {}",
                                   rounded_percent(*steps.front().accuracy)));
    }
    if (const auto held_out = last_validation(steps)) {
        html += figure(rounded_percent(*held_out), "of the held-out classes right");
    }
    return html + "</div>\n";
}

/// A part of a step's time, and by how much longer it was measured than predicted.
struct PartDelta {
    std::string_view word;
    Duration longer{};
};

/// The parts whose measured time is furthest from the predicted one, at most three.
std::vector<PartDelta> largest_deltas(const FinishedRun& run, const Times& time) {
    const auto& predicted = run.comparison.predicted_breakdown;
    const auto& measured = run.comparison.measured_breakdown;
    std::vector<PartDelta> deltas;
    if (!predicted || !measured) {
        return deltas;
    }
    for (const BreakdownPart& part : breakdown_parts) {
        const Duration before = *predicted.*part.value;
        const Duration after = *measured.*part.value;
        if (time.differ(before, after)) {
            deltas.push_back({.word = part.words, .longer = after - before});
        }
    }
    std::ranges::stable_sort(deltas, std::greater<>(), [](const PartDelta& delta) {
        return std::chrono::abs(delta.longer);
    });
    constexpr std::size_t most = 3;
    deltas.resize(std::min(deltas.size(), most));
    return deltas;
}

/// Sentences on where the measured step differs from the predicted one.
std::vector<std::string> difference_sentences(const FinishedRun& run) {
    const Pair& step = run.comparison.step;
    const Times time(step.predicted);
    const auto words = [&time](Duration longer) {
        return fmt::format(
            "{} {}", time(std::chrono::abs(longer)), longer > Duration{} ? "longer" : "shorter");
    };
    std::vector<std::string> sentences;
    const Duration longer = step.measured - step.predicted;
    sentences.push_back(
        time.differ(step.measured, step.predicted)
            ? fmt::format("The {} step is {} than predicted.", measured_word(run), words(longer))
            : fmt::format("The {} step is as long as predicted.", measured_word(run)));
    std::vector<std::string> parts;
    for (const PartDelta& delta : largest_deltas(run, time)) {
        parts.push_back(fmt::format("{} ({})", delta.word, words(delta.longer)));
    }
    if (!parts.empty()) {
        sentences.push_back(
            fmt::format("The largest differences, as means over the ranks: {}.", list_of(parts)));
    }
    return sentences;
}

/// What `simulate` says about the plan, and how the measurement differs.
std::string explanation(const FinishedRun& run) {
    const sim::Prediction& prediction = run.prediction;
    const Model model = scenario_model(run.scenario, &run.profile);
    const std::optional<Plan> more =
        sim::with_doubled_micro_batches(prediction.plan, run.scenario, model, run.profile);
    sim::Explanation what = sim::explain(
        prediction.plan,
        prediction.timeline,
        prediction.breakdown,
        more,
        sim::faster_cluster_links(
            prediction.plan, prediction.metrics.step, run.scenario, model, run.profile));
    if (run.comparison.noise.sharing_ranks > 0) {
        // What was measured as dispatch is then for the most part waiting for a core.
        std::erase_if(what.best_of_kind, [](const auto& best) {
            return best.front().target.part == sim::Part::Dispatch;
        });
    }
    std::string html;
    for (const Paragraph& paragraph : explanation_paragraphs(prediction.plan, what)) {
        const bool is_first = html.empty();
        html += is_first ? "" : fmt::format("<h3>{}</h3>\n", html_escaped(paragraph.heading));
        html += html_sentences(paragraph.lines);
    }
    html += fmt::format("<h3>What differs in the {} step</h3>\n", measured_word(run));
    html += html_sentences(difference_sentences(run));
    return html_section("Where the time of the predicted step goes", html);
}

std::string timelines(const FinishedRun& run) {
    SvgOptions options;
    options.width = 880;
    options.row_height = run.prediction.timeline.ranks.size() <= 4 ? 36 : 26;
    const TimelineSet& measured = run.training.measured;
    const Timeline& drawn = median_step(measured);
    const auto place = static_cast<std::size_t>(&drawn - measured.steps.data());
    const std::string number =
        place < measured.numbers.size() ? fmt::format("step {}, ", measured.numbers[place]) : "";
    const std::string picture = render_svg_pair(run.prediction.timeline, drawn, options);
    return fmt::format(
        "<figure class=\"paper\">\n{}\n<figcaption>One step, predicted above {}, on one time axis. "
        "The drawn step is {}the one nearest the median.</figcaption>\n</figure>\n",
        picture,
        measured_word(run),
        number);
}

std::string summary_table(const FinishedRun& run) {
    const Comparison& both = run.comparison;
    std::vector<HtmlRow> rows{
        html_row({"", "predicted", std::string(measured_word(run)), "error"})};
    rows.push_back(html_row(pair_row("step", both.step)));
    rows.push_back(html_row(pair_row("pipeline", both.makespan)));
    rows.push_back(html_row({"bubble",
                             percent_text(both.predicted_bubble_total),
                             percent_text(both.measured_bubble_total),
                             ""}));
    return html_section("Predicted and " + std::string(measured_word(run)), html_table(rows));
}

std::string breakdown_table(const FinishedRun& run) {
    const Comparison& both = run.comparison;
    const bool are_means = both.predicted_breakdown && both.measured_breakdown;
    std::vector<HtmlRow> rows{html_row({are_means ? "mean over ranks" : "sum over ranks",
                                        "predicted",
                                        std::string(measured_word(run)),
                                        "error"})};
    for (std::vector<std::string>& row : part_rows(both)) {
        rows.push_back(html_row(std::move(row)));
    }
    if (are_means) {
        rows.push_back(html_row(pair_row("step",
                                         {.predicted = both.predicted_breakdown->sum(),
                                          .measured = both.measured_breakdown->sum()})));
    }
    return html_section("Parts of a step", html_table(rows));
}

/// A size that can be read at a glance; the pointer shows the exact number of bytes.
HtmlCell size_cell(Bytes size) {
    return {.text = format_bytes(size), .title = fmt::format("{} bytes", size.count)};
}

std::string memory_table(const FinishedRun& run) {
    std::vector<HtmlRow> rows{html_row({"", "predicted", "counted", "error"})};
    for (const PeakDelta& peak : run.comparison.peaks) {
        rows.push_back({{.text = fmt::format("rank {}", peak.rank)},
                        size_cell(peak.predicted),
                        size_cell(peak.measured),
                        {.text = error_text(peak.error_percent())}});
    }
    std::string html = html_table(rows);
    std::string beside = memory_beside_text(run.training.memory_beside);
    if (!beside.empty()) {
        beside.front() = 'M';  // it begins a sentence here
        html += fmt::format("<p class=\"note\">{}.</p>\n", html_escaped(beside));
    }
    return html_section("Peak memory", html);
}

std::string rank_table(const FinishedRun& run) {
    const sim::Prediction& prediction = run.prediction;
    std::vector<HtmlRow> rows{html_row({"rank", "busy", "idle", "stashed"})};
    for (const DeviceMetrics& device : prediction.metrics.devices) {
        rows.push_back(html_row({std::to_string(device.rank),
                                 format_duration(device.busy),
                                 format_duration(device.idle),
                                 std::to_string(device.peak_live_activations)}));
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

std::string table_of_texts(const gui::TextRows& table) {
    std::vector<HtmlRow> rows{html_row(table.headers)};
    std::ranges::transform(table.rows, std::back_inserter(rows), html_row);
    return html_table(rows);
}

/// What the groups of devices send in a step; empty for one device.
std::string groups_section(const FinishedRun& run) {
    const gui::GroupTable table = gui::group_table(
        run.prediction.plan, run.scenario, scenario_model(run.scenario, &run.profile), run.profile);
    if (table.empty()) {
        return {};
    }
    std::string html = table_of_texts(table.groups) +
                       "<p class=\"note\">Sent in a step by a device of the rank that they take "
                       "longest on.</p>\n";
    if (!table.experts.rows.empty()) {
        html += "<h3>Routed experts of each rank</h3>\n" + table_of_texts(table.experts) +
                fmt::format("<p class=\"note\">{}</p>\n", html_escaped(table.load));
    }
    return html_section("Groups of devices, predicted", html);
}

std::string noise_table(const FinishedRun& run) {
    const Noise& noise = run.comparison.noise;
    std::vector<HtmlRow> rows{
        html_row({"", "value"}),
        html_row({"time stolen by others", fmt::format("{:.2f} %", noise.stolen_percent)}),
        html_row({"step times, p90 / p10", fmt::format("{:.3f}", noise.p90_over_p10)}),
        html_row({"quiet steps, compared", std::to_string(noise.steps)}),
        html_row(
            {noise.steps > 0 ? "other steps, left out" : "other steps, of which one is compared",
             std::to_string(noise.dropped_steps)})};
    if (const auto& replay = run.comparison.replay) {
        rows.push_back(
            html_row({"replay of the measured durations", error_text(replay->error_percent())}));
    }
    return html_section("Noise of the machine", html_table(rows));
}

/// Scores and texts of the held-out texts that were translated; empty where there are none.
std::string translations_section(const FinishedRun& run) {
    const auto& translations = run.training.translations;
    if (translations.empty()) {
        return {};
    }
    std::vector<HtmlRow> scores;
    for (std::vector<std::string>& row : score_rows(translations)) {
        scores.push_back(html_row(std::move(row)));
    }
    std::vector<HtmlRow> texts{html_row({"direction", "source", "translation", "reference"})};
    for (const exec::HeldOutTranslation& one : translations) {
        texts.push_back(html_row({one.direction,
                                  printable(one.source),
                                  printable(one.text.hypothesis),
                                  printable(one.text.reference)}));
    }
    return html_section("Translations of held-out texts",
                        html_table(scores) + "<details>\n<summary>All texts</summary>\n" +
                            html_table(texts) + "</details>\n");
}

/// Everything between the headline and the glossary.
std::string body(const FinishedRun& run) {
    std::string html = "<div class=\"top\">\n<div class=\"column\">\n" + timelines(run);
    html += explanation(run) + "</div>\n<div class=\"column\">\n" + summary_table(run);
    html += memory_table(run) + noise_table(run) + rank_table(run);
    html += "</div>\n</div>\n<div class=\"cards\">\n";
    html += breakdown_table(run) + groups_section(run);
    html += html_section("Learning",
                         "<figure>" + learning_curve_svg(run.training.steps) + "</figure>\n");
    return html + "</div>\n" + translations_section(run);
}

}  // namespace

std::string report_html(const FinishedRun& run) {
    const std::string name = printable(run.scenario.file.stem().string());
    std::string html =
        page_begin(name) + fmt::format("<p class=\"about\">{}</p>\n", html_escaped(about(run)));
    html += window_line(run) + warning(run) + headline(run);
    for (const std::string& note : notes_of(run)) {
        html += fmt::format("<p class=\"note\">Note: {}.</p>\n", html_escaped(note));
    }
    html += body(run);
    html += "<div class=\"wide\">\n" + report_glossary(html) + "</div>\n";
    html += fmt::format(
        "<details open>\n<summary>Scenario, every default written "
        "out</summary>\n<pre>{}</pre>\n</details>\n",
        html_escaped(print_scenario(run.scenario.as_scenario())));
    html += fmt::format("<p class=\"note\">pipetwin {}, plan {}</p>\n",
                        program_version(),
                        run.prediction.plan.hash());
    return html + page_end();
}

}  // namespace pipetwin::cli
