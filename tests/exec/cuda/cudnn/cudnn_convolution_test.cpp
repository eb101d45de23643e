// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/cudnn_convolution.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <cuda_bf16.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/cuda/cudnn/cudnn_convolution_graph.h"
#include "exec/cuda/runtime/check.h"
#include "tests/exec/cuda/cudnn/fake_cudnn.h"

/// Which convolutions go to cuDNN, and with which descriptors. The library is a fake that records
/// its calls, or computes the convolution that they describe.
namespace pipetwin::cuda {
namespace cudnn_convolution_test {

using test::fake_cudnn_functions;
using test::FakeCudnn;
using test::new_fake_cudnn;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using enum ConvolutionDirection;
constexpr std::array directions{Forward, BackwardInput, BackwardWeight};
constexpr int forever = std::numeric_limits<int>::max();

/// 5 x 7 pixels of 4 channels to 3 x 4 of 6: 3x3, stride 2, a pixel of zeros around.
constexpr Window strided{.samples = 2,
                         .in_height = 5,
                         .in_width = 7,
                         .out_height = 3,
                         .out_width = 4,
                         .channels = 4,
                         .outputs = 6,
                         .kernel_height = 3,
                         .kernel_width = 3,
                         .stride_height = 2,
                         .stride_width = 2,
                         .top = 1,
                         .left = 1};

CudnnConvolutions on_fake(bool wanted = true) {
    return {{.functions = &fake_cudnn_functions(), .why_not = {}}, wanted};
}

std::string described(const CudnnConvolution& convolution) {
    CudnnConvolutions convolutions = on_fake();
    return convolutions.describe(convolution);
}

TEST(CudnnConvolutions, AreTakenWhereThereIsAPlan) {
    new_fake_cudnn().workspace_bytes = 4711;
    CudnnConvolutions convolutions = on_fake();
    for (const ConvolutionDirection direction : directions) {
        for (const Real real : {Real::F32, Real::BF16}) {
            const CudnnConvolution one{.real = real, .window = strided, .direction = direction};
            EXPECT_EQ(convolutions.describe(one), "cuDNN 9.19.0");
            ASSERT_TRUE(convolutions.plan(one).has_value());
            EXPECT_EQ(convolutions.plan(one)->workspace_bytes, 4711U);
        }
    }
    EXPECT_EQ(convolutions.summary(), "6 of 6 run on cuDNN 9.19.0");
}

TEST(CudnnConvolutions, AreAskedForOnceEach) {
    const FakeCudnn& cudnn = new_fake_cudnn();
    CudnnConvolutions convolutions = on_fake();
    std::set<int> numbers;
    const auto ask_for_all = [&] {
        for (const ConvolutionDirection direction : directions) {
            for (const bool adds : {false, true}) {
                for (const int samples : {1, 2}) {
                    Window window = strided;
                    window.samples = samples;
                    numbers.insert(convolutions
                                       .plan({.real = Real::BF16,
                                              .window = window,
                                              .direction = direction,
                                              .adds = adds})
                                       ->number);
                }
            }
        }
    };
    ask_for_all();
    EXPECT_EQ(numbers.size(), 12U);
    const int calls = cudnn.calls;
    ask_for_all();
    EXPECT_EQ(numbers.size(), 12U);
    EXPECT_EQ(cudnn.calls, calls);
}

TEST(CudnnConvolutions, AreLeftToOurKernelsWhicheverCallFailsFrom) {
    for (const ConvolutionDirection direction : directions) {
        const CudnnConvolution one{.window = strided, .direction = direction};
        const FakeCudnn& untroubled = new_fake_cudnn();
        described(one);
        const int calls = untroubled.calls;
        ASSERT_GT(calls, 30);
        for (int call = 0; call < calls; ++call) {
            for (const int failures : {1, forever}) {
                FakeCudnn& cudnn = new_fake_cudnn();
                cudnn.first_failure = call;
                cudnn.failures = failures;
                const std::string answer = described(one);
                if (failures == forever) {
                    EXPECT_THAT(answer, StartsWith("own kernels: ")) << call;
                }
                EXPECT_EQ(cudnn.live_descriptors, 0) << call;
                EXPECT_EQ(cudnn.live_handles, 0) << call;
            }
        }
    }
}

TEST(CudnnConvolutions, PassOverEnginesWhoseBitsDoNotRepeat) {
    FakeCudnn& cudnn = new_fake_cudnn();
    cudnn.engines = {{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}};
    const CudnnConvolution one{.real = Real::BF16, .window = strided, .direction = BackwardWeight};
    EXPECT_THAT(described(one), HasSubstr("differ from run to run"));
    cudnn.engines.push_back({CUDNN_NUMERICAL_NOTE_TENSOR_CORE});
    EXPECT_EQ(described(one), "cuDNN 9.19.0");
}

/// What rounds fp32 to TF32 has 1e-3 of error; cuBLAS's products have none of that, too.
TEST(CudnnConvolutions, PassOverEnginesThatRoundMoreThanTheirType) {
    FakeCudnn& cudnn = new_fake_cudnn();
    const auto is_taken = [&](Real real, std::vector<cudnnBackendNumericalNote_t> notes) {
        cudnn.engines = {std::move(notes)};
        return described({.real = real, .window = strided}) == "cuDNN 9.19.0";
    };
    EXPECT_TRUE(is_taken(Real::BF16, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}));
    EXPECT_FALSE(is_taken(Real::F32, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}));
    EXPECT_FALSE(is_taken(Real::F32, {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}));
    EXPECT_TRUE(is_taken(Real::F32, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}));
    for (const Real real : {Real::F32, Real::BF16}) {
        EXPECT_FALSE(is_taken(real, {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}));
        EXPECT_FALSE(is_taken(real, {CUDNN_NUMERICAL_NOTE_FFT}));
        EXPECT_FALSE(is_taken(real, {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6}));
    }
}

