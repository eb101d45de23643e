#include "exec/stage.h"

#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/footprint.h"
#include "core/plan.h"
#include "exec/layers/layer.h"
#include "tests/exec/layer_run.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace {

using testing::Numbers;
using testing::numbers_of;
using testing::random_numbers;

Model small_gpt() {
    return gpt_model({.layers = 2,
                      .d_model = 8,
                      .heads = 2,
                      .context = 6,
                      .vocabulary = 13,
                      .feed_forward = 20});
}

Batch gpt_batch(int samples) {
    Batch batch{.samples = samples,
                .positions = 6,
                .width = 0,
                .target_positions = 6,
                .tokens = {},
                .values = {},
                .targets = {}};
    const RandomStream random(17);
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(samples) * 6; ++i) {
        batch.tokens.push_back(static_cast<std::int32_t>(random.below(2 * i, 13)));
        batch.targets.push_back(static_cast<std::int32_t>(random.below(2 * i + 1, 13)));
    }
    return batch;
}

Batch mlp_batch(int samples, int width, int classes) {
    Batch batch{.samples = samples,
                .positions = 1,
                .width = width,
                .target_positions = 1,
                .tokens = {},
                .values = {},
                .targets = {}};
    for (const double value : random_numbers(static_cast<std::size_t>(samples * width), 3)) {
        batch.values.push_back(static_cast<float>(value));
    }
    for (int s = 0; s < samples; ++s) {
        batch.targets.push_back(s % classes);
    }
    return batch;
}

StageOptions options(Precision precision = Precision::Fp32) {
    return {.precision = precision,
            .seed = 5,
            .micro_batches = 3,
            .largest_micro_batch = 3,
            .optimizer = OptimizerKind::AdamW,
            .input_gradient = false,
            .after_layer = {}};
}

/// Consecutive stages of a model, each with its own arena, in one thread: what an executor does
/// without its threads.
struct Pipeline {
    Pipeline(const Model& model,
             const std::vector<int>& partition,
             const StageOptions& stage_options)
        : device(make_cpu_device()), arenas(partition.size()) {
        int first = 0;
        for (std::size_t s = 0; s < partition.size(); ++s) {
            stages.push_back(std::make_unique<Stage>(*device,
                                                     arenas[s],
                                                     model,
                                                     Stage::Place{.stage = static_cast<int>(s),
                                                                  .first_layer = first,
                                                                  .layer_count = partition[s]},
                                                     stage_options));
            first += partition[s];
        }
    }

    void forward(int m, const MicroBatch& data, bool keep) {
        Tensor boundary;
        for (std::size_t s = 0; s < stages.size(); ++s) {
            hand_over(boundary, s);
            boundary = stages[s]->forward(m, std::move(boundary), data, keep);
        }
    }

    Tensor backward(int m, const MicroBatch& data, bool recompute) {
        Tensor gradient;
        for (std::size_t s = stages.size(); s-- > 0;) {
            hand_over(gradient, s);
            if (recompute) {
                stages[s]->recompute(m, data);
            }
            gradient = stages[s]->backward(m, std::move(gradient));
        }
        return gradient;
    }

    void hand_over(Tensor& tensor, std::size_t to) {
        if (!tensor.empty()) {
            tensor.detach();
            tensor.attach(arenas[to], MemoryKind::Boundary);
        }
    }

    std::vector<Numbers> gradients() {
        std::vector<Numbers> all;
        for (const auto& stage : stages) {
            for (Parameter* const parameter : stage->parameters()) {
                all.push_back(numbers_of(parameter->gradient));
            }
        }
        return all;
    }

    std::unique_ptr<Device> device;
    std::vector<Arena> arenas;
    std::vector<std::unique_ptr<Stage>> stages;
};

struct Outcome {
    double loss = 0;
    std::vector<Numbers> gradients;
    bool operator==(const Outcome&) const = default;
};

/// One mini-batch in micro-batches, forward ascending, backward descending.
Outcome run(const Model& model,
            const std::vector<int>& partition,
            const std::function<bool(int micro_batch)>& recompute,
            const StageOptions& stage_options) {
    const Batch batch = gpt_batch(7);
    const std::vector<MicroBatch> slices = split(batch, {3, 2, 2});
    Pipeline pipeline(model, partition, stage_options);
    for (int m = 0; m < 3; ++m) {
        pipeline.forward(m, slices[static_cast<std::size_t>(m)], !recompute(m));
    }
    for (int m = 2; m >= 0; --m) {
        pipeline.backward(m, slices[static_cast<std::size_t>(m)], recompute(m));
    }
    return {.loss = pipeline.stages.back()->loss(), .gradients = pipeline.gradients()};
}

