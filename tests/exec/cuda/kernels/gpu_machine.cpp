// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "exec/cuda/runtime/check.h"
#include "tests/exec/cuda/kernels/machine.h"

namespace pipetwin::cuda::test {
namespace {

/// Skips every test where there is no GPU. (An environment that skips lets them pass.)
class SkipsWithoutGpu : public ::testing::EmptyTestEventListener {
  public:
    void OnTestStart(const ::testing::TestInfo& /*test*/) override {
        int count = 0;
        const cudaError_t error = cudaGetDeviceCount(&count);
        if (error != cudaSuccess || count == 0) {
            GTEST_SKIP() << "no usable GPU: " << cudaGetErrorString(error);
        }
    }
};

[[maybe_unused]] const bool listens = [] {
    ::testing::UnitTest::GetInstance()->listeners().Append(new SkipsWithoutGpu);
    return true;
}();

}  // namespace

std::size_t guard_bytes() {
    return 256;
}

bool is_fast() {
    return true;
}

void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    PIPETWIN_CUDA_CHECK(cudaMalloc(&memory, bytes));
    return memory;
}

void give_back(void* memory) {
    static_cast<void>(cudaFree(memory));
}

void poison(void* memory, std::size_t bytes) {
    PIPETWIN_CUDA_CHECK(cudaMemset(memory, 0xff, bytes));
}

void write(void* to, const void* from, std::size_t bytes) {
    PIPETWIN_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}

void read(void* to, const void* from, std::size_t bytes) {
    PIPETWIN_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

int order_count() {
    return 3;
}

void set_order(int /*order*/) {}

}  // namespace pipetwin::cuda::test
