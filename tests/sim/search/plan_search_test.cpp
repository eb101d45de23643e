// SPDX-License-Identifier: Apache-2.0
#include "sim/search/plan_search.h"

#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <random>
#include <set>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/estimate.h"
#include "core/costs/whole_blocks.h"
#include "core/model/decoder_model.h"
#include "core/model/model.h"
#include "core/model/transformers.h"
#include "core/plan/layer_recompute.h"
#include "core/scenario/cluster.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/generators.h"
#include "core/schedule/schedule.h"
#include "core/timeline/memory_limits.h"
#include "sim/bounds/step_bound.h"
#include "sim/search/candidate_bounds.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"
#include "tests/sim/search/random_question.h"
#include "tests/support/scenario_plans.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/soak.h"

namespace pipetwin::sim {
namespace plan_search_test {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace search_test;

/// Every way to share and to recompute that the scenario leaves open, whether a search tries it or
/// not; that a sequence is divided only where the profile knows what that saves.
std::vector<ScheduleChoice> every_choice(const Scenario& scenario,
                                         const Model& model,
                                         const Profile& profile,
                                         const Shape& shape) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    const bool shards = pipeline.shard.is_auto() && shape.has_replicas();
    const bool divides = pipeline.sequence_parallel.is_auto() && shape.tensor_parallel > 1 &&
                         knows_shares(profile, shape.tensor_parallel);
    const bool scatters = pipeline.scatter_boundaries.is_auto() && shape.tensor_parallel > 1;
    std::set<ScheduleChoice> all;
    for (ScheduleChoice choice : choices_of(scenario, model, profile, shape)) {
        const bool keeps = choice.recompute == Recompute::None && !choice.recompute_by_rank;
        const int layer_recomputes = pipeline.recompute.is_auto() && keeps ? 3 : 1;
        const int combinations =
            layer_recomputes * (shards ? 4 : 1) * (divides ? 2 : 1) * (scatters ? 2 : 1);
        for (int number = 0; number < combinations; ++number) {
            int rest = number;
            const auto digit = [&rest](int base) {
                const int result = rest % base;
                rest /= base;
                return result;
            };
            if (layer_recomputes > 1) {
                choice.costs.layer_recompute = static_cast<LayerRecompute>(digit(layer_recomputes));
            }
            choice.costs.shard = shards ? static_cast<Shard>(digit(4)) : choice.costs.shard;
            choice.costs.sequence_parallel =
                divides ? digit(2) == 1 : choice.costs.sequence_parallel;
            choice.costs.scatter_boundaries =
                scatters ? digit(2) == 1 : choice.costs.scatter_boundaries;
            all.insert(choice);
        }
    }
    return {all.begin(), all.end()};
}

/// The fastest of all candidates and all partitions.
std::optional<Duration> brute_force(const Scenario& scenario,
                                    const Profile& profile,
                                    bool with_recompute_by_rank = true) {
    const Model model = scenario_model(scenario, &profile);
    std::optional<Duration> best;
    for (const Shape& shape : shapes_of(scenario, model, profile)) {
        for (const ScheduleChoice& choice : every_choice(scenario, model, profile, shape)) {
            if (choice.recompute_by_rank && !with_recompute_by_rank) {
                continue;
            }
            const Candidate candidate{.shape = shape, .choice = choice};
            for (const std::vector<int>& partition : every_partition(scenario, candidate, model)) {
                const auto step = step_of(scenario, profile, candidate, partition);
                best = step ? std::min(best.value_or(*step), *step) : best;
            }
        }
    }
    return best;
}

/// Holds the search to the brute force.
class Judge {
  public:
    void judge(const Scenario& scenario, const Profile& profile) {
        SCOPED_TRACE(scenario.pipeline.schedule.value_or("any schedule"));
        const Model model = scenario_model(scenario, &profile);
        const SearchResult result = search_plans(scenario, model, profile);
        const std::optional<Duration> best = brute_force(scenario, profile);
        ASSERT_EQ(result.ranked.empty(), !best.has_value());
        if (!best) {
            return;
        }
        ++searched_;
        const FoundPlan& found = result.ranked.front();
        ASSERT_TRUE(result.proven_optimal);
        ASSERT_EQ(result.any_partition_bound, found.step);  // few enough to try all
        if (found.step != *best) {
            // More recompute than a rank needs can save another one room: with other times fewer
            // messages wait. That is not searched for.
            ++more_recompute_helps_;
            ASSERT_GT(found.step, *best) << found.candidate.choice.schedule;
            ASSERT_LE(found.step, brute_force(scenario, profile, false))
                << found.candidate.choice.schedule;
        }
        ASSERT_EQ(step_of(with_plan(scenario, found), profile), found.step);
        ASSERT_EQ(result.candidates,
                  std::accumulate(result.shapes.begin(),
                                  result.shapes.end(),
                                  std::int64_t{0},
                                  [&](std::int64_t sum, const Shape& shape) {
                                      return sum + std::ssize(
                                                       choices_of(scenario, model, profile, shape));
                                  }));
    }
    int searched() const { return searched_; }
    int more_recompute_helps() const { return more_recompute_helps_; }

