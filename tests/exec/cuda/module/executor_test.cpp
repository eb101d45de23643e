// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/executor.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/model/transformers.h"
#include "core/text/json_text.h"
#include "core/timeline/footprint.h"
#include "exec/data/random_batch.h"
#include "exec/gpu/cuda_module.h"
#include "exec/profiling/measured_pipeline.h"
#include "exec/profiling/profiler.h"
#include "exec/training/checkpoint.h"
#include "tests/support/places.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_training.h"

/// The CUDA backend against the CPU's: the module that the program loads, with its kernels, streams
/// and graphs. Compiled twice: for the module on a GPU, and, with PIPETWIN_EMULATED, for
/// the one whose CUDA is tests/support/cuda_emulation.
namespace pipetwin::exec {
namespace executor_test {

using test::NamedValues;
using test::Shape;

struct Outcome {
    std::vector<double> losses;            ///< [step]
    std::vector<double> norms;             ///< [step] of the gradients
    std::vector<NamedValues> gradients{};  ///< of the last step
    std::vector<NamedValues> weights{};    ///< after it

    bool operator==(const Outcome&) const = default;
};

/// The numbers of a parameter that the model has. Those of its padding are 0 to the bit.
std::vector<double> numbers_of(const Executor& executor,
                               const Parameter& parameter,
                               const Tensor& tensor) {
    std::vector<double> kept = executor.values(tensor);
    const PaddedMatrix matrix = parameter.matrix();
    std::vector<double> numbers;
    matrix.for_each_run({.begin = 0, .size = matrix.kept_size()},
                        [&](const ElementRange& run, std::int64_t) {
                            const auto begin = kept.begin() + run.begin;
                            numbers.insert(numbers.end(), begin, begin + run.size);
                            std::fill_n(begin, run.size, 0);
                        });
    EXPECT_THAT(kept, ::testing::Each(0)) << "the padding of " << parameter.name;
    return numbers;
}

Outcome train(const Model& model, const Shape& shape, int steps) {
    const Plan plan = test::plan_of(model, shape);
    Executor executor(plan, model, test::options_of(shape));
    Outcome outcome;
    for (int step = 0; step < steps; ++step) {
        const StepResult result = executor.run_step(random_batch(model, shape.batch, 1), step);
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(result.grad_norm);
        const std::vector<MemoryUse> predicted = peak_memory(plan);
        for (std::size_t rank = 0; rank < predicted.size(); ++rank) {
            if (shape.host_link_gbps > 0) {  // it depends on the times
                EXPECT_LE(result.peak[rank].total(), predicted[rank].total());
                continue;
            }
            EXPECT_EQ(result.peak[rank].total(), predicted[rank].total())
                << test::to_string(shape) << ", rank " << rank;
        }
    }
    for (const Parameter* const parameter : executor.parameters()) {
        outcome.gradients.push_back(
            {parameter->name, numbers_of(executor, *parameter, parameter->gradient)});
        outcome.weights.push_back(
            {parameter->name, numbers_of(executor, *parameter, parameter->value)});
    }
    return outcome;
}

double norm(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) {
        sum += value * value;
    }
    return std::sqrt(sum);
}

/// ||a - b|| <= bound ||b|| for every tensor; tensors whose true gradient is 0 against `floor`.
void expect_near(const std::vector<NamedValues>& a,
                 const std::vector<NamedValues>& b,
                 double bound,
                 double floor) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].name, b[i].name);
        std::vector<double> difference = a[i].values;
        ASSERT_EQ(difference.size(), b[i].values.size());
        for (std::size_t k = 0; k < difference.size(); ++k) {
            difference[k] -= b[i].values[k];
        }
        EXPECT_LE(norm(difference), bound * std::max(norm(b[i].values), floor)) << a[i].name;
    }
}

/// cuDNN takes heads of a multiple of 8.
Model gpt_with_heads_of_8(double dropout = 0, bool tied = false) {
    return gpt_model({.layers = 3,
                      .d_model = 16,
                      .heads = 2,
                      .context = 6,
                      .vocabulary = 11,
                      .feed_forward = 16,
                      .tied = tied,
                      .dropout = dropout,
                      .gelu = tied ? GeluForm::Tanh : GeluForm::Exact});
}

/// Two queries share a key; a head is not the width divided by their number.
Model small_llama(bool tied = true) {
    return llama_model({.layers = 2,
                        .d_model = 16,
                        .heads = 4,
                        .key_value_heads = 2,
                        .head_size = 8,
                        .context = 6,
                        .vocabulary = 11,
                        .feed_forward = 12,
                        .tied = tied});
}

/// Source and target of different lengths, heads that cuDNN takes, and messages of several outputs
/// that each begin where a product may.
Model translation(TranslationTables tables = TranslationTables::Shared) {
    return translation_model({.layers = 2,
                              .d_model = 32,
                              .heads = 2,
                              .head_size = 8,
                              .feed_forward = 16,
                              .vocabulary = 11,
                              .source_context = 6,
                              .target_context = 4,
                              .tables = tables,
                              .label_smoothing = 0.1,
                              .dropout = 0.25});
}

/// A GPT whose vocabulary is odd. All its other widths, and the rows of two samples, are multiples
/// of 8, which the products of a head need.
Model gpt_of(int vocabulary, bool tied) {
    return gpt_model({.layers = 1,
                      .d_model = 16,
                      .heads = 2,
                      .context = 8,
                      .vocabulary = vocabulary,
                      .feed_forward = 32,
                      .tied = tied});
}

