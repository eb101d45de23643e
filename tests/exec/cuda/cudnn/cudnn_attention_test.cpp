// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/cudnn_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <cuda_bf16.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/cuda/cudnn/cudnn_graph.h"
#include "exec/cuda/runtime/check.h"
#include "exec/cuda/runtime/owned.h"
#include "tests/exec/cuda/cudnn/fake_cudnn.h"
#include "tests/support/cuda_emulation/emulation.h"

/// Which attention is taken, and what cuDNN is told, against a cuDNN that only remembers.
namespace pipetwin::cuda {
namespace cudnn_attention_test {

using test::fake_cudnn_functions;
using test::FakeCudnn;
using test::new_fake_cudnn;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr AttentionShape shape{2, 256, 3, 3, 64};
/// With keys of another sequence.
constexpr AttentionShape padded{2, 256, 3, 3, 64, 200};
constexpr std::array directions{AttentionDirection::Forward, AttentionDirection::Backward};
constexpr int forever = std::numeric_limits<int>::max();

CudnnAttention attention_on_fake(int compute_capability = 90, std::size_t most_workspace = 0) {
    return {{.functions = &fake_cudnn_functions(), .why_not = {}},
            {.compute_capability = compute_capability, .most_workspace = most_workspace}};
}

std::string described(AttentionDirection direction,
                      const AttentionShape& wanted = shape,
                      int compute_capability = 90) {
    CudnnAttention attention = attention_on_fake(compute_capability);
    return attention.describe(wanted, direction);
}

struct Operands {
    std::vector<std::uint16_t> qkv = std::vector<std::uint16_t>(8);
    std::vector<std::uint16_t> context = qkv;
    std::vector<std::uint16_t> dcontext = qkv;
    std::vector<std::uint16_t> dqkv = qkv;
    std::vector<float> log_sums = std::vector<float>(8);
    std::vector<float> row_dots = log_sums;
    std::vector<float> workspace = log_sums;
    std::vector<std::int32_t> lengths = std::vector<std::int32_t>(8);

    AttentionInputs inputs(const AttentionShape& of) {
        AttentionInputs made = inputs_in_one(Real::BF16, of, qkv.data());
        made.lengths = of.is_causal() ? nullptr : lengths.data();
        return made;
    }
    CudnnAttention::Forward forward(const AttentionShape& of = shape) {
        return {.inputs = inputs(of),
                .context = context.data(),
                .log_sums = log_sums.data(),
                .workspace = workspace.data()};
    }
    CudnnAttention::Backward backward(const AttentionShape& of = shape) {
        return {.inputs = inputs(of),
                .context = context.data(),
                .log_sums = log_sums.data(),
                .dcontext = dcontext.data(),
                .gradients = gradients_in_one(Real::BF16, of, dqkv.data()),
                .row_dots = row_dots.data(),
                .workspace = workspace.data()};
    }
};

/// -1: it has no plan.
int number_of(CudnnAttention& attention,
              AttentionDirection direction,
              const AttentionShape& wanted = shape) {
    const auto plan = attention.plan(wanted, direction);
    return plan ? plan->number : -1;
}

void run(CudnnAttention& attention,
         AttentionDirection direction,
         Operands& with,
         const AttentionShape& of = shape) {
    const int number = number_of(attention, direction, of);
    ASSERT_GE(number, 0) << attention.describe(of, direction);
    if (direction == AttentionDirection::Forward) {
        attention.forward(number, with.forward(of), nullptr);
    } else {
        attention.backward(number, with.backward(of), nullptr);
    }
}

const void* given(const FakeCudnn& cudnn, AttentionTensor name) {
    return cudnn.pack.at(static_cast<std::int64_t>(name));
}

/// The norm of the difference over that of what is expected.
double relative_error(const std::vector<float>& found, const std::vector<float>& expected) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double x = expected[i];
        difference += (double{found.at(i)} - x) * (double{found.at(i)} - x);
        norm += x * x;
    }
    return std::sqrt(difference / norm);
}

