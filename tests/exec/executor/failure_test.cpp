// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <limits>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/timeline/footprint.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace failure_test {

using test::Shape;
using ::testing::HasSubstr;

/// An exception type that only this test knows.
struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

Shape three_stages(const char* schedule, Recompute recompute = Recompute::None) {
    return {.stages = 3, .micro_batches = 4, .schedule = schedule, .recompute = recompute};
}

/// Fails where it is told to, as often as it is armed.
struct Saboteur {
    std::atomic<bool> armed = true;
    std::function<void(int rank, const Action&)> act;

    std::function<void(int, const Action&)> hook() {
        return [this](int rank, const Action& action) {
            if (armed) {
                act(rank, action);
            }
        };
    }
};

/// True if no stage can have updated its weights before `action` is done.
bool every_update_needs(const Action& action, const Plan& plan) {
    switch (action.op) {
        case Op::Forward:
        case Op::SendForward:
        case Op::RecvForward:
            return true;
        case Op::Optimizer:
            return false;
        default:
            return action.stage + 1 == plan.stage_count();
    }
}

class FailingAtEveryAction : public ::testing::TestWithParam<Shape> {};

INSTANTIATE_TEST_SUITE_P(
    Failure,
    FailingAtEveryAction,
    ::testing::Values(
        three_stages("gpipe"),
        three_stages("gpipe", Recompute::Always),
        three_stages("1f1b"),
        Shape{.stages = 3, .channel_capacity = 0},
        Shape{.stages = 3, .schedule = "1f1b", .channel_capacity = 1},
        Shape{.stages = 3, .schedule = "1f1b", .clip_norm = 0.05},
        Shape{.stages = 2, .micro_batches = 2, .schedule = "chimera", .clip_norm = 0.05}));

// One executor for all: it also shows that after each failure the same object can be used again.
TEST_P(FailingAtEveryAction, TheCallerGetsTheExceptionItselfAndTheNextStepIsAsIfNothingHadBeen) {
    const Shape shape = GetParam();
    const Model model = test::small_mlp();
    const Plan plan = test::plan_of(model, shape);
    const Batch batch = random_batch(model, shape.batch, 1);
    Executor untouched(plan, model, test::options_of(shape));
    untouched.run_step(batch, 0);
    const auto expected = test::gradients_of(untouched.parameters());

    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        for (const Action& action : plan->schedule.ranks[static_cast<std::size_t>(rank)]) {
            Saboteur saboteur;
            saboteur.act = [&](int, const Action& at) {
                if (at == action) {
                    throw Broken("broken on purpose");
                }
            };
            ExecutorOptions options = test::options_of(shape);
            options.before_action = saboteur.hook();
            Executor executor(plan, model, options);
            try {
                executor.run_step(batch, 3);
                FAIL() << "expected a failure at " << to_string(action);
            } catch (const Broken& broken) {
                EXPECT_STREQ(broken.what(), "broken on purpose");
            }
            const std::optional<Failure> failure = executor.last_failure();
            ASSERT_TRUE(failure.has_value());
            EXPECT_EQ(failure->rank, rank);
            EXPECT_EQ(failure->step, 3);
            EXPECT_EQ(failure->action, action);
            EXPECT_EQ(failure->message, "broken on purpose");
            EXPECT_EQ(executor.resident(rank), resident_memory(plan, rank));
            if (!every_update_needs(action, plan)) {
                continue;
            }
            saboteur.armed = false;
            executor.run_step(batch, 0);
            EXPECT_FALSE(executor.last_failure().has_value());
            ASSERT_EQ(test::gradients_of(executor.parameters()), expected) << to_string(action);
        }
    }
}

TEST(Failure, AnErrorKeepsItsKindAndTextAndGetsItsPlace) {
    const Shape shape = three_stages("gpipe");
    const Model model = test::small_mlp();
    ExecutorOptions options = test::options_of(shape);
    options.before_action = [](int, const Action& action) {
        if (action == Action{.op = Op::Forward, .stage = 1, .micro_batch = 2}) {
            throw Error(ErrorKind::Io, "data.txt", "the disk is gone", "look for it");
        }
    };
    Executor executor(test::plan_of(model, shape), model, options);
    try {
        executor.run_step(random_batch(model, shape.batch, 1), 3);
        FAIL() << "expected an error";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Io);
        EXPECT_THAT(error.place(), ::testing::StartsWith("rank 1, step 3, 1F2"));
        EXPECT_THAT(error.place(), HasSubstr("data.txt"));
        EXPECT_EQ(error.text(), "the disk is gone");
        EXPECT_EQ(error.hint(), "look for it");
    }
}

TEST(Failure, WhatIsNoStandardExceptionArrivesToo) {
    const Shape shape = three_stages("1f1b");
    const Model model = test::small_mlp();
    ExecutorOptions options = test::options_of(shape);
    options.before_action = [](int rank, const Action&) {
        if (rank == 2) {
            throw 42;
        }
    };
    Executor executor(test::plan_of(model, shape), model, options);
    EXPECT_THROW(executor.run_step(random_batch(model, shape.batch, 1), 0), int);
}