/// A model whose head has a bias and comes right after the embedding, without a norm.
Model head_with_bias(int vocabulary) {
    return Model::chain(
        {.token_ids = true, .positions = 8},
        {{.name = "embedding",
          .type = LayerType::Embedding,
          .outputs = 16,
          .vocabulary = vocabulary},
         {.name = "head",
          .type = LayerType::Sequence,
          .inner = {{.name = "logits", .type = LayerType::Linear, .outputs = vocabulary},
                    {.name = "loss", .type = LayerType::CrossEntropy, .label_smoothing = 0.1}}}});
}

class CudaExecutor : public ::testing::Test {
  protected:
    void SetUp() override {
#ifdef PIPETWIN_EMULATED
        ::setenv("PIPETWIN_MODULE_PATH", places::emulated_module_folder().c_str(), 1);
        const CudaProbe probe = probe_cuda();
        ASSERT_EQ(probe.state, CudaState::Available) << probe.detail;
#else
        ::setenv("PIPETWIN_MODULE_PATH",
                 places::program_folder().c_str(),
                 0);  // not in the place of the user's
        if (const CudaProbe probe = probe_cuda(); probe.state != CudaState::Available) {
            GTEST_SKIP() << probe.detail;
        }
#endif
    }

    static Shape on_cuda(Shape shape) {
        shape.backend = Backend::Cuda;
        return shape;
    }
};

TEST_F(CudaExecutor, TrainsAsTheCpuDoes) {
    for (const Model& model : {test::small_gpt(),
                               test::small_mlp(),
                               test::small_gpt_with(0.25, true),
                               small_llama(),
                               small_llama(false),
                               gpt_of(65, true),
                               gpt_of(257, false),
                               head_with_bias(65),
                               test::small_translation_with(TranslationTables::Shared, 0.25),
                               test::small_translation_with(TranslationTables::Separate, 0)}) {
        for (const OptimizerKind optimizer : {OptimizerKind::Sgd,
                                              OptimizerKind::Momentum,
                                              OptimizerKind::RmsProp,
                                              OptimizerKind::AdamW}) {
            const Shape shape{
                .micro_batches = 2, .batch = 5, .optimizer = optimizer, .clip_norm = 0.1};
            const Outcome cpu = train(model, shape, 1);
            const Outcome gpu = train(model, on_cuda(shape), 1);
            EXPECT_NEAR(gpu.losses[0], cpu.losses[0], 1e-5 * cpu.losses[0]);
            EXPECT_NEAR(gpu.norms[0], cpu.norms[0], 1e-5 * cpu.norms[0]);
            expect_near(gpu.gradients, cpu.gradients, 1e-5, 1e-2 * cpu.norms[0]);
            if (optimizer == OptimizerKind::Sgd) {  // no division by what may be 0
                expect_near(gpu.weights, cpu.weights, 1e-6, 1);
            }
        }
    }
}

// The third step repeats the calls of the second, so it runs as graphs.
/// The shape of a U-Net, of linear layers whose outputs begin where products may.
Model unet() {
    const auto layer = [](LayerType type, const char* name, std::vector<std::string> inputs) {
        return LayerSpec{.name = name,
                         .type = type,
                         .outputs = type == LayerType::Linear ? 64 : 0,
                         .inputs = std::move(inputs)};
    };
    LayerSpec classes = layer(LayerType::Linear, "classes", {});
    classes.outputs = 5;
    return Model::graph({.positions = 1, .width = 6},
                        {layer(LayerType::Linear, "down0", {}),
                         layer(LayerType::Gelu, "gelu0", {}),
                         layer(LayerType::Linear, "down1", {}),
                         layer(LayerType::Gelu, "gelu1", {}),
                         layer(LayerType::Linear, "bottom", {}),
                         layer(LayerType::Concat, "join1", {"bottom", "gelu1"}),
                         layer(LayerType::Linear, "up1", {}),
                         layer(LayerType::Add, "join0", {"up1", "gelu0", "down0"}),
                         classes,
                         layer(LayerType::CrossEntropy, "loss", {})});
}

/// Two cells with branches inside, each of which reads the outputs of the two units before it.
Model cells() {
    const auto layer = [](LayerType type, const char* name, std::vector<std::string> inputs) {
        return LayerSpec{.name = name,
                         .type = type,
                         .outputs = type == LayerType::Linear ? 64 : 0,
                         .inputs = std::move(inputs)};
    };
    const auto cell = [&](const char* name, std::vector<std::string> inputs) {
        LayerSpec spec = layer(LayerType::Sequence, name, std::move(inputs));
        spec.inner = {layer(LayerType::Gelu, "left", {"input0"}),
                      layer(LayerType::Linear, "right", {"input1"}),
                      layer(LayerType::Linear, "third", {"left"}),
                      layer(LayerType::Add, "sum", {"third", "right"}),
                      layer(LayerType::Concat, "out", {"left", "sum"})};
        return spec;
    };
    LayerSpec classes = layer(LayerType::Linear, "classes", {});
    classes.outputs = 5;
    return Model::graph({.positions = 1, .width = 6},
                        {layer(LayerType::Linear, "stem0", {}),
                         layer(LayerType::Linear, "stem1", {}),
                         cell("cell0", {"stem1", "stem0"}),
                         cell("cell1", {"cell0", "stem1"}),
                         classes,
                         layer(LayerType::CrossEntropy, "loss", {})});
}