TEST(CudnnAttention, IsTakenWhereItHasAPlan) {
    new_fake_cudnn();
    EXPECT_EQ(described(AttentionDirection::Forward), "cuDNN 9.19.0");
    EXPECT_EQ(described(AttentionDirection::Backward), "cuDNN 9.19.0");
}

TEST(CudnnAttention, TellsThePlansWorkspace) {
    new_fake_cudnn().workspace_bytes = 4711;
    CudnnAttention attention = attention_on_fake();
    const auto plan = attention.plan(shape, AttentionDirection::Forward);
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->workspace_bytes, 4711U);
}

TEST(CudnnAttention, GivesEveryTensorOfTheGraphThatLiesInMemory) {
    for (const auto& [of, direction] : {std::pair(shape, AttentionDirection::Forward),
                                        std::pair(shape, AttentionDirection::Backward),
                                        std::pair(padded, AttentionDirection::Forward),
                                        std::pair(padded, AttentionDirection::Backward)}) {
        const FakeCudnn& cudnn = new_fake_cudnn();
        CudnnAttention attention = attention_on_fake();
        Operands operands;
        ASSERT_NO_FATAL_FAILURE(run(attention, direction, operands, of));
        std::set<std::int64_t> names;
        for (const auto& [name, pointer] : cudnn.pack) {
            names.insert(name);
            EXPECT_NE(pointer, nullptr) << name;
        }
        EXPECT_EQ(names, cudnn.kept);
        EXPECT_EQ(cudnn.workspace, operands.workspace.data());
    }
}

/// Four queries share a key.
constexpr AttentionShape grouped{2, 256, 8, 2, 64};

void expect_parts_side_by_side(const AttentionShape& wanted) {
    const FakeCudnn& cudnn = new_fake_cudnn();
    CudnnAttention attention = attention_on_fake();
    Operands operands;
    const int number = number_of(attention, AttentionDirection::Backward, wanted);
    attention.backward(number, operands.backward(wanted), nullptr);
    const auto at = [&](const std::vector<std::uint16_t>& data, int part) -> const void* {
        const std::int64_t behind = part == 0   ? 0
                                    : part == 1 ? wanted.query_width()
                                                : wanted.query_width() + wanted.key_width();
        return data.data() + behind;
    };
    using enum AttentionTensor;
    EXPECT_EQ(given(cudnn, Q), at(operands.qkv, 0));
    EXPECT_EQ(given(cudnn, K), at(operands.qkv, 1));
    EXPECT_EQ(given(cudnn, V), at(operands.qkv, 2));
    EXPECT_EQ(given(cudnn, DQ), at(operands.dqkv, 0));
    EXPECT_EQ(given(cudnn, DK), at(operands.dqkv, 1));
    EXPECT_EQ(given(cudnn, DV), at(operands.dqkv, 2));
    EXPECT_EQ(given(cudnn, Context), operands.context.data());
    EXPECT_EQ(given(cudnn, DContext), operands.dcontext.data());
    EXPECT_EQ(given(cudnn, LogSums), operands.log_sums.data());
    EXPECT_EQ(given(cudnn, RowDots), operands.row_dots.data());
}

TEST(CudnnAttention, FindsQueriesKeysAndValuesSideBySide) {
    expect_parts_side_by_side(shape);
    expect_parts_side_by_side(grouped);
}

TEST(CudnnAttention, AsksOnceForEachShapeAndDirection) {
    const FakeCudnn& cudnn = new_fake_cudnn();
    CudnnAttention attention = attention_on_fake();
    const int forward = number_of(attention, AttentionDirection::Forward);
    const int backward = number_of(attention, AttentionDirection::Backward);
    const int calls = cudnn.calls;
    EXPECT_EQ(number_of(attention, AttentionDirection::Forward), forward);
    EXPECT_EQ(number_of(attention, AttentionDirection::Backward), backward);
    EXPECT_NE(forward, backward);
    EXPECT_EQ(cudnn.calls, calls);
    AttentionShape other = shape;
    other.samples = 5;
    EXPECT_NE(number_of(attention, AttentionDirection::Forward, other), forward);
    EXPECT_GT(cudnn.calls, calls);
    AttentionShape shared = shape;
    shared.key_value_heads = 1;
    EXPECT_NE(number_of(attention, AttentionDirection::Forward, shared), forward);
}

