// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/as_index.h"
#include "core/timeline/footprint.h"
#include "exec/device/device.h"
#include "exec/stage/stage.h"
#include "exec/training/checkpoint.h"
#include "tests/exec/replicas/divided_training.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/soak.h"

/// Replicas that divide gradients (ZeRO-2), or weights, too (ZeRO-3).
namespace pipetwin::exec {
namespace sharded_weights_test {

using namespace divided_training;
using test::Shape;

class Sharded : public ::testing::TestWithParam<Kind> {
  protected:
    static Model model(double dropout = 0) { return model_of(GetParam(), dropout); }
};

/// Plain steps at a rate of 1: a wrong gradient is a wrong weight.
TEST_P(Sharded, TrainsAsReplicasThatDivideNothing) {
    const Model trained_model = model(0.1);
    for (const int stages : {1, 2}) {
        for (const double clip : {0.0, 0.05}) {
            Shape shape{.stages = stages,
                        .micro_batches = 2,
                        .batch = batch,
                        .schedule = "1f1b",
                        .precision = Precision::Fp64,
                        .optimizer = OptimizerKind::Sgd,
                        .clip_norm = clip,
                        .replicas = 2};
            const Trained whole = trained(trained_model, shape);
            for (const Shard shard : {Shard::Gradients, Shard::Weights}) {
                shape.shard = shard;
                expect_near(trained(trained_model, shape), whole, 1e-12);
            }
        }
    }
}

/// A replica gets its share of a micro-batch's sum before the next micro-batch; who has the
/// weights, and when they are gathered, changes no bit.
TEST_P(Sharded, HasTheSameBitsInEveryPipeline) {
    const Model trained_model = model(0.1);
    Shape plain{.micro_batches = 3,
                .batch = 12,
                .schedule = "1f1b",
                .replicas = 2,
                .shard = Shard::Weights};
    const Trained whole = trained(trained_model, plain);
    plain.schedule = "gpipe";
    const Trained last_first = trained(trained_model, plain);
    for (const std::string schedule : {"gpipe", "1f1b", "zb-h1"}) {
        for (const int stages : {1, 2, 3}) {
            for (const Recompute recompute : {Recompute::None, Recompute::Always}) {
                for (const int prefetch : {0, 1}) {
                    Shape shape = plain;
                    shape.schedule = schedule;
                    shape.stages = stages;
                    shape.recompute = recompute;
                    shape.prefetch = prefetch;
                    for (const Shard shard : {Shard::Gradients, Shard::Weights}) {
                        shape.shard = shard;
                        EXPECT_EQ(trained(trained_model, shape),
                                  schedule == "gpipe" ? last_first : whole)
                            << to_string(shape) << " prefetch " << prefetch;
                    }
                }
            }
        }
    }
    for (const LayerRecompute mode : {LayerRecompute::Block, LayerRecompute::Selective}) {
        const Shape looped{.stages = 2,
                           .chunks = 2,
                           .micro_batches = 4,
                           .batch = batch,
                           .schedule = "interleaved-1f1b",
                           .layer_recompute = mode,
                           .replicas = 2,
                           .shard = Shard::Weights};
        const Shape of_four{.micro_batches = 4,
                            .batch = batch,
                            .schedule = "1f1b",
                            .replicas = 2,
                            .shard = Shard::Gradients};
        EXPECT_EQ(trained(trained_model, looped), trained(trained_model, of_four));
    }
}

/// The gradient of a mini-batch, in fp32: of each micro-batch those of all replicas are added, in
/// their order, and then the micro-batches'; the two uses of a table by themselves. A plain step at
/// a rate of 1 takes it off the weights.
std::vector<Numbers> weights_of_oracle(const Model& model, const Shape& shape) {
    StageOptions options;
    options.micro_batches = shape.micro_batches;
    options.largest_micro_batch = shape.batch;
    options.optimizer = OptimizerKind::Sgd;
    const std::unique_ptr<Device> device = make_cpu_device();
    Arena arena;
    Stage stage(*device,
                arena,
                model,
                {.stage = 0, .first_layer = 0, .layer_count = model.layer_count()},
                options);
    const Batch drawn = random_batch(model, shape.batch, 1);
    const std::vector<int> sizes(as_index(shape.micro_batches),
                                 shape.batch / shape.replicas / shape.micro_batches);
    const std::size_t count = stage.parameters().size();
    std::vector<std::vector<float>> sums(2 * count);  // those of a table's second use behind
    const auto add = [](const std::vector<float>& more, std::vector<float>& sum) {
        sum.resize(more.size());
        std::ranges::transform(sum, more, sum.begin(), std::plus());
    };
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
        std::vector<std::vector<float>> terms(sums.size());
        for (int replica = 0; replica < shape.replicas; ++replica) {
            const std::vector<MicroBatch> data =
                split(drawn, sizes, {.index = replica, .count = shape.replicas});
            stage.begin_batch();
            stage.forward(micro_batch, {}, data[as_index(micro_batch)], true, {});
            std::array<Tensor, 1> none;
            stage.backward(micro_batch, {}, none);
            stage.zero_missing_gradients();
            for (std::size_t i = 0; i < sums.size(); ++i) {
                const Parameter& parameter = *stage.parameters()[i % count];
                const Tensor& gradient = i < count ? parameter.gradient : parameter.received;
                if (!gradient.empty()) {
                    add({gradient.as<float>(), gradient.as<float>() + gradient.size()}, terms[i]);
                }
            }
        }
        for (std::size_t i = 0; i < sums.size(); ++i) {
            add(terms[i], sums[i]);
        }
    }
    for (std::size_t i = 0; i < count; ++i) {
        if (!sums[count + i].empty()) {
            add(sums[count + i], sums[i]);
        }
    }
    std::vector<Numbers> weights;
    for (std::size_t i = 0; i < count; ++i) {
        const Parameter& parameter = *stage.parameters()[i];
        Numbers& numbers = weights.emplace_back();
        numbers.name = parameter.name;
        for (std::size_t j = 0; j < sums[i].size(); ++j) {
            numbers.values.push_back(parameter.value.as<float>()[j] - sums[i][j]);
        }
    }
    return weights;
}

TEST_P(Sharded, AddsReplicasFirstAndThenMicroBatches) {
    const Model trained_model = model();
    for (const Shard shard : {Shard::Gradients, Shard::Weights}) {
        const Shape shape{.stages = 2,
                          .micro_batches = 2,
                          .batch = 12,
                          .schedule = "1f1b",
                          .optimizer = OptimizerKind::Sgd,
                          .replicas = 3,
                          .shard = shard};
        Replicas pipelines(test::plan_of(trained_model, shape), trained_model, settings_of(shape));
        StepResult step;
        pipelines.run_step(random_batch(trained_model, shape.batch, 1), 0, step);
        EXPECT_EQ(weights_of(pipelines), weights_of_oracle(trained_model, shape));
    }
}

/// To the byte.
void expect_memory(const MemoryUse& found, const MemoryUse& predicted) {
    EXPECT_EQ(found.total(), predicted.total());
    for (const MemoryKind kind : {MemoryKind::Weights,
                                  MemoryKind::Gradients,
                                  MemoryKind::Optimizer,
                                  MemoryKind::Workspace}) {
        EXPECT_EQ(found[kind], predicted[kind]) << to_string(kind);
    }
}

TEST_P(Sharded, TakesTheMemoryThatIsPredicted) {
    const Model trained_model = model(0.1);
    for (const Precision precision : {Precision::Fp32, Precision::Bf16}) {
        for (const int stages : {1, 3}) {
            for (const Shard shard : {Shard::Gradients, Shard::Weights}) {
                for (const int prefetch : {0, 1, 2}) {
                    const Shape shape{
                        .stages = stages,
                        .micro_batches = 3,
                        .batch = 9,
                        .schedule = "zb-h1",
                        .recompute = prefetch == 2 ? Recompute::Always : Recompute::None,
                        .precision = precision,
                        .replicas = 3,
                        .shard = shard,
                        .prefetch = prefetch};
                    const Plan plan = test::plan_of(trained_model, shape);
                    Replicas pipelines(plan, trained_model, settings_of(shape));
                    const std::vector<MemoryUse> predicted = peak_memory(plan);
                    StepResult step;
                    for (int number = 0; number < 2; ++number) {
                        pipelines.run_step(
                            random_batch(trained_model, shape.batch, 1), number, step);
                        for (std::size_t rank = 0; rank < predicted.size(); ++rank) {
                            SCOPED_TRACE(fmt::format(
                                "{}, rank {}, prefetch {}", to_string(shape), rank, prefetch));
                            expect_memory(step.peak[rank], predicted[rank]);
                        }
                    }
                }
            }
        }
    }
}

/// Nobody can tell from a checkpoint who had the weights.
TEST_P(Sharded, IsWholeInACheckpoint) {
    const Model trained_model = model();
    struct Layout {
        int stages, replicas;
        Shard shard;
        int devices = 1;
    };
    const auto make = [&](const Layout& layout) {
        const Shape shape{.stages = layout.stages,
                          .micro_batches = 2,
                          .batch = batch,
                          .precision = Precision::Fp64,
                          .replicas = layout.replicas,
                          .tensor_parallel = layout.devices,
                          .shard = layout.shard};
        return std::make_unique<Replicas>(
            test::plan_of(trained_model, shape), trained_model, settings_of(shape));
    };
    const auto steps = [&](Replicas& pipelines, int first, int end) {
        StepResult result;
        for (int step = first; step < end; ++step) {
            pipelines.run_step(random_batch(trained_model, batch, 1), step, result);
        }
        return weights_of(pipelines);
    };
    const Trained expected{.losses = {}, .weights = steps(*make({1, 1, Shard::None}), 0, 4)};
    const std::vector<std::pair<Layout, Layout>> ways{
        {{1, 2, Shard::Weights}, {2, 1, Shard::None}},
        {{2, 1, Shard::None}, {1, 4, Shard::Weights}},
        {{1, 2, Shard::Gradients}, {2, 2, Shard::Weights}},
        {{2, 2, Shard::Weights}, {1, 2, Shard::Optimizer}},
        {{1, 2, Shard::Weights, 2}, {3, 4, Shard::Gradients}}};
    for (const auto& [before, after] : ways) {
        const tests::ScratchFolder folder;
        const Checkpoints checkpoints(folder.path());
        const auto first = make(before);
        steps(*first, 0, 2);
        first->with_parameters([&](const TrainedParameters& all) { checkpoints.save({}, all); });
        const auto resumed = make(after);
        resumed->with_parameters(
            [&](const TrainedParameters& all) { ASSERT_TRUE(checkpoints.load(all)); });
        expect_near(Trained{.losses = {}, .weights = steps(*resumed, 2, 4)}, expected, 1e-9);
    }
}

/// With devices that divide the layers, and with groups of replicas.
TEST_P(Sharded, GoesWithDevicesAndWithGroups) {
    const Model trained_model = model(0.1);
    Shape shape{.stages = 2,
                .micro_batches = 2,
                .batch = batch,
                .schedule = "1f1b",
                .precision = Precision::Fp64,
                .optimizer = OptimizerKind::Sgd,
                .clip_norm = 0.05,
                .replicas = 4};
    const Trained whole = trained(trained_model, shape);
    for (const Shard shard : {Shard::Gradients, Shard::Weights}) {
        Shape groups = shape;
        groups.shard = shard;
        groups.shard_group = 2;
        expect_near(trained(trained_model, groups), whole, 1e-12);
        for (const bool sequence : {false, true}) {
            Shape devices = shape;
            devices.shard = shard;
            devices.replicas = 2;
            devices.tensor_parallel = 2;
            devices.sequence_parallel = sequence;
            Shape two = shape;
            two.replicas = 2;
            expect_near(trained(trained_model, devices), trained(trained_model, two), 1e-12);
        }
    }
}

TEST_P(Sharded, EvaluatesAsOneReplicaDoes) {
    const Model trained_model = model(0.1);
    Shape shape{.stages = 2, .micro_batches = 2, .batch = batch, .precision = Precision::Fp64};
    const auto score = [&] {
        ExecutorOptions options = settings_of(shape);
        options.counts_right = true;
        Replicas pipelines(test::plan_of(trained_model, shape), trained_model, options);
        pipelines.score(random_batch(trained_model, batch, 2), 0);
        StepResult step;
        pipelines.run_step(random_batch(trained_model, batch, 1), 0, step);
        return pipelines.score(random_batch(trained_model, batch, 3), 1);
    };
    const Score one = score();
    shape.replicas = 2;
    shape.shard = Shard::Weights;
    const Score two = score();
    EXPECT_NEAR(two.loss, one.loss, 1e-9 * one.loss);
    EXPECT_EQ(two.accuracy.right, one.accuracy.right);
}

TEST_P(Sharded, AFailureOfOneReplicaEndsTheStepOfAllAndTheNextOneWorks) {
    const Model trained_model = model();
    const Shape shape{
        .stages = 2, .micro_batches = 2, .batch = batch, .replicas = 2, .shard = Shard::Weights};
    for (const Op op : {Op::Forward, Op::Backward, Op::Optimizer}) {
        std::atomic<int> left = 1;
        ExecutorOptions options = settings_of(shape);
        options.before_action = [&](int rank, const Action& action) {
            if (rank == 1 && action.op == op && left.fetch_sub(1) == 1) {
                throw std::runtime_error("one replica breaks");
            }
        };
        Replicas pipelines(test::plan_of(trained_model, shape), trained_model, options);
        StepResult step;
        EXPECT_THROW(pipelines.run_step(random_batch(trained_model, batch, 1), 0, step),
                     std::runtime_error);
        if (op != Op::Optimizer) {  // where some weights may have changed
            pipelines.run_step(random_batch(trained_model, batch, 1), 0, step);
            EXPECT_EQ(step.loss, trained(trained_model, shape).losses.front()) << op_text(op);
        }
    }
}

std::string name_of_kind(const ::testing::TestParamInfo<Kind>& kind) {
    std::string name = to_string(kind.param);
    std::ranges::replace(name, ' ', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(
    Models,
    Sharded,
    ::testing::Values(Kind::Gpt, Kind::TiedGpt, Kind::Llama, Kind::TiedLlama, Kind::Experts),
    name_of_kind);

/// A schedule file may have them, as PyTorch's do: weights are gathered as layers need them.
TEST(ShardedRows, MaySayWhenWeightsAreGatheredAndFreed) {
    const Model model = model_of(Kind::Gpt);
    const Shape shape{.stages = 2,
                      .micro_batches = 2,
                      .batch = batch,
                      .schedule = "1f1b",
                      .replicas = 2,
                      .shard = Shard::Weights};
    PlanParts parts = test::plan_of(model, shape).parts();
    for (int rank = 0; rank < 2; ++rank) {
        std::vector<Action>& row = parts.schedule.ranks[as_index(rank)];
        row.insert(row.begin(), {.op = Op::Unshard, .stage = rank});
        row.push_back({.op = Op::Reshard, .stage = rank});
    }
    Replicas pipelines(Plan::make(std::move(parts)), model, settings_of(shape));
    StepResult step;
    pipelines.run_step(random_batch(model, shape.batch, 1), 0, step);
    EXPECT_EQ(step.loss, trained(model, shape).losses.front());
}

/// Norms that have statistics, and layers that read several outputs.
TEST(ShardedModels, OfImagesAndOfBranchesTrainAsReplicasThatDivideNothing) {
    for (const Model& model : {test::small_norms(), test::small_cells(), test::small_mlp()}) {
        for (const int stages : {1, 2}) {
            Shape shape{.stages = stages,
                        .micro_batches = 2,
                        .batch = batch,
                        .schedule = "1f1b",
                        .precision = Precision::Fp64,
                        .optimizer = OptimizerKind::Sgd,
                        .replicas = 2};
            const Trained whole = trained(model, shape);
            for (const Shard shard : {Shard::Gradients, Shard::Weights}) {
                shape.shard = shard;
                expect_near(trained(model, shape), whole, 1e-11);
                const Plan plan = test::plan_of(model, shape);
                Replicas pipelines(plan, model, settings_of(shape));
                StepResult step;
                pipelines.run_step(random_batch(model, shape.batch, 1), 0, step);
                const std::vector<MemoryUse> predicted = peak_memory(plan);
                for (std::size_t rank = 0; rank < predicted.size(); ++rank) {
                    expect_memory(step.peak[rank], predicted[rank]);
                }
            }
        }
    }
}

}  // namespace sharded_weights_test
}  // namespace pipetwin::exec
