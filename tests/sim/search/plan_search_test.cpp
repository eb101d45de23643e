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
#include "tests/support/scenario_plans.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/soak.h"

namespace pipetwin::sim {
namespace plan_search_test {

using testing::all_partitions;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::layer;
using testing::plan_of;

/// Chains of a few layers with costs of any size, on a few devices, everything open.
class RandomQuestion {
  public:
    explicit RandomQuestion(std::uint64_t seed) : random_(seed) {}

    Profile profile() {
        Profile profile = testing::random_chain(random_, 2, 5);
        for (LayerCost& layer : profile.layers) {
            const int thirds = below(3);  // of what is kept that go with I
            layer.change_samples([thirds](LayerSample& sample) {
                sample.input_saved = Bytes{sample.saved.count * thirds / 3};
            });
        }
        return profile;
    }

    /// With names that tell blocks, with what core attention takes, and with what each of two
    /// devices has that share a layer; or without some of these.
    Profile known_profile() {
        Profile known = profile();
        const bool tells_blocks = below(3) > 0;
        const bool knows_core = below(2) == 0;
        const bool knows_shares = below(2) == 0;
        known.precision = below(2) == 0 ? "bf16" : "";
        const auto layers = std::ssize(known.layers);
        for (std::ptrdiff_t i = 0; i < layers; ++i) {
            LayerCost& layer = known.layers[static_cast<std::size_t>(i)];
            if (tells_blocks) {
                layer.name = i == 0           ? "in"
                             : i + 1 < layers ? fmt::format("block{}.part{}", (i - 1) / 2, i)
                                              : "out";
            }
            const int quarters = knows_core ? below(4) : 0;
            layer.change_samples([quarters](LayerSample& sample) {
                sample.core_forward = sample.forward * quarters / 8;
                sample.core_saved = Bytes{sample.saved.count * quarters / 4};
                sample.accumulation = sample.forward * quarters / 8;
            });
            if (knows_shares) {
                add_shares(layer, 1 + below(3));
            }
        }
        return known;
    }

    Scenario scenario() {
        Scenario scenario = testing::open_scenario(1 << below(3));
        Scenario::PipelinePart& pipeline = scenario.pipeline;
        pipeline.recompute_timing.open();  // that of each schedule
        if (const int timing = below(4); timing < 2) {
            pipeline.recompute_timing = static_cast<RecomputeTiming>(timing);
        }
        pipeline.shard = static_cast<Shard>(below(4));
        scenario.cluster.count = 1 + below(4);
        scenario.cluster.per_node = 1 + below(4);
        scenario.cluster.node_link_gbps = 0.1 * (1 + below(50));
        scenario.cluster.node_link_latency_us = 0.1 * below(5);
        if (below(4) == 0) {
            pipeline.micro_batches = 1 + below(6);  // it may be more than there are samples
        }
        return scenario;
    }

    /// With the schedule named; some with little memory or weight gradients that are put off.
    Scenario scenario_of(std::string_view schedule) {
        Scenario result = scenario();
        result.pipeline.schedule = std::string(schedule);
        result.cluster.count = 2 + below(3);
        result.cluster.per_node = 4;
        result.pipeline.deferred_weights = std::max(0, below(4) - 1);
        if (below(2) == 0) {
            result.cluster.memory_limit = Bytes{400 + below(2000)};
        }
        return result;
    }

    /// What replicas and devices of a rank share is open, too, or some of it.
    Scenario scenario_with_shares() {
        Scenario result = scenario();
        Scenario::PipelinePart& pipeline = result.pipeline;
        result.cluster.per_node = 2;
        if (below(2) == 0) {
            pipeline.shard = Shard::None;
            pipeline.shard.open();
        }
        if (below(2) == 0) {
            pipeline.tensor_parallel.open();
            if (below(3) > 0) {
                pipeline.sequence_parallel.open();
            }
            if (below(3) > 0) {
                pipeline.scatter_boundaries.open();
            }
        }
        result.training.clip_norm = below(4) == 0 ? 1 : 0;
        result.training.accumulation = static_cast<Accumulation>(below(2));
        pipeline.overlap_reduction = below(4) == 0;
        if (below(2) == 0) {
            result.cluster.memory_limit = Bytes{300 + below(1500)};
        }
        return result;
    }