/// Models with branches, cut in several ways.
class CudaBranches : public CudaExecutor {
  protected:
    static void expect_every_cut_trains(const Model& model,
                                        const std::vector<std::vector<int>>& cuts) {
        Shape shape{.stages = 1, .micro_batches = 2, .batch = 4, .schedule = "1f1b"};
        const Outcome cpu = train(model, shape, 2);
        const Outcome alone = train(model, on_cuda(shape), 2);
        EXPECT_NEAR(alone.losses[1], cpu.losses[1], 1e-5 * cpu.losses[1]);
        expect_near(alone.gradients, cpu.gradients, 1e-4, 1e-6);
        for (const std::vector<int>& cut : cuts) {
            shape.partition = cut;
            shape.stages = static_cast<int>(cut.size());
            for (const Recompute mode : {Recompute::None, Recompute::Always}) {
                shape.recompute = mode;
                EXPECT_EQ(train(model, on_cuda(shape), 2), alone) << test::to_string(shape);
            }
        }
    }
};

TEST_F(CudaBranches, TrainModelsWithBranches) {
    expect_every_cut_trains(unet(), {{5, 5}, {1, 3, 2, 4}, {2, 3, 3, 2}});
}

TEST_F(CudaBranches, TrainUnitsWithBranchesInside) {
    expect_every_cut_trains(cells(), {{3, 3}, {1, 1, 2, 2}, {2, 1, 1, 2}});
}

/// A few convolutions, some of which cuDNN may compute, norms and pools: with strides, channels in
/// groups, a bias, a cell whose branches are summed, and an image without its first row and column.
Model images() {
    const auto layer = [](LayerType type, const char* name, std::vector<std::string> inputs) {
        return LayerSpec{.name = name, .type = type, .inputs = std::move(inputs)};
    };
    const auto conv = [&](const char* name,
                          int outputs,
                          Pixels kernel,
                          Margins padding,
                          std::vector<std::string> inputs = {}) {
        LayerSpec spec = layer(LayerType::Conv2d, name, std::move(inputs));
        spec.outputs = outputs;
        spec.kernel = kernel;
        spec.padding = padding;
        spec.bias = false;
        return spec;
    };
    constexpr Margins one{1, 1, 1, 1};
    LayerSpec stem = conv("stem", 16, {3, 3}, one);
    stem.stride = {2, 2};
    LayerSpec depthwise = conv("depthwise", 16, {3, 3}, one, {"input0"});
    depthwise.groups = 16;
    LayerSpec cell = layer(LayerType::Sequence, "cell", {});
    cell.inner = {depthwise,
                  conv("long", 16, {1, 3}, {.left = 1, .right = 1}, {"input0"}),
                  layer(LayerType::Add, "sum", {"depthwise", "long", "input0"})};
    LayerSpec moved = conv("moved", 24, {1, 1}, {-1, -1, 1, 1});
    moved.stride = {2, 2};
    LayerSpec residual = layer(LayerType::Residual, "residual", {});
    LayerSpec biased = conv("conv", 24, {3, 3}, one);
    biased.bias = true;
    residual.inner = {layer(LayerType::Relu, "relu", {}), biased};
    LayerSpec pool = layer(LayerType::MaxPool, "pool", {});
    pool.kernel = {2, 2};
    pool.stride = {1, 1};
    LayerSpec classes = layer(LayerType::Linear, "classes", {});
    classes.outputs = 5;
    return Model::graph(image_shape({10, 12}, 3),
                        {stem,
                         layer(LayerType::BatchNorm, "bn1", {}),
                         layer(LayerType::Relu, "relu1", {}),
                         cell,
                         moved,
                         layer(LayerType::BatchNorm, "bn2", {}),
                         residual,
                         pool,
                         layer(LayerType::GlobalAvgPool, "mean", {}),
                         classes,
                         layer(LayerType::CrossEntropy, "loss", {})});
}

TEST_F(CudaBranches, TrainImages) {
    expect_every_cut_trains(images(), {{4, 7}, {1, 3, 3, 4}});
}

// Every block of the decoder reads the memory, which may be another stage's.
TEST_F(CudaBranches, TrainTranslations) {
    expect_every_cut_trains(translation(), {{8, 7}, {3, 4, 4, 4}});
}

#ifdef PIPETWIN_EMULATED
/// A function of the emulated module's cuDNN; null where cuDNN's headers are not.
template <class Function>
Function* in_fake_cudnn(const char* name) {
    void* const module = ::dlopen(places::emulated_module().c_str(), RTLD_NOW);
    return reinterpret_cast<Function*>(::dlsym(module, name));
}
#endif

bool has_fake_cudnn() {
#ifdef PIPETWIN_EMULATED
    return in_fake_cudnn<void()>("pipetwin_emulated_cudnn_calls") != nullptr;
#else
    return false;
#endif
}

int cudnn_calls() {
#ifdef PIPETWIN_EMULATED
    if (auto* const calls = in_fake_cudnn<int()>("pipetwin_emulated_cudnn_calls")) {
        return calls();
    }
#endif
    return 0;
}

/// By cuDNN where it has plans, and by our own kernels: bf16 has 8 bits, and the two round in other
/// places.
TEST_F(CudaExecutor, TrainsImagesInHalfPrecisionNearlyAsInSingle) {
    const Model model = images();
    Shape shape{.micro_batches = 2, .batch = 8, .schedule = "1f1b", .clip_norm = 1};
    const Outcome cpu = train(model, shape, 2);
    shape.precision = Precision::Bf16;
    for (const char* own_convolutions : {"", "1"}) {
        ::setenv("PIPETWIN_OWN_CONVOLUTIONS", own_convolutions, 1);
        const int calls = cudnn_calls();
        const Outcome gpu = train(model, on_cuda(shape), 2);
        if (has_fake_cudnn()) {
            EXPECT_EQ(cudnn_calls() > calls, *own_convolutions == '\0');
        }
        EXPECT_EQ(gpu, train(model, on_cuda(shape), 2)) << own_convolutions;
        EXPECT_NEAR(gpu.losses[0], cpu.losses[0], 2e-2 * cpu.losses[0]) << own_convolutions;
        EXPECT_NEAR(gpu.norms[0], cpu.norms[0], 0.1 * cpu.norms[0]) << own_convolutions;
    }
    ::unsetenv("PIPETWIN_OWN_CONVOLUTIONS");
}

