// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/gpu/cuda_module.h"
#include "tests/support/places.h"

// With the real module, and a GPU where there is one.

namespace pipetwin::exec {
namespace cuda_self_test {

class CudaSelfTest : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        setenv("PIPETWIN_MODULE_PATH", places::program_folder().c_str(), 0);
    }
};

TEST_F(CudaSelfTest, TheModuleLoadsAndAnswersOnEveryMachine) {
    const CudaProbe probe = probe_cuda();
    ASSERT_NE(probe.state, CudaState::NotBuilt) << probe.detail;
    ASSERT_NE(probe.state, CudaState::LibrariesMissing) << probe.detail;
    EXPECT_THAT(probe.versions, ::testing::StartsWith("CUDA "));
    EXPECT_EQ(probe.devices.empty(), probe.state != CudaState::Available);
}

TEST_F(CudaSelfTest, EveryDevicePassesEveryCheck) {
    const CudaProbe probe = probe_cuda();
    if (probe.state != CudaState::Available) {
        GTEST_SKIP() << "needs a GPU: " << probe.detail;
    }
    for (std::size_t index = 0; index < probe.devices.size(); ++index) {
        const std::vector<CudaCheck> checks = self_test_cuda(static_cast<int>(index));
        EXPECT_EQ(checks.size(), 6U);
        for (const CudaCheck& check : checks) {
            EXPECT_TRUE(check.passed)
                << probe.devices[index].name << ": " << check.name << ": " << check.detail;
        }
    }
}

TEST_F(CudaSelfTest, WithoutAGpuEveryCheckFailsWithCudasOwnWords) {
    const CudaProbe probe = probe_cuda();
    if (probe.state != CudaState::NoDriver) {
        GTEST_SKIP() << "needs a machine without a driver";
    }
    for (const CudaCheck& check : self_test_cuda(0)) {
        EXPECT_FALSE(check.passed) << check.name;
        EXPECT_THAT(check.detail, ::testing::HasSubstr("cudaSetDevice: ")) << check.name;
    }
}

}  // namespace cuda_self_test
}  // namespace pipetwin::exec
