// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <cuda.h>

#include "exec/cuda/runtime/check.h"

/// The driver's own functions. The module does not link the driver's library, since then it would
/// not load where there is none: it asks the runtime for them.
namespace pipetwin::cuda {

/// The address of a driver function as of CUDA 13.0. Throws CudaFailure, naming it, where the
/// driver has none.
void* driver_function(const char* name);

/// Throws CudaFailure, naming the call, unless the driver's result is success.
inline void check_driver(const char* call, CUresult result) {
    check(call, result == CUDA_SUCCESS, "refused by the driver", static_cast<int>(result));
}

}  // namespace pipetwin::cuda

/// PIPETWIN_DRIVER(cuCtxSetCurrent)(context) calls it and throws CudaFailure if it fails.
#define PIPETWIN_DRIVER(function)                                                                \
    [](auto... arguments) {                                                                      \
        static const auto entry =                                                                \
            reinterpret_cast<decltype(&function)>(::pipetwin::cuda::driver_function(#function)); \
        ::pipetwin::cuda::check_driver(#function, entry(arguments...));                          \
    }