TEST_F(CudaExecutor, RefusesOutputsThatBeginWhereNoProductMay) {
    const Model model = unet();
    const Shape shape = on_cuda({.stages = 2,
                                 .micro_batches = 4,
                                 .batch = 4,
                                 .schedule = "1f1b",
                                 .partition = std::vector{5, 5},
                                 .precision = Precision::Bf16});
    try {
        const Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
        FAIL() << "the second output of a message begins at byte 128";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("begins at byte 128"));
    }
}

TEST_F(CudaExecutor, StaysWithTheCpuOverManySteps) {
    const Model model = test::small_gpt();
    const Shape shape{.stages = 2, .schedule = "1f1b"};
    const Outcome cpu = train(model, shape, 5);
    const Outcome gpu = train(model, on_cuda(shape), 5);
    EXPECT_LT(gpu.losses.back(), gpu.losses.front());
    for (std::size_t step = 0; step < cpu.losses.size(); ++step) {
        EXPECT_NEAR(gpu.losses[step], cpu.losses[step], 1e-4 * cpu.losses[step]) << step;
    }
}

#ifdef PIPETWIN_EMULATED
/// A count of the emulated module since it was loaded; see injection.h.
std::int64_t count_of(const char* name) {
    void* const module = ::dlopen(places::emulated_module().c_str(), RTLD_NOW);
    return reinterpret_cast<std::int64_t (*)()>(::dlsym(module, name))();
}

/// How many graphs the emulated module has launched so far.
std::int64_t graph_launches() {
    return count_of("pipetwin_emulated_graph_launches");
}

/// So many emulated GPUs while it lives; one again afterwards.
class EmulatedGpus {
  public:
    explicit EmulatedGpus(int count) { set(count); }
    EmulatedGpus(const EmulatedGpus&) = delete;
    EmulatedGpus& operator=(const EmulatedGpus&) = delete;
    ~EmulatedGpus() { set(1); }

  private:
    static void set(int count) {
        void* const module = ::dlopen(places::emulated_module().c_str(), RTLD_NOW);
        reinterpret_cast<void (*)(int)>(::dlsym(module, "pipetwin_emulated_set_gpus"))(count);
    }
};

// The schedule is the same in every step, so are the addresses, and so every action is one graph.
// What changes from step to step - rates, scales, the keys of masks, lengths - lies in memory.
TEST_F(CudaExecutor, RunsEveryActionOfALaterStepAsOneGraph) {
    struct Case {
        Model model;
        const char* schedule;
        int gpus;
    };
    const Model gpt = test::small_gpt_with(0.25, false);
    const std::vector<Case> cases{{gpt, "gpipe", 1},
                                  {gpt, "1f1b", 1},
                                  {gpt, "zb-h1", 1},
                                  {gpt, "1f1b", 2},
                                  {translation(TranslationTables::Separate), "1f1b", 1}};
    for (const auto& [model, schedule, gpus] : cases) {
        const EmulatedGpus some(gpus);
        const Shape shape =
            on_cuda({.stages = 2, .micro_batches = 3, .schedule = schedule, .clip_norm = 0.1});
        const Plan plan = test::plan_of(model, shape);
        Executor executor(plan, model, test::options_of(shape));
        std::int64_t launches = 0;
        for (int step = 0; step < 5; ++step) {
            const std::int64_t before = graph_launches();
            executor.run_step(random_batch(model, shape.batch, static_cast<std::uint64_t>(step)),
                              step);
            launches = graph_launches() - before;
        }
        std::int64_t actions = 0;
        for (const std::vector<Action>& row : plan->schedule.ranks) {
            actions += std::ranges::count_if(row, [](const Action& action) {
                return is_compute(action.op) || uses_gradients(action.op);
            });
        }
        EXPECT_EQ(launches, actions) << schedule << " on " << gpus << " GPUs";
    }
}

// The emulated GPU begins its work when a host thread waits for it, and a complete list of calls is
// captured as a graph. So a list was made ahead if the GPU still has work while it is captured.
TEST_F(CudaExecutor, MakesTheListOfAnActionWhileTheGpuComputesTheOneBefore) {
    const Model model = test::small_gpt_with(0.25, true);
    const auto captures_at_work = [&](Shape shape, const LayerTimer& layer_done) {
        const Shape on_gpu = on_cuda(std::move(shape));
        ExecutorOptions options = test::options_of(on_gpu);
        options.layer_done = layer_done;
        Executor executor(test::plan_of(model, on_gpu), model, options);
        const std::int64_t before = count_of("pipetwin_emulated_captures_at_work");
        for (int step = 0; step < 3; ++step) {
            executor.run_step(random_batch(model, on_gpu.batch, 1), step);
        }
        return count_of("pipetwin_emulated_captures_at_work") - before;
    };
    // F0 B0 F1 B1 F2 B2: the first has no action before it, and the last two backwards are one.
    EXPECT_GE(captures_at_work({.micro_batches = 3, .schedule = "1f1b"}, {}), 4);
    EXPECT_GT(captures_at_work({.stages = 2, .micro_batches = 3, .schedule = "zb-h1"}, {}), 0);
    // Stashes leave between two actions; and who times layers wants each action by itself.
    EXPECT_EQ(captures_at_work({.micro_batches = 3, .schedule = "gpipe", .host_link_gbps = 1}, {}),
              0);
    EXPECT_EQ(captures_at_work({.micro_batches = 3, .schedule = "1f1b"},
                               [](int, Op, TimePoint, const GroupTimes&) {}),
              0);
}

