// SPDX-License-Identifier: Apache-2.0
#include "exec/replicas/replicas.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/as_index.h"
#include "exec/data/random_batch.h"
#include "exec/training/checkpoint.h"
#include "tests/support/compare_tensors.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace replicas_test {

using test::Shape;

/// Two steps; the parameters of the first replica after them.
struct Trained {
    std::vector<double> losses;
    std::vector<test::NamedValues> weights;
    std::vector<test::NamedValues> gradients;
};

Trained trained(const Model& model, const Shape& shape, ExecutorOptions options) {
    Replicas pipelines(test::plan_of(model, shape), model, options);
    Trained result;
    StepResult step;
    for (int number = 0; number < 2; ++number) {
        pipelines.run_step(
            random_batch(model, shape.batch, static_cast<std::uint64_t>(number)), number, step);
        result.losses.push_back(step.loss);
    }
    result.weights = test::weights_of(pipelines.first().parameters());
    result.gradients = test::gradients_of(pipelines.first().parameters());
    return result;
}

Trained trained(const Model& model, const Shape& shape) {
    return trained(model, shape, test::options_of(shape));
}

struct Case {
    Shape shape;
    bool tied = false;
};
void PrintTo(const Case& each, std::ostream* out) {
    *out << to_string(each.shape) << " D=" << each.shape.replicas
         << (each.shape.overlap_reduction ? " overlapped" : "")
         << (each.shape.shard_optimizer ? " sharded" : "") << (each.tied ? " tied" : "");
}

class SeveralReplicas : public ::testing::TestWithParam<Case> {};

/// Twelve samples give the same gradients however many replicas share them: 1e-6 where sums are
/// formed in another order, in fp32.
TEST_P(SeveralReplicas, TrainAsOneDoes) {
    const Model model = test::small_gpt_with(0.1, GetParam().tied);
    Shape alone = GetParam().shape;
    alone.micro_batches *= alone.replicas;
    alone.replicas = 1;
    const Trained one = trained(model, alone);
    const Trained several = trained(model, GetParam().shape);
    for (std::size_t step = 0; step < one.losses.size(); ++step) {
        EXPECT_NEAR(several.losses[step], one.losses[step], 1e-6 * one.losses[step]);
    }
    ASSERT_EQ(several.gradients.size(), one.gradients.size());
    if (GetParam().shape.shard_optimizer) {
        return;  // the first has the sums of its share alone
    }
    for (std::size_t i = 0; i < one.gradients.size(); ++i) {
        EXPECT_TRUE(testing::agree(std::span<const double>(several.gradients[i].values),
                                   std::span<const double>(one.gradients[i].values),
                                   1e-5))
            << one.gradients[i].name;
    }
}

/// Whatever the pipeline is, the sums over the replicas are formed in one order.
TEST_P(SeveralReplicas, GiveTheSameBitsTwice) {
    const Model model = test::small_gpt_with(0.1, GetParam().tied);
    const Trained first = trained(model, GetParam().shape);
    const Trained second = trained(model, GetParam().shape);
    EXPECT_EQ(first.losses, second.losses);
    EXPECT_EQ(first.weights, second.weights);
}

INSTANTIATE_TEST_SUITE_P(
    Replicas,
    SeveralReplicas,
    ::testing::Values(
        Case{.shape = {.stages = 1, .micro_batches = 2, .batch = 12, .replicas = 2}},
        Case{.shape = {.stages = 1, .micro_batches = 2, .batch = 12, .replicas = 2}, .tied = true},
        Case{.shape = {.stages = 2, .micro_batches = 3, .batch = 12, .replicas = 2}},
        Case{.shape = {.stages = 2, .micro_batches = 2, .batch = 12, .replicas = 3}},
        Case{.shape = {.stages = 2,
                       .micro_batches = 3,
                       .batch = 12,
                       .schedule = "1f1b",
                       .clip_norm = 0.5,
                       .replicas = 2,
                       .overlap_reduction = true},
             .tied = true},
        Case{.shape = {.stages = 2,
                       .chunks = 2,
                       .micro_batches = 2,
                       .batch = 12,
                       .schedule = "interleaved-1f1b",
                       .recompute = Recompute::Always,
                       .replicas = 3,
                       .overlap_reduction = true}},
        Case{.shape =
                 {.stages = 3, .micro_batches = 3, .batch = 12, .schedule = "zb-h1", .replicas = 2},
             .tied = true},
        Case{.shape = {.stages = 2,
                       .micro_batches = 2,
                       .batch = 12,
                       .replicas = 3,
                       .shard_optimizer = true}},
        Case{.shape = {.stages = 2,
                       .micro_batches = 3,
                       .batch = 12,
                       .schedule = "1f1b",
                       .clip_norm = 0.5,
                       .replicas = 2,
                       .overlap_reduction = true,
                       .shard_optimizer = true},
             .tied = true}));

