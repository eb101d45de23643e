// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder/report_html.h"

#include <limits>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cli/run_folder/finished_run.h"
#include "cli/run_folder/learning_curve.h"
#include "cli/run_folder/page.h"
#include "cli/run_folder/report_glossary.h"
#include "cli/text/explanation_text.h"
#include "cli/text/text_output.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/estimate.h"
#include "core/interop/hf_config.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"
#include "core/text/json_text.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"
#include "tests/support/builders.h"

namespace pipetwin::cli {
namespace report_html_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A run of three steps that took exactly as long as predicted.
FinishedRun example(Origin origin = Origin::Measured) {
    sim::Prediction prediction = sim::predict(
        sim::with_settled_capacity(testing::uniform_plan({.ranks = 2, .micro_batches = 3})));
    exec::TrainingResult training;
    Timeline measured = prediction.timeline;
    measured.origin = origin;
    training.measured.steps.push_back(std::move(measured));
    training.measured.peak_bytes = {Bytes{1000}, Bytes{2000}};
    training.measured.noise = {
        .stolen_percent = 0.25, .p90_over_p10 = 1.02, .dropped_steps = 2, .steps = 1};
    for (int step = 1; step <= 3; ++step) {
        exec::StepReport report;
        report.step = step;
        report.loss = 6.0 - step;
        report.step_ms = 120;
        training.steps.push_back(report);
    }
    training.measured.breakdown = prediction.breakdown;
    TimelineSet predicted = sim::predicted_trace(prediction).timelines;
    predicted.peak_bytes = training.measured.peak_bytes;
    Comparison comparison = compare(predicted, training.measured);
    SettledScenario scenario;
    scenario.file = "a<b&c.toml";
    scenario.model.kind = ModelKind::Mlp;
    scenario.model.sizes = {4, 2};
    return {.folder = "runs/x",
            .scenario = scenario,
            .profile = {},
            .prediction = std::move(prediction),
            .training = std::move(training),
            .comparison = std::move(comparison)};
}

TEST(ReportHtml, NeedsNothingFromOutside) {
    const std::string html = report_html(example());
    for (const char* const reference : {"src=", "href=", "@import", "<script"}) {
        EXPECT_THAT(html, Not(HasSubstr(reference)));
    }
    for (std::size_t at = html.find("url("); at != std::string::npos;
         at = html.find("url(", at + 1)) {
        EXPECT_EQ(html[at + 4], '#') << html.substr(at, 40);  // a pattern of the picture itself
    }
}

TEST(ReportHtml, ShowsBothTimelinesAndEveryTable) {
    const std::string html = report_html(example());
    for (const char* const text : {"predicted step time",
                                   "measured step time",
                                   "+0.00 %",
                                   "<svg",
                                   "Where the time of the predicted step goes",
                                   "Parts of a step",
                                   "Peak memory",
                                   "Noise of the machine",
                                   "1.020",
                                   "mean over ranks",
                                   "aria-label=\"loss of every step\"",
                                   "sizes = [",
                                   "prefers-color-scheme: dark",
                                   "@media print"}) {
        EXPECT_THAT(html, HasSubstr(text));
    }
}

TEST(ReportHtml, ShowsWhatGroupsOfDevicesSend) {
    const std::filesystem::path file = find_model("mixtral-8x7b");
    DecoderModel decoder = parse_hf_config(read_file(file, JsonLimits{}.max_bytes), file.string());
    decoder.blocks = 4;
    FinishedRun run = example();
    run.profile = estimated_profile(
        decoder, find_device("h100-sxm"), {.sequence = 4096, .precision = "bf16"});
    run.scenario =
        settle(parse_scenario("[model]\nkind = \"profile\"\nfile = \"none.json\"\n"
                              "[training]\nbatch = 64\nexpert_load = 1.5\n"
                              "[cluster]\ndevice = \"h100-sxm\"\nper_node = 16\nstack = \"none\"\n"
                              "[pipeline]\nschedule = \"1f1b\"\nstages = 2\nmicro_batches = 8\n"
                              "data_parallel = 8\nexpert_parallel = 8\n",
                              "s.toml"));
    run.prediction = sim::predict(
        make_plan(run.scenario, scenario_model(run.scenario, &run.profile), run.profile));
    const std::string html = report_html(run);
    const std::size_t section = html.find("Groups of devices, predicted");
    ASSERT_NE(section, std::string::npos);
    const std::string groups = html.substr(section, html.find("</section>", section) - section);
    EXPECT_THAT(groups, HasSubstr("<td>experts</td><td>8 on 1 node</td><td>all-to-all</td>"));
    // A device's eight samples have 4096 x 4096 numbers of two bytes each.
    EXPECT_THAT(groups,
                HasSubstr("<td>pipeline</td><td>2</td><td>messages</td><td>256.00 MiB</td>"));
    EXPECT_THAT(groups, HasSubstr("Routed experts of each rank"));
    EXPECT_THAT(groups, HasSubstr("The fullest device has 1.5 times the mean of rows"));
}

TEST(ReportHtml, SaysAtTheTopWhereTheErrorsSayNothing) {
    FinishedRun run = example();
    const auto top = [&run](const Noise& noise) {
        run.comparison.noise = noise;
        const std::string html = report_html(run);
        return html.substr(0, html.find("<svg"));
    };
    const std::string quiet = top({.steps = 20});
    EXPECT_THAT(quiet, Not(HasSubstr("class=\"warning\"")));
    EXPECT_THAT(quiet, HasSubstr("class=\"figure good\""));
    const std::string busy = top({.stolen_percent = 40.25, .dropped_steps = 80, .steps = 0});
    EXPECT_THAT(busy, HasSubstr("The machine was busy."));
    EXPECT_THAT(busy, HasSubstr("Others used 40.2 % of the time"));
    EXPECT_THAT(busy, Not(HasSubstr("class=\"figure good\"")));
    EXPECT_THAT(busy, HasSubstr("not valid: the machine was busy"));
    EXPECT_THAT(top({.dropped_steps = 2, .steps = 1}),
                HasSubstr("The run is too short to be compared."));
    EXPECT_THAT(top({.steps = 31, .costs_apart = 1.4}), HasSubstr("The machine was busy"));
    // Nothing was stolen where the ranks themselves are too many.
    const std::string shared =
        top({.dropped_steps = 80, .steps = 0, .sharing_ranks = 4, .shared_cores = 2});
    EXPECT_THAT(shared, HasSubstr("4 ranks shared 2 cores"));
    EXPECT_THAT(shared, HasSubstr("not valid: ranks shared cores"));
    EXPECT_THAT(shared, Not(HasSubstr("busy")));
    EXPECT_THAT(shared, Not(HasSubstr("Others used")));
}

/// The report spoke of quiet steps that are compared where there were none.
TEST(ReportHtml, OfARunWithoutAQuietStepSaysWhatIsCompared) {
    FinishedRun run = example();
    run.comparison.noise = {.dropped_steps = 80, .steps = 0};
    EXPECT_THAT(report_html(run), HasSubstr("other steps, of which one is compared"));
    std::ostringstream out;
    const Console console(out, out, {});
    EXPECT_THAT(comparison_text(run.comparison, console),
                HasSubstr("0 quiet steps compared, so one of the 80 others is shown"));
    run.comparison.noise = {.dropped_steps = 49, .steps = 31};
    EXPECT_THAT(report_html(run), HasSubstr("other steps, left out"));
    EXPECT_THAT(comparison_text(run.comparison, console),
                HasSubstr("31 quiet steps compared, 49 left out"));
}

TEST(ReportHtml, HasTheSentencesOfSimulate) {
    const FinishedRun run = example();
    const std::string html = report_html(run);
    const sim::Explanation what = sim::explain(
        run.prediction.plan, run.prediction.timeline, run.prediction.breakdown, std::nullopt);
    const std::vector<Paragraph> paragraphs = explanation_paragraphs(run.prediction.plan, what);
    ASSERT_EQ(paragraphs.size(), 2);
    for (const Paragraph& paragraph : paragraphs) {
        for (const std::string& line : paragraph.lines) {
            EXPECT_THAT(html, HasSubstr(html_escaped(line)));
        }
    }
    EXPECT_THAT(html, HasSubstr("The measured step is as long as predicted."));
}

TEST(ReportHtml, NamesThePartsThatDiffer) {
    FinishedRun run = example();
    run.comparison.step.measured += Duration{6'000'000};
    run.comparison.measured_breakdown->forward += Duration{7'000'000};
    run.comparison.measured_breakdown->imbalance -= Duration{1'000'000};
    const std::string html = report_html(run);
    EXPECT_THAT(html, HasSubstr("The measured step is 6.0 ms longer than predicted."));
    EXPECT_THAT(html, HasSubstr("forward (7.0 ms longer) and imbalance (1.0 ms shorter)."));
}

TEST(ReportHtml, SizesAreReadableAndExact) {
    FinishedRun run = example();
    run.comparison.peaks.front().predicted = Bytes{1'610'612'736};  // 3/2 of 2^30
    EXPECT_THAT(report_html(run), HasSubstr("<td title=\"1610612736 bytes\">1.50 GiB</td>"));
}

TEST(ReportHtml, SaysHowToOpenTheRunInTheWindow) {
    FinishedRun run = example();
    EXPECT_THAT(report_html(run),
                HasSubstr("<code>pipetwin view runs/x</code> (in the folder where it was run)"));
    run.folder = "/home/a b/run";
    EXPECT_THAT(report_html(run),
                HasSubstr("<code>pipetwin view &#39;/home/a b/run&#39;</code></p>"));
}

TEST(ReportHtml, GlossaryExplainsTheWordsOfThePageAlone) {
    std::string words;
    for (const BreakdownPart& part : breakdown_parts) {
        words += fmt::format("{} ", part.words);
    }
    for (const BreakdownPart& part : breakdown_parts) {
        EXPECT_THAT(report_glossary(words), HasSubstr(fmt::format("<dt>{}", part.words)));
    }
    EXPECT_THAT(report_glossary("a stage"), HasSubstr("<dt>stage</dt>"));
    EXPECT_THAT(report_glossary("a stage"), Not(HasSubstr("<dt>rank</dt>")));
    EXPECT_THAT(report_html(example()), HasSubstr("<dt>bubble</dt>"));
}

TEST(ReportHtml, SaysWhereTheTimelineIsEmulated) {
    EXPECT_THAT(report_html(example(Origin::Emulated)), HasSubstr("emulated step time"));
    EXPECT_THAT(report_html(example(Origin::Measured)), Not(HasSubstr("emulated")));
}

TEST(ReportHtml, EscapesWhatTheUserNamed) {
    const std::string html = report_html(example());
    EXPECT_THAT(html, HasSubstr("<title>a&lt;b&amp;c - pipetwin</title>"));
    EXPECT_THAT(html, Not(HasSubstr("a<b")));
    EXPECT_EQ(html_escaped("<a href=\"x\">'&'"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
}

TEST(ReportHtml, EveryElementIsClosed) {
    const std::string html = report_html(example());
    for (const char* const element : {"table",
                                      "section",
                                      "ul",
                                      "li",
                                      "dl",
                                      "dt",
                                      "dd",
                                      "figure",
                                      "svg",
                                      "div",
                                      "pre",
                                      "details",
                                      "tr"}) {
        const auto count = [&html](const std::string& text) {
            std::size_t found = 0;
            for (std::size_t at = html.find(text); at != std::string::npos;
                 at = html.find(text, at + 1)) {
                ++found;
            }
            return found;
        };
        const std::string open = std::string("<") + element;
        EXPECT_EQ(count(open + ">") + count(open + " "), count(std::string("</") + element + ">"))
            << element;
    }
}

TEST(LearningCurve, HasAPointPerStepAndStandsALoneStep) {
    const FinishedRun run = example();
    const std::string three = learning_curve_svg(run.training.steps);
    EXPECT_THAT(three, HasSubstr("step 1<"));
    EXPECT_THAT(three, HasSubstr("step 3<"));
    EXPECT_THAT(learning_curve_svg({run.training.steps.data(), 1}), HasSubstr("<polyline"));
    EXPECT_THAT(three, Not(HasSubstr("nan")));
    EXPECT_THAT(three, Not(HasSubstr("inf")));
    EXPECT_THAT(three, Not(HasSubstr("classes right")));
}

TEST(LearningCurve, ShowsSharesOfRightClassesAndValidationsWhereThereAreAny) {
    std::vector<exec::StepReport> steps(200);
    for (std::size_t index = 0; index < steps.size(); ++index) {
        steps[index].step = static_cast<int>(index);
        steps[index].loss = 2 - 0.01 * static_cast<double>(index);
        steps[index].accuracy = 0.5;
    }
    steps[99].validation_loss = 1.2;
    steps[99].validation_accuracy = 0.75;
    const std::string svg = learning_curve_svg(steps);
    EXPECT_THAT(svg, HasSubstr("classes right"));
    EXPECT_THAT(svg, HasSubstr(">75 %<"));
    EXPECT_THAT(svg, HasSubstr(">validation<"));
    // A loss that is no number, as of a run that diverges, has no point.
    steps[150].loss = std::numeric_limits<double>::infinity();
    EXPECT_THAT(learning_curve_svg(steps), Not(HasSubstr("inf")));
}

TEST(LearningCurve, OfManyStepsIsShortAndShowsEveryOutlier) {
    std::vector<exec::StepReport> steps(100'000);
    for (std::size_t index = 0; index < steps.size(); ++index) {
        steps[index].step = static_cast<int>(index);
        steps[index].loss = index % 2 == 0 ? 1 : 3;
    }
    const std::string svg = learning_curve_svg(steps);
    EXPECT_LT(svg.size(),
              50'000U);        // two lines of 1000 points of 12 bytes, and what is around them
    steps[70'000].loss = 0.7;  // the lowest of its neighbours
    EXPECT_NE(learning_curve_svg(steps), svg);
}

}  // namespace report_html_test
}  // namespace pipetwin::cli
