// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/scenario_run.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/costs/profile_json.h"
#include "gui/view/run/planned_run.h"
#include "gui/view/what_if/heat_map.h"
#include "gui/view/what_if/what_if.h"
#include "tests/gui/what_if_runs.h"
#include "tests/support/builders.h"
#include "tests/support/places.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin::gui {
namespace scenario_run_test {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
namespace fs = std::filesystem;

fs::path shipped(const char* name) {
    return fs::path(places::source_folder()) / "scenarios" / name;
}

class ScenarioRunTest : public ::testing::Test {
  protected:
    fs::path file(const char* name, const std::string& content) const {
        const fs::path path = folder_.path() / name;
        std::ofstream(path) << content;
        return path;
    }

    const tests::ScratchFolder folder_;
};

constexpr const char* small_scenario = R"(
[model]
kind = "mlp"
sizes = [64, 64, 64, 10]
[data]
kind = "synthetic"
[training]
batch = 32
[pipeline]
stages = 2
micro_batches = 4
schedule = "1f1b"
)";

TEST_F(ScenarioRunTest, AScenarioWithoutMeasuredCostsIsEstimatedAndSaysSo) {
    const RunData run = load_run(file("small.toml", small_scenario));
    ASSERT_THAT(run.problems, IsEmpty());
    EXPECT_EQ(run.twin.rank_count(), 2);
    EXPECT_EQ(run.micro_batches, 4);
    EXPECT_EQ(run.scenario.filename(), "small.toml");
    ASSERT_THAT(run.notes, Not(IsEmpty()));
    EXPECT_THAT(run.notes.front(), HasSubstr("estimates for"));
    EXPECT_THAT(run.notes.front(), HasSubstr("pipetwin profile"));
    EXPECT_THAT(run.predicted->memory, IsEmpty());
    ASSERT_NE(run.plan(), nullptr) << "waits are explained by the plan";
}

/// An estimate knows no bytes, so no what-if may show any.
TEST_F(ScenarioRunTest, WhatIfsOfAnEstimateChangeTheNumberOfRanksAndShowNoMemory) {
    const WhatIfSource source(
        std::make_shared<const RunData>(load_run(file("small.toml", small_scenario))));
    ASSERT_EQ(source.why_not(), "");
    EXPECT_FALSE(source.knows_bytes());
    EXPECT_EQ(source.settings().stages, 2);
    EXPECT_GT(source.ranges(source.settings()).most_stages, 2);
    const WhatIfSimulation own = apply(source, source.settings(), sim::RecordLinks::No);
    ASSERT_NE(own.outcome.step, nullptr) << own.outcome.reason;
    EXPECT_EQ(own.outcome.step->metrics.step, source.run().predicted->step);
    WhatIf settings = with_pieces(source.settings(), 3, 1);
    settings.micro_batches = 8;
    WhatIfSimulation more = apply(source, settings, sim::RecordLinks::No);
    ASSERT_NE(more.outcome.step, nullptr) << more.outcome.reason;
    EXPECT_THAT(more.outcome.step->peaks, IsEmpty());
    EXPECT_THAT(more.memory, IsEmpty());
    EXPECT_FALSE(heat_map(source, settings).knows_memory);
    const auto shown = what_if_run(source, settings, std::move(more));
    EXPECT_EQ(shown->twin.rank_count(), 3);
    EXPECT_THAT(shown->predicted->memory, IsEmpty());
    EXPECT_FALSE(shown->planned->knows_bytes);
}

TEST_F(ScenarioRunTest, AMeasuredProfileBesideTheScenarioIsTaken) {
    const fs::path scenario = file("small.toml", small_scenario);
    const RunData estimated = load_run(scenario);
    // Six layers of 1 ms and 2 ms would be of another model: costs of its own are needed.
    Profile profile;
    profile.source = CostSource::Measured;
    profile.device = "this-machine";
    const Model model = scenario_model(read_scenario(scenario));
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        LayerCost& cost = profile.layers.emplace_back();
        cost.name = model.layer(layer).spec.name;
        LayerSample& sample = cost.samples.emplace_back();
        sample.micro_batch_size = 8;
        sample.forward = std::chrono::milliseconds(1);
        sample.backward_input = std::chrono::milliseconds(1);
        sample.backward_weight = std::chrono::milliseconds(1);
    }
    file("small.profile.json", print_profile(profile));
    const RunData run = load_run(scenario);
    ASSERT_THAT(run.problems, IsEmpty());
    ASSERT_NE(run.planned, nullptr);
    EXPECT_THAT(run.notes, Each(Not(HasSubstr("estimated"))));
    EXPECT_THAT(run.predicted->memory, SizeIs(2));
}

