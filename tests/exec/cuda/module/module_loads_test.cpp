// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/gpu/cuda_module.h"
#include "tests/support/places.h"

// With the real module, and a GPU where there is one.

namespace pipetwin::exec {
namespace module_loads_test {

TEST(CudaModuleOfTheBuild, LoadsAndAnswersOnEveryMachine) {
    setenv("PIPETWIN_MODULE_PATH", places::program_folder().c_str(), 0);
    const CudaProbe probe = probe_cuda();
    ASSERT_NE(probe.state, CudaState::NotBuilt) << probe.detail;
    ASSERT_NE(probe.state, CudaState::LibrariesMissing) << probe.detail;
    EXPECT_THAT(probe.versions, ::testing::StartsWith("CUDA "));
    EXPECT_EQ(probe.devices.empty(), probe.state != CudaState::Available);
}

}  // namespace module_loads_test
}  // namespace pipetwin::exec
