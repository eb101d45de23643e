// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/run_folder/run_folder.h"
#include "tests/cli/support.h"
#include "tests/support/places.h"

/// Files that version 0.1.0 wrote: a run folder of four steps of a small perceptron, with scenario,
/// costs, plan, traces, and the checkpoint after two steps.
namespace pipetwin::cli {
namespace earlier_version_test {

namespace fs = std::filesystem;

class EarlierVersion : public InFolder {
  protected:
    void SetUp() override {
        fs::copy(fs::path(places::source_folder()) / "tests/cli/data/run-of-0.1.0",
                 folder() / "run",
                 fs::copy_options::recursive);
        report_ = nlohmann::json::parse(content_of(in_run("report.json")));
        ASSERT_EQ(report_["tool_version"], "0.1.0");
    }

    std::string in_run(std::string_view name) const { return (folder() / "run" / name).string(); }

    nlohmann::json report_;  ///< what 0.1.0 said of the run
};

TEST_F(EarlierVersion, ProfileAndScenarioGiveThePredictedStep) {
    const Outcome outcome = pipetwin(
        {"simulate", in_run("scenario.toml"), "--profile", in_run("profile.json"), "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["step_ms"], report_["predicted"]["step_ms"]);
}

TEST_F(EarlierVersion, PlanIsReadAndWrittenTheSame) {
    const Outcome outcome = pipetwin({"export", "json", path("run"), "--out", path("plan.json")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(content_of(path("plan.json")), content_of(in_run("plan.json")));
}

TEST_F(EarlierVersion, RunFolderIsCompared) {
    const Outcome outcome = pipetwin({"compare", path("run"), "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["step_ms"], report_["comparison"]["step_ms"]);
}

TEST_F(EarlierVersion, CheckpointIsContinued) {
    const std::string before = content_of(in_run(run_file::metrics));
    const Outcome outcome =
        pipetwin({"train", in_run("scenario.toml"), "--resume", "--out", path("run")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;

    std::istringstream old_lines(before);
    std::istringstream new_lines(content_of(in_run(run_file::metrics)));
    int steps = 0;
    for (std::string old_line, new_line;
         std::getline(old_lines, old_line) && std::getline(new_lines, new_line);
         ++steps) {
        const auto old_step = nlohmann::json::parse(old_line);
        const auto new_step = nlohmann::json::parse(new_line);
        EXPECT_EQ(new_step["step"], old_step["step"]);
        // Processors may sum in another order.
        EXPECT_NEAR(new_step["loss"], old_step["loss"], 1e-5);
        EXPECT_NEAR(new_step["grad_norm"], old_step["grad_norm"], 1e-5);
    }
    EXPECT_EQ(steps, 4);
}

}  // namespace earlier_version_test
}  // namespace pipetwin::cli
