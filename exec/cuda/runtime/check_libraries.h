#pragma once

#include <cublasLt.h>

#include "exec/cuda/runtime/check_nccl.h"
#include "exec/cuda/runtime/owned.h"

/// Checks of the calls of cuBLAS and NCCL, and what they hand out, owned.
namespace pipetwin::cuda {

inline void check_cublas(const char* call, cublasStatus_t status) {
    check(call,
          status == CUBLAS_STATUS_SUCCESS,
          cublasLtGetStatusString(status),
          static_cast<int>(status));
}

using CublasHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using MatmulDesc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using MatmulPreference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using Communicator = Owned<ncclComm_t, ncclCommDestroy>;

}  // namespace pipetwin::cuda

#define PIPETWIN_CUBLAS_CHECK(call) ::pipetwin::cuda::check_cublas(#call, (call))
