// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include "exec/cuda/runtime/check.h"

/// Checks of NCCL's calls.
namespace pipetwin::cuda {

/// Throws CudaFailure unless NCCL's call succeeded.
inline void check_nccl(const char* call, ncclResult_t result) {
    check(call, result == ncclSuccess, ncclGetErrorString(result), static_cast<int>(result));
}

}  // namespace pipetwin::cuda

#define PIPETWIN_NCCL_CHECK(call) ::pipetwin::cuda::check_nccl(#call, (call))
