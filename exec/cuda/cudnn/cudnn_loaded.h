// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace pipetwin::cuda {

struct CudnnFunctions;  // exec/cuda/cudnn/cudnn_library.h

/// cuDNN's functions, or the reason why there are none.
struct CudnnLoaded {
    const CudnnFunctions* functions = nullptr;
    std::string why_not;  ///< where there are none
};

/// Loads cuDNN when first called. Never throws for a missing library: that is an answer.
CudnnLoaded load_cudnn();

}  // namespace pipetwin::cuda
