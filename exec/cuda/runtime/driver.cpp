// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/runtime/driver.h"

namespace pipetwin::cuda {

void* driver_function(const char* name) {
    constexpr unsigned version = 13000;
    void* found = nullptr;
    cudaDriverEntryPointQueryResult state = cudaDriverEntryPointSymbolNotFound;
    PIPETWIN_CUDA_CHECK(
        cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &state));
    if (state != cudaDriverEntryPointSuccess || found == nullptr) {
        throw CudaFailure(std::string(name) + ": the driver has no such function");
    }
    return found;
}

}  // namespace pipetwin::cuda