  private:
    int searched_ = 0;
    int more_recompute_helps_ = 0;
};

TEST(PlanSearch, FindsTheFastestOfAllPlansAndPartitions) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    RandomQuestion random(seed);
    Judge judge;
    for (int round = 0; round < tests::soaked(40); ++round) {
        const Profile profile = random.profile();
        Scenario scenario = random.scenario();
        if (random.below(2) == 0) {
            scenario.cluster.memory_limit = Bytes{400 + random.below(2000)};
        }
        ASSERT_NO_FATAL_FAILURE(judge.judge(scenario, profile));
    }
    EXPECT_GT(judge.searched(), 10);
    EXPECT_LE(judge.more_recompute_helps(), 1 + judge.searched() / 100);
}

/// Recompute of blocks and of core attention, shards, and devices that share a rank.
TEST(PlanSearch, FindsTheFastestOfAllWaysToShareAndToRecompute) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    RandomQuestion random(seed);
    Judge judge;
    for (int round = 0; round < tests::soaked(40); ++round) {
        const Profile profile = random.known_profile();
        ASSERT_NO_FATAL_FAILURE(judge.judge(random.scenario_with_shares(), profile));
    }
    EXPECT_GT(judge.searched(), 10);
    EXPECT_LE(judge.more_recompute_helps(), 1 + judge.searched() / 100);
}

/// Devices of which the slowest of more is slower, and groups of replicas that divide a state.
TEST(PlanSearch, FindsTheFastestOnDevicesThatVaryAndInGroupsOfReplicas) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    RandomQuestion random(seed);
    Judge judge;
    for (int round = 0; round < tests::soaked(15); ++round) {
        const Profile profile = random.known_profile();
        Scenario scenario = random.scenario_with_shares();
        scenario.cluster.device_spread = 0.02 * random.below(6);
        scenario.pipeline.shard_group = {.of_node = round % 3 == 0, .replicas = 2 * (round % 2)};
        ASSERT_NO_FATAL_FAILURE(judge.judge(scenario, profile));
    }
    EXPECT_GT(judge.searched(), 8);
}

/// Samples and experts that are divided in every way.
TEST(PlanSearch, FindsTheFastestWithExpertsAndPartsOfSamples) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    RandomQuestion random(seed);
    Judge judge;
    for (int round = 0; round < tests::soaked(100); ++round) {
        const Profile profile = random.profile_with_experts();
        SCOPED_TRACE(fmt::format("round {}", round));
        ASSERT_NO_FATAL_FAILURE(judge.judge(random.scenario_with_division(), profile));
    }
    EXPECT_GT(judge.searched(), 50);
    EXPECT_LE(judge.more_recompute_helps(), 1 + judge.searched() / 100);
}

/// Four devices cannot divide six heads, but two can.
TEST(PlanSearch, DividesOwnModelsAsTheExecutorCan) {
    const Model model =
        gpt_model({.layers = 2, .d_model = 48, .heads = 6, .context = 32, .vocabulary = 64});
    RandomQuestion random(1);
    const Profile profile = random.known_profile();
    Scenario scenario = random.scenario();
    scenario.cluster.count = 8;
    scenario.pipeline.tensor_parallel.open();
    std::set<int> devices;
    for (const Shape& shape : shapes_of(scenario, model, profile)) {
        devices.insert(shape.tensor_parallel);
    }
    EXPECT_THAT(devices, ::testing::ElementsAre(1, 2));
}

/// A degree that divides no number of experts is refused, about its key.
TEST(PlanSearch, RefusesDegreesThatNoShapeHas) {
    RandomQuestion random(1);
    const Profile profile = random.profile_with_experts();
    Scenario scenario = random.scenario_with_division();
    scenario.pipeline.expert_parallel = 3;
    try {
        shapes_of(scenario, scenario_model(scenario, &profile), profile);
        FAIL() << "3 does not divide the experts";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.what(), HasSubstr("expert_parallel = 3"));
        EXPECT_FALSE(error.advice().settings.empty());
    }
}