// A kernel that reads the memory of another GPU ends this program: everything is copied.
TEST_F(CudaExecutor, GivesTheSameBitsOnSeveralGpus) {
    Shape shape = on_cuda({.stages = 3, .micro_batches = 3, .schedule = "1f1b", .clip_norm = 0.1});
    for (const char* const schedule : {"1f1b", "chimera"}) {
        const bool tied = std::string_view(schedule) == "1f1b";
        const Model model = test::small_gpt_with(0.25, tied);
        shape.schedule = schedule;
        shape.stages = shape.schedule == "chimera" ? 2 : 3;
        shape.micro_batches = shape.stages;
        const Outcome expected = train(model, shape, 2);
        for (const int gpus : {2, 3}) {
            const EmulatedGpus some(gpus);
            const Plan plan = test::plan_of(model, shape);
            Executor executor(plan, model, test::options_of(shape));
            Outcome found;
            for (int step = 0; step < 2; ++step) {
                const StepResult result =
                    executor.run_step(random_batch(model, shape.batch, 1), step);
                found.losses.push_back(result.loss);
                found.norms.push_back(result.grad_norm);
            }
            for (const Parameter* const parameter : executor.parameters()) {
                found.gradients.push_back(
                    {parameter->name, numbers_of(executor, *parameter, parameter->gradient)});
                found.weights.push_back(
                    {parameter->name, numbers_of(executor, *parameter, parameter->value)});
            }
            EXPECT_EQ(found, expected) << test::to_string(shape) << " on " << gpus << " GPUs";
        }
    }
}

TEST_F(CudaExecutor, FindsTheFirstLayerThatIsNotFiniteAcrossGpus) {
    const EmulatedGpus two(2);
    const Model model = test::small_mlp();
    const Shape shape = on_cuda({.stages = 2});
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    Batch batch = random_batch(model, shape.batch, 1);
    batch.values[0] = std::numeric_limits<float>::infinity();
    try {
        executor.run_step(batch, 0);
        FAIL() << "an infinity was not found";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::NotFinite);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("in stage 0"));
    }
}
#endif

// Nothing clears a gradient: the first micro-batch of a step writes it, whatever was there.
TEST_F(CudaExecutor, ComputesAStepThatDoesNotDependOnWhatItsGradientsHeldBefore) {
    const Model gpt = gpt_with_heads_of_8(0.25, true);
    const std::vector<std::pair<Model, Shape>> cases{
        {gpt, {.micro_batches = 1}},
        {gpt, {.stages = 2, .schedule = "zb-h1", .precision = Precision::Bf16, .clip_norm = 0.1}},
        {gpt, {.stages = 2, .chunks = 2, .schedule = "interleaved-1f1b"}},
        {small_llama(false), {.stages = 2, .micro_batches = 2, .schedule = "chimera"}},
        {translation(), {.stages = 2, .schedule = "1f1b"}},
        {test::small_norms(), {.stages = 2, .schedule = "1f1b"}}};
    for (const auto& [model, of_host] : cases) {
        const Shape shape = on_cuda(of_host);
        const auto run = [&](std::byte byte) {
            Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
            const auto write = executor.writer();
            Outcome outcome;
            for (int step = 0; step < 3; ++step) {
                for (int stage = 0; stage < executor.plan().stage_count(); ++stage) {
                    for (Parameter* const parameter : executor.stage(stage).parameters()) {
                        for (Tensor* const sum : {&parameter->gradient, &parameter->received}) {
                            const auto count = static_cast<std::size_t>(sum->bytes().count);
                            if (!sum->empty()) {
                                write(std::vector<std::byte>(count, byte), *sum);
                            }
                        }
                    }
                }
                const StepResult result =
                    executor.run_step(random_batch(model, shape.batch, 1), step);
                outcome.losses.push_back(result.loss);
                outcome.norms.push_back(result.grad_norm);
            }
            for (const Parameter* const parameter : executor.parameters()) {
                outcome.weights.push_back(
                    {parameter->name, numbers_of(executor, *parameter, parameter->value)});
            }
            return outcome;
        };
        EXPECT_TRUE(run(std::byte{0xFF}) == run(std::byte{})) << test::to_string(shape);
    }
}

TEST_F(CudaExecutor, GivesTheSameBitsForEveryPartitionAndRecompute) {
    for (const Model& model :
         {gpt_with_heads_of_8(0.25, true), small_llama(), translation(), gpt_of(257, false)}) {
        for (const Precision precision : {Precision::Fp32, Precision::Bf16}) {
            const Shape whole{.schedule = "1f1b", .precision = precision, .clip_norm = 0.1};
            const Outcome expected = train(model, on_cuda(whole), 3);
            Shape two = whole;
            two.stages = 2;
            two.recompute = Recompute::ExceptLast;
            Shape four = whole;
            four.stages = 4;
            four.schedule = "zb-h1";
            for (const Shape& shape : {two, four}) {
                EXPECT_EQ(train(model, on_cuda(shape), 3), expected) << test::to_string(shape);
            }
        }
    }
}