/// However the model is cut: one stage with both ends of a tied model added them up before it
/// summed over the replicas, two stages after it.
TEST(SeveralReplicasOfTiedEnds, HaveTheSameBitsForAnyNumberOfStages) {
    const Model model = test::small_gpt_with(0.1, true);
    for (const bool shards : {false, true}) {
        Shape shape{.stages = 1, .micro_batches = 2, .batch = 12, .replicas = 3};
        shape.shard_optimizer = shards;
        const Trained one = trained(model, shape);
        for (const int stages : {2, 3}) {
            shape.stages = stages;
            const Trained several = trained(model, shape);
            EXPECT_EQ(several.losses, one.losses) << stages;
            for (const test::NamedValues& weight : several.weights) {
                const auto same =
                    std::ranges::find(one.weights, weight.name, &test::NamedValues::name);
                if (same != one.weights.end()) {  // a copy has no other
                    EXPECT_EQ(weight, *same) << weight.name;
                }
            }
        }
    }
}

/// Bits where nothing is clipped; the norm is summed in another order.
TEST(ShardedOptimizer, GivesTheWeightsThatEveryReplicaWouldHaveGot) {
    struct Way {
        Precision precision = Precision::Fp32;
        double clip_norm = 0;
        bool tied = false;
        int stages = 2;
    };
    for (const Way& way : {Way{},
                           Way{.precision = Precision::Bf16},
                           Way{.tied = true},
                           Way{.tied = true, .stages = 1},
                           Way{.clip_norm = 0.25, .tied = true}}) {
        const Model model = test::small_gpt_with(0.1, way.tied);
        Shape shape{.stages = way.stages,
                    .micro_batches = 2,
                    .batch = 12,
                    .precision = way.precision,
                    .clip_norm = way.clip_norm,
                    .replicas = 3};
        const Trained whole = trained(model, shape);
        shape.shard_optimizer = true;
        const Trained sharded = trained(model, shape);
        ASSERT_EQ(sharded.weights.size(), whole.weights.size());
        for (std::size_t i = 0; i < whole.weights.size(); ++i) {
            if (way.clip_norm == 0) {
                EXPECT_EQ(sharded.weights[i], whole.weights[i]) << whole.weights[i].name;
            } else {
                EXPECT_TRUE(testing::agree(std::span<const double>(sharded.weights[i].values),
                                           std::span<const double>(whole.weights[i].values),
                                           1e-6))
                    << whole.weights[i].name;
            }
        }
    }
}

/// 1 / D of it, to a number for each layer; the rest as before.
TEST(ShardedOptimizer, TakesItsShareOfTheMemory) {
    const Model model = test::small_gpt_with(0.1, false);
    Shape shape{.stages = 2, .micro_batches = 2, .batch = 12, .replicas = 3};
    const auto resident = [&](int rank) {
        Replicas pipelines(test::plan_of(model, shape), model, test::options_of(shape));
        return pipelines.first().resident(rank);
    };
    const MemoryUse whole = resident(0);
    shape.shard_optimizer = true;
    const MemoryUse share = resident(0);
    const std::int64_t state_of_one = 2 * 4;  // adamw's two, in fp32
    const Plan plan = test::plan_of(model, shape);
    std::int64_t numbers = 0;
    for (int layer = 0; layer < plan->partition->layers_in(0); ++layer) {
        numbers += (model.layer(layer).parameter_count + 2) / 3;
    }
    EXPECT_EQ(share[MemoryKind::Optimizer].count, numbers * state_of_one);
    EXPECT_EQ(share[MemoryKind::Weights], whole[MemoryKind::Weights]);
    EXPECT_EQ(plan->states[0].optimizer_state, share[MemoryKind::Optimizer]);
}

