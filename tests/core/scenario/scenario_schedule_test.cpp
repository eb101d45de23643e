// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/scenario/settled_scenario.h"
#include "tests/core/scenario/scenario_texts.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin {
namespace scenario_schedule_test {

using testing::error_of;
using testing::gpt;
using ::testing::HasSubstr;
using testing::parse;
using testing::with;

/// A schedule of two ranks and three micro-batches, beside the scenario.
class OwnSchedule : public ::testing::Test {
  protected:
    Scenario scenario(const std::string& keys) const {
        return parse(with(gpt, "[pipeline]\nschedule = \"" + csv.string() + "\"\n" + keys));
    }

    const tests::ScratchFolder folder;
    const std::filesystem::path csv =
        folder.write("own.csv", "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
};

TEST_F(OwnSchedule, SaysStagesChunksAndMicroBatches) {
    const Scenario s = scenario("");
    EXPECT_TRUE(has_schedule_file(s));
    EXPECT_EQ(s.pipeline.stages, 2);
    EXPECT_EQ(s.pipeline.chunks, 1);
    EXPECT_EQ(s.pipeline.micro_batches, 3);
    EXPECT_EQ(s.pipeline.recompute, Recompute::None);
    EXPECT_EQ(scenario_schedule(settle(s)).ranks[1].size(), 6U);
    EXPECT_EQ(parse_scenario(print_scenario(s), "x.toml").pipeline, s.pipeline);
}

TEST_F(OwnSchedule, RefusesKeysThatSaySomethingElse) {
    EXPECT_NO_THROW(scenario("stages = 2\nmicro_batches = \"auto\""));
    const Error error = error_of([this] { scenario("micro_batches = 4"); });
    EXPECT_THAT(error.what(), HasSubstr("micro_batches = 4, expected 3"));
    EXPECT_THAT(error.hint(), HasSubstr("leave the key out"));
}

TEST_F(OwnSchedule, NeedsASampleForEveryMicroBatch) {
    Scenario s = scenario("");
    s.training.batch = 2;
    const Error error = error_of([&s] { scenario_schedule(settle(s)); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_THAT(error.what(), HasSubstr("3 micro-batches, but a mini-batch has 2 samples"));
}

TEST(ListOfSchedules, IsOpenAndIsReadBackAsItIsPrinted) {
    const Scenario s = parse(with(gpt, "[pipeline]\nschedule = [\"1F1B\", \"zb-h1\", \"1f1b\"]\n"));
    EXPECT_TRUE(s.pipeline.schedule.is_auto());
    EXPECT_EQ(s.pipeline.schedule.choices(), (std::vector<std::string>{"1f1b", "zb-h1"}));
    EXPECT_EQ(parse_scenario(print_scenario(s), "x.toml").pipeline, s.pipeline);
    const Error error = error_of([&s] { settle(s); });
    EXPECT_THAT(error.what(), HasSubstr("pipeline.schedule"));
}

TEST(ListOfSchedules, WithOneNameIsThatSchedule) {
    EXPECT_EQ(parse(with(gpt, "[pipeline]\nschedule = [\"zb-h1\"]\n")).pipeline.schedule, "zb-h1");
}

TEST(ListOfSchedules, RefusesWhatIsNoName) {
    const auto hint = [](const std::string& value) {
        return error_of([&] { parse(with(gpt, "[pipeline]\nschedule = " + value + "\n")); }).hint();
    };
    EXPECT_THAT(hint("[\"1f1b\", \"zbh1\"]"), HasSubstr("zb-h1"));
    EXPECT_THAT(hint("[\"1f1b\", \"own.csv\"]"), HasSubstr("schedule = \"own.csv\""));
    EXPECT_THAT(hint("[]"), HasSubstr("\"auto\""));
    EXPECT_THAT(hint("\"[1f1b,zb-h1]\""), HasSubstr("[\"1f1b\", \"zb-h1\"]"));
}

}  // namespace scenario_schedule_test
}  // namespace pipetwin
