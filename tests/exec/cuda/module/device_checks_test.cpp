// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/cuda/module/device_checks.h"

#include <iostream>

#include <gtest/gtest.h>

#include "exec/cuda/runtime/check.h"

/// What a GPU and CUDA's libraries compute, on every device.
namespace pipetwin::cuda {
namespace device_checks_test {

void check_every_device(std::string (*check)()) {
    int devices = 0;
    PIPETWIN_CUDA_CHECK(cudaGetDeviceCount(&devices));
    for (int device = 0; device < devices; ++device) {
        PIPETWIN_CUDA_CHECK(cudaSetDevice(device));
        std::cout << "device " << device << ": " << check() << "\n";
    }
    PIPETWIN_CUDA_CHECK(cudaSetDevice(0));
}

TEST(CudaSelfTest, ABufferIsCopiedThereAndBack) {
    check_every_device(check_buffer);
}

TEST(CudaSelfTest, AKernelRuns) {
    check_every_device(check_kernel);
}

TEST(CudaSelfTest, AttentionIsThatOfTheFormulas) {
    check_every_device(check_attention);
}

TEST(CudaSelfTest, ConvolutionsAreThoseOfTheFormula) {
    check_every_device(check_convolutions);
}

TEST(CudaSelfTest, AProductOfWholeNumbersIsExact) {
    check_every_device(check_product);
}

TEST(CudaSelfTest, ARankSendsToItself) {
    check_every_device(check_loopback);
}

}  // namespace device_checks_test
}  // namespace pipetwin::cuda
