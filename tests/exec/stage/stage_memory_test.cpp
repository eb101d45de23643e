// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/plan/layer_recompute.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"
#include "core/timeline/footprint.h"
#include "exec/executor/backend.h"
#include "exec/layers/layer.h"
#include "exec/stage/stage.h"
#include "tests/exec/stage/stage_pipeline.h"
#include "tests/support/small_training.h"

/// What the arenas of stages hold, beside what the plan says of every action.
namespace pipetwin::exec {
namespace stage_memory_test {

using test_stages::gpt_batch;
using test_stages::mlp_batch;
using test_stages::options;
using test_stages::Pipeline;
using test_stages::small_gpt;

/// A profile whose bytes are those that the layers tell; times do not matter.
Profile byte_profile(const Model& model, const std::vector<int>& sizes, Precision precision) {
    Profile profile;
    profile.precision = std::string(to_string(precision));
    for (int i = 0; i < model.layer_count(); ++i) {
        const Layer& layer = model.layer(i);
        LayerCost cost;
        cost.name = layer.spec.name;
        cost.kind = to_string(layer.spec.type);
        cost.parameter_count = layer.parameter_count;
        cost.parameter_bytes = {
            layer.parameter_count *
            static_cast<std::int64_t>(size_of(number_format(precision, Backend::Cpu).real))};
        for (const int size : sizes) {
            const LayerBytes bytes =
                layer_bytes(model, i, size, number_format(precision, Backend::Cpu));
            cost.samples.push_back(with_bytes({.micro_batch_size = size}, bytes));
        }
        profile.layers.push_back(cost);
    }
    profile.links.push_back({});
    return profile;
}

Plan plan_of(const Model& model,
             const std::vector<int>& partition,
             const std::string& schedule,
             const RecomputeRules& recompute,
             Precision precision,
             int recomputed_blocks = 0) {
    SettledScenario scenario;
    scenario.training.batch = 7;
    scenario.training.precision = precision;
    scenario.pipeline.stages = static_cast<int>(partition.size());
    scenario.pipeline.micro_batches = 3;
    scenario.pipeline.schedule = schedule;
    scenario.pipeline.recompute = recompute;
    if (recomputed_blocks > 0) {
        scenario.pipeline.layer_recompute = LayerRecompute::Block;
        scenario.pipeline.recompute_blocks = recomputed_blocks;
    }
    scenario.pipeline.partition = partition;
    return make_plan(scenario, model, byte_profile(model, {2, 3}, precision));
}

StageOptions stage_options(const Model& model, const Plan& plan, Precision precision) {
    StageOptions result = options(precision);
    if (plan->layer_recompute == LayerRecompute::Block) {
        result.recomputed_blocks = recomputed_blocks(model);
        result.blocks_together = plan->recompute_blocks;
    }
    return result;
}

/// Walks the plan's rows in one thread, an action as soon as what it needs is there, and holds
/// every arena to the plan after and during every compute action.
class ByteWalk {
  public:
    ByteWalk(const Model& model,
             const Plan& plan,
             const StageOptions& stage_options,
             const Batch& batch = gpt_batch(7))
        : plan_(plan),
          pipeline_(model, plan->partition->layers_per_stage(), stage_options),
          batch_(batch),
          slices_(split(batch_, plan->micro_batch_sizes)) {
        for (int rank = 0; rank < plan.rank_count(); ++rank) {
            EXPECT_EQ(live(rank), resident_memory(plan, rank)) << "rank " << rank << " at rest";
            pipeline_.arenas[static_cast<std::size_t>(rank)].reset_peak();
        }
    }

    void run() {
        std::size_t left = 0;
        for (const auto& row : plan_->schedule.ranks) {
            left += row.size();
        }
        while (left > 0) {
            const std::size_t before = left;
            for (int rank = 0; rank < plan_.rank_count(); ++rank) {
                left -= walk(rank);
            }
            ASSERT_LT(left, before) << "no rank can go on";
        }
        const std::vector<MemoryUse> peaks = peak_memory(plan_);
        for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
            EXPECT_EQ(highest_[rank], peaks[rank].total()) << "peak of rank " << rank;
        }
    }

  private:
    const MemoryUse& live(int rank) const {
        return pipeline_.arenas[static_cast<std::size_t>(rank)].live();
    }

    /// Walks a row up to a message that has not been sent yet; returns the number of its actions.
    std::size_t walk(int rank) {
        const auto& row = plan_->schedule.ranks[static_cast<std::size_t>(rank)];
        std::size_t& next = next_[static_cast<std::size_t>(rank)];
        const std::size_t begin = next;
        while (next < row.size() && is_ready(row[next])) {
            compare(rank, row[next++]);
        }
        return next - begin;
    }

    bool is_ready(const Action& action) const {
        const auto s = static_cast<std::size_t>(action.stage);
        const auto m = static_cast<std::size_t>(action.micro_batch);
        return (action.op != Op::RecvForward || !forward_[s - 1][m].empty()) &&
               (action.op != Op::RecvBackward || !backward_[s + 1][m].empty());
    }

