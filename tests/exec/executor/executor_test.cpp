// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/executor.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/timeline/footprint.h"
#include "exec/data/random_batch.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace executor_test {

using test::Shape;
using ::testing::HasSubstr;

std::vector<std::vector<Action>> actions_of(const Timeline& timeline) {
    std::vector<std::vector<Action>> rows;
    for (const std::vector<Span>& spans : timeline.ranks) {
        auto& row = rows.emplace_back();
        std::ranges::transform(spans, std::back_inserter(row), &Span::action);
    }
    return rows;
}

/// Loss and gradients of one step.
struct Outcome {
    double loss = 0;
    std::vector<test::NamedValues> gradients;
    bool operator==(const Outcome&) const = default;
};

Outcome one_step(const Plan& plan, const Model& model, const Shape& shape) {
    Executor executor(plan, model, test::options_of(shape));
    const double loss = executor.run_step(random_batch(model, shape.batch, 1), 0).loss;
    return {.loss = loss, .gradients = test::gradients_of(executor.parameters())};
}

TEST(Executor, TheTraceHoldsExactlyThePlansActionsInThePlansOrder) {
    const Model model = test::small_mlp();
    for (const char* schedule : {"gpipe", "1f1b"}) {
        for (const RecomputeRules& recompute :
             {RecomputeRules(Recompute::None),
              RecomputeRules(Recompute::Always),
              RecomputeRules(Recompute::ExceptLast),
              RecomputeRules({Recompute::Always, Recompute::ExceptLast, Recompute::None})}) {
            const Shape shape{.stages = 3, .schedule = schedule, .recompute = recompute};
            const Plan plan = test::plan_of(model, shape);
            Executor executor(plan, model, test::options_of(shape));
            const StepResult step = executor.run_step(random_batch(model, shape.batch, 1), 0);
            EXPECT_EQ(actions_of(step.timeline), plan->schedule.ranks) << test::to_string(shape);
            EXPECT_EQ(step.timeline.origin, Origin::Measured);
        }
    }
}

TEST(Executor, TheSpansOfARowFollowEachOther) {
    const Model model = test::small_mlp();
    const Shape shape{.stages = 2, .schedule = "1f1b"};
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    const StepResult step = executor.run_step(random_batch(model, shape.batch, 1), 0);
    for (const std::vector<Span>& row : step.timeline.ranks) {
        Duration free{};
        for (const Span& span : row) {
            EXPECT_LE(free, span.begin) << to_string(span.action);
            EXPECT_LE(span.begin, span.ready) << to_string(span.action);
            EXPECT_LE(span.ready, span.end) << to_string(span.action);
            free = span.end;
        }
    }
}

TEST(Executor, NoMessageIsReceivedBeforeItIsSent) {
    const Model model = test::small_mlp();
    const Shape shape{.stages = 2};
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    const Timeline timeline = executor.run_step(random_batch(model, shape.batch, 1), 0).timeline;
    for (const Span& receive : timeline.ranks[1]) {
        if (receive.action.op != Op::RecvForward) {
            continue;
        }
        const Action send{
            .op = Op::SendForward, .stage = 0, .micro_batch = receive.action.micro_batch};
        const auto sent = std::ranges::find(timeline.ranks[0], send, &Span::action);
        ASSERT_NE(sent, timeline.ranks[0].end());
        EXPECT_LE(sent->begin, receive.end);
    }
}

TEST(Executor, OneMicroBatchAndOneStageAndFewerMicroBatchesThanStagesAreLegal) {
    const Model model = test::small_mlp();
    for (const Shape& shape : {Shape{.stages = 3, .micro_batches = 1, .schedule = "naive"},
                               Shape{.stages = 1, .micro_batches = 4},
                               Shape{.stages = 4, .micro_batches = 2, .schedule = "1f1b"}}) {
        const Plan plan = test::plan_of(model, shape);
        EXPECT_GT(one_step(plan, model, shape).loss, 0) << test::to_string(shape);
    }
}

TEST(Executor, OneMicroBatchComputesWhatOneStageDoes) {
    const Model model = test::small_gpt();
    const Shape naive{.stages = 3, .micro_batches = 1, .schedule = "naive"};
    const Shape alone{.stages = 1, .micro_batches = 1};
    EXPECT_EQ(one_step(test::plan_of(model, naive), model, naive),
              one_step(test::plan_of(model, alone), model, alone));
}