TEST(CudnnConvolutions, AreLeftToOurKernelsWhereTheWorkspaceIsLarge) {
    new_fake_cudnn().workspace_bytes = CudnnConvolutions::most_workspace_bytes + 1;
    EXPECT_THAT(described({.window = strided}), HasSubstr("a workspace of 268435457 bytes"));
    new_fake_cudnn().workspace_bytes = CudnnConvolutions::most_workspace_bytes;
    EXPECT_EQ(described({.window = strided}), "cuDNN 9.19.0");
}

TEST(CudnnConvolutions, AreNotAskedForWithoutALibraryOrWhereTheyAreNotWanted) {
    const FakeCudnn& cudnn = new_fake_cudnn();
    CudnnConvolutions without({.functions = nullptr, .why_not = "no such file"}, true);
    EXPECT_EQ(without.plan({.window = strided}), std::nullopt);
    EXPECT_EQ(without.summary(), "own kernels: no such file");
    CudnnConvolutions unwanted = on_fake(false);
    EXPECT_THAT(unwanted.describe({.window = strided}), StartsWith("own kernels"));
    EXPECT_EQ(cudnn.calls, 0);
}

TEST(CudnnConvolutions, AreLeftToOurKernelsWhereAnEdgeIsCutOff) {
    const FakeCudnn& cudnn = new_fake_cudnn();
    Window moved = strided;  // as in the second half of a factorized reduction
    moved.kernel_height = moved.kernel_width = 1;
    moved.top = moved.left = -1;
    moved.out_height = 3;
    moved.out_width = 3;
    EXPECT_THAT(described({.window = moved}), HasSubstr("cuts no edges off"));
    Window shortened = strided;  // without its last two rows: one window fits, and not two
    shortened.top = 0;
    shortened.out_height = 1;
    EXPECT_THAT(described({.window = shortened}), HasSubstr("cuts no edges off"));
    EXPECT_EQ(cudnn.calls, 0);
}

TEST(CudnnConvolutions, HaveAsManyZerosBehindAsBeforeWhereThatGivesTheResultsSize) {
    const auto margins = margins_of(strided);
    ASSERT_TRUE(margins.has_value());
    EXPECT_EQ(margins->before, (std::array<std::int64_t, 2>{1, 1}));
    EXPECT_EQ(margins->after, (std::array<std::int64_t, 2>{1, 1}));
    // TensorFlow's "same" of 6 x 6 pixels: 3 high with stride 2, and 4 wide with stride 1.
    Window uneven = strided;
    uneven.in_height = 6;
    uneven.in_width = 6;
    uneven.out_height = 3;
    uneven.out_width = 6;
    uneven.top = 0;
    uneven.left = 1;
    uneven.kernel_width = 4;
    uneven.stride_width = 1;
    const auto found = margins_of(uneven);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->before, (std::array<std::int64_t, 2>{0, 1}));
    EXPECT_EQ(found->after, (std::array<std::int64_t, 2>{1, 2}));
}