/// Calls that can fail until there is a plan.
int calls_for_a_plan(AttentionDirection direction) {
    const FakeCudnn& cudnn = new_fake_cudnn();
    described(direction);
    return cudnn.calls;
}

TEST(CudnnAttention, LeavesItToOurKernelsWhicheverCallItFailsFrom) {
    for (const AttentionDirection direction : directions) {
        const int calls = calls_for_a_plan(direction);
        ASSERT_GT(calls, 100);
        for (int call = 0; call < calls; ++call) {
            FakeCudnn& cudnn = new_fake_cudnn();
            cudnn.first_failure = call;
            cudnn.failures = forever;
            EXPECT_THAT(described(direction), StartsWith("own kernels: ")) << call;
            EXPECT_EQ(cudnn.live_descriptors, 0) << call;
            EXPECT_EQ(cudnn.live_handles, 0) << call;
        }
    }
}

TEST(CudnnAttention, LeaksNothingWhicheverCallFailsOnce) {
    for (const AttentionDirection direction : directions) {
        const int calls = calls_for_a_plan(direction);
        for (int call = 0; call < calls; ++call) {
            FakeCudnn& cudnn = new_fake_cudnn();
            cudnn.first_failure = call;
            described(direction);
            EXPECT_EQ(cudnn.live_descriptors, 0) << call;
            EXPECT_EQ(cudnn.live_handles, 0) << call;
        }
    }
}

TEST(CudnnAttention, SaysWhichCallFailedAndWhy) {
    FakeCudnn& cudnn = new_fake_cudnn();
    cudnn.first_failure = 0;
    EXPECT_EQ(described(AttentionDirection::Forward),
              "own kernels: cudnnCreate: CUDNN_STATUS_FAKED: as a test wanted (3000)");
}

TEST(CudnnAttention, PassesOverEnginesWhoseBitsDoNotRepeat) {
    FakeCudnn& cudnn = new_fake_cudnn();
    cudnn.engines = {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}};
    EXPECT_THAT(described(AttentionDirection::Backward), HasSubstr("differ from run to run"));
    cudnn.engines.push_back({CUDNN_NUMERICAL_NOTE_TENSOR_CORE});
    EXPECT_EQ(described(AttentionDirection::Backward), "cuDNN 9.19.0");
}

TEST(CudnnAttention, TakesNoPlanWhoseWorkspaceMightNotBeThere) {
    new_fake_cudnn().workspace_bytes = std::int64_t{1} << 40;
    EXPECT_THAT(described(AttentionDirection::Backward),
                HasSubstr("a workspace of 1099511627776 bytes"));
}

TEST(CudnnAttention, IsNotAskedWithoutALibrary) {
    CudnnAttention attention({.functions = nullptr, .why_not = "no such file"},
                             {.compute_capability = 90});
    EXPECT_EQ(attention.plan(shape, AttentionDirection::Forward), std::nullopt);
    EXPECT_EQ(attention.describe(shape, AttentionDirection::Forward), "own kernels: no such file");
}

TEST(CudnnAttention, IsNotAskedWhereItIsNotWanted) {
    const FakeCudnn& cudnn = new_fake_cudnn();
    CudnnAttention attention({.functions = &fake_cudnn_functions(), .why_not = {}},
                             {.compute_capability = 90, .wanted = false});
    EXPECT_THAT(attention.describe(shape, AttentionDirection::Forward), StartsWith("own kernels"));
    EXPECT_EQ(cudnn.calls, 0);
}

TEST(CudnnAttention, IsNotAskedWhereItsResultsAreKnownToBeWrong) {
    FakeCudnn& cudnn = new_fake_cudnn();
    cudnn.version = 91001;
    EXPECT_THAT(described(AttentionDirection::Forward), HasSubstr("older than 9.10.2"));
    cudnn.version = 91002;
    EXPECT_EQ(described(AttentionDirection::Forward), "cuDNN 9.10.2");

    AttentionShape odd = shape;
    odd.positions = 300;
    cudnn.version = 91500;
    EXPECT_EQ(described(AttentionDirection::Forward, odd), "cuDNN 9.15.0");
    EXPECT_EQ(described(AttentionDirection::Backward), "cuDNN 9.15.0");
    EXPECT_THAT(described(AttentionDirection::Backward, odd), HasSubstr("no multiple of 128"));
    cudnn.version = 91600;
    EXPECT_EQ(described(AttentionDirection::Backward, odd), "cuDNN 9.16.0");
}