/// Nothing of how samples and experts are divided is looked at where the scenario says nothing of
/// it; then a model with experts opens these, and one with long samples the other.
TEST(OpenDivision, IsForExpertsAndLongSamples) {
    RandomQuestion random(1);
    Scenario scenario = random.scenario_with_division();
    scenario.cluster.count = 4;
    leave_division_open(scenario);
    const Profile profile = random.profile_with_experts();
    const Model model = scenario_model(scenario, &profile);
    for (const Shape& shape : shapes_of(scenario, model, profile)) {
        EXPECT_FALSE(shape.is_divided());
    }
    open_division(scenario, profile);
    const std::vector<Shape> shapes = shapes_of(scenario, model, profile);
    EXPECT_TRUE(std::ranges::any_of(shapes, &Shape::divides_experts));
    EXPECT_TRUE(std::ranges::all_of(
        shapes, [](const Shape& shape) { return shape.context_parallel == 1; }));
    scenario.pipeline.expert_parallel = 1;
    scenario.pipeline.expert_tensor_parallel = 0;
    open_division(scenario, profile);
    EXPECT_EQ(scenario.pipeline.expert_parallel, 1);
}

/// A model with room for what one block keeps, not for what all of them keep: 4 blocks of 100 bytes
/// on one device with 250, beside messages of 10.
TEST(PlanSearch, FindsWhatFitsOnlyWithRecomputeOfBlocks) {
    Profile profile;
    const auto add = [&profile](const std::string& name, int output, int saved) {
        profile.layers.push_back(layer(name, 10, output, saved));
        profile.layers.back().parameter_bytes = {};
        profile.layers.back().change_samples([](LayerSample& sample) { sample.workspace = {}; });
    };
    add("in", 10, 1);
    for (int block = 0; block < 4; ++block) {
        add(fmt::format("block{}", block), 10, 100);
    }
    add("out", 0, 10);
    RandomQuestion random(1);
    Scenario scenario = random.scenario();
    scenario.training.batch = 1;
    scenario.cluster.count = 1;
    scenario.cluster.memory_limit = Bytes{250};
    scenario.pipeline.micro_batches.open();
    const SearchResult result = search_plans(scenario, scenario_model(scenario, &profile), profile);
    ASSERT_FALSE(result.ranked.empty());
    EXPECT_EQ(result.ranked.front().candidate.choice.costs.layer_recompute, LayerRecompute::Block);
    const SettledScenario found = with_plan(scenario, result.ranked.front());
    EXPECT_EQ(found.pipeline.layer_recompute, LayerRecompute::Block);
    EXPECT_EQ(step_of(found, profile), result.ranked.front().step);
    for (std::size_t i = 0; i < profile.layers.size(); ++i) {
        profile.layers[i].name = std::string(1 + i, 'x');  // names that tell no blocks
    }
    const SearchResult whole = search_plans(scenario, scenario_model(scenario, &profile), profile);
    EXPECT_THAT(whole.ranked, IsEmpty());
}

/// Weights of 100 bytes, as many of gradients and twice as many of AdamW's state: 400, or 300 with
/// half of the state. With half of the gradients there is room for all of them, too, before they
/// are summed: 350.
TEST(PlanSearch, FindsWhatFitsOnlyWhereReplicasShareTheirState) {
    Profile profile{.layers = {layer("a", 10, 0, 1)}};
    profile.layers.front().change_samples([](LayerSample& sample) { sample.workspace = {}; });
    RandomQuestion random(1);
    Scenario scenario = random.scenario();
    scenario.training.batch = 2;
    scenario.cluster.count = 2;
    scenario.cluster.memory_limit = Bytes{310};
    scenario.pipeline.micro_batches = 1;
    scenario.pipeline.shard = Shard::None;
    const Model model = scenario_model(scenario, &profile);
    EXPECT_THAT(search_plans(scenario, model, profile).ranked, IsEmpty());
    scenario.pipeline.shard.open();
    const SearchResult result = search_plans(scenario, model, profile);
    ASSERT_FALSE(result.ranked.empty());
    EXPECT_EQ(result.ranked.front().candidate.choice.costs.shard, Shard::Optimizer);
    EXPECT_EQ(with_plan(scenario, result.ranked.front()).pipeline.shard, Shard::Optimizer);
}