// --- What the graphs compute ---

struct Case {
    const char* name;
    Window window;
};

std::vector<Case> cases() {
    std::vector<Case> all{{"strided", strided}};
    Window w;
    w = {.samples = 3,
         .in_height = 4,
         .in_width = 6,
         .out_height = 4,
         .out_width = 6,
         .channels = 3,
         .outputs = 5,
         .kernel_height = 1,
         .kernel_width = 5,
         .left = 2};
    all.push_back({"1x5", w});
    w = {.samples = 1,
         .in_height = 8,
         .in_width = 8,
         .out_height = 4,
         .out_width = 4,
         .channels = 4,
         .outputs = 8,
         .kernel_height = 3,
         .kernel_width = 3,
         .dilation_height = 2,
         .dilation_width = 2};
    all.push_back({"dilated", w});
    w = {.samples = 2,
         .in_height = 6,
         .in_width = 5,
         .out_height = 6,
         .out_width = 5,
         .channels = 6,
         .outputs = 12,
         .kernel_height = 3,
         .kernel_width = 3,
         .top = 1,
         .left = 1,
         .groups = 3};
    all.push_back({"in groups", w});
    w.groups = 6;
    w.outputs = 6;
    all.push_back({"depthwise", w});
    w = {.samples = 2,
         .in_height = 6,
         .in_width = 6,
         .out_height = 3,
         .out_width = 3,
         .channels = 5,
         .outputs = 7,
         .kernel_height = 3,
         .kernel_width = 3,
         .stride_height = 2,
         .stride_width = 2};
    all.push_back({"zeros behind the image only", w});
    return all;
}

/// Elements of a type, with NaN in each byte where nothing was written.
template <class T>
class Numbers {
  public:
    explicit Numbers(std::int64_t size) : values_(static_cast<std::size_t>(size)) {
        std::memset(values_.data(), 0xff, values_.size() * sizeof(T));
    }
    static Numbers random(std::int64_t size, unsigned seed) {
        Numbers made(size);
        std::mt19937 engine(seed);
        std::uniform_real_distribution<float> number(-1, 1);
        for (T& value : made.values_) {
            value = of(number(engine));
        }
        return made;
    }

    T* data() { return values_.data(); }
    std::vector<float> floats() const {
        std::vector<float> all;
        for (const T& value : values_) {
            if constexpr (std::is_same_v<T, float>) {
                all.push_back(value);
            } else {
                all.push_back(__bfloat162float(value));
            }
        }
        return all;
    }

  private:
    static T of(float value) {
        if constexpr (std::is_same_v<T, float>) {
            return value;
        } else {
            return __float2bfloat16(value);
        }
    }

    std::vector<T> values_;
};

/// The norm of the difference over that of what is expected.
double relative_error_of(const std::vector<float>& found, const std::vector<float>& expected) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double x = expected[i];
        difference += (double{found.at(i)} - x) * (double{found.at(i)} - x);
        norm += x * x;
    }
    return std::sqrt(difference / norm);
}

