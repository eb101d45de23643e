// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/as_index.h"
#include "core/timeline/footprint.h"
#include "exec/data/random_batch.h"
#include "exec/replicas/replicas.h"
#include "exec/training/checkpoint.h"
#include "tests/exec/replicas/divided_training.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_training.h"
#include "tests/support/soak.h"

/// Devices that divide the layers of a pipeline.
namespace pipetwin::exec {
namespace tensor_parallel_test {

using namespace divided_training;
using test::Shape;

/// A model, and whether devices divide the rows between its layers, too.
struct Case {
    Kind kind;
    bool sequence = false;
};
void PrintTo(const Case& each, std::ostream* out) {
    *out << to_string(each.kind) << (each.sequence ? ", parts of rows" : "");
}

class DividedLayers : public ::testing::TestWithParam<Case> {
  protected:
    /// The shape with so many devices of a rank.
    static Shape divided(Shape shape, int devices = 2) {
        shape.tensor_parallel = devices;
        shape.sequence_parallel = devices > 1 && GetParam().sequence;
        return shape;
    }
    static Model model_of_case(double dropout = 0) {
        return GetParam().kind == Kind::Experts ? model_of_experts(dropout, dropout / 5)
                                                : model_of(GetParam().kind, dropout);
    }
};

/// Plain steps at a rate of 1: weights are off where gradients are.
TEST_P(DividedLayers, TrainAsOnOneDevice) {
    const Model model = model_of_case(0.1);
    for (const double clip : {0.0, 0.05}) {
        Shape shape{.micro_batches = 2,
                    .batch = batch,
                    .precision = Precision::Fp64,
                    .optimizer = OptimizerKind::Sgd,
                    .clip_norm = clip};
        const Trained one = trained(model, shape);
        for (const int devices : {2, 4}) {
            SCOPED_TRACE(devices);
            expect_near(trained(model, divided(shape, devices)), one, 1e-12);
        }
    }
}

TEST_P(DividedLayers, AreNearInHalfPrecision) {
    const Model model = model_of_case();
    Shape shape{.micro_batches = 2,
                .batch = batch,
                .precision = Precision::Bf16,
                .optimizer = OptimizerKind::Sgd};
    const Trained one = trained(model, shape);
    expect_near(trained(model, divided(shape)), one, 0.02);
}

/// The sums over devices have one order, wherever the layers are and whatever carries them.
TEST_P(DividedLayers, HaveTheSameBitsInEveryPipeline) {
    const Model model = model_of_case(0.1);
    for (const std::string schedule : {"gpipe", "1f1b", "zb-h1"}) {
        const Trained whole =
            trained(model,
                    divided({.micro_batches = 3,
                             .batch = batch,
                             .schedule = schedule == "gpipe" ? "gpipe" : "1f1b"}));
        for (const int stages : {1, 2, 3}) {
            for (const Recompute recompute : {Recompute::None, Recompute::Always}) {
                const Shape shape = divided({.stages = stages,
                                             .micro_batches = 3,
                                             .batch = batch,
                                             .schedule = schedule,
                                             .recompute = recompute});
                EXPECT_EQ(trained(model, shape), whole) << to_string(shape);
            }
        }
    }
    const Shape selective{.stages = 3,
                          .micro_batches = 3,
                          .batch = batch,
                          .schedule = "1f1b",
                          .layer_recompute = LayerRecompute::Selective};
    const Shape in_order{.micro_batches = 3, .batch = batch, .schedule = "1f1b"};
    EXPECT_EQ(trained(model, divided(selective)), trained(model, divided(in_order)));
    const Shape looped{.stages = 2,
                       .chunks = 2,
                       .micro_batches = 4,
                       .batch = batch,
                       .schedule = "interleaved-1f1b",
                       .layer_recompute = LayerRecompute::Block};
    const Shape of_four{.micro_batches = 4, .batch = batch, .schedule = "1f1b"};
    EXPECT_EQ(trained(model, divided(looped)), trained(model, divided(of_four)));
}

/// Sums are added in one order, and dropouts drop the same; gradients of norms alone are sums of
/// parts.
TEST_P(DividedLayers, ComputeTheSameWithPartsOfRows) {
    const Model model = model_of_case(0.1);
    Shape shape{.stages = 2, .micro_batches = 2, .batch = batch, .tensor_parallel = 2};
    const auto loss = [&](bool sequence) {
        shape.sequence_parallel = sequence;
        Replicas pipelines(test::plan_of(model, shape), model, settings_of(shape));
        StepResult step;
        pipelines.run_step(random_batch(model, shape.batch, 1), 0, step);
        return step.loss;
    };
    EXPECT_EQ(loss(true), loss(false));
}

/// What actions spend in their group is part of them, and all of it is theirs.
TEST_P(DividedLayers, TellHowLongActionsAreInTheirGroup) {
    const Model model = model_of_case();
    Shape shape{.stages = 2, .micro_batches = 2, .batch = batch, .schedule = "1f1b"};
    StepResult alone;
    Replicas(test::plan_of(model, shape), model, settings_of(shape))
        .run_step(random_batch(model, shape.batch, 1), 0, alone);
    EXPECT_TRUE(alone.timeline.in_groups.empty());
    shape = divided(shape);
    StepResult step;
    Replicas pipelines(test::plan_of(model, shape), model, settings_of(shape));
    pipelines.run_step(random_batch(model, shape.batch, 1), 0, step);
    ASSERT_EQ(step.timeline.in_groups.size(), step.timeline.ranks.size());
    Duration all{};
    for (std::size_t rank = 0; rank < step.timeline.ranks.size(); ++rank) {
        const std::vector<Span>& row = step.timeline.ranks[rank];
        ASSERT_EQ(step.timeline.in_groups[rank].size(), row.size());
        for (std::size_t cell = 0; cell < row.size(); ++cell) {
            const Duration in_group = step.timeline.in_groups[rank][cell];
            EXPECT_LE(in_group, row[cell].end - row[cell].ready);
            EXPECT_EQ(in_group > Duration{}, is_compute(row[cell].action.op))
                << to_string(row[cell].action);
            all += in_group;
        }
    }
    EXPECT_LE(all, step.groups.time);
}

TEST_P(DividedLayers, HaveReplicas) {
    const Model model = model_of_case(0.1);
    Shape shape{.stages = 2, .micro_batches = 2, .batch = batch, .replicas = 2};
    shape.precision = Precision::Fp64;
    const Trained one = trained(model, shape);
    for (const bool shards : {false, true}) {
        for (const double clip : {0.0, 0.05}) {
            Shape clipped = shape;
            clipped.clip_norm = clip;
            const Trained expected = clip == 0 ? one : trained(model, clipped);
            clipped.shard_optimizer = shards;
            // Adam divides by roots of squares of small gradients.
            expect_near(trained(model, divided(clipped)), expected, 1e-9);
        }
    }
}

/// To the byte, of every device.
TEST_P(DividedLayers, TakeTheMemoryThatIsPredicted) {
    const Model model = model_of_case(0.1);
    for (const Precision precision : {Precision::Fp32, Precision::Bf16}) {
        for (const int stages : {1, 3}) {
            for (const Recompute recompute : {Recompute::None, Recompute::Always}) {
                const Shape shape = divided({.stages = stages,
                                             .micro_batches = 3,
                                             .batch = 9,
                                             .schedule = "1f1b",
                                             .recompute = recompute,
                                             .precision = precision});
                const Plan plan = test::plan_of(model, shape);
                Replicas pipelines(plan, model, settings_of(shape));
                const std::vector<MemoryUse> predicted = peak_memory(plan);
                StepResult step;
                for (int number = 0; number < 2; ++number) {
                    pipelines.run_step(random_batch(model, shape.batch, 1), number, step);
                    for (std::size_t rank = 0; rank < predicted.size(); ++rank) {
                        EXPECT_EQ(step.peak[rank].total(), predicted[rank].total())
                            << to_string(shape) << ", rank " << rank;
                    }
                }
            }
        }
    }
}

/// Nobody can tell from a checkpoint how many devices had the layers between them.
TEST_P(DividedLayers, AreWholeInACheckpoint) {
    const Model model = model_of_case();
    const auto make = [&](int devices, int replicas) {
        Shape shape{.stages = 2,
                    .micro_batches = 2,
                    .batch = batch,
                    .precision = Precision::Fp64,
                    .replicas = replicas,
                    .shard_optimizer = replicas > 1};
        shape = divided(shape, devices);
        return std::make_unique<Replicas>(test::plan_of(model, shape), model, settings_of(shape));
    };
    const auto steps = [&](Replicas& pipelines, int first, int end) {
        StepResult result;
        for (int step = first; step < end; ++step) {
            pipelines.run_step(random_batch(model, batch, 1), step, result);
        }
        return weights_of(pipelines);
    };
    const Trained expected{.losses = {}, .weights = steps(*make(1, 1), 0, 4)};
    struct Way {
        int devices, replicas, devices_after, replicas_after;
    };
    for (const Way& way : {Way{2, 1, 1, 1}, Way{1, 2, 4, 1}, Way{4, 1, 2, 2}, Way{2, 2, 2, 1}}) {
        const tests::ScratchFolder folder;
        const Checkpoints checkpoints(folder.path());
        const auto first = make(way.devices, way.replicas);
        steps(*first, 0, 2);
        first->with_parameters([&](const TrainedParameters& all) { checkpoints.save({}, all); });
        const auto resumed = make(way.devices_after, way.replicas_after);
        resumed->with_parameters(
            [&](const TrainedParameters& all) { ASSERT_TRUE(checkpoints.load(all)); });
        expect_near(Trained{.losses = {}, .weights = steps(*resumed, 2, 4)}, expected, 1e-9);
    }
}

TEST_P(DividedLayers, EvaluateAsOneDeviceDoes) {
    const Model model = model_of_case(0.1);
    Shape shape{.stages = 2, .micro_batches = 2, .batch = batch, .precision = Precision::Fp64};
    const auto score = [&] {
        ExecutorOptions options = settings_of(shape);
        options.counts_right = true;
        Replicas pipelines(test::plan_of(model, shape), model, options);
        return pipelines.score(random_batch(model, batch, 3), 0);
    };
    const Score one = score();
    shape = divided(shape);
    const Score two = score();
    EXPECT_NEAR(two.loss, one.loss, 1e-12 * one.loss);
    EXPECT_EQ(two.accuracy.right, one.accuracy.right);
    EXPECT_EQ(two.accuracy.rows, one.accuracy.rows);
}

TEST_P(DividedLayers, AFailureOfOneDeviceEndsTheStepOfAllAndTheNextOneWorks) {
    const Model model = model_of_case();
    const Shape shape = divided({.stages = 2, .micro_batches = 2, .batch = batch});
    for (const Op op : {Op::Forward, Op::Backward}) {
        std::atomic<int> left = 1;
        ExecutorOptions options = settings_of(shape);
        options.before_action = [&](int rank, const Action& action) {
            if (rank == 1 && action.op == op && left.fetch_sub(1) == 1) {
                throw std::runtime_error("one device breaks");
            }
        };
        Replicas pipelines(test::plan_of(model, shape), model, options);
        StepResult step;
        EXPECT_THROW(pipelines.run_step(random_batch(model, batch, 1), 0, step),
                     std::runtime_error);
        ASSERT_TRUE(pipelines.last_failure().has_value());
        EXPECT_EQ(pipelines.last_failure()->rank, 1);
        pipelines.run_step(random_batch(model, batch, 1), 0, step);
        EXPECT_EQ(step.loss, trained(model, shape).losses.front()) << op_text(op);
    }
}

/// The error names the rank and the device that hangs, not a device that waits for it.
TEST_P(DividedLayers, ADeviceThatHangsIsFound) {
    const Model model = model_of_case();
    const Shape shape = divided({.stages = 2, .micro_batches = 2, .batch = batch});
    std::atomic<int> left = 1;
    std::atomic<bool> hangs = true;
    ExecutorOptions options = settings_of(shape);
    options.hang_limits = {.least = std::chrono::milliseconds(400),
                           .factor = 10,
                           .first_step = std::chrono::milliseconds(400),
                           .grace = std::chrono::milliseconds(200)};
    options.before_action = [&](int rank, const Action& action) {
        if (rank == 1 && action.op == Op::Backward && left.fetch_sub(1) == 1) {
            hangs.wait(true);
        }
    };
    Replicas pipelines(test::plan_of(model, shape), model, options);
    StepResult step;
    const Error error =
        testing::error_of([&] { pipelines.run_step(random_batch(model, batch, 1), 0, step); });
    EXPECT_EQ(error.kind(), ErrorKind::Hang);
    EXPECT_THAT(error.place(), ::testing::StartsWith("rank 1, device "));
    EXPECT_THAT(error.text(), ::testing::StartsWith("it has hung for "));
    // Which device hangs is a race; the other one has waited for it, and says in what.
    const char hung = error.place().at(std::string("rank 1, device ").size());
    const int waited = hung == '0' ? 1 : 0;
    EXPECT_THAT(error.text(),
                ::testing::ContainsRegex(fmt::format(
                    "rank 1, device {}: waited in the [a-z-]+ of layer '[a-z0-9_.]+' among devices "
                    "0-1 of the rank: device {} has not come",
                    waited,
                    hung)));
    hangs = false;
    hangs.notify_all();
    pipelines.run_step(random_batch(model, batch, 1), 0, step);
    EXPECT_EQ(step.loss, trained(model, shape).losses.front());
}

INSTANTIATE_TEST_SUITE_P(Models,
                         DividedLayers,
                         ::testing::Values(Case{Kind::Gpt},
                                           Case{Kind::TiedGpt},
                                           Case{Kind::Llama},
                                           Case{Kind::TiedLlama},
                                           Case{Kind::Gpt, true},
                                           Case{Kind::TiedGpt, true},
                                           Case{Kind::SharedHeads},
                                           Case{Kind::Llama, true},
                                           Case{Kind::TiedLlama, true},
                                           Case{Kind::SharedHeads, true},
                                           Case{Kind::Experts},
                                           Case{Kind::Experts, true}));

/// 8 heads of queries in 2 groups, on 4 and 8 devices: two have the same heads of keys and values,
/// and four. Norms count each once, whoever divides gradients and weights.
TEST(SharedHeads, TrainAsOnOneDevice) {
    const Model model = llama_model({.layers = 2,
                                     .d_model = 16,
                                     .heads = 8,
                                     .key_value_heads = 2,
                                     .head_size = 6,
                                     .context = 8,
                                     .vocabulary = 16,
                                     .feed_forward = 16,
                                     .tied = false});
    const Shape one{.micro_batches = 2,
                    .batch = batch,
                    .precision = Precision::Fp64,
                    .optimizer = OptimizerKind::Sgd,
                    .clip_norm = 0.05};
    const Trained expected = trained(model, one);
    Shape shape = one;
    for (const int devices : {4, 8}) {
        for (const bool sequence : {false, true}) {
            shape.tensor_parallel = devices;
            shape.sequence_parallel = sequence;
            expect_near(trained(model, shape), expected, 1e-12);
            Shape looped = shape;
            looped.stages = 2;
            looped.schedule = "zb-h1";
            Shape in_order = shape;
            in_order.schedule = "1f1b";
            EXPECT_EQ(trained(model, looped), trained(model, in_order)) << devices;
        }
    }
    shape.tensor_parallel = 4;
    shape.replicas = 2;
    for (const Shard shard : {Shard::None, Shard::Gradients, Shard::Weights}) {
        shape.shard = shard;
        expect_near(trained(model, shape), expected, 1e-12);
    }
    shape.shard = Shard::None;
    shape.shard_optimizer = true;
    expect_near(trained(model, shape), expected, 1e-12);
}

/// All copies of a head get the same updates, to the bit.
TEST(SharedHeads, AreTheSameOnAllDevicesThatHaveThem) {
    const Model model = model_of(Kind::SharedHeads);
    Shape shape{.micro_batches = 2, .batch = batch, .tensor_parallel = 4};
    Replicas pipelines(test::plan_of(model, shape), model, settings_of(shape));
    StepResult step;
    for (int number = 0; number < 3; ++number) {
        pipelines.run_step(random_batch(model, shape.batch, 1), number, step);
    }
    const std::vector<Numbers> whole = weights_of(pipelines);
    const auto qkv =
        std::ranges::find(whole, "block0.attention.attention.qkv.weight", &Numbers::name);
    ASSERT_NE(qkv, whole.end());
    constexpr std::size_t width = 10;
    constexpr std::size_t columns = 8 * 6 + 2 * 6;
    EXPECT_EQ(qkv->values.size(), width * columns);
    // What is read last of the whole matrix is the last device's copy.
    const std::vector<double> own =
        pipelines.first().values(pipelines.first().parameters().at(2)->value);
    constexpr std::size_t own_columns = 2 * 6 + 2 * 6;
    ASSERT_EQ(own.size(), width * own_columns);
    for (std::size_t row = 0; row < width; ++row) {
        for (std::size_t i = 0; i < 12; ++i) {
            EXPECT_EQ(own[row * own_columns + 12 + i], qkv->values[row * columns + 48 + i]);
        }
    }
}

/// A layout drawn at random, with the fewest stages that give the same bits.
struct Drawn {
    Model model;
    Shape shape;
    Shape plain;
};

/// What the replicas of a layout divide, and among how many of them.
template <class Any>
void draw_division(Shape& shape, const Any& any) {
    switch (any({0, 1, 2, 3})) {
        case 1:
            shape.shard_optimizer = true;
            break;
        case 2:
            shape.shard = Shard::Gradients;
            break;
        case 3:
            shape.shard = Shard::Weights;
            shape.prefetch = any({0, 1, 2});
            break;
        default:
            break;
    }
    if (shape.shard == Shard::None) {
        shape.overlap_reduction = any({0, 1}) == 1;
    }
    if (shape.replicas == 4 && (shape.shard_optimizer || shape.shard != Shard::None)) {
        shape.shard_group = any({0, 2});
    }
}

/// At most 16 workers; in a fifth of the layouts there are two at least of each kind.
Drawn drawn_layout(std::mt19937_64& random) {
    const auto any = [&random](std::initializer_list<int> values) {
        return *(values.begin() + static_cast<std::ptrdiff_t>(random() % values.size()));
    };
    const Kind kind = static_cast<Kind>(random() % 6);
    const bool is_looped = any({0, 0, 1}) == 1;
    Shape shape{
        .stages = any({1, 2, 3}),
        .micro_batches = any({2, 4}),
        .batch = 8,
        .schedule =
            is_looped ? "interleaved-1f1b" : std::array{"gpipe", "1f1b", "zb-h1"}.at(random() % 3),
        .precision = std::array{Precision::Fp32, Precision::Fp64, Precision::Bf16}.at(random() % 3),
        .clip_norm = any({0, 1}) * 0.05,
        .replicas = any({1, 1, 2, 4}),
        .tensor_parallel = any({1, 2, 2, 4})};
    if (is_looped) {
        shape.stages = 2;
        shape.chunks = 2;
        shape.micro_batches = 2 * any({1, 2});
    }
    if (random() % 5 == 0) {
        shape.stages = std::max(shape.stages, 2);
        shape.replicas = std::max(shape.replicas, 2);
        shape.tensor_parallel = 2;
    }
    while (shape.stages * shape.replicas * shape.tensor_parallel > 16) {
        (shape.replicas > 2 ? shape.replicas : shape.tensor_parallel) = 2;
    }
    if (shape.replicas > 1) {
        draw_division(shape, any);
    }
    switch (random() % 4) {
        case 0:
            shape.recompute = Recompute::Always;
            break;
        case 1:
            shape.layer_recompute = LayerRecompute::Block;
            break;
        case 2:
            shape.layer_recompute = LayerRecompute::Selective;
            break;
        default:
            break;
    }
    if (shape.replicas * shape.micro_batches > shape.batch) {
        shape.micro_batches = shape.batch / shape.replicas;
    }
    shape.sequence_parallel = shape.tensor_parallel > 1 && any({0, 1}) == 1;
    Shape plain = shape;
    plain.stages = 1;
    plain.chunks = 1;
    plain.prefetch = 1;
    plain.recompute = Recompute::None;
    plain.layer_recompute = LayerRecompute::None;
    plain.overlap_reduction = false;
    plain.schedule = shape.schedule == "gpipe" ? "gpipe" : "1f1b";
    const double extra = any({0, 1}) * 0.1;
    return {
        .model = kind == Kind::Experts ? model_of_experts(extra, extra / 5) : model_of(kind, extra),
        .shape = shape,
        .plain = plain};
}

/// Losses and weights have the bits of one stage, and peaks are those of the plan.
TEST(DividedLayouts, HaveTheBitsOfOneStage) {
    std::mt19937_64 random(tests::seed());
    const int rounds = tests::soaked(25);
    for (int round = 0; round < rounds; ++round) {
        const Drawn drawn = drawn_layout(random);
        SCOPED_TRACE(fmt::format("seed {}, round {}: {} T={}{} D={}{} of {}, prefetch {}",
                                 tests::seed(),
                                 round,
                                 to_string(drawn.shape),
                                 drawn.shape.tensor_parallel,
                                 drawn.shape.sequence_parallel ? " parts" : "",
                                 drawn.shape.replicas,
                                 pipetwin::to_string(drawn.shape.shard),
                                 drawn.shape.shard_group,
                                 drawn.shape.prefetch));
        constexpr int steps = 3;
        const Trained whole = trained(drawn.model, drawn.plain, steps);
        const Trained found = trained(drawn.model, drawn.shape, steps);
        ASSERT_EQ(found.losses, whole.losses);
        // Norms are added up tensor by tensor, those of shares by replicas first.
        ASSERT_TRUE(found.weights == whole.weights);
        const Plan plan = test::plan_of(drawn.model, drawn.shape);
        Replicas pipelines(plan, drawn.model, settings_of(drawn.shape));
        StepResult step;
        pipelines.run_step(random_batch(drawn.model, drawn.shape.batch, 1), 0, step);
        const std::vector<MemoryUse> predicted = peak_memory(plan);
        for (std::size_t rank = 0; rank < predicted.size(); ++rank) {
            ASSERT_EQ(step.peak[rank].total(), predicted[rank].total()) << "rank " << rank;
        }
    }
}

}  // namespace tensor_parallel_test
}  // namespace pipetwin::exec
