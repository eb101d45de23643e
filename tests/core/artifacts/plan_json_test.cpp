// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/plan_json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/schedule/generators/generate.h"
#include "core/timeline/footprint.h"
#include "tests/support/builders.h"

namespace pipetwin {
namespace plan_json_test {

using nlohmann::json;
using testing::uniform_plan;

const Plan plan = uniform_plan({.kind = ScheduleKind::OneFOneB,
                                .ranks = 2,
                                .micro_batches = 3,
                                .forward = Duration(10),
                                .backward = Duration(21),
                                .recompute = Recompute::ExceptLast,
                                .latency = Duration(5),
                                .bytes_per_second = 1e9,
                                .boundary = Bytes{64}});

TEST(PlanJson, HoldsWhatThePlanIsMadeOf) {
    const json root = json::parse(print_plan(plan));
    EXPECT_EQ(root["schema_version"], 1);
    EXPECT_EQ(root["hash"], plan.hash());
    EXPECT_EQ(root["schedule"], "1f1b");
    EXPECT_EQ(root["ranks"], 2);
    EXPECT_EQ(root["micro_batches"], 3);
    EXPECT_EQ(root["recompute"], "except-last");
    EXPECT_EQ(root["recompute_timing"], "eager");
    EXPECT_EQ(root["rank_of_stage"], (std::vector{0, 1}));
    EXPECT_EQ(root["costs"][0][1]["forward_ns"], 10);
    EXPECT_EQ(root["costs"][0][1]["backward_ns"], 21);
    EXPECT_EQ(root["costs"][0][1]["input_bytes"], 64);
    EXPECT_EQ(root["links"][0]["latency_ns"], 5);
    EXPECT_EQ(root["links"][0]["bytes_per_second"], 1e9);
    EXPECT_EQ(root["smallest_capacity"], 1);
}

TEST(PlanJson, SaysWhatEachPieceRecomputesWhereTheyDiffer) {
    const Plan mixed = uniform_plan(
        {.kind = ScheduleKind::OneFOneB,
         .ranks = 3,
         .micro_batches = 3,
         .recompute = RecomputeRules({Recompute::Always, Recompute::ExceptLast, Recompute::None})});
    EXPECT_EQ(json::parse(print_plan(mixed))["recompute"],
              (std::vector{"always", "except-last", "none"}));
}

TEST(PlanJson, WritesNullForWhatThePlanDoesNotHave) {
    const json root = json::parse(print_plan(plan));
    EXPECT_TRUE(root["partition"].is_null());
    EXPECT_TRUE(root["channel_capacity"].is_null());
    EXPECT_TRUE(root["memory_limit_bytes"].is_null());
}

TEST(PlanJson, WritesWhatThePlanDoesHave) {
    PlanParts parts = plan.parts();
    parts.partition = Partition({2, 1}, 3);
    parts.layer_names = {"a", "b", "c"};
    parts.micro_batch_sizes = {2, 2, 1};
    parts.memory_limit = Bytes{1'000'000};
    const json root = json::parse(print_plan(Plan::make(parts).with_capacity(2)));
    EXPECT_EQ(root["partition"], (std::vector{2, 1}));
    EXPECT_EQ(root["layer_names"][2], "c");
    EXPECT_EQ(root["micro_batch_sizes"], (std::vector{2, 2, 1}));
    EXPECT_EQ(root["channel_capacity"], 2);
    EXPECT_EQ(root["memory_limit_bytes"], 1'000'000);
}

TEST(PlanJson, PeakBytesAreTheFootprintsAndSumToTheirTotal) {
    const json root = json::parse(print_plan(plan));
    const std::vector<MemoryUse> peaks = peak_memory(plan);
    ASSERT_EQ(root["peak_bytes"].size(), peaks.size());
    for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
        const json& peak = root["peak_bytes"][rank];
        EXPECT_EQ(peak["total"], peaks[rank].total().count);
        std::int64_t sum = 0;
        for (const auto* const kind :
             {"weights", "gradients", "optimizer", "stash", "boundary", "workspace"}) {
            sum += peak.at(kind).get<std::int64_t>();
        }
        EXPECT_EQ(sum, peaks[rank].total().count);
    }
}

}  // namespace plan_json_test
}  // namespace pipetwin
