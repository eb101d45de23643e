// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cli/text/text_output.h"
#include "core/artifacts/chrome_trace.h"
#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/base/short_number.h"
#include "gui/view/analysis/action_details.h"
#include "gui/view/run/run_data.h"
#include "tests/cli/support.h"

/// The figures of one run, and the verdict on its noise, in every view: report.json, report.html,
/// compare as text and as JSON, and the model of the window.
namespace pipetwin::cli {
namespace every_view_test {

using ::testing::HasSubstr;
using ::testing::Not;

/// A text with some words more behind others.
std::string with(std::string_view text, std::string_view words, std::string_view more) {
    std::string result(text);
    return result.insert(result.find(words) + words.size(), more);
}

class EveryView : public InFolder {
  protected:
    EveryView() {
        const Outcome trained =
            pipetwin({"train",
                      file("s.toml", with(three_layers, "steps = 1", "4")),
                      "--profile",
                      file("costs.profile.json",
                           with(three_layers_costs, "\"measured\",", " \"dispatch_ns\": 500,")),
                      "--quiet",
                      "--out",
                      path("run")});
        EXPECT_EQ(trained.code, 0) << trained.err;
    }

    /// Gives the measured trace this noise.
    void set_noise(const Noise& noise) const {
        const std::filesystem::path trace = folder() / "run" / "measured.trace.json";
        Trace measured = read_chrome_trace(trace);
        measured.timelines.noise = noise;
        std::ofstream(trace) << print_chrome_trace(measured);
    }
    std::string html() const { return content_of(folder() / run_ / "report.html"); }
    nlohmann::json report() const {
        return nlohmann::json::parse(content_of(folder() / run_ / "report.json"));
    }
    nlohmann::json compared() const { return pipetwin({"compare", path(run_), "--json"}).json(); }
    std::string text() const { return pipetwin({"compare", path(run_)}).out; }
    gui::RunData window() const { return gui::load_run(path(run_)); }
    /// Lets the views be those of another run of the folder.
    void look_at(const std::string& run) { run_ = run; }
    void expect_same_figures() const;

