#pragma once

#include <stdexcept>
#include <string>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

/// One checking macro per library. Each throws CudaFailure with the call as written, the library's
/// text for the error and its number. Not for destructors: those call the library directly and drop
/// the result.
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

inline void check_cublas(const char* call, cublasStatus_t status) {
    check(call,
          status == CUBLAS_STATUS_SUCCESS,
          cublasLtGetStatusString(status),
          static_cast<int>(status));
}

inline void check_nccl(const char* call, ncclResult_t result) {
    check(call, result == ncclSuccess, ncclGetErrorString(result), static_cast<int>(result));
}

}  // namespace pipetwin::cuda

#define PIPETWIN_CUDA_CHECK(call) ::pipetwin::cuda::check_runtime(#call, (call))
#define PIPETWIN_CUBLAS_CHECK(call) ::pipetwin::cuda::check_cublas(#call, (call))
#define PIPETWIN_NCCL_CHECK(call) ::pipetwin::cuda::check_nccl(#call, (call))