/// Products that end with a GELU compute it from numbers that are not rounded yet.
TEST_F(CudaExecutor, ComputesGelusInProductsNearlyAsByThemselves) {
    const Shape shape{.stages = 2, .schedule = "zb-h1", .precision = Precision::Bf16};
    const Model model = gpt_with_heads_of_8(0, true);
    const Outcome joined = train(model, on_cuda(shape), 1);
    ::setenv("PIPETWIN_OWN_GELU", "1", 1);
    const Outcome apart = train(model, on_cuda(shape), 1);
    ::unsetenv("PIPETWIN_OWN_GELU");
    EXPECT_NE(joined.gradients, apart.gradients);
    EXPECT_NEAR(joined.losses[0], apart.losses[0], 1e-2 * apart.losses[0]);
    // Numbers of bf16 are rounded by up to 4e-3, here in each of three blocks.
    expect_near(joined.gradients, apart.gradients, 2e-2, 0.1 * apart.norms[0]);
    const Model exact = gpt_with_heads_of_8();
    const Outcome of_exact = train(exact, on_cuda(shape), 1);
    ::setenv("PIPETWIN_OWN_GELU", "1", 1);
    EXPECT_EQ(train(exact, on_cuda(shape), 1), of_exact) << "only the tanh form is a product's";
    ::unsetenv("PIPETWIN_OWN_GELU");
}

TEST_F(CudaExecutor, RefusesHeadsThatNoKernelTakes) {
    const auto model_of = [](int head_size) {
        return llama_model({.layers = 1,
                            .d_model = 8,
                            .heads = 1,
                            .head_size = head_size,
                            .context = 2,
                            .vocabulary = 5,
                            .feed_forward = 8});
    };
    const Shape shape{.micro_batches = 1, .batch = 1, .optimizer = OptimizerKind::Sgd};
    train(model_of(256), on_cuda(shape), 1);
    train(model_of(258), shape, 1);
    try {
        train(model_of(258), on_cuda(shape), 1);
        FAIL() << "a head of 258 numbers";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("have 258 numbers each"));
    }
}

TEST_F(CudaExecutor, EvaluatesAsTheCpuDoesAndLeavesTheStepsAsTheyAre) {
    const Model model = test::small_gpt_with(0.25, true);
    const Shape shape{.stages = 2, .micro_batches = 4, .schedule = "1f1b"};
    const Batch batch = random_batch(model, shape.batch, 9);
    Executor on_cpu(test::plan_of(model, shape), model, test::options_of(shape));
    const double expected = on_cpu.evaluate(batch, 0);
    const Shape cuda = on_cuda(shape);
    Executor plain(test::plan_of(model, cuda), model, test::options_of(cuda));
    Executor validated(test::plan_of(model, cuda), model, test::options_of(cuda));
    for (int step = 0; step < 4; ++step) {
        const double loss = validated.evaluate(batch, step);
        if (step == 0) {
            EXPECT_NEAR(loss, expected, 1e-5 * expected);
        }
        EXPECT_EQ(validated.run_step(batch, step).loss, plain.run_step(batch, step).loss);
    }
}

// What a copy reads is not used again before it has ended: the emulation makes copies as late
// as it may.
TEST_F(CudaExecutor, GivesTheSameBitsWhereStashesGoToHostMemory) {
    const Model model = gpt_with_heads_of_8();
    Shape shape{.stages = 2, .schedule = "gpipe", .precision = Precision::Bf16};
    const Outcome expected = train(model, on_cuda(shape), 3);
    shape.host_link_gbps = 100;
    for (const Recompute recompute : {Recompute::None, Recompute::Always}) {
        shape.recompute = recompute;
        EXPECT_EQ(train(model, on_cuda(shape), 3), expected) << test::to_string(shape);
    }
}

/// That the emulated module counts; it has none where cuDNN's headers are not.
// With cuDNN's attention where it is there, and with our own kernels. In the emulation it is a fake
// cuDNN's, which computes what our graphs say.
TEST_F(CudaExecutor, TrainsInHalfPrecisionNearlyAsInSingle) {
    const Shape single{.stages = 2, .schedule = "1f1b"};
    Shape half = single;
    half.precision = Precision::Bf16;
    for (const Model& model : {gpt_with_heads_of_8(), small_llama(), translation()}) {
        const Outcome expected = train(model, on_cuda(single), 4);
        for (const char* own_attention : {"", "1"}) {
            ::setenv("PIPETWIN_OWN_ATTENTION", own_attention, 1);
            const int calls = cudnn_calls();
            const Outcome found = train(model, on_cuda(half), 4);
            if (has_fake_cudnn()) {
                EXPECT_EQ(cudnn_calls() > calls, *own_attention == '\0');
            }
            for (std::size_t step = 0; step < expected.losses.size(); ++step) {
                EXPECT_NEAR(
                    found.losses[step], expected.losses[step], 1e-2 * expected.losses[step]);
            }
        }
    }
    ::unsetenv("PIPETWIN_OWN_ATTENTION");
}

#ifdef PIPETWIN_EMULATED
// A plan of cuDNN is tried when it is first needed: then the bits are those of our own attention.
TEST_F(CudaExecutor, TakesItsOwnAttentionWhereCudnnRefusesToExecute) {
    auto* const set_cudnn = in_fake_cudnn<void(std::int64_t, bool)>("pipetwin_emulated_cudnn_set");
    if (set_cudnn == nullptr) {
        GTEST_SKIP() << "no cuDNN can be told to refuse here";
    }
    constexpr std::int64_t workspace = 4096;
    const Model model = gpt_with_heads_of_8();
    const Shape shape{.stages = 2, .schedule = "1f1b", .precision = Precision::Bf16};
    const Outcome of_cudnn = train(model, on_cuda(shape), 3);
    ::setenv("PIPETWIN_OWN_ATTENTION", "1", 1);
    const Outcome expected = train(model, on_cuda(shape), 3);
    ::unsetenv("PIPETWIN_OWN_ATTENTION");
    EXPECT_FALSE(of_cudnn == expected);
    set_cudnn(workspace, true);
    EXPECT_EQ(train(model, on_cuda(shape), 3), expected);
    set_cudnn(workspace, false);
}
#endif

