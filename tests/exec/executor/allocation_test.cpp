// SPDX-License-Identifier: Apache-2.0
#include <execinfo.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>

#include <gtest/gtest.h>

#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "tests/support/small_training.h"

/// This program's malloc and its relatives, which `operator new` and the libraries use, too: they
/// count, while they are told to, the calls of all threads.
namespace {

// glibc's own, beneath the names that are taken here.
extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT
void* __libc_realloc(void* block, std::size_t bytes);             // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT
}

constexpr std::size_t most_told = 8;
constexpr int depth = 24;

std::atomic<bool> counts = false;
std::atomic<std::size_t> calls = 0;
std::array<std::array<void*, depth>, most_told> callers;
std::array<int, most_told> depths{};
thread_local bool is_inside = false;

void count() {
    if (!counts || is_inside) {
        return;
    }
    is_inside = true;
    const std::size_t number = calls++;
    if (number < most_told) {
        depths.at(number) = ::backtrace(callers.at(number).data(), depth);
    }
    is_inside = false;
}

}  // namespace

extern "C" {
void* malloc(std::size_t bytes) noexcept {
    count();
    return __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) noexcept {
    count();
    return __libc_calloc(number, bytes);
}
void* realloc(void* block, std::size_t bytes) noexcept {
    count();
    return __libc_realloc(block, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
    count();
    return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
    count();
    return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) noexcept {
    count();
    *block = __libc_memalign(alignment, bytes);
    return *block == nullptr ? ENOMEM : 0;
}
}

namespace pipetwin::exec {
namespace {

using test::Shape;

/// How often memory is asked for while it lives; says where, if that is not never.
class Counting {
  public:
    Counting() {
        void* frame = nullptr;
        ::backtrace(&frame, 1);  // which loads what it needs when it is first called
        calls = 0;
        counts = true;
    }
    Counting(const Counting&) = delete;
    Counting& operator=(const Counting&) = delete;
    ~Counting() { counts = false; }

    static std::size_t end() {
        counts = false;
        for (std::size_t i = 0; i < std::min(calls.load(), most_told); ++i) {
            ::backtrace_symbols_fd(callers.at(i).data(), depths.at(i), 2);
        }
        return calls;
    }
};

TEST(Counting, SeesWhatIsAllocated) {
    const Counting counting;
    const auto number = std::make_unique<int>(1);
    EXPECT_EQ(calls, 1U) << *number;
}

std::vector<Shape> shapes() {
    std::vector<Shape> shapes{
        {.stages = 1, .schedule = "gpipe"},
        {.stages = 2, .schedule = "gpipe", .recompute = Recompute::Always},
        {.stages = 2, .schedule = "gpipe", .channel_capacity = 0},
        {.stages = 3, .schedule = "1f1b", .recompute = Recompute::ExceptLast},
        {.stages = 2, .schedule = "1f1b", .channel_capacity = 1},
        {.stages = 2, .chunks = 2, .schedule = "interleaved-1f1b"},
        {.stages = 2, .schedule = "zb-h1"},
        {.stages = 2, .chunks = 2, .schedule = "zb-v"},
        {.stages = 2, .micro_batches = 2, .schedule = "chimera"},
        {.stages = 2, .schedule = "1f1b", .precision = Precision::Fp64},
        {.stages = 2, .schedule = "1f1b", .optimizer = OptimizerKind::Momentum},
        {.stages = 2, .schedule = "1f1b", .clip_norm = 0.05}};
    for (const Backend backend : test::every_host_backend()) {
        shapes.push_back({.stages = 2, .schedule = "1f1b", .backend = backend});
    }
    return shapes;
}

Model two_branches() {
    return Model::graph(
        {.positions = 1, .width = 6},
        {{.name = "stem", .type = LayerType::Linear, .outputs = 7},
         {.name = "left", .type = LayerType::Gelu},
         {.name = "right", .type = LayerType::Linear, .outputs = 7, .inputs = {"stem"}},
         {.name = "sum", .type = LayerType::Add, .inputs = {"left", "right", "stem"}},
         {.name = "both", .type = LayerType::Concat, .inputs = {"sum", "stem"}},
         {.name = "classes", .type = LayerType::Linear, .outputs = 4},
         {.name = "loss", .type = LayerType::CrossEntropy}});
}

class TrainingStep : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, TrainingStep, ::testing::ValuesIn(shapes()));

TEST_P(TrainingStep, AllocatesNothingOnceItHasWhatItNeeds) {
    std::vector<Model> models{
        test::small_gpt(), test::small_mlp(), two_branches(), test::small_cells()};
    models.push_back(llama_model({.layers = 1,
                                  .d_model = 8,
                                  .heads = 2,
                                  .context = 6,
                                  .vocabulary = 12,
                                  .routing = {.experts = 4,
                                              .per_row = 2,
                                              .scores = RouterScores::Sigmoid,
                                              .groups = 2,
                                              .auxiliary_loss = 0.1,
                                              .bias_update = 0.01},
                                  .expert_feed_forward = 6}));
    if (GetParam().schedule != "chimera") {
        models.push_back(test::small_gpt_with(0.25, true));
    }
    for (const Model& model : models) {
        const Shape& shape = GetParam();
        const test::LayerTimes times{.forward = std::chrono::microseconds(20),
                                     .backward = std::chrono::microseconds(40)};
        Executor executor(test::plan_of(model, shape, times), model, test::options_of(shape));
        const Batch batch = random_batch(model, shape.batch, 1);
        StepResult result;
        for (int step = 0; step < 2; ++step) {
            executor.run_step(batch, step, result);
        }
        for (int step = 2; step < 6; ++step) {
            const Counting counting;
            executor.run_step(batch, step, result);
            ASSERT_EQ(Counting::end(), 0U) << "in step " << step;
        }
    }
}

}  // namespace
}  // namespace pipetwin::exec