/// Those that are not searched by themselves, too.
TEST(PlanSearch, FindsTheFastestOfEverySchedule) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    RandomQuestion random(seed);
    Judge judge;
    for (const ScheduleName& known : known_schedules()) {
        const int before = judge.searched();
        for (int round = 0; goes_on(round, judge.searched() > before); ++round) {
            const Profile profile = random.profile();
            ASSERT_NO_FATAL_FAILURE(judge.judge(random.scenario_of(known.name), profile));
        }
        EXPECT_GT(judge.searched(), before) << known.name;
    }
    EXPECT_LE(judge.more_recompute_helps(), 1 + judge.searched() / 100);
}

/// A schedule that is known for the length of a test.
class KnownSchedule {
  public:
    explicit KnownSchedule(const ScheduleTraits& row) { schedules::rows().push_back(&row); }
    ~KnownSchedule() { schedules::rows().pop_back(); }
    KnownSchedule(const KnownSchedule&) = delete;
    KnownSchedule& operator=(const KnownSchedule&) = delete;
};

/// Orders whose backwards are split, are not split and are searched for, of which the rows say no
/// more than they have to.
TEST(PlanSearch, FindsTheFastestOfAScheduleThatNothingIsKnownOf) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    RandomQuestion random(seed);
    for (const ScheduleTraits* const like : {&schedules::zb_h1_traits,
                                             &schedules::chimera_traits,
                                             &schedules::forward_only_traits,
                                             &schedules::zb_auto_traits}) {
        for (const StagePlacement placement : {StagePlacement::Unknown, like->placement}) {
            const ScheduleTraits row{.name = "made-up",
                                     .generate = like->generate,
                                     .placement = placement,
                                     .trains = like->trains,
                                     .searched = like->trains ? Searched::Yes : Searched::No};
            const KnownSchedule known(row);
            Judge judge;
            for (int round = 0; goes_on(round, judge.searched() > 0); ++round) {
                const Profile profile = random.profile();
                ASSERT_NO_FATAL_FAILURE(judge.judge(random.scenario_of(row.name), profile));
                ASSERT_NO_FATAL_FAILURE(judge.judge(random.scenario(), profile));
            }
            EXPECT_GT(judge.searched(), 0) << like->name;
        }
    }
}

/// A file of forwards alone takes less time than its layers' forwards and backwards.
TEST(PlanSearch, KnowsThatAFileMayHaveNoBackward) {
    const tests::ScratchFolder folder;
    const std::filesystem::path file = folder.write("mine.csv", "0F0,0F1\n1F0,1F1\n");
    RandomQuestion random(tests::seed());
    for (int round = 0; round < tests::soaked(10); ++round) {
        const Profile profile = random.profile();
        Scenario scenario = random.scenario();
        scenario.cluster.count = 4;
        scenario.training.batch = 4;
        scenario.pipeline.schedule = file.string();
        scenario.pipeline.stages = 2;
        scenario.pipeline.chunks = 1;
        scenario.pipeline.file_pieces = 2;
        scenario.pipeline.micro_batches = 2;
        Judge judge;
        ASSERT_NO_FATAL_FAILURE(judge.judge(scenario, profile));
        EXPECT_EQ(judge.searched(), 1);
    }
}

/// Whenever a search is stopped, what it says of all plans holds.
TEST(PlanSearch, IsRightAboutWhatIsLeftWhenItIsStopped) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    RandomQuestion random(seed);
    int stopped = 0;
    for (int round = 0; round < tests::soaked(20); ++round) {
        const Profile profile = random.profile();
        const Scenario scenario = random.scenario();
        const Model model = scenario_model(scenario, &profile);
        int left = 1 + random.below(4);
        SearchOptions options;
        options.progress = [&](const SearchProgress&) { return --left > 0; };
        const SearchResult result = search_plans(scenario, model, profile, options);
        if (result.ranked.empty()) {
            continue;
        }
        stopped += left <= 0 ? 1 : 0;
        EXPECT_LE(result.any_partition_bound, brute_force(scenario, profile).value());
        EXPECT_EQ(result.proven_optimal,
                  result.complete && result.any_partition_bound == result.ranked.front().step);
    }
    EXPECT_GT(stopped, 0);
}

TEST(PlanSearch, IsTheSameInOneThreadAndInSeveral) {
    RandomQuestion random(3);
    for (int round = 0; round < 10; ++round) {
        const Profile profile = random.profile();
        const Scenario scenario = random.scenario();
        const Model model = scenario_model(scenario, &profile);
        const SearchResult many = search_plans(scenario, model, profile);
        const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
        const SearchResult alone = search_plans(scenario, model, profile);
        ASSERT_EQ(many.ranked.size(), alone.ranked.size());
        for (std::size_t i = 0; i < many.ranked.size(); ++i) {
            ASSERT_EQ(many.ranked[i].candidate, alone.ranked[i].candidate);
            ASSERT_EQ(many.ranked[i].partition, alone.ranked[i].partition);
        }
        ASSERT_EQ(many.searched, alone.searched);
    }
}