/// What no gradient reaches stays 0 through decay, momentum and averages, and also where the
/// epsilon that keeps a root from 0 is 0.
TEST_F(CudaExecutor, KeepsThePaddingOfAVocabularyAtZero) {
    for (const Model& model : {gpt_of(65, true), gpt_of(257, false), head_with_bias(65)}) {
        for (const OptimizerKind optimizer : {OptimizerKind::AdamW,
                                              OptimizerKind::Adam,
                                              OptimizerKind::RmsProp,
                                              OptimizerKind::Momentum}) {
            Shape shape{.stages = 2,
                        .precision = Precision::Bf16,
                        .optimizer = optimizer,
                        .average_decay = 0.5};
            shape = on_cuda(shape);
            ExecutorOptions options = test::options_of(shape);
            options.optimizer.weight_decay = 0.1;
            options.optimizer.epsilon = 0;
            Executor executor(test::plan_of(model, shape), model, options);
            for (int step = 0; step < 4; ++step) {
                executor.run_step(random_batch(model, shape.batch, 1), step);
            }
            for (int stage = 0; stage < shape.stages; ++stage) {
                for (const Parameter* const parameter : executor.stage(stage).parameters()) {
                    for (Tensor Parameter::*const part : {&Parameter::value,
                                                          &Parameter::gradient,
                                                          &Parameter::received,
                                                          &Parameter::master,
                                                          &Parameter::first,
                                                          &Parameter::second,
                                                          &Parameter::average}) {
                        if (!(parameter->*part).empty()) {
                            numbers_of(executor, *parameter, parameter->*part);
                        }
                    }
                }
            }
        }
    }
}

/// The bytes of all files of a checkpoint, by name.
std::map<std::string, std::string> files_of(const std::filesystem::path& checkpoints) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(checkpoints)) {
        if (entry.is_regular_file()) {
            files[entry.path().filename().string()] =
                read_file(entry.path(), std::size_t{1} << 24U);
        }
    }
    return files;
}

// Files have the vocabulary of the model alone, so they do not tell where they were written.
TEST_F(CudaExecutor, WritesCheckpointsThatTheCpuContinuesFromAndReadsTheCpus) {
    for (const Model& model :
         {gpt_of(65, true), gpt_of(257, false), head_with_bias(65), small_llama()}) {
        for (const Precision precision : {Precision::Fp32, Precision::Bf16}) {
            const Shape host{.stages = 2, .precision = precision, .average_decay = 0.5};
            for (const auto& [here, there] :
                 {std::pair{on_cuda(host), host}, std::pair{host, on_cuda(host)}}) {
                const auto made = [&](const Shape& shape) {
                    return std::make_unique<Executor>(
                        test::plan_of(model, shape), model, test::options_of(shape));
                };
                const auto continued = [&](const Shape& shape, const tests::ScratchFolder& from) {
                    auto executor = made(shape);
                    EXPECT_TRUE(Checkpoints(from.path()).load(executor->trained()));
                    executor->spread_weights();
                    return executor;
                };
                const auto loss = [&](Executor& executor, int step) {
                    const auto seed = static_cast<std::uint64_t>(step);
                    return executor.run_step(random_batch(model, here.batch, seed), step).loss;
                };
                const tests::ScratchFolder from_here;
                const tests::ScratchFolder from_there;
                const auto first = made(here);
                loss(*first, 0);
                Checkpoints(from_here.path()).save({.steps_done = 1}, first->trained());
                const auto second = continued(there, from_here);
                Checkpoints(from_there.path()).save({.steps_done = 1}, second->trained());
                EXPECT_EQ(files_of(from_there.path()), files_of(from_here.path()));

                const double expected = loss(*first, 1);
                EXPECT_EQ(loss(*continued(here, from_there), 1), expected);
                Shape whole = there;
                whole.stages = 1;  // a tied table is in one place
                const double bound = precision == Precision::Fp32 ? 1e-5 : 1e-2;
                EXPECT_NEAR(loss(*second, 1), expected, bound * expected);
                EXPECT_NEAR(loss(*continued(whole, from_here), 1), expected, bound * expected);
            }
        }
    }
}

// As a decoder reads them.
TEST_F(CudaExecutor, HandsOutTheLogitsOfTheVocabularyAlone) {
    const Model model = gpt_of(65, true);
    const Shape shape{.stages = 2};
    const Batch batch = random_batch(model, shape.batch, 3);
    const std::vector<int> positions(static_cast<std::size_t>(shape.batch), 5);
    Executor cpu(test::plan_of(model, shape), model, test::options_of(shape));
    const Shape cuda = on_cuda(shape);
    Executor gpu(test::plan_of(model, cuda), model, test::options_of(cuda));
    const std::vector<double> expected = cpu.logits(batch, positions, 0);
    const std::vector<double> found = gpu.logits(batch, positions, 0);
    ASSERT_EQ(found.size(), 65 * positions.size());
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], expected[i], 1e-5);
    }
}

#ifdef PIPETWIN_EMULATED
// A row of 65 or 257 numbers in bf16 begins where no tensor core's load may.
TEST_F(CudaExecutor, AsksForProductsWhoseRowsAreMultiplesOf16Bytes) {
    const auto odd_products = [] { return count_of("pipetwin_emulated_odd_products"); };
    for (const Model& model : {gpt_of(65, true), gpt_of(257, false), head_with_bias(65)}) {
        for (const char* const schedule : {"1f1b", "zb-h1"}) {
            const Shape shape{.stages = 2, .schedule = schedule, .precision = Precision::Bf16};
            const std::int64_t before = odd_products();
            train(model, on_cuda(shape), 1);
            EXPECT_EQ(odd_products(), before) << test::to_string(shape);
        }
    }
    const std::int64_t before = odd_products();
    train(mlp_model({16, 11}), on_cuda({.batch = 8, .precision = Precision::Bf16}), 1);
    EXPECT_GT(odd_products(), before) << "classes are not padded: the count counts";
}
#endif

