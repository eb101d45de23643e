// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include "exec/device/device_failure.h"

/// Checks of the runtime's calls; exec/cuda/runtime/check_libraries.h has those of cuBLAS and NCCL.
/// Each throws CudaFailure with the name of the call, the library's text for the error and its
/// number. Not for destructors: those call the library directly and drop the result.
namespace pipetwin::cuda {

/// Failure of a call of CUDA or one of its libraries.
class CudaFailure : public exec::DeviceFailure {
  public:
    using DeviceFailure::DeviceFailure;
    explicit CudaFailure(std::string text) : DeviceFailure(std::move(text), "", Lasts::Once) {}
};

/// True if CUDA documents that after `error` all further work of the process fails with it, too.
bool is_for_good(cudaError_t error);

/// Throws the CudaFailure; `call` may have its arguments, which are left out.
[[noreturn]] void fail(std::string_view call, cudaError_t error);

/// Throws CudaFailure unless the call succeeded; use PIPETWIN_CUDA_CHECK.
inline void check_runtime(const char* call, cudaError_t error) {
    if (error != cudaSuccess) {
        fail(call, error);
    }
}

/// Throws CudaFailure unless `ok`, with a library's own text and number of the error.
void check(const char* call, bool ok, const char* text, int number);

}  // namespace pipetwin::cuda

#define PIPETWIN_CUDA_CHECK(call) ::pipetwin::cuda::check_runtime(#call, (call))