TEST_F(ScenarioRunTest, NotesAreSentences) {
    PlanParts parts = pipetwin::testing::uniform_plan({.ranks = 1, .micro_batches = 1}).parts();
    parts.notes = {"the scenario names no device", "the key cluster.device names none"};
    EXPECT_THAT(sentences_of_notes(Plan::make(parts)),
                ElementsAre("The scenario names no device.", "The key cluster.device names none."));
}

TEST_F(ScenarioRunTest, EveryShippedScenarioIsSimulated) {
    int shown = 0;
    for (const auto& entry : fs::directory_iterator(shipped(""))) {
        if (entry.path().extension() == ".toml") {
            const RunData run = load_run(entry.path());
            EXPECT_THAT(run.problems, IsEmpty()) << entry.path();
            EXPECT_FALSE(run.empty()) << entry.path();
            ++shown;
        }
    }
    EXPECT_GE(shown, 10);
}

TEST_F(ScenarioRunTest, WhatAFileIsItsContentTells) {
    const RunData scenario = load_run(file("named-otherwise.txt", small_scenario));
    EXPECT_THAT(scenario.problems, IsEmpty());
    EXPECT_EQ(scenario.twin.rank_count(), 2);
    const RunData schedule = load_run(file("rows.txt", "0F0,0B0\n"));
    EXPECT_THAT(schedule.problems, IsEmpty());
    EXPECT_EQ(schedule.twin.rank_count(), 1);
    EXPECT_THAT(schedule.notes, ElementsAre(HasSubstr("forward takes 1 ms")));
}

TEST_F(ScenarioRunTest, AProfileIsShownAsFourStagesAtMost) {
    const Profile profile = weighted_profile({1, 1, 1, 1, 4, 4});
    const RunData run = load_run(file("costs.json", print_profile(profile)));
    ASSERT_THAT(run.problems, IsEmpty());
    EXPECT_EQ(run.twin.rank_count(), 4);
    EXPECT_EQ(run.schedule_name, "1f1b");
    EXPECT_TRUE(run.scenario.empty()) << "there is none that could be trained";
    ASSERT_NE(run.planned, nullptr) << "What if plans it otherwise";
    EXPECT_THAT(run.notes.front(), HasSubstr("4 stages"));
}

/// Costs of ranks that shared a GPU hold for their number: with another, each has another share.
TEST_F(ScenarioRunTest, AProfileOfRanksThatSharedADeviceIsShownWithAsManyStages) {
    Profile profile = weighted_profile({1, 1, 1, 1, 4, 4});
    for (const int ranks : {2, 3, 5}) {
        profile.ranks.assign(static_cast<std::size_t>(ranks), {.device = 0, .interference = 0.1});
        const RunData run = load_run(file("costs.json", print_profile(profile)));
        ASSERT_THAT(run.problems, IsEmpty());
        EXPECT_EQ(run.twin.rank_count(), ranks);
        const std::string count = std::to_string(ranks);
        EXPECT_THAT(run.notes.front(),
                    HasSubstr("1f1b with " + count +
                              " stages, because the costs were measured on " + count + " ranks"));
    }
}

TEST_F(ScenarioRunTest, APlanStandsForItsFolder) {
    const RunData run = load_run(file("plan.json", R"({"hash": "x", "cost_class": []})"));
    ASSERT_THAT(run.problems, SizeIs(1));
    EXPECT_THAT(run.problems.front(), HasSubstr("expected a folder written by"));
}

TEST_F(ScenarioRunTest, FilesOfOtherProgramsAreNamedWithTheCommandThatTakesThem) {
    const RunData run =
        load_run(file("config.json", R"({"architectures": ["X"], "model_type": "llama"})"));
    ASSERT_THAT(run.problems, SizeIs(1));
    EXPECT_THAT(run.problems.front(), HasSubstr("this is a config.json of Hugging Face"));
    EXPECT_THAT(run.problems.front(), HasSubstr("pipetwin import"));
}

TEST_F(ScenarioRunTest, AScenarioWithAMistakeIsAProblemThatNamesTheKey) {
    const RunData run =
        load_run(file("wrong.toml", std::string(small_scenario) + "micro_batch = 3\n"));
    ASSERT_THAT(run.problems, SizeIs(1));
    EXPECT_THAT(run.problems.front(), HasSubstr("micro_batch"));
    EXPECT_TRUE(run.empty());
}

}  // namespace scenario_run_test
}  // namespace pipetwin::gui