  private:
    std::string run_ = "run";
};

void EveryView::expect_same_figures() const {
    const nlohmann::json compared = this->compared();
    EXPECT_EQ(report()["comparison"], compared);
    // One word, one figure: the bubble of the prediction is that of the comparison.
    EXPECT_DOUBLE_EQ(report()["predicted"]["bubble"]["total"].get<double>(),
                     compared["bubble_total"]["predicted"].get<double>());
    EXPECT_EQ(report()["predicted"]["step_ms"], compared["step_ms"]["predicted"]);
    EXPECT_EQ(report()["predicted"]["breakdown_ms"], compared["breakdown_ms"]["predicted"]);

    const gui::RunData window = this->window();
    ASSERT_TRUE(window.comparison.has_value());
    const Comparison& both = *window.comparison;
    for (const auto& [key, pair] :
         {std::pair("step_ms", both.step), {"makespan_ms", both.makespan}}) {
        EXPECT_DOUBLE_EQ(compared[key]["predicted"].get<double>(), to_milliseconds(pair.predicted));
        EXPECT_DOUBLE_EQ(compared[key]["measured"].get<double>(), to_milliseconds(pair.measured));
        EXPECT_DOUBLE_EQ(compared[key]["error_percent"].get<double>(), pair.error_percent());
        for (const std::string& page : {html(), text()}) {
            EXPECT_THAT(page, HasSubstr(fmt::format("{:+.2f} %", pair.error_percent()))) << key;
        }
    }
    for (const gui::Side side : {gui::Side::Predicted, gui::Side::Measured}) {
        const char* const key = side == gui::Side::Predicted ? "predicted" : "measured";
        const double bubble = compared["bubble_total"][key].get<double>();
        EXPECT_DOUBLE_EQ(gui::bubble_of(window, side).value(), bubble);
        for (const std::string& page : {html(), text()}) {
            EXPECT_THAT(page, HasSubstr(percent_text(bubble))) << key;
        }
        const auto& parts =
            side == gui::Side::Predicted ? both.predicted_breakdown : both.measured_breakdown;
        for (const BreakdownPart& part : breakdown_parts) {
            EXPECT_DOUBLE_EQ(compared["breakdown_ms"][key][std::string(part.key)].get<double>(),
                             to_milliseconds(parts.value().*part.value))
                << part.key;
        }
    }
    for (const PeakDelta& peak : both.peaks) {
        EXPECT_EQ(compared["peak_bytes"][as_index(peak.rank)]["predicted"], peak.predicted.count);
        EXPECT_EQ(compared["peak_bytes"][as_index(peak.rank)]["measured"], peak.measured.count);
        EXPECT_THAT(html(), HasSubstr(fmt::format("{} bytes", peak.measured.count)));
        EXPECT_EQ(window.predicted->memory[as_index(peak.rank)].peak(), peak.predicted);
    }
    EXPECT_EQ(gui::peak_of(window).value(),
              std::ranges::max_element(both.peaks, {}, &PeakDelta::measured)->measured);
    EXPECT_DOUBLE_EQ(compared["replay"]["error_percent"].get<double>(),
                     both.replay.value().error_percent());
}

TEST_F(EveryView, HasTheSameFigures) {
    expect_same_figures();
}

TEST_F(EveryView, OfTenRunsHasTheFiguresThatTheRunPrinted) {
    const std::vector<std::vector<std::string>> ways{
        {"pipeline.schedule=gpipe"},
        {"pipeline.schedule=1f1b", "pipeline.micro_batches=2"},
        {"pipeline.schedule=1f1b", "pipeline.micro_batches=8"},
        {"pipeline.schedule=zb-h1"},
        {"pipeline.schedule=gpipe", "pipeline.recompute=always"},
        {"pipeline.schedule=1f1b", "pipeline.recompute=except-last"},
        {"pipeline.schedule=1f1b", "pipeline.stages=3", "cluster.count=3"},
        {"pipeline.schedule=gpipe", "pipeline.micro_batches=2"},
        {"pipeline.schedule=1f1b", "pipeline.stages=1"},
        {"pipeline.schedule=1f1b", "training.steps=6"}};
    for (std::size_t i = 0; i < ways.size(); ++i) {
        const std::string name = fmt::format("run{}", i);
        std::vector<std::string> args{"run",
                                      path("s.toml"),
                                      "--profile",
                                      path("costs.profile.json"),
                                      "--out",
                                      path(name),
                                      "--json"};
        for (const std::string& key : ways[i]) {
            args.insert(args.end(), {"--set", key});
        }
        const Outcome run = pipetwin(args);
        ASSERT_EQ(run.code, 0) << ways[i].front() << run.err;
        look_at(name);
        EXPECT_EQ(run.json(), report()) << ways[i].front();
        expect_same_figures();
    }
}

/// A step of the window had another bubble than the run, and the list of runs a third one.
TEST_F(EveryView, OfOneStepHasTheSameBubbleInTheTableOfTheStep) {
    const std::filesystem::path trace = folder() / "run" / "measured.trace.json";
    Trace measured = read_chrome_trace(trace);
    measured.timelines.steps.resize(1);
    measured.timelines.numbers.resize(1);
    measured.memory.clear();
    std::ofstream(trace) << print_chrome_trace(measured);
    const gui::RunData window = this->window();
    const nlohmann::json compared = this->compared();
    const auto lines = gui::step_lines(window, 0);
    EXPECT_EQ(lines.at(2).predicted, short_percent(compared["bubble_total"]["predicted"]));
    EXPECT_EQ(lines.at(2).measured, short_percent(compared["bubble_total"]["measured"]));
}

/// Training that found the machine busy said so in its report only: the trace did not keep why.
TEST_F(EveryView, GivesTheSameVerdict) {
    const std::string before = gui::says_nothing(window());
    EXPECT_EQ(report()["comparison"]["not_measurable"].is_null(), before.empty());
    EXPECT_EQ(html().find("class=\"warning\"") == std::string::npos, before.empty());
    for (const Noise& noise :
         {Noise{.steps = 31, .costs_apart = 1.0},
          Noise{.steps = 31, .costs_apart = 1.88},
          Noise{.dropped_steps = 2, .steps = 3},
          Noise{.stolen_percent = 20, .dropped_steps = 80},
          Noise{.dropped_steps = 9, .steps = 20, .sharing_ranks = 4, .shared_cores = 2},
          Noise{}}) {
        set_noise(noise);
        std::filesystem::remove(folder() / "run" / "report.json");
        const std::optional<std::string> why = noise.not_measurable();
        const nlohmann::json compared = this->compared();
        EXPECT_EQ(compared["not_measurable"], why ? nlohmann::json(*why) : nlohmann::json());
        EXPECT_EQ(compared["verdict"],
                  why ? nlohmann::json(std::string(noise.verdict())) : nlohmann::json());
        EXPECT_EQ(gui::says_nothing(window()), noise_sentence(noise));
        EXPECT_THAT(text(), HasSubstr(why ? noise_sentence(noise) : "error of the predicted step"));
        EXPECT_EQ(text().find("say nothing") == std::string::npos, !why);
    }
}

/// A trace of an older version does not say how far its rounds of costs lie apart; its report does.
TEST_F(EveryView, OfAnOlderRunTakesItsVerdictFromTheReport) {
    const auto write_report = [this](int steps) {
        std::ofstream(folder() / "run" / "report.json")
            << R"({"comparison": {"noise": {"steps": )" << steps
            << R"(, "dropped_steps": 3, "costs_apart": 1.4}}})";
    };
    set_noise({.dropped_steps = 3, .steps = 12});
    write_report(12);
    EXPECT_EQ(compared()["verdict"], "The machine was busy");
    EXPECT_THAT(gui::says_nothing(window()), HasSubstr("1.40 times as slow"));
    write_report(13);  // of another training
    EXPECT_TRUE(compared()["verdict"].is_null());
    EXPECT_EQ(gui::says_nothing(window()), "");
}

TEST_F(EveryView, OfATraceWithoutNoiseSaysThatItIsNotKnown) {
    set_noise({});
    EXPECT_TRUE(compared()["noise"]["steps"].is_null());
    EXPECT_THAT(text(), HasSubstr("noise: not known"));
    EXPECT_THAT(text(), Not(HasSubstr("0 quiet steps")));
}

}  // namespace every_view_test
}  // namespace pipetwin::cli