bool never(int /*micro_batch*/) {
    return false;
}

TEST(Stage, C08GradientsHaveTheSameBitsForEveryPartitionAndRecomputeMode) {
    const Model model = small_gpt();
    for (const Precision precision : {Precision::Fp32, Precision::Fp64}) {
        const Outcome expected = run(model, {6}, never, options(precision));
        EXPECT_NEAR(expected.loss, std::log(13.0), 0.2);  // weights are small at the start
        for (const std::vector<int>& partition : {std::vector{3, 3}, {1, 1, 1, 1, 1, 1}, {5, 1}}) {
            EXPECT_EQ(run(model, partition, never, options(precision)), expected);
            EXPECT_EQ(run(
                          model, partition, [](int) { return true; }, options(precision)),
                      expected);
            EXPECT_EQ(run(
                          model, partition, [](int m) { return m != 2; }, options(precision)),
                      expected);
        }
    }
}

TEST(Stage, InputAndWeightGradientsInTwoActionsHaveTheBitsOfOne) {
    const Model model = small_gpt();
    const Batch batch = gpt_batch(3);
    const MicroBatch data = split(batch, {3}).front();
    Pipeline whole(model, {3, 3}, options());
    Pipeline split_up(model, {3, 3}, options());
    whole.forward(0, data, true);
    whole.backward(0, data, false);

    split_up.forward(0, data, true);
    const MemoryUse before = split_up.arenas[1].live();
    Tensor gradient = split_up.stages[1]->backward_input(0, {});
    EXPECT_EQ(split_up.arenas[1].live()[MemoryKind::Stash] - before[MemoryKind::Stash],
              split_up.stages[1]->split_bytes(3));
    split_up.hand_over(gradient, 0);
    EXPECT_TRUE(split_up.stages[0]->backward_input(0, std::move(gradient)).empty());
    split_up.stages[0]->backward_weight(0);
    split_up.stages[1]->backward_weight(0);
    EXPECT_EQ(split_up.gradients(), whole.gradients());
    EXPECT_EQ(split_up.arenas[0].live()[MemoryKind::Stash], Bytes{});
    EXPECT_EQ(split_up.arenas[1].live()[MemoryKind::Boundary], Bytes{});
}

TEST(Stage, C13FirstStageTrainsWithoutAGradientOfItsInputAndGivesOneWhenAsked) {
    const Model model = mlp_model({5, 7, 3});
    const Batch batch = mlp_batch(4, 5, 3);
    const MicroBatch data = split(batch, {4}).front();
    StageOptions asking = options(Precision::Fp64);
    asking.input_gradient = true;
    for (const bool recompute : {false, true}) {
        Pipeline silent(model, {1, 1}, options(Precision::Fp64));
        silent.forward(0, data, !recompute);
        EXPECT_TRUE(silent.backward(0, data, recompute).empty());

        Pipeline asked(model, {1, 1}, asking);
        asked.forward(0, data, !recompute);
        const Tensor gradient = asked.backward(0, data, recompute);
        EXPECT_EQ(gradient.rows(), 4);
        EXPECT_EQ(gradient.columns(), 5);
        EXPECT_GT(std::abs(numbers_of(gradient)[0]), 0);

        EXPECT_EQ(silent.gradients(), asked.gradients());
        EXPECT_GT(std::abs(silent.gradients()[0][0]), 0);
    }
}

TEST(Stage, ParametersAndTheirNamesDoNotDependOnThePartition) {
    const Model model = small_gpt();
    Pipeline one(model, {6}, options());
    Pipeline three(model, {2, 2, 2}, options());
    std::vector<Parameter*> cut;
    for (const auto& stage : three.stages) {
        std::ranges::copy(stage->parameters(), std::back_inserter(cut));
    }
    const std::vector<Parameter*> whole = one.stages[0]->parameters();
    ASSERT_EQ(cut.size(), whole.size());
    for (std::size_t i = 0; i < cut.size(); ++i) {
        EXPECT_EQ(cut[i]->name, whole[i]->name);
        EXPECT_EQ(numbers_of(cut[i]->value), numbers_of(whole[i]->value)) << cut[i]->name;
    }
}