    void compare(int rank, const Action& action) {
        Arena& arena = pipeline_.arenas[static_cast<std::size_t>(rank)];
        const MemoryUse before = arena.live();
        const MemoryChange change = memory_change(plan_, action);
        arena.reset_peak();
        perform(action);
        const auto sum = [](MemoryUse a, const MemoryUse& b) {
            for (std::size_t kind = 0; kind < a.bytes.size(); ++kind) {
                a.bytes[kind] += b.bytes[kind];
            }
            return a;
        };
        EXPECT_EQ(arena.live(), sum(before, change.after)) << to_string(action);
        if (is_compute(action.op)) {
            // What it begins with may be the most.
            const Bytes during = sum(before, change.during).total();
            EXPECT_EQ(arena.peak().total(), std::max(during, before.total()))
                << "during " << to_string(action);
        }
        Bytes& highest = highest_[static_cast<std::size_t>(rank)];
        highest = std::max(highest, arena.peak().total());
    }

    void perform(const Action& action) {
        const auto s = static_cast<std::size_t>(action.stage);
        const auto m = static_cast<std::size_t>(action.micro_batch);
        Stage& stage = *pipeline_.stages[s];
        Tensor& activation = activation_[s][m];
        Tensor& gradient = gradient_[s][m];
        switch (action.op) {
            case Op::RecvForward:
                activation = std::move(forward_[s - 1][m]);
                activation.attach(pipeline_.arenas[s], MemoryKind::Boundary);
                break;
            case Op::Forward:
                activation = test_stages::forward(stage,
                                                  action.micro_batch,
                                                  std::move(activation),
                                                  slices_[m],
                                                  !recomputed(action));
                break;
            case Op::SendForward:
                activation.detach();
                forward_[s][m] = std::move(activation);
                break;
            case Op::RecvBackward:
                gradient = std::move(backward_[s + 1][m]);
                gradient.attach(pipeline_.arenas[s], MemoryKind::Boundary);
                break;
            case Op::Recompute:
                stage.recompute(action.micro_batch, slices_[m]);
                break;
            case Op::Backward:
                gradient = test_stages::backward(stage, action.micro_batch, std::move(gradient));
                break;
            case Op::BackwardInput:
                gradient =
                    test_stages::backward_input(stage, action.micro_batch, std::move(gradient));
                break;
            case Op::BackwardWeight:
                stage.backward_weight(action.micro_batch);
                break;
            case Op::SendBackward:
                gradient.detach();
                backward_[s][m] = std::move(gradient);
                break;
            default:
                break;  // updates change no bytes
        }
    }

    bool recomputed(const Action& action) const {
        const Action recompute{
            .op = Op::Recompute, .stage = action.stage, .micro_batch = action.micro_batch};
        const auto& row = plan_->schedule.ranks[static_cast<std::size_t>(action.stage)];
        return std::ranges::find(row, recompute) != row.end();
    }

    static constexpr std::size_t stage_limit = 6;
    using Messages = std::array<std::array<Tensor, 3>, stage_limit>;