TEST(CudnnAttention, DoesNotGoBackOnBlackwellWhereItsBitsNeedNotRepeat) {
    new_fake_cudnn();
    EXPECT_EQ(described(AttentionDirection::Forward, shape, 100), "cuDNN 9.19.0");
    EXPECT_THAT(described(AttentionDirection::Backward, shape, 100), StartsWith("own kernels: "));
}

TEST(CudnnAttention, IsNotAskedForHeadsThatItDoesNotTake) {
    const FakeCudnn& cudnn = new_fake_cudnn();
    for (const AttentionShape& refused : {AttentionShape{2, 256, 3, 3, 12},
                                          AttentionShape{0, 256, 3, 3, 64},
                                          AttentionShape{2, 1, 3, 3, 64},
                                          AttentionShape{2, 256, 5, 2, 64}}) {
        EXPECT_THAT(described(AttentionDirection::Forward, refused), StartsWith("own kernels: "));
    }
    EXPECT_EQ(cudnn.calls, 0);
}

TEST(CudnnAttention, ThrowsWhereAPlanCannotBeExecuted) {
    FakeCudnn& cudnn = new_fake_cudnn();
    CudnnAttention attention = attention_on_fake();
    Operands operands;
    ASSERT_NO_FATAL_FAILURE(run(attention, AttentionDirection::Forward, operands));
    const int descriptors = cudnn.live_descriptors;
    cudnn.first_failure = cudnn.calls;
    cudnn.failures = forever;
    EXPECT_THROW(run(attention, AttentionDirection::Forward, operands), CudaFailure);
    EXPECT_EQ(cudnn.live_descriptors, descriptors);
}

TEST(CudnnAttention, GivesAPlanUpThatCannotBeExecuted) {
    for (const AttentionDirection direction : directions) {
        FakeCudnn& cudnn = new_fake_cudnn();
        CudnnAttention attention = attention_on_fake();
        Operands operands;
        const Stream stream = make_stream();
        const auto passes = [&](int number) {
            return direction == AttentionDirection::Forward
                       ? attention.passes(number, operands.forward(), stream.get())
                       : attention.passes(number, operands.backward(), stream.get());
        };
        EXPECT_FALSE(attention.plan(shape, direction)->was_tried);
        EXPECT_TRUE(passes(number_of(attention, direction)));
        EXPECT_TRUE(attention.plan(shape, direction)->was_tried);
        cudnn.refuses = true;
        EXPECT_FALSE(passes(number_of(attention, direction, padded)));
        EXPECT_EQ(attention.plan(padded, direction), std::nullopt);
        EXPECT_THAT(attention.describe(padded, direction),
                    StartsWith("own kernels: cudnnBackendExecute: CUDNN_STATUS_FAKED"));
    }
}

TEST(CudnnAttention, MovesToAnotherStreamOnlyWhereItIsAnother) {
    const FakeCudnn& cudnn = new_fake_cudnn();
    CudnnAttention attention = attention_on_fake();
    const int number = number_of(attention, AttentionDirection::Forward);
    Operands with;
    const auto stream = reinterpret_cast<cudaStream_t>(&with);
    const auto calls_of_a_run = [&] {
        const int before = cudnn.calls;
        attention.forward(number, with.forward(), stream);
        EXPECT_EQ(cudnn.stream, stream);
        return cudnn.calls - before;
    };
    const int first = calls_of_a_run();
    EXPECT_EQ(calls_of_a_run(), first - 1);
}

/// A fake that computes in the order of the emulated stream, which may touch device memory.
FakeCudnn& new_computing_cudnn() {
    FakeCudnn& cudnn = new_fake_cudnn();
    cudnn.computes = true;
    cudnn.workspace_bytes = 0;
    cudnn.submit = [](cudaStream_t stream, std::function<void()> work) {
        return emulation::submit(stream, std::move(work));
    };
    return cudnn;
}

