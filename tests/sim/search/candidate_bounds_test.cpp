// SPDX-License-Identifier: Apache-2.0
#include "sim/search/candidate_bounds.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "core/model/model.h"
#include "core/plan/layer_recompute.h"
#include "core/scenario/cluster.h"
#include "core/schedule/generators/schedule_traits.h"
#include "sim/bounds/order_paths.h"
#include "sim/bounds/paths_bound.h"
#include "sim/bounds/step_bound.h"
#include "tests/sim/search/random_question.h"

namespace pipetwin::sim {
namespace candidate_bounds_test {

using namespace search_test;

/// By the ways through the order of a choice; 0 where they say nothing, none where no partition
/// fits.
std::optional<Duration> bound_of_ways(const ShapeBounds& of_shape, const ScheduleChoice& choice) {
    const std::optional<Schedule> order = of_shape.order_with_ways(choice);
    return order ? of_shape.least_by_ways(choice, order_paths(*order), {})
                 : std::optional(Duration{});
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
                bounds.learn_work(std::span(&shape, 1));
                for (const ScheduleChoice& choice : choices_of(scenario, model, profile, shape)) {
                    const Candidate candidate{.shape = shape, .choice = choice};
                    const ShapeBounds of_shape = bounds.of(shape, choice);
                    const auto least = of_shape.least(choice, Duration::max());
                    std::optional<std::optional<Duration>> by_ways;
                    for (const auto& partition : every_partition(scenario, candidate, model)) {
                        if (const auto step = step_of(scenario, profile, candidate, partition)) {
                            ++compared;
                            by_ways = by_ways ? by_ways : bound_of_ways(of_shape, choice);
                            ASSERT_TRUE(by_ways->has_value()) << known.name;
                            ASSERT_LE(**by_ways, *step)
                                << fmt::format("{}, layers {}", known.name, partition);
                            ASSERT_LE(of_shape.closest_bound(choice, *least, Duration::max()),
                                      *step)
                                << fmt::format("{}, layers {}", known.name, partition);
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
                            ASSERT_LE(bounds.least_without_messages(shape), *step) << known.name;
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

/// Sums of so many layers, each 1 us forward and 2 us backward, that keep a kilobyte.
LayerSums equal_layers(int layers) {
    LayerSums sums;
    for (int i = 0; i <= layers; ++i) {
        sums.forward.push_back(i * Duration{1000});
        sums.backward_input.push_back(i * Duration{1000});
        sums.backward_weight.push_back(i * Duration{1000});
        sums.update.emplace_back();
        sums.state.push_back(i * Bytes{1000});
        sums.saved.push_back(i * Bytes{1000});
        sums.split.emplace_back();
    }
    return sums;
}

/// p ranks with v stages each that take F and B have a step of (m v + p - 1) (F + B).
TEST(OrderPaths, KnowMostOfTheBubbleOfStagesThatTakeTurns) {
    constexpr int ranks = 8;
    constexpr int chunks = 3;
    constexpr int micro_batches = 16;
    const Schedule order =
        schedule_traits(ScheduleKind::Interleaved1F1B)
            .generate({.ranks = ranks, .chunks = chunks, .micro_batches = micro_batches}, {});
    const LayerSums sums = equal_layers(ranks * chunks);
    const auto bound = bound_of_paths(order_paths(order), {.sums = sums});
    ASSERT_TRUE(bound.has_value());
    const Duration work = micro_batches * chunks * Duration{3000};
    const Duration bubble = (ranks - 1) * Duration{3000};
    EXPECT_LE(*bound, work + bubble);
    EXPECT_GT(*bound, work + bubble / 2);
}

/// With all forwards first, every rank holds all micro-batches of its stages, or recomputes them.
TEST(OrderPaths, KnowThatMemoryMakesRanksRecompute) {
    constexpr int ranks = 4;
    constexpr int chunks = 2;
    const Schedule order =
        schedule_traits(ScheduleKind::LoopedBfs)
            .generate({.ranks = ranks, .chunks = chunks, .micro_batches = 64}, {});
    const OrderPaths paths = order_paths(order);
    const LayerSums sums = equal_layers(ranks * chunks);  // one layer for each stage
    const auto bound = [&](Bytes memory) {
        return bound_of_paths(
            paths,
            {.sums = sums,
             .recomputes = {Recompute::None, Recompute::ExceptLast, Recompute::Always},
             .memory = memory});
    };
    // Two layers' weights, and 64 micro-batches of both.
    const Bytes all = chunks * (1 + 64) * Bytes{1000};
    const Bytes quarter{all.count / 4};
    const Duration forward = 64 * chunks * Duration{1000};
    ASSERT_TRUE(bound(all).has_value());
    ASSERT_TRUE(bound(quarter).has_value());
    EXPECT_LE(*bound(all), 3 * forward + (ranks - 1) * Duration{3000});
    EXPECT_GT(*bound(quarter), 3 * forward + forward / 3);
    EXPECT_FALSE(bound(chunks * Bytes{999}).has_value());
}

/// A rank that recomputes all micro-batches but the last keeps that one whole, on all of its stages
/// while it is at the last of all.
TEST(OrderPaths, KnowThatTheLastMicroBatchIsKept) {
    constexpr int ranks = 4;
    constexpr int chunks = 8;
    const Schedule order =
        schedule_traits(ScheduleKind::LoopedBfs)
            .generate({.ranks = ranks, .chunks = chunks, .micro_batches = 4}, {});
    const LayerSums sums = equal_layers(ranks * chunks);
    const auto bound = [&](Recompute recompute, Bytes memory) {
        return bound_of_paths(order_paths(order),
                              {.sums = sums, .recomputes = {recompute}, .memory = memory});
    };
    // The weights of eight layers, and what they keep of one micro-batch.
    EXPECT_FALSE(bound(Recompute::ExceptLast, 2 * chunks * Bytes{1000} - Bytes{1}).has_value());
    EXPECT_TRUE(bound(Recompute::ExceptLast, 2 * chunks * Bytes{1000}).has_value());
    // And what one of them keeps.
    EXPECT_TRUE(bound(Recompute::Always, (chunks + 1) * Bytes{1000}).has_value());
    EXPECT_FALSE(bound(Recompute::Always, (chunks + 1) * Bytes{1000} - Bytes{1}).has_value());
}

/// A search that begins where another has ended has its bound at once.
TEST(OrderPaths, BeginWithTheMeanThatBoundedBest) {
    const Schedule order = schedule_traits(ScheduleKind::Interleaved1F1B)
                               .generate({.ranks = 8, .chunks = 3, .micro_batches = 16}, {});
    const LayerSums sums = equal_layers(32);
    const OrderPaths paths = order_paths(order);
    WaysAndPrices best;
    const auto bound = bound_of_paths(paths, {.sums = sums}, {.from = &best});
    ASSERT_TRUE(bound.has_value());
    EXPECT_LT(bound_of_paths(paths, {.sums = sums}, {.turns = 1}), bound);
    EXPECT_EQ(bound_of_paths(paths, {.sums = sums}, {.turns = 1, .from = &best}), bound);
    EXPECT_EQ(bound_of_paths(paths, {.sums = sums}, {.enough = *bound, .from = &best}), bound);
}

/// Chimera's step of equal stages, with backwards that take twice as long as forwards, is 3 m +
/// 2 (p - 2) forwards (Li and Hoefler). The two ranks in the middle wait for p / 2 - 1 stages,
/// there and back.
TEST(ShapeBounds, KnowThatTwoPipelinesFillAndDrain) {
    constexpr int ranks = 8;
    constexpr Duration forward{1000};
    Scenario scenario;
    scenario.pipeline.partition.open();
    const ScheduleChoice choice{.schedule = "chimera"};
    const ShapeBounds bounds(scenario,
                             {.stages = ranks, .micro_batches = ranks},
                             std::make_shared<const LayerSums>(equal_layers(ranks)),
                             {.stages = ranks, .micro_batches = ranks, .has_backward = true},
                             Duration{});
    const Duration bound = bounds.closest_bound(choice, Duration{}, Duration::max());
    EXPECT_LE(bound, (3 * ranks + 2 * (ranks - 2)) * forward);
    EXPECT_GE(bound, (3 * ranks + 3 * (ranks / 2 - 1)) * forward - forward / 10);
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

}  // namespace candidate_bounds_test
}  // namespace pipetwin::sim
