#include "exec/cuda/cudnn/cudnn_plan.h"

#include <dlfcn.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include <array>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
                                  const AttentionShape& shape,
                                  AttentionDirection direction) const {
        const CudnnDescriptor target = device(properties);
        const CudnnGraph graph = attention_graph(cudnn(), nullptr, shape, direction);
        return choose_plan(cudnn(), {.device = &target}, graph.graph, gibibyte).workspace_bytes;
    }

  private:
    LeaksOfOthers allowed_;
    CudnnLoaded loaded_;
};

TEST_F(RealCudnn, TakesTheGraphs) {
    for (const int head_size : {16, 64, 128, 200}) {
        for (const AttentionDirection direction : directions) {
            EXPECT_NO_THROW(
                attention_graph(cudnn(), nullptr, {3, 300, 5, 5 * head_size}, direction));
        }
    }
}

TEST_F(RealCudnn, RefusesAGraphThatIsNone) {
    // What is seen to be accepted above would mean little if everything was.
    EXPECT_THROW(attention_graph(cudnn(), nullptr, {3, -300, 5, 320}, AttentionDirection::Forward),
                 CudaFailure);
}

TEST_F(RealCudnn, HasPlansForAmpereAndHopper) {
    for (const std::string& properties : {a100(), h100()}) {
        for (const AttentionDirection direction : directions) {
            EXPECT_NO_THROW(workspace_of_plan(properties, {2, 300, 3, 192}, direction));
        }
    }
}

TEST_F(RealCudnn, KeepsTheGradientsOfAllScoresForABackwardThatRepeatsItsBits) {
    const AttentionShape shape{8, 1024, 12, 768};
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
    const CudnnGraph graph =
        attention_graph(cudnn(), nullptr, {2, 300, 3, 192}, AttentionDirection::Backward);
    try {
        choose_plan(cudnn(), {.device = &target}, graph.graph, 1000);
        FAIL() << "a backward in 1000 bytes";
    } catch (const CudaFailure& failure) {
        EXPECT_THAT(failure.what(), HasSubstr("where 1000 are allowed"));
    }
}

TEST_F(RealCudnn, IsPassedOverWhereItFindsNoGpu) {
    CudnnAttention attention(load_cudnn(), {.compute_capability = 90});
    EXPECT_THAT(attention.describe({2, 300, 3, 192}, AttentionDirection::Forward),
                HasSubstr("own kernels: cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED"));
}

}  // namespace cudnn_plan_test
}  // namespace pipetwin::cuda
