// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include "exec/cuda/runtime/check_nccl.h"
#include "exec/cuda/runtime/owned.h"

/// Checks of cuBLAS's calls, and owners of the handles that cuBLAS and NCCL give.
namespace pipetwin::cuda {

/// Throws CudaFailure unless cuBLAS's call succeeded.
inline void check_cublas(const char* call, cublasStatus_t status) {
    check(call,
          status == CUBLAS_STATUS_SUCCESS,
          cublasLtGetStatusString(status),
          static_cast<int>(status));
}

/// Owners of handles: each is destroyed at the end of its life.
using CublasHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;
/// Owner of the description of a product.
using MatmulDesc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
/// Owner of the description of a matrix.
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
/// Owner of the conditions of a search for algorithms.
using MatmulPreference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
/// Owner of a communicator of NCCL that blocks; the other one is nccl/nccl_communicator.h's.
using OwnedCommunicator = Owned<ncclComm_t, ncclCommDestroy>;

}  // namespace pipetwin::cuda

#define PIPETWIN_CUBLAS_CHECK(call) ::pipetwin::cuda::check_cublas(#call, (call))
