// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/cudnn_plan.h"

#include <dlfcn.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/cuda/cudnn/cudnn_convolution_graph.h"
#include "exec/cuda/cudnn/cudnn_graph.h"

/// The real cuDNN, where it is installed, on machines with or without a GPU: it takes our graphs,
/// and its engines for an A100 and an H100 recognise them. cuDNN makes plans for a device that is
/// described to it; it only wants a driver to load the kernels into, and gets a stand-in.
namespace pipetwin::cuda {
namespace cudnn_plan_test {

using ::testing::HasSubstr;

constexpr std::array directions{AttentionDirection::Forward, AttentionDirection::Backward};
constexpr std::size_t gibibyte = std::size_t{1} << 30U;

/// Source: NVIDIA's datasheets and the table of compute capabilities in the CUDA C++ Programming
/// Guide; the keys are what cuDNN 9.19 reads.
std::string described_device(const std::string& own) {
    return R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
           R"("regsPerBlock":65536,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
           R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
           R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
           R"("supportCoopLaunch":1,"totalGlobalMem":85899345920,"cudaDeviceId":0,)"
           R"("driverVer":13000,)" +
           own + "}";
}

std::string a100() {
    return described_device(
        R"("multiProcessorCount":108,"maxSharedMemoryPerBlockOptin":166912,)"
        R"("smClockRateKHz":1410000,"memClockRateKHz":1593000,"l2CacheSize":41943040,)"
        R"("deviceVer":800,"deviceName":"NVIDIA A100-SXM4-80GB")");
}

std::string h100() {
    return described_device(
        R"("multiProcessorCount":132,"maxSharedMemoryPerBlockOptin":232448,)"
        R"("smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":52428800,)"
        R"("deviceVer":900,"deviceName":"NVIDIA H100 80GB HBM3")");
}

/// What cuDNN keeps until the program ends is no leak of ours. Our own are looked for where cuDNN
/// is a fake (cudnn_attention_test.cpp); here the address sanitizer looks at everything else.
class LeaksOfOthers {
  public:
    LeaksOfOthers() { set(true); }
    LeaksOfOthers(const LeaksOfOthers&) = delete;
    LeaksOfOthers& operator=(const LeaksOfOthers&) = delete;
    ~LeaksOfOthers() { set(false); }

  private:
    static void set([[maybe_unused]] bool allowed) {
#ifdef __SANITIZE_ADDRESS__
        allowed ? __lsan_disable() : __lsan_enable();
#endif
    }
};

class RealCudnn : public ::testing::Test {
  protected:
    void SetUp() override {
        // Before cuDNN looks for one: the loader gives it the first of that name.
        ASSERT_NE(::dlopen(PIPETWIN_STAND_IN_DRIVER, RTLD_NOW), nullptr);
        loaded_ = load_cudnn();
        if (loaded_.functions == nullptr) {
            GTEST_SKIP() << loaded_.why_not;
        }
        if (cudnn().get_version() < 91100) {
            GTEST_SKIP() << "no plans for absent devices before cuDNN 9.11";
        }
    }

    const CudnnFunctions& cudnn() const { return *loaded_.functions; }

    CudnnDescriptor device(const std::string& properties) const {
        CudnnDescriptor made(cudnn(), CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
        made.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::span<const char>(properties));
        made.finalize();
        return made;
    }

    std::size_t workspace_of_plan(const std::string& properties,
                                  const AttentionProblem& problem,
                                  AttentionDirection direction) const {
        const CudnnDescriptor target = device(properties);
        const CudnnGraph graph = attention_graph(cudnn(), nullptr, problem, direction);
        return choose_plan(cudnn(), {.device = &target}, graph.graph, {.workspace_bytes = gibibyte})
            .workspace_bytes;
    }

    /// Throws CudaFailure where there is no plan.
    std::size_t workspace_of_convolution(const std::string& properties,
                                         const CudnnConvolution& convolution) const {
        const CudnnDescriptor target = device(properties);
        const CudnnGraph graph = convolution_graph(cudnn(), nullptr, convolution);
        const auto refused = refused_notes(convolution.real);
        return choose_plan(
                   cudnn(),
                   {.device = &target},
                   graph.graph,
                   {.workspace_bytes = CudnnConvolutions::most_workspace_bytes, .refused = refused})
            .workspace_bytes;
    }