    /// Estimated costs of a model with experts, of few layers.
    Profile profile_with_experts() {
        DecoderModel model{.blocks = 1 + below(2), .width = 512, .vocabulary = 4000};
        model.attention = {.heads = 8, .key_value_heads = 4, .key_width = 64, .value_width = 64};
        model.feed_forward = 1536;
        model.experts = {.count = 4 << below(2), .per_token = 2, .width = 768 << below(3)};
        model.has_experts.assign(static_cast<std::size_t>(model.blocks), true);
        EstimateOptions options{.sequence = 2048 << below(2), .precision = "bf16"};
        options.micro_batch_size = 1;
        options.most_devices = 4;
        const DeviceProfile& device = find_device("h100-sxm");
        return with_whole_blocks(estimated_profile(model, device, options));
    }

    /// With every axis of parallelism open, on up to eight devices.
    Scenario scenario_with_division() {
        Scenario result = scenario_with_shares();
        Scenario::PipelinePart& pipeline = result.pipeline;
        constexpr std::array schedules{"1f1b", "gpipe", "interleaved-1f1b"};
        pipeline.schedule = schedules.at(static_cast<std::size_t>(below(3)));
        pipeline.context_parallel.open();
        pipeline.expert_parallel.open();
        pipeline.expert_tensor_parallel.open();
        pipeline.tensor_parallel.open();
        pipeline.sequence_parallel.open();
        pipeline.scatter_boundaries = false;
        pipeline.recompute = below(2) == 0 ? Recompute::None : Recompute::Always;
        pipeline.context_method = static_cast<ContextMethod>(below(4));
        pipeline.expert_dispatch = static_cast<ExpertDispatch>(below(2));
        if (below(3) == 0) {
            pipeline.order = below(2) == 0 ? pipeline_last : data_last;
        }
        constexpr std::array placements{
            Placement::ReplicasFirst, Placement::Fill, Placement::RoundRobin};
        result.cluster.placement = placements.at(static_cast<std::size_t>(below(3)));
        result.training.precision = Precision::Bf16;
        result.cluster.count = 2 + below(3);
        result.cluster.per_node = 2 << below(2);
        result.cluster.device = "h100-sxm";
        result.cluster.node_link_gbps = 10 * (1 + below(40));
        result.cluster.memory_limit = std::nullopt;
        if (below(2) == 0) {
            result.cluster.memory_limit = Bytes{(std::int64_t{100} + below(1000)) << 20};
        }
        return result;
    }

    int below(int end) { return testing::below(random_, end); }

  private:
    /// Samples of one of two devices: half of all but some eighths, which are whole on both.
    static void add_shares(LayerCost& layer, int eighths) {
        std::vector<LayerSample>& of_one = layer.shared[2];
        of_one = layer.samples;
        for (LayerSample& sample : of_one) {
            const auto part = [eighths](auto count) { return count * (8 + eighths) / 16; };
            sample.whole_forward = sample.forward * eighths / 8;
            sample.whole_backward = sample.backward_input * eighths / 8;
            sample.whole_saved = Bytes{sample.saved.count * eighths / 8};
            sample.forward = part(sample.forward);
            sample.backward_input = part(sample.backward_input);
            sample.backward_weight = sample.backward_weight / 2;
            sample.saved = Bytes{part(sample.saved.count)};
            sample.input_saved = Bytes{part(sample.input_saved.count)};
            sample.core_forward = sample.core_forward / 2;
            sample.core_saved = Bytes{sample.core_saved.count / 2};
        }
    }

