// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/timeline/footprint.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "tests/support/error_of.h"
#include "tests/support/small_training.h"
#include "tests/support/training_step.h"

/// Every synchronous schedule trains: same gradients, the memory that was predicted, as many
/// activations alive as its closed form says.
namespace pipetwin::exec {
namespace schedules_test {

using test::expect_predicted_peaks;
using test::pipeline_step;
using test::reference_step;
using test::Shape;
using test::StepOutcome;

/// Shapes that the schedule allows for a model of eight layers; p ranks, m micro-batches.
struct Rule {
    const char* name;
    std::vector<int> chunks;
    std::function<bool(int p, int m)> allows;
    /// Most (micro-batch, stage) pairs alive on rank r.
    std::function<int(int p, int m, int v, int r)> live;
    BackwardOrder order = BackwardOrder::Ascending;
};

const auto always = [](int /*p*/, int /*m*/) { return true; };

/// With the peaks of docs/schedules.md where a closed form is known. Where the backward takes the
/// micro-batches in ascending order, all schedules add up the same bits.
std::vector<Rule> rules() {
    return {
        {"1f1b", {1}, always, [](int p, int m, int /*v*/, int r) { return std::min(m, p - r); }},
        {"interleaved-1f1b",
         {1, 2},
         [](int p, int m) { return m % p == 0; },
         [](int p, int m, int v, int r) {
             return v == 1 ? 0 : std::min(m * v, (v - 1) * p + 2 * (p - 1 - r) + 1);
         }},
        {"naive", {1}, [](int, int m) { return m == 1; }, [](int, int, int, int) { return 1; }},
        {"gpipe", {1}, always, [](int, int m, int, int) { return m; }, BackwardOrder::Descending},
        {"looped-bfs",
         {1, 2},
         always,
         [](int, int m, int v, int) { return m * v; },
         BackwardOrder::Descending},
        {"zb-h1",
         {1},
         [](int p, int m) { return m >= p; },
         [](int p, int m, int, int) { return std::min(m, p); }},
        {"zb-h2",
         {1},
         [](int p, int m) { return m >= 2 * p - 1; },
         [](int p, int m, int, int) { return std::min(m, 2 * p - 1); }},
        {"zb-auto", {1}, always, {}},
        {"zb-v",
         {2},
         [](int p, int m) { return m >= 2 * p - 1; },
         [](int p, int, int, int) { return 2 * p; }},
        {"interleaved-zb",
         {1, 2},
         [](int p, int m) { return m % p == 0; },
         [](int p, int, int v, int) { return p * v; }},
        {"dualpipe-v",
         {2},
         [](int p, int m) { return m >= 2 * p; },
         [](int p, int, int, int) { return 2 * p + 1; }},
        {"hanayo", {2}, [](int p, int m) { return m == p; }, {}},
    };
}

void PrintTo(const Rule& rule, std::ostream* out) {
    *out << rule.name;
}

std::vector<Shape> shapes_of(const Rule& rule) {
    std::vector<Shape> shapes;
    for (const int p : {1, 2, 4}) {
        for (const int v : rule.chunks) {
            for (const int m : {1, 2, 4, 8}) {
                if (rule.allows(p, m)) {
                    shapes.push_back({.stages = p,
                                      .chunks = v,
                                      .micro_batches = m,
                                      .batch = 10,
                                      .schedule = rule.name});
                }
            }
        }
    }
    return shapes;
}

class SynchronousSchedule : public ::testing::TestWithParam<Rule> {};
INSTANTIATE_TEST_SUITE_P(Schedules,
                         SynchronousSchedule,
                         ::testing::ValuesIn(rules()),
                         [](const ::testing::TestParamInfo<Rule>& rule) {
                             std::string name = rule.param.name;
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

/// Two pipelines of one model sum their gradients in another order: Chimera has tests of its own
/// below.
TEST(SynchronousSchedules, EveryOneThatTrainsIsTestedHere) {
    for (const ScheduleName& known : known_schedules()) {
        const ScheduleTraits& row = schedule_traits(known.kind);
        if (row.trains && !row.stale_gradients && row.placement != StagePlacement::BothWays) {
            EXPECT_TRUE(std::ranges::any_of(
                rules(), [&](const Rule& rule) { return rule.name == known.name; }))
                << known.name << ": add a row to rules()";
        }
    }
}

TEST_P(SynchronousSchedule, GivesTheGradientsOfTheReferenceBitForBitOnAnyNumberOfRanks) {
    for (const Model& model :
         {test::small_mlp(), test::small_gpt(), test::small_gpt_with(0.25, true)}) {
        for (const Shape& shape : shapes_of(GetParam())) {
            EXPECT_TRUE(pipeline_step(model, shape) ==
                        reference_step(model, shape, GetParam().order))
                << test::to_string(shape);
        }
    }
}

TEST_P(SynchronousSchedule, GivesTheSameGradientsWithRecompute) {
    const Model model = test::small_gpt();
    for (Shape shape : shapes_of(GetParam())) {
        const StepOutcome expected = reference_step(model, shape, GetParam().order);
        for (const RecomputeRules& recompute : test::every_recompute(shape.stages * shape.chunks)) {
            for (const RecomputeTiming timing : {RecomputeTiming::Eager, RecomputeTiming::Lazy}) {
                shape.recompute = recompute;
                shape.recompute_timing = timing;
                EXPECT_TRUE(pipeline_step(model, shape) == expected) << test::to_string(shape);
            }
        }
    }
}

TEST_P(SynchronousSchedule, GivesTheSameGradientsAndThePredictedBytesWithRecomputeOfBlocks) {
    for (const Model& model : {test::small_gpt(), test::small_gpt_with(0.25, true)}) {
        for (Shape shape : shapes_of(GetParam())) {
            const StepOutcome expected = reference_step(model, shape, GetParam().order);
            shape.layer_recompute = LayerRecompute::Block;
            // The model has three blocks.
            for (shape.recompute_blocks = 1; shape.recompute_blocks <= 3;
                 ++shape.recompute_blocks) {
                SCOPED_TRACE(shape.recompute_blocks);
                EXPECT_TRUE(pipeline_step(model, shape) == expected) << test::to_string(shape);
                expect_predicted_peaks(model, shape);
            }
        }
    }
}

TEST_P(SynchronousSchedule, PeaksAtThePredictedBytes) {
    for (const Model& model :
         {test::small_mlp(), test::small_gpt(), test::small_gpt_with(0.25, true)}) {
        for (Shape shape : shapes_of(GetParam())) {
            for (const RecomputeRules& recompute :
                 test::every_recompute(shape.stages * shape.chunks)) {
                shape.recompute = recompute;
                expect_predicted_peaks(model, shape);
            }
        }
    }
}

/// Looks at the stages of a rank before each of its actions. Each rank has its own counter.
class LiveStashes {
  public:
    explicit LiveStashes(const Plan& plan) : plan_(plan), peaks_(plan->schedule.ranks.size(), 0) {}

    void look(Executor& executor, int rank) {
        int live = 0;
        for (int stage = 0; stage < plan_.stage_count(); ++stage) {
            if (plan_->schedule.rank_of_stage[static_cast<std::size_t>(stage)] == rank) {
                live += executor.stage(stage).stash_count();
            }
        }
        int& peak = peaks_[static_cast<std::size_t>(rank)];
        peak = std::max(peak, live);
    }

    const std::vector<int>& peaks() const { return peaks_; }

  private:
    const Plan& plan_;
    std::vector<int> peaks_;
};

std::vector<int> stashes_of(const Model& model, const Shape& shape) {
    const Plan plan = test::plan_of(model, shape);
    LiveStashes live(plan);
    Executor* looked_at = nullptr;
    ExecutorOptions options = test::options_of(shape);
    options.before_action = [&](int rank, const Action&) { live.look(*looked_at, rank); };
    Executor executor(plan, model, options);
    looked_at = &executor;
    executor.run_step(random_batch(model, shape.batch, 1), 0);
    return live.peaks();
}

TEST_P(SynchronousSchedule, KeepsAsManyStashesAsItsClosedFormSays) {
    const Rule& rule = GetParam();
    const Model model = test::small_mlp();
    for (const Shape& shape : shapes_of(rule)) {
        const Plan plan = test::plan_of(model, shape);
        const std::vector<int> counted = stashes_of(model, shape);
        EXPECT_EQ(counted, peak_live_activations(plan->schedule)) << test::to_string(shape);
        for (int rank = 0; rank < shape.stages && rule.live; ++rank) {
            const int live = rule.live(shape.stages, shape.micro_batches, shape.chunks, rank);
            if (live > 0) {
                EXPECT_EQ(counted[static_cast<std::size_t>(rank)], live)
                    << test::to_string(shape) << ", rank " << rank;
            }
        }
    }
}

// --- Two pipelines of one model. ---

Shape chimera_shape(int ranks) {
    return {.stages = ranks, .micro_batches = ranks, .batch = 10, .schedule = "chimera"};
}

TEST(Chimera, GivesTheGradientsOfGPipeToOneInAMillion) {
    for (const Model& model : {test::small_mlp(), test::small_gpt()}) {
        for (const int ranks : {2, 4}) {
            const Shape shape = chimera_shape(ranks);
            Shape gpipe = shape;
            gpipe.schedule = "gpipe";
            for (const RecomputeRules& recompute : test::every_recompute(ranks)) {
                Shape own = shape;
                own.recompute = recompute;
                SCOPED_TRACE(test::to_string(own));
                test::expect_near(pipeline_step(model, own), pipeline_step(model, gpipe), 1e-6);
            }
        }
    }
}

TEST(Chimera, KeepsBothCopiesOfTheWeightsTheSameBitForBit) {
    const Model model = test::small_gpt();
    const Shape shape = chimera_shape(4);
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    for (int step = 0; step < 3; ++step) {
        executor.run_step(random_batch(model, shape.batch, static_cast<std::uint64_t>(step)), step);
    }
    for (int stage = 0; stage < 4; ++stage) {
        EXPECT_EQ(test::weights_of(executor.stage(stage).parameters()),
                  test::weights_of(executor.stage(stage + 4).parameters()));
    }
}

TEST(Chimera, PeaksAtThePredictedBytes) {
    for (const Model& model : {test::small_mlp(), test::small_gpt()}) {
        for (const int ranks : {2, 4}) {
            for (const RecomputeRules& recompute : test::every_recompute(ranks)) {
                Shape shape = chimera_shape(ranks);
                shape.recompute = recompute;
                expect_predicted_peaks(model, shape);
            }
        }
    }
}

TEST(Chimera, KeepsAsManyStashesAsItsRowsSay) {
    const Shape shape = chimera_shape(4);
    const Model model = test::small_mlp();
    const std::vector<int> counted = stashes_of(model, shape);
    EXPECT_EQ(counted, peak_live_activations(test::plan_of(model, shape)->schedule));
    EXPECT_THAT(counted, ::testing::Each(::testing::AllOf(::testing::Ge(3), ::testing::Le(4))));
}

TEST(Chimera, AFailureInOnePipelineStopsBothAndTheNextStepWorks) {
    const Model model = test::small_mlp();
    const Shape shape = chimera_shape(4);
    ExecutorOptions options = test::options_of(shape);
    bool fail = true;
    options.before_action = [&fail](int /*rank*/, const Action& action) {
        if (fail && action == Action{.op = Op::ReduceGradient, .stage = 6}) {
            throw std::runtime_error("out of order");
        }
    };
    Executor executor(test::plan_of(model, shape), model, options);
    const Batch batch = random_batch(model, shape.batch, 1);
    EXPECT_THROW(executor.run_step(batch, 0), std::runtime_error);
    EXPECT_EQ(place_of(executor.last_failure().value()),
              "rank 1, step 0, 6REDUCE_GRAD (the gradient reduction of stage 6)");
    fail = false;
    EXPECT_NO_THROW(executor.run_step(batch, 0));
}

TEST(SimulatedOnly, IsRefusedByTheExecutor) {
    const Model model = test::small_mlp();
    for (const char* schedule : {"pipedream", "pipedream-2bw", "forward-only"}) {
        const Shape shape{.stages = 2, .micro_batches = 4, .schedule = schedule};
        const Error error = testing::error_of([&] {
            const Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        });
        EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("pipetwin simulate"));
    }
}

}  // namespace schedules_test
}  // namespace pipetwin::exec