/// Against our own kernels, which other tests hold to the formulas; our weights' layout is that of
/// the filters, transposed.
template <class T>
void compare_with_our_kernels(Real real, const Window& w, double bound) {
    const std::int64_t depth =
        std::int64_t{w.kernel_height} * w.kernel_width * (w.channels / w.groups);
    const std::int64_t weights = depth * w.outputs;
    const std::int64_t in = std::int64_t{w.samples} * w.in_height * w.in_width * w.channels;
    const std::int64_t out = std::int64_t{w.samples} * w.out_height * w.out_width * w.outputs;
    auto x = Numbers<T>::random(in, 1);
    auto weight = Numbers<T>::random(weights, 2);
    auto dy = Numbers<T>::random(out, 3);
    Numbers<T> filters(weights);
    ASSERT_EQ(turn_filters(real, depth, w.outputs, weight.data(), filters.data(), nullptr),
              cudaSuccess);
    CudnnConvolutions convolutions = on_fake();
    const auto run = [&](ConvolutionDirection direction,
                         bool adds,
                         const CudnnConvolutions::Operands& operands) {
        const auto plan = convolutions.plan({real, w, direction, adds});
        ASSERT_TRUE(plan.has_value());
        ASSERT_EQ(convolutions.run(plan->number, operands, nullptr), cudaSuccess);
    };
    for (const bool adds : {false, true}) {
        auto y = adds ? Numbers<T>::random(out, 4) : Numbers<T>(out);
        auto own_y = y;
        void* const skip = adds ? own_y.data() : nullptr;
        ASSERT_EQ(convolution_forward(
                      real, w, {x.data(), weight.data(), nullptr, skip, own_y.data()}, nullptr),
                  cudaSuccess);
        run(Forward, adds, {x.data(), filters.data(), y.data()});
        EXPECT_LT(relative_error_of(y.floats(), own_y.floats()), bound);

        auto dx = adds ? Numbers<T>::random(in, 5) : Numbers<T>(in);
        auto own_dx = dx;
        void* const of_skip = adds ? own_dx.data() : nullptr;
        ASSERT_EQ(convolution_backward_input(
                      real, w, {dy.data(), weight.data(), of_skip, own_dx.data()}, nullptr),
                  cudaSuccess);
        run(BackwardInput, adds, {dx.data(), filters.data(), dy.data()});
        EXPECT_LT(relative_error_of(dx.floats(), own_dx.floats()), bound);
    }
    auto dw = Numbers<float>::random(weights, 6);
    auto own_dw = dw;
    Numbers<float> sums(convolution_scratch(w));
    ASSERT_EQ(convolution_backward_weight(
                  real, w, x.data(), dy.data(), own_dw.data(), sums.data(), nullptr),
              cudaSuccess);
    Numbers<T> gradient(weights);
    run(BackwardWeight, false, {x.data(), gradient.data(), dy.data()});
    ASSERT_EQ(add_turned_filters(real, depth, w.outputs, gradient.data(), dw.data(), nullptr),
              cudaSuccess);
    EXPECT_LT(relative_error_of(dw.floats(), own_dw.floats()), bound);
}

TEST(CudnnConvolutions, ComputeWhatOurKernelsCompute) {
    new_fake_cudnn().computes = true;
    for (const Case& one : cases()) {
        SCOPED_TRACE(one.name);
        compare_with_our_kernels<float>(Real::F32, one.window, 1e-5);
        // Either rounds its result to bf16, by 2^-9 at most.
        compare_with_our_kernels<__nv_bfloat16>(Real::BF16, one.window, 5e-3);
    }
}

TEST(CudnnConvolutions, GetEveryTensorOfTheGraph) {
    const FakeCudnn& cudnn = new_fake_cudnn();
    CudnnConvolutions convolutions = on_fake();
    const auto plan = convolutions.plan({.window = strided});
    std::array<float, 4> places{};
    const auto stream = reinterpret_cast<cudaStream_t>(&places);
    const auto run = [&] {
        const int before = cudnn.calls;
        convolutions.run(plan->number, {&places[0], &places[1], &places[2], &places[3]}, stream);
        return cudnn.calls - before;
    };
    const int calls = run();
    EXPECT_EQ(run(), calls - 1);  // the stream stays
    EXPECT_EQ(cudnn.stream, stream);
    EXPECT_EQ(cudnn.workspace, &places[3]);
    const auto given = [&](ConvolutionTensor name) {
        return cudnn.pack.at(static_cast<std::int64_t>(name));
    };
    EXPECT_EQ(given(ConvolutionTensor::Image), &places[0]);
    EXPECT_EQ(given(ConvolutionTensor::Filters), &places[1]);
    EXPECT_EQ(given(ConvolutionTensor::Result), &places[2]);
    EXPECT_EQ(cudnn.pack.size(), cudnn.kept.size());
}

TEST(CudnnConvolutions, ThrowWhereAPlanCannotBeExecuted) {
    FakeCudnn& cudnn = new_fake_cudnn();
    CudnnConvolutions convolutions = on_fake();
    const auto plan = convolutions.plan({.window = strided});
    const int descriptors = cudnn.live_descriptors;
    cudnn.first_failure = cudnn.calls;
    cudnn.failures = forever;
    EXPECT_THROW(convolutions.run(plan->number, {}, nullptr), CudaFailure);
    EXPECT_EQ(cudnn.live_descriptors, descriptors);
}

}  // namespace cudnn_convolution_test
}  // namespace pipetwin::cuda