    std::mt19937_64 random_;
};

/// A few rounds; more until some shape of a schedule has come up.
bool goes_on(int round, bool has_come_up) {
    return round < tests::soaked(5) || (!has_come_up && round < 1000);
}

/// None where there is no such plan or it does not fit.
std::optional<Duration> step_of(const SettledScenario& settled, const Profile& profile) {
    try {
        Plan plan = plan_of(settled, profile);
        plan = plan.with_capacity(settled_capacity(plan));
        check_memory(plan);
        return step_time(simulate(plan));
    } catch (const Error&) {
        return std::nullopt;
    }
}

/// Every way to recompute on some ranks, as rules of their pieces.
std::vector<RecomputeRules> all_rules(const Schedule& schedule) {
    constexpr std::array modes{Recompute::None, Recompute::ExceptLast, Recompute::Always};
    std::vector<RecomputeRules> result;
    const int ranks = schedule.rank_count();
    for (int number = 0; number < std::pow(3, ranks); ++number) {
        std::vector<Recompute> of_rank;
        for (int rest = number; std::ssize(of_rank) < ranks; rest /= 3) {
            of_rank.push_back(modes.at(static_cast<std::size_t>(rest % 3)));
        }
        std::vector<Recompute> of_piece;
        for (const int rank : schedule.rank_of_stage) {
            of_piece.push_back(of_rank.at(static_cast<std::size_t>(rank)));
        }
        result.emplace_back(of_piece);
    }
    return result;
}

/// Of one partition, or of the balanced one; with the fastest rules where recompute is as needed.
std::optional<Duration> step_of(const Scenario& scenario,
                                const Profile& profile,
                                const Candidate& candidate,
                                const std::vector<int>& partition) {
    SettledScenario settled = with_candidate(scenario, candidate);
    if (!partition.empty()) {
        settled.pipeline.partition = partition;
    }
    if (!candidate.choice.recompute_by_rank) {
        return step_of(settled, profile);
    }
    std::optional<Duration> best;
    // Without a partition those that are balanced for no rank's recompute and for every rank's.
    for (const Recompute balanced : {Recompute::None, Recompute::Always}) {
        try {
            settled.pipeline.recompute = balanced;
            const Plan plan = plan_of(settled, profile);
            for (const RecomputeRules& of_pieces : all_rules(plan->schedule)) {
                SettledScenario one = settled;
                one.pipeline.recompute = of_pieces;
                one.pipeline.partition = plan->partition->layers_per_stage();
                const auto step = step_of(one, profile);
                best = step ? std::min(best.value_or(*step), *step) : best;
            }
        } catch (const Error&) {
            return std::nullopt;
        }
    }
    return best;
}

/// All, with as many pieces as the schedule has; none where there is no such schedule.
std::vector<std::vector<int>> every_partition(const Scenario& scenario,
                                              const Candidate& candidate,
                                              const Model& model) {
    if (!scenario.pipeline.partition.is_auto()) {
        return {{}};
    }
    try {
        const SettledScenario settled = with_candidate(scenario, candidate);
        const int pieces = schedule_traits(candidate.choice.schedule).order_from_costs
                               ? candidate.shape.stages * candidate.choice.chunks
                               : model_stage_count(scenario_schedule(settled));
        return all_partitions(model.layer_count(), pieces);
    } catch (const Error&) {
        return {};
    }
}

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
    for (int round = 0; round < tests::soaked(30); ++round) {
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
    for (int round = 0; round < tests::soaked(200); ++round) {
        const Profile profile = random.profile_with_experts();
        SCOPED_TRACE(fmt::format("round {}", round));
        ASSERT_NO_FATAL_FAILURE(judge.judge(random.scenario_with_division(), profile));
    }
    EXPECT_GT(judge.searched(), 50);
    EXPECT_LE(judge.more_recompute_helps(), 1 + judge.searched() / 100);
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
    for (int round = 0; round < tests::soaked(40); ++round) {
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

TEST(CandidateBounds, AreNeverAboveTheStep) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    RandomQuestion random(seed);
    for (const ScheduleName& known : known_schedules()) {
        int compared = 0;
        for (int round = 0; goes_on(round, compared > 0); ++round) {
            const Profile profile = random.known_profile();
            Scenario scenario = random.scenario_of(known.name);
            if (random.below(2) == 0) {
                scenario.pipeline.shard = Shard::None;
                scenario.pipeline.shard.open();
            }
            if (random.below(3) == 0) {
                scenario.pipeline.tensor_parallel = 2;
                scenario.pipeline.sequence_parallel.open();
                scenario.pipeline.scatter_boundaries.open();
            }
            const Model model = scenario_model(scenario, &profile);
            CandidateBounds bounds(scenario, model, profile);
            for (const Shape& shape : shapes_of(scenario, model, profile)) {
                bounds.learn(std::span(&shape, 1));
                for (const ScheduleChoice& choice : choices_of(scenario, model, profile, shape)) {
                    const Candidate candidate{.shape = shape, .choice = choice};
                    const ShapeBounds of_shape = bounds.of(shape, choice);
                    const auto least = of_shape.least(choice, Duration::max());
                    for (const auto& partition : every_partition(scenario, candidate, model)) {
                        if (const auto step = step_of(scenario, profile, candidate, partition)) {
                            ++compared;
                            ASSERT_TRUE(least.has_value()) << known.name;
                            ASSERT_LE(*least, *step) << fmt::format(
                                "{} of {} stages x {} x {}, {} micro-batches, recompute {}{}, "
                                "of layers {}, shard {}, sequence {}, scatter {}, {} put off, "
                                "layers {}",
                                known.name,
                                shape.stages,
                                shape.data_parallel,
                                shape.tensor_parallel,
                                shape.micro_batches,
                                to_string(choice.recompute),
                                choice.recompute_by_rank ? " by rank" : "",
                                to_string(choice.costs.layer_recompute),
                                to_string(choice.costs.shard),
                                choice.costs.sequence_parallel,
                                choice.costs.scatter_boundaries,
                                scenario.pipeline.deferred_weights,
                                partition);
                            ASSERT_LE(bounds.least(shape), *step) << known.name;
                            ASSERT_LE(of_shape.floor(), *step) << known.name;
                            ASSERT_TRUE(of_shape.may_be_faster(choice, *step + Duration{1}))
                                << fmt::format("{}, layers {}", known.name, partition);
                        }
                    }
                }
            }
        }
        EXPECT_GT(compared, 0) << known.name;
    }
}

bool has_blocks(const Model& model) {
    try {
        return !recomputed_blocks(model).empty();
    } catch (const Error&) {
        return false;
    }
}

/// Schedules that can have one stage on each rank.
std::vector<std::string> with_one_stage_per_rank() {
    std::vector<std::string> names;
    for (const ScheduleName& known : known_schedules()) {
        const ScheduleTraits& row = schedule_traits(known.kind);
        const bool one_pipeline =
            row.placement != StagePlacement::Unknown && row.placement != StagePlacement::BothWays;
        if (one_pipeline && row.chunks != ChunkCounts::Two && row.trains) {
            names.emplace_back(known.name);
        }
    }
    return names;
}

/// The bound of a partition, and so that of all, is never above what is simulated.
TEST(StepBound, IsNeverAboveTheStep) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    RandomQuestion random(seed);
    const std::vector<std::string> schedules = with_one_stage_per_rank();
    for (int round = 0; round < tests::soaked(200); ++round) {
        const Profile profile = random.known_profile();
        const Scenario scenario = random.scenario();
        const Model model = scenario_model(scenario, &profile);
        const int layers = model.layer_count();
        const bool of_stages = !has_blocks(model) || random.below(2) == 0;
        const std::string& schedule = schedules.at(
            static_cast<std::size_t>(random.below(static_cast<int>(schedules.size()))));
        const auto recompute = static_cast<Recompute>(random.below(3));
        const Candidate candidate{
            .shape = {.stages = 1 + random.below(layers), .micro_batches = scenario.training.batch},
            .choice = {.schedule = schedule,
                       .recompute = of_stages ? recompute : Recompute::None,
                       .costs = {.layer_recompute =
                                     of_stages ? LayerRecompute::None : LayerRecompute::Block}}};
        CandidateBounds bounds(scenario, model, profile);
        bounds.learn(std::span(&candidate.shape, 1));
        const BoundQuestion question =
            bounds.of(candidate.shape, candidate.choice).question(candidate.choice);
        const LayerSums sums =
            layer_sums(with_candidate(scenario, candidate),
                       model,
                       profile,
                       Cluster(with_candidate(scenario, candidate), profile, question.stages),
                       1);
        const StepBound bound(sums, question);
        const Duration least = bound.least().value();
        for (const std::vector<int>& partition : all_partitions(layers, question.stages)) {
            const auto step = step_of(scenario, profile, candidate, partition);
            if (step) {
                ASSERT_LE(least, *step) << fmt::format("{} {}", schedule, partition);
                ASSERT_TRUE(bound.keeps(partition, *step))
                    << fmt::format("{} {}", schedule, partition);
            }
        }
    }
}

}  // namespace plan_search_test
}  // namespace pipetwin::sim