    const Plan& plan_;
    Pipeline pipeline_;
    Batch batch_;
    std::vector<MicroBatch> slices_;
    Messages activation_;  ///< [stage][micro-batch]
    Messages gradient_;
    Messages forward_;  ///< on their way
    Messages backward_;
    std::array<std::size_t, stage_limit> next_{};
    std::array<Bytes, stage_limit> highest_{};
};

TEST(Stage, HoldsTheBytesThatThePlanTellsAfterAndDuringEveryAction) {
    const Model model = small_gpt();
    for (const Precision precision : {Precision::Fp32, Precision::Fp64, Precision::Bf16}) {
        for (const std::vector<int>& partition :
             {std::vector{6}, {3, 3}, {1, 4, 1}, {1, 1, 1, 1, 1, 1}}) {
            const int stages = static_cast<int>(partition.size());
            for (const RecomputeRules& recompute : test::every_recompute(stages)) {
                for (const char* const schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
                    SCOPED_TRACE(::testing::Message()
                                 << "stages " << partition.size() << ", " << schedule
                                 << ", recompute " << to_string(recompute) << ", "
                                 << to_string(precision));
                    const Plan plan = plan_of(model, partition, schedule, recompute, precision);
                    ByteWalk(model, plan, options(precision)).run();
                }
            }
        }
    }
}

TEST(Stage, HoldsTheBytesThatThePlanTellsWhereBlocksAreComputedAgain) {
    const Model model = gpt_model({.layers = 4,
                                   .d_model = 8,
                                   .heads = 2,
                                   .context = 6,
                                   .vocabulary = 13,
                                   .feed_forward = 20});
    for (const std::vector<int>& partition :
         {std::vector{10}, {4, 6}, {1, 5, 4}, {2, 1, 2, 3, 1, 1}}) {
        for (const char* const schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
            for (const int together : {1, 2, 3, 100}) {
                SCOPED_TRACE(::testing::Message() << "stages " << partition.size() << ", "
                                                  << schedule << ", blocks " << together);
                const Plan plan =
                    plan_of(model, partition, schedule, Recompute::None, Precision::Fp32, together);
                ByteWalk(model, plan, stage_options(model, plan, Precision::Fp32)).run();
            }
        }
    }
}

/// Layers whose W reads both, nothing, and, in a sequence that ends with a GELU, its input alone: a
/// stage ends with each of them.
TEST(Stage, HoldsTheBytesThatThePlanTellsWhereWDoesNotReadTheGradientOfAnOutput) {
    const auto linear = [](const char* name, int outputs) {
        return LayerSpec{.name = name, .type = LayerType::Linear, .outputs = outputs};
    };
    const LayerSpec gelu{.name = "gelu", .type = LayerType::Gelu};
    const Model model = Model::chain(
        {.positions = 1, .width = 5},
        {linear("in", 6),
         gelu,
         {.name = "norm", .type = LayerType::LayerNorm},
         {.name = "inner", .type = LayerType::Sequence, .inner = {linear("linear", 7), gelu}},
         {.name = "dropout", .type = LayerType::Dropout, .dropout = 0.5},
         linear("out", 3),
         {.name = "loss", .type = LayerType::CrossEntropy}});
    for (const std::vector<int>& partition :
         {std::vector{7}, {1, 6}, {2, 5}, {3, 4}, {4, 3}, {5, 2}, {2, 1, 1, 1, 1, 1}}) {
        for (const char* const schedule : {"1f1b", "zb-h1", "zb-h2"}) {
            SCOPED_TRACE(::testing::Message()
                         << "first stage of " << partition.front() << " layers, " << schedule);
            const Plan plan = plan_of(model, partition, schedule, Recompute::None, Precision::Fp32);
            ByteWalk(model, plan, options(Precision::Fp32), mlp_batch(7, 5, 3)).run();
        }
    }
}

/// Dropouts, and rectifiers in front of layers that keep what they read: in blocks and outside of
/// them, at both ends of stages, behind each other and in sequences.
TEST(Stage, HoldsTheBytesThatThePlanTellsWhereBackwardsDoNotReadInputs) {
    const auto linear = [](const char* name, int outputs) {
        return LayerSpec{.name = name, .type = LayerType::Linear, .outputs = outputs};
    };
    const auto plain = [](const char* name, LayerType type) {
        return LayerSpec{.name = name, .type = type, .dropout = 0.4};
    };
    const Model model =
        Model::chain({.positions = 1, .width = 5},
                     {plain("first", LayerType::Relu),
                      linear("in", 6),
                      plain("relu", LayerType::Relu),
                      linear("block0.up", 7),
                      plain("block0.relu", LayerType::Relu),
                      plain("block0.drop", LayerType::Dropout),
                      linear("block1.down", 6),
                      plain("block1.drop", LayerType::Dropout),
                      plain("block1.relu", LayerType::LeakyRelu),
                      linear("block2.up", 8),
                      plain("block2.relu", LayerType::Relu),
                      {.name = "block3.unit",
                       .type = LayerType::Sequence,
                       .inner = {linear("linear", 9), plain("relu", LayerType::LeakyRelu)}},
                      linear("block3.next", 8),
                      plain("norm", LayerType::LayerNorm),
                      {.name = "inner",
                       .type = LayerType::Sequence,
                       .inner = {plain("relu", LayerType::Relu),
                                 plain("drop", LayerType::Dropout),
                                 linear("linear", 7),
                                 plain("again", LayerType::Relu)}},
                      linear("out", 3),
                      {.name = "loss", .type = LayerType::CrossEntropy}});
    for (const std::vector<int>& partition : {std::vector{17},
                                              {1, 16},
                                              {3, 14},
                                              {5, 12},
                                              {6, 11},
                                              {8, 9},
                                              {12, 5},
                                              {9, 3, 5},
                                              {2, 1, 2, 10, 2}}) {
        for (const char* const schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
            for (const int together : {0, 1, 2, 100}) {
                for (const Recompute recompute : {Recompute::None, Recompute::Always}) {
                    if (recompute == Recompute::Always && together > 0) {
                        continue;
                    }
                    SCOPED_TRACE(::testing::Message()
                                 << "first stage of " << partition.front() << " layers, "
                                 << schedule << ", blocks " << together);
                    const Plan plan =
                        plan_of(model, partition, schedule, recompute, Precision::Fp32, together);
                    ByteWalk(model,
                             plan,
                             stage_options(model, plan, Precision::Fp32),
                             mlp_batch(7, 5, 3))
                        .run();
                }
            }
        }
    }
}

}  // namespace stage_memory_test
}  // namespace pipetwin::exec