TEST(PlanSearch, OfManyNumbersOfStagesTheTellingOnesHaveCells) {
    std::vector<Shape> shapes;
    for (int stages = 1; stages <= 40; ++stages) {
        shapes.push_back({.stages = stages});
    }
    EXPECT_EQ(telling_stage_counts(shapes, 100).size(), 40U);
    for (int stages = 41; stages <= 64; ++stages) {
        shapes.push_back({.stages = stages});
    }
    // 100 layers: 50 stages of 2, so 51 to 63 help no more; 64 are all devices; 34 stages of 3
    EXPECT_THAT(telling_stage_counts(shapes, 100),
                ::testing::ElementsAre(
                    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 15, 16, 17, 20, 25, 32, 34, 50, 64));
}

/// Four equal layers of 40 ns a micro-batch of one sample, and links that take a second for a
/// message: two replicas of the whole share out the batch without any.
TEST(PlanSearch, WithoutAPipelineIsAnAnswer) {
    Profile profile;
    for (int i = 0; i < 4; ++i) {
        profile.layers.push_back(layer(fmt::format("l{}", i), 10, i < 3 ? 5 : 0, 5));
        profile.layers.back().parameter_bytes = {};
    }
    profile.links = {{.latency = std::chrono::seconds(1), .bytes_per_second = 1e9}};
    RandomQuestion random(1);
    Scenario scenario = random.scenario();
    scenario.training.batch = 2;
    scenario.cluster.count = 1;
    const SearchResult result = search_plans(scenario, scenario_model(scenario, &profile), profile);
    ASSERT_FALSE(result.ranked.empty());
    EXPECT_EQ(result.ranked.front().candidate.shape.stages, 1);
    EXPECT_TRUE(result.proven_optimal);
}

TEST(PlanSearch, SaysWhatIsMissingWhereNothingFits) {
    RandomQuestion random(1);
    const Profile profile = random.profile();
    Scenario scenario = random.scenario();
    scenario.cluster.count = 4;
    scenario.cluster.memory_limit = Bytes{250};  // the states of one layer alone take 400
    const SearchResult result = search_plans(scenario, scenario_model(scenario, &profile), profile);
    EXPECT_THAT(result.ranked, IsEmpty());
    EXPECT_FALSE(result.proven_optimal);
    EXPECT_THAT(result.infeasible, Contains(Field(&Infeasible::why, HasSubstr("more memory"))));
}

TEST(PlanSearch, NeedsToKnowHowManyDevicesThereAre) {
    RandomQuestion random(1);
    const Profile profile = random.profile();
    Scenario scenario = random.scenario();
    scenario.cluster.count = 0;
    EXPECT_THROW(search_plans(scenario, scenario_model(scenario, &profile), profile), Error);
}

TEST(PlanSearch, TakesWhatTheScenarioSays) {
    RandomQuestion random(5);
    const Profile profile = random.profile();
    Scenario scenario = random.scenario();
    scenario.training.batch = 4;
    scenario.cluster.count = 2;
    scenario.pipeline.stages = 2;
    scenario.pipeline.schedule = "zb-h1";
    const SearchResult result = search_plans(scenario, scenario_model(scenario, &profile), profile);
    for (const FoundPlan& plan : result.ranked) {
        EXPECT_EQ(plan.candidate.shape.stages, 2);
        EXPECT_EQ(plan.candidate.choice.schedule, "zb-h1");
    }
}

/// What a search leaves out by, of shapes and of candidates, is never above what is simulated.
TEST(WithCandidate, RecomputesWhenItsScheduleDoesUnlessTheScenarioSaysOtherwise) {
    Scenario scenario;
    scenario.pipeline.schedule.open();
    const auto timing_of = [&scenario](const char* schedule) {
        return with_candidate(scenario, {.shape = {}, .choice = {.schedule = schedule}})
            .pipeline.recompute_timing;
    };
    EXPECT_EQ(timing_of("gpipe"), RecomputeTiming::Eager);
    EXPECT_EQ(timing_of("1f1b"), RecomputeTiming::Lazy);
    for (const RecomputeTiming written : {RecomputeTiming::Eager, RecomputeTiming::Lazy}) {
        scenario.pipeline.recompute_timing = written;
        EXPECT_EQ(timing_of("gpipe"), written);
        EXPECT_EQ(timing_of("1f1b"), written);
    }
}

}  // namespace plan_search_test
}  // namespace pipetwin::sim