TEST(Executor, TheInputsGradientIsProducedWhenAskedAndChangesNoOther) {
    const Model model = test::small_mlp();
    const Shape shape{.stages = 2};
    const Plan plan = test::plan_of(model, shape);
    ExecutorOptions options = test::options_of(shape);
    options.input_gradient = true;
    Executor executor(plan, model, options);
    executor.run_step(random_batch(model, shape.batch, 1), 0);
    for (int micro_batch = 0; micro_batch < plan.micro_batches(); ++micro_batch) {
        const Tensor& gradient = executor.input_gradient(micro_batch);
        ASSERT_EQ(gradient.rows(), 2);
        ASSERT_EQ(gradient.columns(), 6);
        EXPECT_THAT(test::values_of(gradient), ::testing::Contains(::testing::Ne(0.0)));
    }
    EXPECT_EQ(test::gradients_of(executor.parameters()), one_step(plan, model, shape).gradients);
}

TEST(Executor, WithoutBeingAskedThereIsNoInputGradient) {
    const Model model = test::small_mlp();
    const Shape shape{.stages = 2, .recompute = Recompute::Always};
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    executor.run_step(random_batch(model, shape.batch, 1), 0);
    EXPECT_TRUE(executor.input_gradient(0).empty());
    EXPECT_THAT(test::gradients_of(executor.parameters()).front().values,
                ::testing::Contains(::testing::Ne(0.0)));
}

TEST(Executor, FewerSamplesThanMicroBatchesMakeFewerMicroBatches) {
    const Model model = test::small_mlp();
    const Shape shape{.stages = 2, .micro_batches = 8, .batch = 3};
    const Plan plan = test::plan_of(model, shape);
    EXPECT_EQ(plan.micro_batches(), 3);
    EXPECT_GT(one_step(plan, model, shape).loss, 0);
}

TEST(Executor, TheCapacityOfTheChannelsChangesNoNumber) {
    const Model model = test::small_mlp();
    const Shape unbounded{.stages = 3};
    const Outcome expected = one_step(test::plan_of(model, unbounded), model, unbounded);
    for (const int capacity : {0, 1, 2}) {
        const Shape shape{.stages = 3, .channel_capacity = capacity};
        EXPECT_EQ(one_step(test::plan_of(model, shape), model, shape), expected) << capacity;
    }
}

/// Rows of one rank that holds both stages.
TEST(Executor, StagesOnOneRankHandOverWithoutMessages) {
    const Model model = test::small_mlp();
    const Shape shape{.stages = 2, .micro_batches = 2};
    PlanParts parts = test::plan_of(model, shape).parts();
    parts.schedule.rank_of_stage = {0, 0};
    parts.schedule.ranks = {{{Op::Forward, 0, 0},
                             {Op::Forward, 1, 0},
                             {Op::Forward, 0, 1},
                             {Op::Forward, 1, 1},
                             {Op::Backward, 1, 1},
                             {Op::Backward, 0, 1},
                             {Op::Backward, 1, 0},
                             {Op::Backward, 0, 0},
                             {Op::Optimizer, 0, 0},
                             {Op::Optimizer, 1, 0}}};
    const Outcome expected = one_step(test::plan_of(model, shape), model, shape);
    EXPECT_EQ(one_step(Plan::make(parts), model, shape), expected);
}

TEST(Executor, BackwardInTwoPartsGivesTheBitsOfTheWhole) {
    const Model model = test::small_gpt();
    const Shape shape{.stages = 2, .schedule = "1f1b"};
    PlanParts parts = test::plan_of(model, shape).parts();
    for (std::vector<Action>& row : parts.schedule.ranks) {
        std::vector<Action> split;
        for (Action action : row) {
            if (action.op != Op::Backward) {
                split.push_back(action);
                continue;
            }
            action.op = Op::BackwardInput;
            split.push_back(action);
            action.op = Op::BackwardWeight;
            split.push_back(action);
        }
        // A send stands directly after what made its message: swap it with the W between.
        for (std::size_t cell = 1; cell < split.size(); ++cell) {
            if (split[cell].op == Op::SendBackward && split[cell - 1].op == Op::BackwardWeight) {
                std::swap(split[cell], split[cell - 1]);
            }
        }
        row = split;
    }
    const Outcome expected = one_step(test::plan_of(model, shape), model, shape);
    EXPECT_EQ(one_step(Plan::make(parts), model, shape), expected);
}

// Nothing clears a gradient: the first micro-batch of a step writes it, whatever was there.
TEST(Executor, AStepDoesNotDependOnWhatItsGradientsHeldBefore) {
    struct Case {
        Model model;
        Shape shape;
    };
    const std::vector<Case> cases{
        {test::small_gpt_with(0.25, true), {.stages = 1}},
        {test::small_gpt_with(0.25, true), {.stages = 2, .schedule = "zb-h1", .clip_norm = 0.1}},
        {test::small_gpt(), {.stages = 2, .micro_batches = 2, .schedule = "chimera"}},
        {test::small_llama(), {.stages = 2, .chunks = 2, .schedule = "interleaved-1f1b"}},
        {test::small_translation_with(TranslationTables::Shared, 0), {.stages = 2}},
        {test::small_norms(), {.stages = 2, .precision = Precision::Bf16}}};
    for (const auto& [model, shape] : cases) {
        const auto train = [&](std::uint8_t byte) {
            Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
            std::vector<double> losses;
            for (int step = 0; step < 3; ++step) {
                for (int stage = 0; stage < executor.plan().stage_count(); ++stage) {
                    for (Parameter* const parameter : executor.stage(stage).parameters()) {
                        for (Tensor* const sum : {&parameter->gradient, &parameter->received}) {
                            std::fill_n(
                                static_cast<std::uint8_t*>(sum->data()), sum->bytes().count, byte);
                        }
                    }
                }
                losses.push_back(executor.run_step(random_batch(model, shape.batch, 1), step).loss);
            }
            return std::pair(losses, test::weights_of(executor.parameters()));
        };
        constexpr std::uint8_t not_a_number = 0xFF;
        EXPECT_TRUE(train(not_a_number) == train(0)) << test::to_string(shape);
    }
}

