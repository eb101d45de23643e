// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/first_changes.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "core/costs/profile_json.h"
#include "core/model/model.h"
#include "core/scenario/scenario.h"

namespace pipetwin::sim {
namespace first_changes_test {

/// Eight blocks of 1 ms forward and 2 ms backward for each sample between ends that take no time,
/// so times are in proportion to samples.
Profile eight_blocks() {
    return parse_profile(
        R"({"schema_version": 1, "source": "estimated", "layers": [
            {"name": "embedding", "parameter_bytes": 0, "samples": [
                {"micro_batch_size": 1, "forward_ns": 0, "backward_ns": 0, "output_bytes": 1000,
                 "saved_bytes": 0},
                {"micro_batch_size": 8, "forward_ns": 0, "backward_ns": 0, "output_bytes": 8000,
                 "saved_bytes": 0}]},
            {"name": "block", "repeat": 8, "parameter_bytes": 0, "samples": [
                {"micro_batch_size": 1, "forward_ns": 1000000, "backward_ns": 2000000,
                 "output_bytes": 1000, "saved_bytes": 1000000},
                {"micro_batch_size": 8, "forward_ns": 8000000, "backward_ns": 16000000,
                 "output_bytes": 8000, "saved_bytes": 8000000}]},
            {"name": "head", "parameter_bytes": 0, "samples": [
                {"micro_batch_size": 1, "forward_ns": 0, "backward_ns": 0, "output_bytes": 0,
                 "saved_bytes": 0},
                {"micro_batch_size": 8, "forward_ns": 0, "backward_ns": 0, "output_bytes": 0,
                 "saved_bytes": 0}]}]})",
        "blocks.json");
}

FirstChanges changes_of(const std::string& pipeline,
                        const RunAbilities& abilities,
                        const std::string& cluster = "") {
    const Profile profile = eight_blocks();
    const Scenario scenario = parse_scenario(
        "model = {kind = \"profile\", file = \"blocks.json\"}\ntraining = {batch = 16}\n"
        "cluster = {link_gbps = 100000" +
            cluster + "}\n[pipeline]\n" + pipeline,
        "s.toml");
    return first_changes(scenario, scenario_model(scenario, &profile), profile, abilities);
}

const PlanChange* change_of(const std::vector<PlanChange>& changes, const std::string& what) {
    const auto found = std::ranges::find(changes, what, &PlanChange::what);
    return found == changes.end() ? nullptr : &*found;
}

/// Four stages and m micro-batches take (m + 3) times what a micro-batch takes on a stage: with two
/// samples in each, (8 + 3) x 12 ms; with one, (16 + 3) x 6 ms.
TEST(FirstChanges, SmallerMicroBatchesHaveSmallerBubbles) {
    const FirstChanges found =
        changes_of("stages = 4\nmicro_batches = 8\nschedule = \"1f1b\"\npartition = [2, 2, 2, 2]\n",
                   {.schedules = {"1f1b"}});
    EXPECT_NEAR(found.now.step, 0.132, 1e-4);
    const PlanChange* const smaller = change_of(found.faster, "micro-batches of 1 sample");
    ASSERT_NE(smaller, nullptr);
    EXPECT_NEAR(smaller->step, 0.114, 1e-4);
    ASSERT_EQ(smaller->keys.size(), 1U);
    EXPECT_EQ(smaller->keys[0], (Override{"pipeline.micro_batches", "16"}));
    EXPECT_EQ(change_of(found.faster, "micro-batches of 4 samples"), nullptr);
}

/// With two stages on each rank the bubble is half as long: (8 + 1.5) x 12 ms.
TEST(FirstChanges, SchedulesAreThoseOfTheProgram) {
    const std::string pipeline =
        "stages = 4\nmicro_batches = 8\nschedule = \"1f1b\"\npartition = [2, 2, 2, 2]\n";
    const FirstChanges with = changes_of(pipeline, {.schedules = {"1f1b", "interleaved-1f1b"}});
    const PlanChange* const interleaved =
        change_of(with.faster, "interleaved-1f1b with 2 stages on each rank");
    ASSERT_NE(interleaved, nullptr);
    EXPECT_NEAR(interleaved->step, 0.114, 1e-4);
    const FirstChanges without = changes_of(pipeline, {.schedules = {"1f1b"}});
    for (const PlanChange& change : without.faster) {
        EXPECT_EQ(change.what.find("interleaved"), std::string::npos) << change.what;
    }
}

/// One stage and four replicas have no bubble: 4 samples of 24 ms on each, 96 ms; the fastest of
/// all.
TEST(FirstChanges, DevicesMoveFromStagesToReplicas) {
    const FirstChanges found =
        changes_of("stages = 4\nmicro_batches = 8\nschedule = \"1f1b\"\npartition = [2, 2, 2, 2]\n",
                   {.schedules = {"1f1b"}});
    ASSERT_FALSE(found.faster.empty());
    EXPECT_EQ(found.faster.front().what, "1 rank, 4 replicas, tensor parallelism 1");
    EXPECT_NEAR(found.faster.front().step, 0.096, 1e-4);
}

/// Recompute of whole stages adds a forward: without it a stage takes 3/4 of the time, but the
/// first rank holds up to four stashes of 2 x 2 MB.
TEST(FirstChanges, WhatDoesNotFitIsNamedApart) {
    const std::string pipeline =
        "stages = 4\nmicro_batches = 8\nschedule = \"1f1b\"\npartition = [2, 2, 2, 2]\n"
        "recompute = \"always\"\n";
    const FirstChanges roomy = changes_of(pipeline, {.schedules = {"1f1b"}, .selective = false});
    ASSERT_NE(change_of(roomy.faster, "no recompute"), nullptr);
    EXPECT_NEAR(change_of(roomy.faster, "no recompute")->step, roomy.now.step * 3 / 4, 1e-3);
    const FirstChanges tight = changes_of(
        pipeline, {.schedules = {"1f1b"}, .selective = false}, ", memory_limit = \"10 MB\"");
    EXPECT_EQ(change_of(tight.faster, "no recompute"), nullptr);
    EXPECT_NE(change_of(tight.too_large, "no recompute"), nullptr);
}

}  // namespace first_changes_test
}  // namespace pipetwin::sim