TEST(Failure, NoOtherStageGoesOnAfterTheFailedActionInScheduleOrder) {
    const Shape shape = three_stages("gpipe");
    const Model model = test::small_mlp();
    std::atomic<int> backwards = 0;
    ExecutorOptions options = test::options_of(shape);
    options.before_action = [&](int, const Action& action) {
        backwards += action.op == Op::Backward ? 1 : 0;
        if (action == Action{.op = Op::Forward, .stage = 2, .micro_batch = 3}) {
            throw Broken("at the last forward");
        }
    };
    Executor executor(test::plan_of(model, shape), model, options);
    EXPECT_THROW(executor.run_step(random_batch(model, shape.batch, 1), 0), Broken);
    EXPECT_EQ(backwards, 0);
}

TEST(Failure, OfSeveralTheFirstInScheduleOrderIsReportedHoweverLateItComes) {
    const Shape shape = three_stages("gpipe");
    const Model model = test::small_mlp();
    ExecutorOptions options = test::options_of(shape);
    // 0F3 stands in column 3, 2F0 in column 2. In time 0F3 comes long before it.
    options.before_action = [](int, const Action& action) {
        if (action == Action{.op = Op::Forward, .stage = 0, .micro_batch = 3}) {
            throw Broken("0F3");
        }
        if (action == Action{.op = Op::Forward, .stage = 2, .micro_batch = 0}) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            throw Broken("2F0");
        }
    };
    Executor executor(test::plan_of(model, shape), model, options);
    for (int repeat = 0; repeat < 10; ++repeat) {
        try {
            executor.run_step(random_batch(model, shape.batch, 1), repeat);
            FAIL() << "expected a failure";
        } catch (const Broken& broken) {
            EXPECT_STREQ(broken.what(), "2F0");
        }
    }
}

TEST(Failure, WhereEveryActionFailsTheFirstOfAllIsReported) {
    const Shape shape = three_stages("1f1b");
    const Model model = test::small_mlp();
    ExecutorOptions options = test::options_of(shape);
    options.before_action = [](int, const Action& action) { throw Broken(to_string(action)); };
    Executor executor(test::plan_of(model, shape), model, options);
    for (int repeat = 0; repeat < 10; ++repeat) {
        try {
            executor.run_step(random_batch(model, shape.batch, 1), repeat);
            FAIL() << "expected a failure";
        } catch (const Broken& broken) {
            EXPECT_STREQ(broken.what(), "0F0");
        }
    }
}

/// Sets the first `count` elements of a parameter, or all of them.
void fill(Executor& executor, const std::string& name, float value, std::int64_t count = 1 << 30) {
    for (Parameter* parameter : executor.parameters()) {
        if (parameter->name == name) {
            std::fill_n(
                parameter->value.as<float>(), std::min(count, parameter->value.size()), value);
            return;
        }
    }
    FAIL() << "no parameter " << name;
}

class NotFinite : public ::testing::Test {
  protected:
    const Shape shape{.stages = 3, .micro_batches = 4, .partition = std::vector<int>{3, 3, 2}};
    const Model model = test::small_mlp();
    Executor executor{test::plan_of(model, shape), model, test::options_of(shape)};
};

TEST_F(NotFinite, ALossNamesFirstStageLayerAndMicroBatchAndNoWeightIsUpdated) {
    fill(executor, "linear4.linear.weight", std::numeric_limits<float>::infinity());
    const auto before = test::weights_of(executor.parameters());
    try {
        executor.run_step(random_batch(model, shape.batch, 1), 7);
        FAIL() << "expected an error";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::NotFinite);
        EXPECT_EQ(error.place(), "rank 2, step 7, 2F0 (the forward of micro-batch 0 on stage 2)");
        EXPECT_THAT(error.text(), HasSubstr("loss of micro-batch 0"));
        EXPECT_THAT(error.text(), HasSubstr("layer 'linear4' in stage 1"));
    }
    EXPECT_EQ(test::weights_of(executor.parameters()), before);
}

TEST_F(NotFinite, TheLossLayerItselfMayBeTheFirst) {
    fill(executor, "linear7.linear.weight", std::numeric_limits<float>::quiet_NaN());
    try {
        executor.run_step(random_batch(model, shape.batch, 1), 0);
        FAIL() << "expected an error";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::NotFinite);
        EXPECT_THAT(error.text(), HasSubstr("layer 'linear7' in stage 2"));
    }
}

TEST_F(NotFinite, AGradientIsFoundThoughTheLossIsFinite) {
    // Zeros go in and no layer adds a bias, so every output is 0 and the loss is ln 5; but the
    // gradient grows by 1e30 with each of the last two layers.
    for (const Parameter* parameter : executor.parameters()) {
        if (parameter->name.ends_with("bias")) {
            fill(executor, parameter->name, 0);
        }
    }
    fill(executor, "linear6.linear.weight", 1e30F);
    fill(executor, "linear7.linear.weight", 1e30F, 1);
    Batch zeros = random_batch(model, shape.batch, 1);
    std::ranges::fill(zeros.values, 0.0F);
    try {
        executor.run_step(zeros, 0);
        FAIL() << "expected an error";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::NotFinite);
        EXPECT_THAT(error.text(), HasSubstr("gradient of 'linear"));
    }
}

TEST_F(NotFinite, FiniteDataWorkAgainAfterIt) {
    const auto weights = test::weights_of(executor.parameters());
    Batch batch = random_batch(model, shape.batch, 1);
    batch.values[0] = std::numeric_limits<float>::infinity();
    EXPECT_THROW(executor.run_step(batch, 0), Error);
    EXPECT_EQ(test::weights_of(executor.parameters()), weights);
    EXPECT_GT(executor.run_step(random_batch(model, shape.batch, 1), 0).loss, 0);
}

}  // namespace failure_test
}  // namespace pipetwin::exec