/// A few steps of two micro-batches in two stages on the GPU.
ProfilerOptions profiled_on_cuda(int size, int repeats) {
    ProfilerOptions options;
    options.micro_batch_sizes = {size};
    options.micro_batches = 2;
    options.busy_workers = 2;
    options.repeats = repeats;
    options.backend = Backend::Cuda;
    return options;
}

// Events on the GPU's own clock say when each layer was done.
TEST_F(CudaExecutor, IsProfiledLayerByLayer) {
    const Model model = test::small_gpt();
    ProfilerOptions options = profiled_on_cuda(2, 3);
    options.precision = Precision::Bf16;
    const Profile profile = profile_model(model, options);
    EXPECT_EQ(profile.precision, "bf16");
    // A vocabulary of 11 is kept as one of 16: 5 columns more in the weights of the head.
    EXPECT_EQ(profile.layers.back().parameter_bytes.count,
              2 * (profile.layers.back().parameter_count + 5 * 8));
    for (int index = 0; index < model.layer_count(); ++index) {
        const LayerCost& layer = profile.layers[static_cast<std::size_t>(index)];
        EXPECT_EQ(layer.parameter_count, model.layer(index).parameter_count);
        if (index + 1 < model.layer_count()) {
            EXPECT_EQ(layer.parameter_bytes.count, 2 * layer.parameter_count);
        }
        EXPECT_GT(layer.samples[0].forward, Duration{}) << layer.name;
        EXPECT_GT(layer.samples[0].backward_weight, Duration{}) << layer.name;
    }
}

TEST_F(CudaExecutor, AProfileOfWholeBackwardsSaysHowMuchLongerTheirHalvesTake) {
    ProfilerOptions options = profiled_on_cuda(1, 1);
    options.measures_halves = true;
    const Profile whole = profile_model(test::small_gpt(), options);
    EXPECT_TRUE(whole.whole_backwards);
    ASSERT_TRUE(whole.halves_over_whole);
    EXPECT_GE(*whole.halves_over_whole, 1);
    EXPECT_LE(*whole.halves_over_whole, largest_halves_over_whole);
    options.schedule = "zb-h1";  // the costs are those of halves
    const Profile halves = profile_model(test::small_gpt(), options);
    EXPECT_FALSE(halves.whole_backwards);
    EXPECT_FALSE(halves.halves_over_whole);
}

// Timing every layer keeps a GPU waiting, so a profile takes from it only how an action's time is
// divided over the layers.
TEST_F(CudaExecutor, LayersOfAProfileTakeAsLongAsTheActionsOfAStepThatTimesNone) {
    const Model model = test::small_gpt();
    for (const char* const schedule : {"1f1b", "zb-h1"}) {
        Shape shape{.stages = 2, .micro_batches = 4, .schedule = schedule};
        shape.backend = Backend::Cuda;
        const Plan plan = test::plan_of(model, shape);
        MeasuredPipeline pipeline(plan, model, {.backend = Backend::Cuda});
        const StepSample sample = pipeline.step();
        const Timeline& timeline = pipeline.result().timeline;
        EXPECT_EQ(sample.time, step_time(timeline));
        for (int rank = 0; rank < shape.stages; ++rank) {
            Duration forward{};
            Duration backward{};
            Duration optimizer{};
            const int first = plan->partition->first_layer(rank);
            for (int layer = first; layer < first + plan->partition->layers_in(rank); ++layer) {
                const LayerClock::Laps& laps = sample.layers[static_cast<std::size_t>(layer)];
                forward += shape.micro_batches * laps.forward;
                backward += shape.micro_batches * (laps.backward_input + laps.backward_weight);
                optimizer += laps.optimizer;
            }
            for (const Span& span : timeline.ranks[static_cast<std::size_t>(rank)]) {
                const Op op = span.action.op;
                const Duration time = span.end - span.begin;
                forward -= op == Op::Forward ? time : Duration{};
                optimizer -= op == Op::Optimizer ? time : Duration{};
                backward -= is_compute(op) && op != Op::Forward ? time : Duration{};
            }
            constexpr Duration rounding{200};  // of every layer, and of its mean over micro-batches
            EXPECT_LT(std::chrono::abs(forward), rounding) << schedule << ", rank " << rank;
            EXPECT_LT(std::chrono::abs(backward), rounding) << schedule << ", rank " << rank;
            EXPECT_LT(std::chrono::abs(optimizer), rounding) << schedule << ", rank " << rank;
        }
    }
}

TEST_F(CudaExecutor, RefusesMorePartsThanTheGpuHas) {
    const Model model = test::small_gpt();
    Shape shape{.stages = 8, .micro_batches = 8, .schedule = "1f1b"};
    EXPECT_NO_THROW(train(model, on_cuda(shape), 1));
    const Model wide = mlp_model(std::vector<int>(19, 4));
    shape.stages = 17;
    try {
        train(wide, on_cuda(shape), 1);
        FAIL() << "17 stages on 16 units";
    } catch (const std::exception& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("too few for 17 ranks"));
    }
}

TEST_F(CudaExecutor, RefusesDoublePrecision) {
    const Shape shape{.precision = Precision::Fp64};
    EXPECT_THROW(train(test::small_gpt(), on_cuda(shape), 1), Error);
}

}  // namespace executor_test
}  // namespace pipetwin::exec
