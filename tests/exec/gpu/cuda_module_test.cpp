// SPDX-License-Identifier: Apache-2.0
#include "exec/gpu/cuda_module.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/cuda/module/module.h"
#include "tests/support/places.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin::exec {
namespace cuda_module_test {

using ::testing::HasSubstr;

/// Points the program at a folder of modules and undoes it, with the fake module's answers, at the
/// end.
class CudaModule : public ::testing::Test {
  protected:
    CudaModule() { set("PIPETWIN_MODULE_PATH", folder().string()); }
    ~CudaModule() override {
        for (const char* name : {"PIPETWIN_MODULE_PATH",
                                 "FAKE_CUDA_INTERFACE",
                                 "FAKE_CUDA_ERROR",
                                 "FAKE_CUDA_DEVICES"}) {
            unsetenv(name);
        }
    }
    static void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
    static void use_fake_module() { set("PIPETWIN_MODULE_PATH", places::fake_module_folder()); }
    const std::filesystem::path& folder() const { return folder_.path(); }

  private:
    tests::ScratchFolder folder_;
};

TEST_F(CudaModule, WithoutTheModuleTheAnswerIsNotBuilt) {
    const CudaProbe probe = probe_cuda();
    EXPECT_EQ(probe.state, CudaState::NotBuilt);
    EXPECT_THAT(probe.detail, HasSubstr("PIPETWIN_MODULE_PATH"));
    EXPECT_EQ(probe.versions, "");
    EXPECT_TRUE(probe.devices.empty());
}

TEST_F(CudaModule, AModuleThatDoesNotLoadIsToldInTheLoadersWords) {
    std::ofstream(folder() / "pipetwin_cuda.so") << "this is no library";
    const CudaProbe probe = probe_cuda();
    EXPECT_EQ(probe.state, CudaState::LibrariesMissing);
    EXPECT_THAT(probe.detail, HasSubstr("pipetwin_cuda.so"));
}

TEST_F(CudaModule, AModuleOfAnotherVersionIsRefusedWithBothNumbers) {
    use_fake_module();
    set("FAKE_CUDA_INTERFACE", "77");
    const CudaProbe probe = probe_cuda();
    EXPECT_EQ(probe.state, CudaState::LibrariesMissing);
    EXPECT_THAT(probe.detail,
                HasSubstr("interface version 77, this program needs " +
                          std::to_string(pipetwin_cuda_interface)));
}

TEST_F(CudaModule, Error35IsAMachineWithoutADriver) {
    use_fake_module();
    set("FAKE_CUDA_ERROR", "35");
    const CudaProbe probe = probe_cuda();
    EXPECT_EQ(probe.state, CudaState::NoDriver);
    EXPECT_EQ(probe.detail, "no driver (CUDA error 35)");
    EXPECT_EQ(probe.versions, "CUDA 13.0, cuBLAS 13.1.0, NCCL 2.28.9");
}

TEST_F(CudaModule, Error100IsADriverWithoutADevice) {
    use_fake_module();
    set("FAKE_CUDA_ERROR", "100");
    const CudaProbe probe = probe_cuda();
    EXPECT_EQ(probe.state, CudaState::NoDevice);
    EXPECT_EQ(probe.detail, "fake error (100)");
}

TEST_F(CudaModule, AnyOtherErrorKeepsItsTextAndNumber) {
    use_fake_module();
    set("FAKE_CUDA_ERROR", "803");
    const CudaProbe probe = probe_cuda();
    EXPECT_EQ(probe.state, CudaState::NoDriver);
    EXPECT_EQ(probe.detail, "fake error (803)");
}

TEST_F(CudaModule, ACountOfZeroIsNoDeviceToo) {
    use_fake_module();
    EXPECT_EQ(probe_cuda().state, CudaState::NoDevice);
}

TEST_F(CudaModule, EveryDeviceIsDescribed) {
    use_fake_module();
    set("FAKE_CUDA_DEVICES", "2");
    const CudaProbe probe = probe_cuda();
    EXPECT_EQ(probe.state, CudaState::Available);
    EXPECT_EQ(probe.detail, "");
    ASSERT_EQ(probe.devices.size(), 2U);
    EXPECT_EQ(probe.devices[1].name, "fake");
    EXPECT_EQ(probe.devices[1].compute_capability, 90);
    EXPECT_EQ(probe.devices[1].multiprocessors, 132);
    EXPECT_EQ(probe.devices[1].memory_bytes, 2);
}

}  // namespace cuda_module_test
}  // namespace pipetwin::exec
