// SPDX-License-Identifier: Apache-2.0
#include "sim/search/largest_model.h"

#include <array>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/timeline/memory_limits.h"
#include "tests/support/error_of.h"
#include "tests/support/scenario_plans.h"
#include "tests/support/soak.h"

namespace pipetwin::sim {
namespace largest_model_test {

using ::testing::HasSubstr;
using testing::layer;
using testing::plan_of;

/// An input, a repeated layer and an output of any size on a few devices; no boundary is larger
/// than the one before it.
class RandomModel {
  public:
    explicit RandomModel(std::uint64_t seed) : random_(seed) {}

    Profile profile() {
        const int boundary = 1 + below(20);
        Profile profile;
        profile.layers.push_back(layer("in", 1 + below(50), boundary + below(20), 1 + below(60)));
        const int forward = 1 + below(50);
        const int saved = 1 + below(60);
        for (int i = 0; i < 2; ++i) {
            profile.layers.push_back(layer(fmt::format("l{}", i), forward, boundary, saved));
            profile.layers.back().parameter_bytes = Bytes{50};
        }
        profile.layers.push_back(layer("out", 1 + below(50), 0, 1 + below(60)));
        profile.layers.back().parameter_bytes = Bytes{below(200)};
        return profile;
    }

    Scenario scenario() {
        constexpr std::array schedules{"1f1b", "gpipe", "zb-h1", "zb-h2"};
        Scenario scenario = testing::scenario_of(1, 1, 1 << below(3)).as_scenario();
        Scenario::PipelinePart& pipeline = scenario.pipeline;
        pipeline.stages.open();
        pipeline.micro_batches.open();
        pipeline.data_parallel.open();
        pipeline.schedule = schedules.at(static_cast<std::size_t>(below(4)));
        pipeline.recompute.open();
        pipeline.shard = static_cast<Shard>(below(4));
        pipeline.channel_capacity = 1;  // else it depends on the times of each partition
        scenario.cluster.count = 1 + below(4);
        scenario.cluster.memory_limit = Bytes{400 + below(1000)};
        return scenario;
    }

    int below(int end) { return testing::below(random_, end); }

  private:
    std::mt19937_64 random_;
};

bool fits_with_any_partition(const Scenario& scenario,
                             const Profile& profile,
                             const Candidate& candidate,
                             std::vector<int> sizes,
                             int left) {
    if (static_cast<int>(sizes.size()) == candidate.shape.stages - 1) {
        if (left < 1) {
            return false;
        }
        sizes.push_back(left);
        SettledScenario settled = with_candidate(scenario, candidate);
        settled.pipeline.partition = sizes;
        try {
            check_memory(plan_of(settled, profile));
            return true;
        } catch (const Error&) {
            return false;
        }
    }
    for (int first = 1; first < left; ++first) {
        std::vector<int> next = sizes;
        next.push_back(first);
        if (fits_with_any_partition(scenario, profile, candidate, next, left - first)) {
            return true;
        }
    }
    return false;
}

/// With every shape, choice and partition.
bool fits(const Scenario& scenario, const Profile& profile) {
    const Model model = scenario_model(scenario, &profile);
    for (const Shape& shape : shapes_of(scenario, model, profile)) {
        for (const ScheduleChoice& choice : choices_of(scenario, model, profile, shape)) {
            if (fits_with_any_partition(scenario,
                                        profile,
                                        {.shape = shape, .choice = choice},
                                        {},
                                        model.layer_count())) {
                return true;
            }
        }
    }
    return false;
}

TEST(LargestModel, IsThatOfAllPlansAndPartitions) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    RandomModel random(seed);
    int compared = 0;
    for (int round = 0; round < tests::soaked(60); ++round) {
        const Profile profile = random.profile();
        const Scenario scenario = random.scenario();
        const RepeatedLayers repeated = repeated_layers(profile, "x");
        int expected = 0;
        while (expected < 7 && fits(scenario, with_copies(profile, repeated, expected + 1))) {
            ++expected;
        }
        if (expected == 7) {
            continue;  // as far as brute force goes
        }
        ++compared;
        if (expected == 0) {
            EXPECT_EQ(largest_model(scenario, profile, repeated).copies, 0);
            continue;
        }
        const LargestModel largest = largest_model(scenario, profile, repeated);
        ASSERT_EQ(largest.copies, expected);
        SettledScenario settled = with_candidate(scenario, largest.candidate);
        settled.pipeline.partition = largest.partition;
        const Plan plan = plan_of(settled, with_copies(profile, repeated, largest.copies));
        EXPECT_EQ(peak_memory(plan), largest.peaks);
        EXPECT_NO_THROW(check_memory(plan));
        ASSERT_TRUE(largest.next);
        EXPECT_GT(largest.next->peak, largest.next->limit);
    }
    EXPECT_GT(compared, 10);
}

TEST(LargestModel, SaysWhetherItWasEndedEarly) {
    Profile profile;
    for (int i = 0; i < 2; ++i) {
        profile.layers.push_back(layer(fmt::format("l{}", i), 1, 1, 1));
    }
    RandomModel random(1);
    Scenario scenario = random.scenario();
    scenario.training.batch = 64;  // so that there are several waves
    scenario.cluster.count = 8;
    scenario.cluster.memory_limit = Bytes{4'000};
    const RepeatedLayers repeated = repeated_layers(profile, "x");
    EXPECT_TRUE(largest_model(scenario, profile, repeated).complete);
    const LargestModel ended =
        largest_model(scenario, profile, repeated, [](double, int) { return false; });
    EXPECT_FALSE(ended.complete);
    EXPECT_GT(ended.copies, 0);
}

TEST(LargestModel, NeedsAMemoryLimit) {
    RandomModel random(1);
    Scenario scenario = random.scenario();
    scenario.cluster.memory_limit.reset();
    const Profile profile = random.profile();
    const Error error =
        testing::error_of([&] { largest_model(scenario, profile, repeated_layers(profile, "x")); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), HasSubstr("nothing limits the memory"));
    EXPECT_THAT(error.hint(), HasSubstr("cluster.memory_limit"));
}

TEST(LargestModel, HasNoWrittenPartition) {
    RandomModel random(1);
    Scenario scenario = random.scenario();
    scenario.pipeline.partition = std::vector<int>{2, 2};
    const Profile profile = random.profile();
    const Error error =
        testing::error_of([&] { largest_model(scenario, profile, repeated_layers(profile, "x")); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.hint(), HasSubstr("pipeline.partition=auto"));
}

TEST(LargestModel, EndsWhereAModelMayHaveNoMoreLayers) {
    Profile profile;
    for (int i = 0; i < 2; ++i) {
        profile.layers.push_back(layer(fmt::format("l{}", i), 1, 0, 0));
        profile.layers.back().parameter_bytes = {};
    }
    Scenario scenario = testing::scenario_of(1, 1, 1).as_scenario();
    scenario.cluster.count = 1;
    scenario.cluster.memory_limit = Bytes{1'000'000};
    const LargestModel largest = largest_model(scenario, profile, repeated_layers(profile, "x"));
    EXPECT_EQ(largest.copies, 100'000);
    EXPECT_TRUE(largest.is_most);
    EXPECT_FALSE(largest.next);
}

}  // namespace largest_model_test
}  // namespace pipetwin::sim