/// What the graphs say must be attention: computed operation by operation, against our own kernels,
/// which other tests hold to the formulas.
void expect_what_our_kernels_compute(const AttentionShape& small,
                                     std::size_t most_workspace = 0,
                                     int executions = 2) {
    const auto tokens = static_cast<std::size_t>(small.samples * small.positions);
    const std::size_t elements = tokens * static_cast<std::size_t>(small.query_width());
    const std::size_t of_qkv = tokens * static_cast<std::size_t>(small.qkv_width());
    const std::size_t rows = tokens * static_cast<std::size_t>(small.heads);
    using Matrix = std::vector<__nv_bfloat16>;
    std::mt19937 random(1);
    const auto random_matrix = [&](std::size_t size) {
        std::uniform_real_distribution<float> number(-2, 2);
        Matrix matrix(size);
        std::ranges::generate(matrix, [&] { return __float2bfloat16(number(random)); });
        return matrix;
    };
    const Matrix qkv = random_matrix(of_qkv);
    const Matrix dcontext = random_matrix(elements);
    Matrix context(elements);
    Matrix dqkv(of_qkv);
    std::vector<float> log_sums(rows);
    std::vector<float> row_dots(rows);
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(small.samples), 1);
    lengths.front() = small.key_positions() - 2;
    AttentionInputs inputs = inputs_in_one(Real::BF16, small, qkv.data());
    inputs.lengths = small.is_causal() ? nullptr : lengths.data();
    ASSERT_EQ(
        attention_forward(Real::BF16, small, inputs, context.data(), log_sums.data(), nullptr),
        cudaSuccess);
    ASSERT_EQ(attention_backward(Real::BF16,
                                 small,
                                 inputs,
                                 context.data(),
                                 log_sums.data(),
                                 dcontext.data(),
                                 gradients_in_one(Real::BF16, small, dqkv.data()),
                                 row_dots.data(),
                                 nullptr),
              cudaSuccess);

    const FakeCudnn& cudnn = new_computing_cudnn();
    CudnnAttention attention = attention_on_fake(90, most_workspace);
    Matrix its_context(elements);
    Matrix its_dqkv(of_qkv);
    const AttentionGradients its_gradients = gradients_in_one(Real::BF16, small, its_dqkv.data());
    std::vector<float> its_log_sums(rows);
    std::vector<float> its_row_dots(rows);
    attention.forward(number_of(attention, AttentionDirection::Forward, small),
                      {.inputs = inputs,
                       .context = its_context.data(),
                       .log_sums = its_log_sums.data(),
                       .workspace = nullptr},
                      nullptr);
    attention.backward(number_of(attention, AttentionDirection::Backward, small),
                       {.inputs = inputs,
                        .context = its_context.data(),
                        .log_sums = its_log_sums.data(),
                        .dcontext = dcontext.data(),
                        .gradients = its_gradients,
                        .row_dots = its_row_dots.data(),
                        .workspace = nullptr},
                       nullptr);

    if (!small.is_causal()) {
        ASSERT_EQ(clear_padding(Real::BF16, small, lengths.data(), its_gradients, nullptr),
                  cudaSuccess);
    }
    const auto floats = [](const Matrix& from) {
        std::vector<float> result;
        std::ranges::transform(from, std::back_inserter(result), __bfloat162float);
        return result;
    };
    // Each of context, P and dS, and what each head gives to dK and dV, is rounded to bf16 by one
    // of the two: 2^-9 each.
    EXPECT_LT(relative_error(floats(its_context), floats(context)), 1e-2);
    EXPECT_LT(relative_error(floats(its_dqkv), floats(dqkv)), 1e-2);
    EXPECT_LT(relative_error(its_log_sums, log_sums), 1e-5);
    EXPECT_EQ(cudnn.executions, executions);
}

TEST(CudnnAttention, ComputesWhatOurKernelsCompute) {
    expect_what_our_kernels_compute({2, 19, 3, 3, 16});
}