TEST(Executor, TwoOfThemRunSideBySideAndAreDestroyedInAnyOrder) {
    const Model model = test::small_mlp();
    const Shape shape{.stages = 2};
    const Plan plan = test::plan_of(model, shape);
    const Batch batch = random_batch(model, shape.batch, 1);
    for (const bool first_goes_first : {true, false}) {
        auto first = std::make_unique<Executor>(plan, model, test::options_of(shape));
        auto second = std::make_unique<Executor>(plan, model, test::options_of(shape));
        for (int step = 0; step < 3; ++step) {
            EXPECT_EQ(first->run_step(batch, step).loss, second->run_step(batch, step).loss);
        }
        (first_goes_first ? first : second).reset();
        EXPECT_GT((first_goes_first ? second : first)->run_step(batch, 3).loss, 0);
    }
}

TEST(Executor, ABatchOfAnotherShapeIsRefusedWithStageAndLayer) {
    const Model model = test::small_mlp();
    const Shape shape{.stages = 2};
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    const Model wider = mlp_model({7, 5});
    try {
        executor.run_step(random_batch(wider, shape.batch, 1), 0);
        FAIL() << "expected an error";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.what(), HasSubstr("rank 0, step 0, 0F0"));
        EXPECT_THAT(error.what(), HasSubstr("stage 0"));
        EXPECT_THAT(error.what(), HasSubstr("linear0"));
    }
}

TEST(Executor, NamesOfParametersDoNotDependOnThePartition) {
    const Model model = test::small_gpt();
    const auto names = [&](int stages) {
        const Shape shape{.stages = stages};
        Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        std::vector<std::string> all;
        std::ranges::transform(executor.parameters(), std::back_inserter(all), &Parameter::name);
        return all;
    };
    EXPECT_EQ(names(1), names(2));
    EXPECT_EQ(names(1), names(4));
}

TEST(Executor, TheNormOfTheGradientsDoesNotDependOnThePartition) {
    const Model model = test::small_gpt();
    const auto norm = [&](int stages) {
        const Shape shape{.stages = stages};
        Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        return executor.run_step(random_batch(model, shape.batch, 1), 0).grad_norm;
    };
    EXPECT_GT(norm(1), 0);
    EXPECT_EQ(norm(1), norm(2));
    EXPECT_EQ(norm(1), norm(4));
}

TEST(Executor, BetweenTwoStepsARankHoldsWhatThePlanSays) {
    const Model model = test::small_gpt();
    for (const std::optional<int> capacity : {std::optional<int>{}, std::optional<int>{2}}) {
        const Shape shape{.stages = 3, .batch = 6, .channel_capacity = capacity};
        const Plan plan = test::plan_of(model, shape);
        Executor executor(plan, model, test::options_of(shape));
        for (int step = 0; step < 2; ++step) {
            executor.run_step(random_batch(model, shape.batch, 1), step);
            for (int rank = 0; rank < plan.rank_count(); ++rank) {
                EXPECT_EQ(executor.resident(rank), resident_memory(plan, rank)) << "rank " << rank;
            }
        }
    }
}

TEST(Executor, RefusesAModelThatIsKnownByItsCostsOnly) {
    const Model model = test::small_mlp();
    const Shape shape{.stages = 2};
    const Model opaque = Model::opaque({{.name = "a", .inputs = {}}, {.name = "b", .inputs = {}}});
    EXPECT_THROW(Executor(test::plan_of(model, shape), opaque, test::options_of(shape)), Error);
}

TEST(Executor, RefusesTheCudaBackendByName) {
    const Model model = test::small_mlp();
    Shape shape{.stages = 2};
    const Plan plan = test::plan_of(model, shape);
    shape.backend = Backend::Cuda;
    try {
        const Executor executor(plan, model, test::options_of(shape));
        FAIL() << "expected an error";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Unavailable);
        EXPECT_THAT(error.what(), HasSubstr("cuda: not available here"));
    }
}

}  // namespace executor_test
}  // namespace pipetwin::exec