TEST(Stage, DrawsWeightsOfAGptAsGpt2Does) {
    const Model model = gpt_model({.layers = 2,
                                   .d_model = 64,
                                   .heads = 2,
                                   .context = 32,
                                   .vocabulary = 256,
                                   .feed_forward = 128});
    Pipeline pipeline(model, {6}, options());
    const auto deviation = [](const Tensor& tensor) {
        const Numbers values = numbers_of(tensor);
        double squares = 0;
        for (const double value : values) {
            squares += value * value / static_cast<double>(values.size());
        }
        return std::sqrt(squares);
    };
    for (Parameter* const parameter : pipeline.stages[0]->parameters()) {
        const std::string& name = parameter->name;
        const double found = deviation(parameter->value);
        if (name.ends_with(".bias")) {
            EXPECT_EQ(found, 0) << name;
        } else if (name.ends_with(".gain")) {
            EXPECT_EQ(found, 1) << name;
        } else if (name.ends_with(".out.weight")) {
            EXPECT_NEAR(found, 0.02 / std::sqrt(4.0), 0.001)
                << name;  // 2 blocks, 4 residual branches
        } else if (name.ends_with(".tokens")) {
            EXPECT_NEAR(found, 0.02, 0.001) << name;
        }
    }
}

TEST(Stage, C36RefusesABoundaryOfAWrongShapeOrTypeNamingStageAndLayer) {
    const Model model = small_gpt();
    const Batch batch = gpt_batch(3);
    const MicroBatch data = split(batch, {3}).front();
    Pipeline pipeline(model, {2, 4}, options());
    const auto refusal = [&](DType type, std::int64_t rows, std::int64_t columns) {
        Tensor input = pipeline.arenas[1].allocate(type, rows, columns, MemoryKind::Boundary);
        try {
            pipeline.stages[1]->forward(0, std::move(input), data, true);
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::BadInput);
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_EQ(
        refusal(DType::F32, 12, 8),
        "stage 1, layer \"block0.feed_forward\": the input is (12, 8) fp32, expected (18, 8) fp32");
    EXPECT_EQ(
        refusal(DType::F32, 18, 9),
        "stage 1, layer \"block0.feed_forward\": the input is (18, 9) fp32, expected (18, 8) fp32");
    EXPECT_EQ(
        refusal(DType::F64, 18, 8),
        "stage 1, layer \"block0.feed_forward\": the input is (18, 8) fp64, expected (18, 8) fp32");
    EXPECT_EQ(refusal(DType::F32, 18, 8), "accepted");

    pipeline.stages[0]->forward(0, {}, data, true);
    Tensor gradient = pipeline.arenas[0].allocate(DType::F32, 18, 7, MemoryKind::Boundary);
    EXPECT_THROW(pipeline.stages[0]->backward(0, std::move(gradient)), Error);
}

TEST(Stage, C36RefusesABatchThatTheModelCannotRead) {
    const Batch batch = mlp_batch(3, 4, 2);
    const MicroBatch data = split(batch, {3}).front();
    Pipeline pipeline(mlp_model({5, 2}), {1}, options());
    try {
        pipeline.stages[0]->forward(0, {}, data, true);
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(error.place(), "stage 0, layer \"linear0\"");
    }
}

TEST(Stage, LossIsTheSumInMicroBatchOrderWhateverTheOrderOfExecution) {
    const Model model = small_gpt();
    const Batch batch = gpt_batch(7);
    const std::vector<MicroBatch> slices = split(batch, {3, 2, 2});
    std::vector<double> losses;
    for (const std::vector<std::size_t>& order : {std::vector<std::size_t>{0, 1, 2}, {2, 0, 1}}) {
        Pipeline pipeline(model, {6}, options());
        for (const std::size_t m : order) {
            pipeline.forward(static_cast<int>(m), slices[m], true);
        }
        losses.push_back(pipeline.stages[0]->loss());
    }
    EXPECT_EQ(losses[0], losses[1]);
}

/// Says how often it was called, and in which capacity.
class Counting final : public ExecutableLayer {
  public:
    struct Calls {
        int forward = 0;
        int recomputation = 0;
        int backward = 0;
    };
    Counting(const SampleShape& shape, Calls& calls)
        : ExecutableLayer(shape, shape, DType::F32), calls_(calls) {}

    void forward(
        LayerCall& call, ConstView /*x*/, ConstView /*skip*/, View y, Kept& /*kept*/) override {
        call.recomputation ? ++calls_.recomputation : ++calls_.forward;
        call.kernels.fill_zero(y);
    }
    void backward_input(LayerCall& /*call*/,
                        Kept& /*kept*/,
                        ConstView /*x*/,
                        ConstView /*dy*/,
                        ConstView /*skip*/,
                        View /*dx*/) override {
        ++calls_.backward;
    }

  private:
    Calls& calls_;
};

TEST(Stage, C19ALayerIsToldWhetherItRunsAsARecomputation) {
    Counting::Calls calls;
    const SampleShape shape{.token_ids = false, .positions = 1, .width = 4};
    std::vector<std::unique_ptr<ExecutableLayer>> layers;
    layers.push_back(std::make_unique<Counting>(shape, calls));
    const std::unique_ptr<Device> device = make_cpu_device();
    Arena arena;
    Stage stage(*device, arena, std::move(layers), options());
    const Batch batch = mlp_batch(4, 4, 2);
    const std::vector<MicroBatch> slices = split(batch, {2, 2});
    for (int m = 0; m < 2; ++m) {
        stage.forward(m, {}, slices[static_cast<std::size_t>(m)], false);
    }
    for (int m = 1; m >= 0; --m) {
        stage.recompute(m, slices[static_cast<std::size_t>(m)]);
        stage.backward(m, arena.allocate(DType::F32, 2, 4, MemoryKind::Boundary));
    }
    EXPECT_EQ(calls.forward, 2);  // once per micro-batch
    EXPECT_EQ(calls.recomputation, 2);
    EXPECT_EQ(calls.backward, 2);
}

TEST(Stage, ResetFreesWhatAFailedStepLeft) {
    const Batch batch = gpt_batch(3);
    const MicroBatch data = split(batch, {3}).front();
    Pipeline pipeline(small_gpt(), {6}, options());
    const MemoryUse before = pipeline.arenas[0].live();
    pipeline.forward(0, data, true);
    pipeline.backward(0, data, false);
    pipeline.forward(1, data, true);
    pipeline.stages[0]->reset();
    EXPECT_EQ(pipeline.arenas[0].live(), before);
    for (const Numbers& gradient : pipeline.gradients()) {
        EXPECT_EQ(gradient, Numbers(gradient.size(), 0.0));
    }
    EXPECT_EQ(pipeline.stages[0]->loss(), 0);
    pipeline.forward(0, data, true);
}

TEST(Stage, TellsItsObserverOfEveryLayerAndPart) {
    std::vector<std::string> told;
    StageOptions observed = options();
    observed.after_layer = [&](int layer, Op part, const Tensor* result) {
        if (result != nullptr || part == Op::Optimizer) {
            told.push_back(std::string(op_text(part)) + std::to_string(layer));
        }
    };
    const Batch batch = gpt_batch(3);
    const MicroBatch data = split(batch, {3}).front();
    Pipeline pipeline(small_gpt(), {2, 4}, observed);
    pipeline.forward(0, data, true);
    EXPECT_EQ(told, (std::vector<std::string>{"F0", "F1", "F2", "F3", "F4"}));
    told.clear();
    pipeline.backward(0, data, false);
    EXPECT_EQ(told, (std::vector<std::string>{"I5", "I4", "I3", "I2", "I1"}));
    told.clear();
    pipeline.stages[1]->update({}, 1);
    EXPECT_EQ(told, (std::vector<std::string>{"OPT2", "OPT3", "OPT4", "OPT5"}));
}

/// A profile whose bytes are those that the layers tell; times do not matter.
Profile byte_profile(const Model& model, const std::vector<int>& sizes, Precision precision) {
    Profile profile;
    for (int i = 0; i < model.layer_count(); ++i) {
        const Layer& layer = model.layer(i);
        LayerCost cost;
        cost.name = layer.spec.name;
        cost.kind = to_string(layer.spec.type);
        cost.parameter_count = layer.parameter_count;
        cost.parameter_bytes = {layer.parameter_count *
                                static_cast<std::int64_t>(size_of(dtype_for(precision)))};
        for (const int size : sizes) {
            const LayerBytes bytes = layer_bytes(layer, size, precision);
            LayerSample sample;
            sample.micro_batch_size = size;
            sample.input = bytes.input;
            sample.output = bytes.output;
            sample.saved = bytes.saved;
            sample.workspace = bytes.workspace;
            cost.samples.push_back(sample);
        }
        profile.layers.push_back(cost);
    }
    profile.links.push_back({});
    return profile;
}

Plan plan_of(const Model& model,
             const std::vector<int>& partition,
             const RecomputeRules& recompute,
             Precision precision) {
    Scenario scenario;
    scenario.training.batch = 7;
    scenario.training.precision = precision;
    scenario.pipeline.stages = static_cast<int>(partition.size());
    scenario.pipeline.micro_batches = 3;
    scenario.pipeline.schedule = "gpipe";
    scenario.pipeline.recompute = recompute;
    scenario.pipeline.partition = partition;
    return make_plan(scenario, model, byte_profile(model, {2, 3}, precision));
}

/// Walks the plan's rows in one thread, an action as soon as what it needs is there, and holds
/// every arena to the plan after and during every compute action.
class ByteWalk {
  public:
    ByteWalk(const Model& model, const Plan& plan, const StageOptions& stage_options)
        : plan_(plan),
          pipeline_(model, plan->partition->layers_per_stage(), stage_options),
          batch_(gpt_batch(7)),
          slices_(split(batch_, plan->micro_batch_sizes)) {
        for (int rank = 0; rank < plan.rank_count(); ++rank) {
            EXPECT_EQ(live(rank), resident_memory(plan, rank)) << "rank " << rank << " at rest";
            pipeline_.arenas[static_cast<std::size_t>(rank)].reset_peak();
        }
    }

    void run() {
        // GPipe: all forwards, stage by stage, then all backwards, from the last stage on.
        for (int rank = 0; rank < plan_.rank_count(); ++rank) {
            walk(rank, [](Op op) {
                return op == Op::Forward || op == Op::RecvForward || op == Op::SendForward;
            });
        }
        for (int rank = plan_.rank_count() - 1; rank >= 0; --rank) {
            walk(rank, [](Op op) {
                return op == Op::Backward || op == Op::Recompute || op == Op::RecvBackward ||
                       op == Op::SendBackward;
            });
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

    void walk(int rank, const std::function<bool(Op)>& chosen) {
        Arena& arena = pipeline_.arenas[static_cast<std::size_t>(rank)];
        for (const Action& action : plan_->schedule.ranks[static_cast<std::size_t>(rank)]) {
            if (!chosen(action.op)) {
                continue;
            }
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
                EXPECT_EQ(arena.peak().total(), sum(before, change.during).total())
                    << "during " << to_string(action);
            }
            highest_[static_cast<std::size_t>(rank)] =
                std::max(highest_[static_cast<std::size_t>(rank)], arena.peak().total());
        }
    }

    void perform(const Action& action) {
        const auto s = static_cast<std::size_t>(action.stage);
        const auto m = static_cast<std::size_t>(action.micro_batch);
        Stage& stage = *pipeline_.stages[s];
        switch (action.op) {
            case Op::RecvForward:
                held_[s] = std::move(forward_[s - 1][m]);
                held_[s].attach(pipeline_.arenas[s], MemoryKind::Boundary);
                break;
            case Op::Forward:
                held_[s] = stage.forward(
                    action.micro_batch, std::move(held_[s]), slices_[m], !recomputed(action));
                break;
            case Op::SendForward:
                held_[s].detach();
                forward_[s][m] = std::move(held_[s]);
                break;
            case Op::RecvBackward:
                held_[s] = std::move(backward_[s + 1][m]);
                held_[s].attach(pipeline_.arenas[s], MemoryKind::Boundary);
                break;
            case Op::Recompute:
                stage.recompute(action.micro_batch, slices_[m]);
                break;
            case Op::Backward:
                held_[s] = stage.backward(action.micro_batch, std::move(held_[s]));
                break;
            case Op::SendBackward:
                held_[s].detach();
                backward_[s][m] = std::move(held_[s]);
                break;
            default:
                FAIL() << to_string(action);
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
    std::array<Tensor, stage_limit> held_;
    Messages forward_;
    Messages backward_;
    std::array<Bytes, stage_limit> highest_{};
};

TEST(Stage, C20HoldsTheBytesThatThePlanTellsAfterAndDuringEveryAction) {
    const Model model = small_gpt();
    for (const Precision precision : {Precision::Fp32, Precision::Fp64}) {
        for (const std::vector<int>& partition :
             {std::vector{6}, {3, 3}, {1, 4, 1}, {1, 1, 1, 1, 1, 1}}) {
            const int stages = static_cast<int>(partition.size());
            for (const RecomputeRules& recompute : test::every_recompute(stages)) {
                SCOPED_TRACE(::testing::Message()
                             << "stages " << partition.size() << ", recompute "
                             << to_string(recompute) << ", " << to_string(precision));
                const Plan plan = plan_of(model, partition, recompute, precision);
                ByteWalk(model, plan, options(precision)).run();
            }
        }
    }
}

}  // namespace
}  // namespace pipetwin::exec
