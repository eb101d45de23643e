// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <chrono>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "exec/base/random.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "tests/support/small_training.h"

/// Numbers do not depend on when who does what. Every worker sleeps for a random time before every
/// action, so that ranks meet in ever new ways; under the thread sanitizer that is also where a
/// race between them would be seen.
namespace pipetwin::exec {
namespace disturbed_test {

using test::NamedValues;
using test::Shape;

constexpr std::uint64_t seed = 20;
constexpr int steps = 2;

struct Outcome {
    std::vector<double> losses;
    std::vector<NamedValues> weights;

    bool operator==(const Outcome&) const = default;
};

Outcome train(Executor& executor, const Model& model, int batch) {
    Outcome outcome;
    for (int step = 0; step < steps; ++step) {
        outcome.losses.push_back(executor.run_step(random_batch(model, batch, 1), step).loss);
    }
    outcome.weights = test::weights_of(executor.parameters());
    return outcome;
}

/// Sleeps up to 200 us before every action, in another pattern for every `round`. An action comes
/// once in a step, on one rank.
ExecutorOptions sleepy(const Shape& shape, std::uint64_t round) {
    ExecutorOptions options = test::options_of(shape);
    options.before_action = [random = RandomStream(seed).of(round)](int rank,
                                                                    const Action& action) {
        const auto draw = random.of(static_cast<std::uint64_t>(rank))
                              .of(static_cast<std::uint64_t>(action.op))
                              .of(static_cast<std::uint64_t>(action.stage));
        const auto time = draw.below(static_cast<std::uint64_t>(action.micro_batch), 400);
        if (time < 200) {  // half of them go on at once
            std::this_thread::sleep_for(std::chrono::microseconds(time));
        }
    };
    return options;
}

std::vector<Shape> shapes() {
    std::vector<Shape> all{
        {.stages = 3, .micro_batches = 1, .schedule = "naive"},
        {.stages = 3, .schedule = "gpipe"},
        {.stages = 3, .schedule = "gpipe", .recompute = Recompute::Always},
        {.stages = 3, .schedule = "1f1b", .recompute = Recompute::ExceptLast},
        {.stages = 3, .schedule = "gpipe", .channel_capacity = 0},
        {.stages = 2, .chunks = 2, .schedule = "interleaved-1f1b", .recompute = Recompute::Always},
        {.stages = 2, .chunks = 2, .schedule = "looped-bfs"},
        {.stages = 3, .schedule = "zb-h1", .channel_capacity = 1},
        {.stages = 2, .schedule = "zb-h2"},
        {.stages = 3, .schedule = "zb-auto"},
        {.stages = 2, .chunks = 2, .schedule = "zb-v"},
        {.stages = 2, .chunks = 2, .schedule = "interleaved-zb"},
        {.stages = 2, .chunks = 2, .schedule = "dualpipe-v"},
        {.stages = 4, .chunks = 2, .schedule = "hanayo"},
        {.stages = 4, .schedule = "chimera"},
        {.stages = 2, .schedule = "1f1b", .backend = Backend::Paced, .host_link_gbps = 2},
    };
    return all;
}

class Disturbed : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Schedules, Disturbed, ::testing::ValuesIn(shapes()));

TEST_P(Disturbed, StepsGiveTheBitsOfUndisturbedOnes) {
    const Shape& shape = GetParam();
    const Model model = test::small_gpt();
    const test::LayerTimes short_times{.forward = std::chrono::microseconds(20),
                                       .backward = std::chrono::microseconds(40)};
    const Plan plan = test::plan_of(model, shape, short_times);
    Executor untouched(plan, model, test::options_of(shape));
    const Outcome expected = train(untouched, model, shape.batch);
    for (std::uint64_t round = 0; round < 3; ++round) {
        Executor executor(plan, model, sleepy(shape, round));
        EXPECT_EQ(train(executor, model, shape.batch), expected)
            << "seed " << seed << ", round " << round;
    }
}

TEST(TwoExecutors, TrainAtTheSameTimeAndAreDestroyedInAnyOrder) {
    const Model model = test::small_gpt();
    const Shape shape{.stages = 2, .schedule = "1f1b"};
    const Plan plan = test::plan_of(model, shape);
    Executor alone(plan, model, test::options_of(shape));
    const Outcome expected = train(alone, model, shape.batch);
    for (const std::size_t goes_first : {0U, 1U}) {
        std::array<std::unique_ptr<Executor>, 2> both;
        std::array<Outcome, 2> outcomes;
        {
            std::array<std::jthread, 2> threads;
            for (std::size_t i = 0; i < both.size(); ++i) {
                both.at(i) = std::make_unique<Executor>(plan, model, sleepy(shape, i));
                threads.at(i) = std::jthread(
                    [&, i] { outcomes.at(i) = train(*both.at(i), model, shape.batch); });
            }
        }
        EXPECT_EQ(outcomes[0], expected);
        EXPECT_EQ(outcomes[1], expected);
        both.at(goes_first).reset();
        EXPECT_GT(both.at(1 - goes_first)->run_step(random_batch(model, shape.batch, 1), 2).loss,
                  0);
    }
}

}  // namespace disturbed_test
}  // namespace pipetwin::exec