/// Each group of two has a whole state. All four replicas are added up in their order, whoever
/// sums.
TEST(ShardedOptimizer, GoesWithGroupsOfReplicas) {
    for (const int stages : {1, 2}) {
        const Model model = test::small_gpt_with(0.1, true);
        Shape shape{.stages = stages, .micro_batches = 2, .batch = 16, .replicas = 4};
        const Trained whole = trained(model, shape);
        shape.shard_optimizer = true;
        shape.shard_group = 2;
        const Trained groups = trained(model, shape);
        EXPECT_EQ(groups.losses, whole.losses);
        EXPECT_EQ(groups.weights, whole.weights);
        // A norm is added up by shares, which all groups cut alike.
        shape.clip_norm = 0.05;
        const Trained clipped = trained(model, shape);
        shape.shard_group = 0;
        EXPECT_NEAR(clipped.losses.back(), trained(model, shape).losses.back(), 1e-5);
        EXPECT_NE(clipped.losses.back(), groups.losses.back());
    }
}

/// Stages of 4 and of 6 numbers: some of 8 replicas have nothing to update.
TEST(ShardedOptimizer, IsRightWithFewerNumbersThanReplicas) {
    const Model model = mlp_model({1, 2, 2});
    Shape shape{.stages = 2, .micro_batches = 2, .batch = 16, .clip_norm = 0.5, .replicas = 8};
    const Trained whole = trained(model, shape);
    shape.shard_optimizer = true;
    const Trained sharded = trained(model, shape);
    ASSERT_EQ(sharded.weights.size(), whole.weights.size());
    for (std::size_t i = 0; i < whole.weights.size(); ++i) {
        EXPECT_TRUE(testing::agree(std::span<const double>(sharded.weights[i].values),
                                   std::span<const double>(whole.weights[i].values),
                                   1e-6))
            << whole.weights[i].name;
    }
}

/// Nobody can tell from a checkpoint how many had the state between them.
TEST(ShardedOptimizer, IsWholeInACheckpoint) {
    const Model model = test::small_gpt_with(0.1, true);
    const auto steps = [&](Replicas& pipelines, int first, int end) {
        StepResult result;
        for (int step = first; step < end; ++step) {
            pipelines.run_step(random_batch(model, 12, 1), step, result);
        }
        return test::weights_of(pipelines.first().parameters());
    };
    const auto of_replicas = [&](int replicas, bool sharded) {
        const Shape shape{.stages = 2,
                          .micro_batches = 2,
                          .batch = 12,
                          .precision = Precision::Bf16,
                          .replicas = replicas,
                          .shard_optimizer = sharded};
        return std::make_unique<Replicas>(
            test::plan_of(model, shape), model, test::options_of(shape));
    };
    const auto expected = steps(*of_replicas(3, false), 0, 4);
    for (const bool sharded_first : {true, false}) {
        const tests::ScratchFolder folder;
        const Checkpoints checkpoints(folder.path());
        const auto first = of_replicas(3, sharded_first);
        steps(*first, 0, 2);
        first->with_parameters([&](const TrainedParameters& all) { checkpoints.save({}, all); });
        const auto resumed = of_replicas(3, !sharded_first);
        resumed->with_parameters(
            [&](const TrainedParameters& all) { ASSERT_TRUE(checkpoints.load(all)); });
        EXPECT_EQ(steps(*resumed, 2, 4), expected);
    }
}

const Shape two_by_two{.stages = 2, .micro_batches = 2, .batch = 8, .replicas = 2};