TEST(CudnnAttention, ComputesWhatOurKernelsComputeOfGroups) {
    expect_what_our_kernels_compute({2, 19, 4, 2, 16});
    expect_what_our_kernels_compute({1, 33, 4, 1, 24});
}

// The fake leaves NaN where products have lengths and a result lies outside, as cuDNN may.
TEST(CudnnAttention, ComputesWhatOurKernelsComputeOfPaddedKeys) {
    expect_what_our_kernels_compute({2, 19, 3, 3, 16, 19});
    expect_what_our_kernels_compute({3, 12, 4, 2, 16, 12});
}

/// The workspace of a backward has 2 bytes for each pair of positions, which are 128 at least, and
/// for what each of two heads gives to dK and dV: 2 x (2 x 128 x 128 + 4 x 128 x 16) = 81,920 bytes
/// for a group of heads, of which a sample has two.
TEST(CudnnAttention, ComputesSamplesAndHeadsByPartsWhereAWorkspaceWouldBeTooLarge) {
    for (const AttentionShape& four : {AttentionShape{4, 19, 4, 2, 16}, {4, 19, 4, 2, 16, 19}}) {
        for (const auto& [limit, runs] :
             {std::pair(1'000'000, 1), {400'000, 2}, {200'000, 4}, {100'000, 8}, {10'000, 8}}) {
            SCOPED_TRACE(limit);
            const int forwards = 1;  // they have no such workspace
            expect_what_our_kernels_compute(four, static_cast<std::size_t>(limit), forwards + runs);
        }
    }
}

TEST(CudnnAttention, TakesKeysOfAnotherSequence) {
    new_computing_cudnn();
    CudnnAttention attention = attention_on_fake();
    const AttentionShape small{2, 5, 2, 2, 8, 9};
    const AttentionInputs inputs{.q_stride = 16, .k_stride = 40};
    const auto problem = AttentionProblem::with_gradients_apart(small, inputs);
    EXPECT_EQ(problem.dq_stride, 16);
    EXPECT_EQ(problem.dk_stride, 32);
    // Q is 0, so all keys weigh the same, and the context is the mean of the values.
    std::vector<__nv_bfloat16> q(2 * 5 * 16);
    std::vector<__nv_bfloat16> kv(2 * 9 * 40);
    for (std::size_t row = 0; row < 18; ++row) {
        for (std::size_t column = 16; column < 32; ++column) {
            kv[row * 40 + column] = __float2bfloat16(static_cast<float>(row % 9));
        }
    }
    const std::vector<std::int32_t> lengths{3, 9};
    std::vector<__nv_bfloat16> context(q.size());
    std::vector<float> log_sums(20);
    const auto plan = attention.plan(problem, AttentionDirection::Forward);
    ASSERT_TRUE(plan.has_value());
    attention.forward(plan->number,
                      {.inputs = {q.data(), kv.data(), 16, 40, lengths.data()},
                       .context = context.data(),
                       .log_sums = log_sums.data(),
                       .workspace = nullptr},
                      nullptr);
    for (std::size_t i = 0; i < context.size(); ++i) {
        EXPECT_EQ(__bfloat162float(context[i]), i < context.size() / 2 ? 1 : 4) << i;
    }
}

TEST(CudnnAttention, AsksAgainForOtherStrides) {
    new_fake_cudnn();
    CudnnAttention attention = attention_on_fake();
    const int in_one = number_of(attention, AttentionDirection::Backward, padded);
    const AttentionInputs inputs{.q_stride = 192, .k_stride = 384};
    const auto apart = attention.plan(AttentionProblem::with_gradients_apart(padded, inputs),
                                      AttentionDirection::Backward);
    ASSERT_TRUE(apart.has_value());
    EXPECT_NE(apart->number, in_one);
}

TEST(CudnnAttention, GoesBackOverAnyNumberOfPaddedKeys) {
    new_fake_cudnn().version = 91500;
    AttentionShape odd = padded;
    odd.positions = 300;
    EXPECT_EQ(described(AttentionDirection::Backward, odd), "cuDNN 9.15.0");
}

}  // namespace cudnn_attention_test
}  // namespace pipetwin::cuda
