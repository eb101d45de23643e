#pragma once

#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

/// Checks of the runtime's calls; exec/cuda/check_libraries.h has those of cuBLAS and NCCL. Each
/// throws CudaFailure with the call as written, the library's text for the error and its number.
/// Not for destructors: those call the library directly and drop the result.
namespace pipetwin::cuda {

class CudaFailure : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

inline void check(const char* call, bool ok, const char* text, int number) {
    if (!ok) {
        throw CudaFailure(std::string(call) + ": " + text + " (" + std::to_string(number) + ")");
    }
}

inline void check_runtime(const char* call, cudaError_t error) {
    check(call, error == cudaSuccess, cudaGetErrorString(error), static_cast<int>(error));
}

}  // namespace pipetwin::cuda

#define PIPETWIN_CUDA_CHECK(call) ::pipetwin::cuda::check_runtime(#call, (call))