TEST(Replicas, AFailureOfOneEndsTheStepOfAllAndTheNextOneWorks) {
    const Model model = test::small_mlp();
    for (const Op op : {Op::Forward, Op::Backward, Op::ReduceGradient}) {
        std::atomic<int> left = 1;
        ExecutorOptions options = test::options_of(two_by_two);
        options.before_action = [&](int rank, const Action& action) {
            if (rank == 1 && action.op == op && left.fetch_sub(1) == 1) {
                throw std::runtime_error("one replica breaks");
            }
        };
        Replicas pipelines(test::plan_of(model, two_by_two), model, options);
        StepResult step;
        const Batch batch = random_batch(model, two_by_two.batch, 0);
        EXPECT_THROW(pipelines.run_step(batch, 0, step), std::runtime_error);
        ASSERT_TRUE(pipelines.last_failure().has_value());
        EXPECT_EQ(pipelines.last_failure()->rank, 1);
        pipelines.run_step(batch, 0, step);
        // By its REDUCE_GRAD the other rank may have updated its weights.
        if (op != Op::ReduceGradient) {
            EXPECT_EQ(step.loss, trained(model, two_by_two).losses.front()) << op_text(op);
        }
    }
}

TEST(Replicas, AnEvaluationIsThatOfTheWholeBatch) {
    const Model model = test::small_mlp();
    const Shape alone{.stages = 2, .micro_batches = 4, .batch = 8};
    Replicas one(test::plan_of(model, alone), model, test::options_of(alone));
    Replicas two(test::plan_of(model, two_by_two), model, test::options_of(two_by_two));
    const Batch batch = random_batch(model, 8, 3);
    EXPECT_NEAR(two.evaluate(batch, 0), one.evaluate(batch, 0), 1e-6);
}

TEST(Replicas, CountTheRightClassesOfTheWholeBatch) {
    const Model model = test::small_mlp();
    const Shape alone{.stages = 2, .micro_batches = 4, .batch = 8};
    Replicas one(test::plan_of(model, alone), model, test::options_of(alone));
    Replicas two(test::plan_of(model, two_by_two), model, test::options_of(two_by_two));
    double right = 0;
    for (std::int32_t target = 0; target < 5; ++target) {
        Batch batch = random_batch(model, 8, 3);
        std::ranges::fill(batch.targets, target);
        const Score found = two.score(batch, 0);
        EXPECT_EQ(found.accuracy.right, one.score(batch, 0).accuracy.right);
        EXPECT_EQ(found.accuracy.rows, 8);
        right += found.accuracy.right;
    }
    EXPECT_EQ(right, 8);  // of every row one class is the largest
    StepResult of_one;
    StepResult of_two;
    one.run_step(random_batch(model, 8, 4), 0, of_one);
    two.run_step(random_batch(model, 8, 4), 0, of_two);
    EXPECT_EQ(of_two.accuracy.share(), of_one.accuracy.share());
}

/// The decay of update 1 is 2 / 11.
TEST(Replicas, AverageTheWeightsThatTheyHaveInCommon) {
    const Model model = test::small_mlp();
    Shape shape = two_by_two;
    shape.average_decay = 0.5;
    Replicas pipelines(test::plan_of(model, shape), model, test::options_of(shape));
    const auto all_of = [&](Tensor Parameter::*part) {
        std::vector<float> numbers;
        pipelines.with_parameters([&](const TrainedParameters& trained) {
            for (const std::vector<Parameter*>& piece : trained.pieces) {
                for (Parameter* const parameter : piece) {
                    std::vector<float> some(as_index((parameter->*part).size()));
                    trained.read(parameter->*part, std::as_writable_bytes(std::span(some)));
                    numbers.insert(numbers.end(), some.begin(), some.end());
                }
            }
        });
        return numbers;
    };
    const std::vector<float> first = all_of(&Parameter::value);
    EXPECT_EQ(all_of(&Parameter::average), first);
    StepResult step;
    pipelines.run_step(random_batch(model, 8, 3), 0, step);
    const std::vector<float> value = all_of(&Parameter::value);
    const std::vector<float> average = all_of(&Parameter::average);
    ASSERT_EQ(average.size(), first.size());
    EXPECT_NE(value, first);
    for (std::size_t i = 0; i < first.size(); ++i) {
        EXPECT_NEAR(average[i], 2.0F / 11 * first[i] + 9.0F / 11 * value[i], 1e-6F);
    }
}

}  // namespace replicas_test
}  // namespace pipetwin::exec