  private:
    LeaksOfOthers allowed_;
    CudnnLoaded loaded_;
};

TEST_F(RealCudnn, TakesTheGraphs) {
    for (const int head_size : {16, 64, 128, 200}) {
        for (const AttentionDirection direction : directions) {
            EXPECT_NO_THROW(attention_graph(
                cudnn(), nullptr, AttentionShape{3, 300, 5, 5, head_size}, direction));
            EXPECT_NO_THROW(attention_graph(
                cudnn(), nullptr, AttentionShape{3, 300, 6, 2, head_size}, direction));
        }
    }
}

TEST_F(RealCudnn, RefusesAGraphThatIsNone) {
    // What is seen to be accepted above would mean little if everything was.
    EXPECT_THROW(
        attention_graph(
            cudnn(), nullptr, AttentionShape{3, -300, 5, 5, 64}, AttentionDirection::Forward),
        CudaFailure);
}

TEST_F(RealCudnn, HasPlansForAmpereAndHopper) {
    for (const std::string& properties : {a100(), h100()}) {
        for (const AttentionDirection direction : directions) {
            EXPECT_NO_THROW(
                workspace_of_plan(properties, AttentionShape{2, 300, 3, 3, 64}, direction));
        }
    }
}

/// An encoder's attention, with Q | K | V in one matrix, and a decoder's to another sequence, of
/// lengths that are multiples of a tile and that are not.
TEST_F(RealCudnn, HasPlansForPaddedKeys) {
    for (const std::string& properties : {a100(), h100()}) {
        for (const AttentionShape& shape : {AttentionShape{8, 1024, 16, 16, 64, 1024},
                                            AttentionShape{4, 28, 4, 4, 32, 24},
                                            AttentionShape{2, 300, 3, 3, 128, 77}}) {
            const std::int64_t width = shape.query_width();
            for (const AttentionInputs& inputs :
                 {AttentionInputs{.q_stride = 3 * width, .k_stride = 3 * width},
                  AttentionInputs{.q_stride = width, .k_stride = 2 * width}}) {
                const auto problem = AttentionProblem::with_gradients_apart(shape, inputs);
                for (const AttentionDirection direction : directions) {
                    EXPECT_NO_THROW(workspace_of_plan(properties, problem, direction))
                        << shape.positions << ' ' << static_cast<int>(direction);
                }
            }
        }
    }
}

/// Tries the heads of Llama 3.2 1B and of Llama 3 8B, and one group of all heads. What each head
/// gives to dK and dV lies in the workspace beside the gradients of the scores, and is added up by
/// a pass of its own: no engine adds to dK and dV in the order in which blocks happen to end.
TEST_F(RealCudnn, KeepsWhatEachHeadGivesToTheGradientsOfItsGroup) {
    for (const std::string& properties : {a100(), h100()}) {
        for (const AttentionShape& shape : {AttentionShape{2, 2048, 32, 8, 64},
                                            AttentionShape{1, 2048, 32, 8, 128},
                                            AttentionShape{2, 300, 4, 1, 64}}) {
            EXPECT_NO_THROW(workspace_of_plan(properties, shape, AttentionDirection::Forward));
            const auto of_heads = static_cast<std::size_t>(shape.samples * shape.heads) *
                                  static_cast<std::size_t>(shape.positions);
            const std::size_t scores = of_heads * static_cast<std::size_t>(shape.positions);
            const std::size_t gradients = 2 * of_heads * static_cast<std::size_t>(shape.head_size);
            EXPECT_GE(workspace_of_plan(properties, shape, AttentionDirection::Backward),
                      (scores + gradients) * sizeof(std::uint16_t))
                << shape.heads << " heads of " << shape.head_size;
        }
    }
}

TEST_F(RealCudnn, KeepsTheGradientsOfAllScoresForABackwardThatRepeatsItsBits) {
    const AttentionShape shape{8, 1024, 12, 12, 64};
    const std::size_t scores = std::size_t{8} * 12 * 1024 * 1024;
    for (const std::string& properties : {a100(), h100()}) {
        EXPECT_GE(workspace_of_plan(properties, shape, AttentionDirection::Backward),
                  scores * sizeof(std::uint16_t));
        EXPECT_LT(workspace_of_plan(properties, shape, AttentionDirection::Forward), scores / 1024);
    }
}

TEST_F(RealCudnn, SaysWhatIsAgainstAPlan) {
    const std::string properties = a100();
    const CudnnDescriptor target = device(properties);
    const CudnnGraph graph = attention_graph(
        cudnn(), nullptr, AttentionShape{2, 300, 3, 3, 64}, AttentionDirection::Backward);
    try {
        choose_plan(cudnn(), {.device = &target}, graph.graph, {.workspace_bytes = 1000});
        FAIL() << "a backward in 1000 bytes";
    } catch (const CudaFailure& failure) {
        EXPECT_THAT(failure.what(), HasSubstr("where 1000 are allowed"));
    }
}

/// A convolution of square images and windows, with margins of half a window.
Window square(int samples, int size, int channels, int outputs, int kernel, int stride) {
    const int margin = kernel / 2;
    const int out = (size + 2 * margin - kernel) / stride + 1;
    return {.samples = samples,
            .in_height = size,
            .in_width = size,
            .out_height = out,
            .out_width = out,
            .channels = channels,
            .outputs = outputs,
            .kernel_height = kernel,
            .kernel_width = kernel,
            .stride_height = stride,
            .stride_width = stride,
            .top = margin,
            .left = margin};
}

/// ResNet-50's convolutions of more than a pixel or a stride of 1, at 32 samples of 224 x 224;
/// AmoebaNet's 1x7, its 52 channels, which are no multiple of 8, and a window in the middle of
/// which nothing is read.
std::vector<Window> windows_of_models() {
    Window wide = square(32, 28, 64, 64, 1, 1);
    wide.kernel_width = 7;
    wide.left = 3;
    Window dilated = square(32, 28, 64, 64, 3, 1);
    dilated.dilation_height = dilated.dilation_width = 2;
    dilated.top = dilated.left = 2;
    return {square(32, 224, 3, 64, 7, 2),
            square(32, 56, 64, 64, 3, 1),
            square(32, 56, 256, 512, 1, 2),
            square(32, 56, 128, 128, 3, 2),
            square(32, 14, 256, 256, 3, 1),
            square(32, 7, 512, 512, 3, 1),
            square(32, 28, 52, 52, 3, 1),
            wide,
            dilated};
}

TEST_F(RealCudnn, HasPlansForTheConvolutionsOfModels) {
    using enum ConvolutionDirection;
    for (const std::string& properties : {a100(), h100()}) {
        for (const Window& window : windows_of_models()) {
            for (const auto direction : {Forward, BackwardInput, BackwardWeight}) {
                for (const bool adds : {false, direction != BackwardWeight}) {
                    EXPECT_NO_THROW(
                        workspace_of_convolution(properties, {Real::BF16, window, direction, adds}))
                        << window.channels << ' ' << window.kernel_width << ' '
                        << static_cast<int>(direction) << ' ' << adds;
                }
            }
        }
    }
}

TEST_F(RealCudnn, HasPlansForDepthwiseConvolutions) {
    using enum ConvolutionDirection;
    Window depthwise = square(32, 28, 256, 256, 3, 1);
    depthwise.groups = 256;
    for (const auto direction : {Forward, BackwardInput, BackwardWeight}) {
        for (const Real real : {Real::BF16, Real::F32}) {
            EXPECT_NO_THROW(workspace_of_convolution(h100(), {real, depthwise, direction, false}));
        }
    }
}

/// Without tensor cores, which would round the factors to TF32.
TEST_F(RealCudnn, HasPlansInFullSinglePrecision) {
    using enum ConvolutionDirection;
    for (const auto direction : {Forward, BackwardInput, BackwardWeight}) {
        EXPECT_NO_THROW(workspace_of_convolution(
            h100(), {Real::F32, square(32, 56, 64, 64, 3, 1), direction, false}));
    }
}

TEST_F(RealCudnn, TakesMoreZerosAtTheEndThanAtTheBeginning) {
    Window uneven = square(8, 32, 64, 64, 3, 2);
    uneven.top = uneven.left = 0;
    ASSERT_EQ(margins_of(uneven)->after, (std::array<std::int64_t, 2>{1, 1}));
    EXPECT_NO_THROW(convolution_graph(cudnn(), nullptr, {Real::BF16, uneven, {}, false}));
}

TEST_F(RealCudnn, RefusesAConvolutionWhoseResultHasAnotherSize) {
    Window wrong = square(8, 32, 64, 64, 3, 1);
    wrong.channels = 60;  // the filters have 64 outputs in groups of 7 channels
    wrong.groups = 7;
    EXPECT_THROW(convolution_graph(cudnn(), nullptr, {Real::BF16, wrong, {}, false}), CudaFailure);
}

TEST_F(RealCudnn, IsPassedOverWhereItFindsNoGpu) {
    CudnnAttention attention(load_cudnn(), {.compute_capability = 90});
    EXPECT_THAT(attention.describe(AttentionShape{2, 300, 3, 3, 64}, AttentionDirection::Forward),
                HasSubstr("own kernels: cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED"));
}

}  // namespace cudnn_plan_test
}  // namespace pipetwin::cuda
