// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <gtest/gtest.h>

#include "core/scenario/scenario.h"
#include "tests/core/scenario/scenario_texts.h"

namespace pipetwin {
namespace scenario_overrides_test {

using testing::full;
using testing::gpt;
using testing::parse;
using testing::refusal;
using testing::with;

TEST(Overrides, ReplaceAndAddKeys) {
    const Scenario s = parse(full,
                             {{"pipeline.stages", "1"},
                              {"cluster.speeds", "[2]"},
                              {"pipeline.partition", "auto"},
                              {"training.learning_rate", "0.5"},
                              {"data.path", "/abs/text"},
                              {"cluster.memory_limit", "2 GiB"},
                              {"pipeline.schedule", "1f1b"}});
    EXPECT_EQ(s.pipeline.stages, 1);
    EXPECT_TRUE(s.pipeline.partition.is_auto());
    EXPECT_EQ(s.training.learning_rate, 0.5);
    EXPECT_EQ(s.data.path, "/abs/text");
    EXPECT_EQ(s.cluster.memory_limit, Bytes{2LL << 30});
    EXPECT_EQ(s.pipeline.schedule, "1f1b");
    const Scenario added = parse(gpt, {{"pipeline.partition", "[4, 6]"}, {"pipeline.stages", "2"}});
    EXPECT_EQ(added.pipeline.partition, (std::vector<int>{4, 6}));
}

TEST(Overrides, TheLastOfOneKeyWins) {
    EXPECT_EQ(parse(gpt, {{"training.steps", "3"}, {"training.steps", "4"}}).training.steps, 4);
}

TEST(Overrides, CanSetAWholeTable) {
    EXPECT_EQ(parse(full, {{"training", "{steps = 3}"}}).training.steps, 3);
}

TEST(Overrides, RelativePathsAreRelativeToTheScenario) {
    EXPECT_EQ(
        parse(with(gpt, "[data]\nkind = \"text\"\npath = \"x\""), {{"data.path", "y/z"}}).data.path,
        "/home/u/scenarios/y/z");
}

TEST(Overrides, AreThePlaceOfTheirErrors) {
    EXPECT_EQ(refusal(full, {{"pipeline.stagse", "2"}}).place(), "--set pipeline.stagse");
    EXPECT_EQ(refusal(full, {{"pipeline.stagse", "2"}}).hint(), "did you mean 'stages'?");
    EXPECT_EQ(refusal(full, {{"pipelin.stages", "2"}}).place(), "--set pipelin.stages");
    EXPECT_EQ(refusal(full, {{"pipeline.stages", "x"}}).place(), "--set pipeline.stages");
    EXPECT_EQ(refusal(full, {{"training", "{batch = 0}"}}).place(), "--set training");
    EXPECT_EQ(refusal(full, {{"pipeline.stages", "[1"}}).place(), "--set pipeline.stages");
    EXPECT_EQ(refusal(full, {{"pipeline.stages", "1\nx = 2"}}).text(),
              "more than one value, expected one");
    EXPECT_EQ(refusal(full, {{"pipeline.stages.x", "1"}}).text(), "'stages' is no table");
    EXPECT_EQ(refusal(full, {{"", "1"}}).text(), "no key, expected one as in pipeline.stages");
    EXPECT_THROW(parse(full, {{"pipeline.", "1"}}), Error);
    // An error elsewhere keeps its place in the file.
    EXPECT_EQ(refusal(with(gpt, "[training]\nbatch = 0"), {{"training.steps", "3"}}).place(),
              "/home/u/scenarios/s.toml:8:9");
}

}  // namespace scenario_overrides_test
}  // namespace pipetwin
