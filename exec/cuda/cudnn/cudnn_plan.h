// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "exec/cuda/cudnn/cudnn_library.h"

namespace pipetwin::cuda {

/// The device that a plan is for: that of a handle, or one that is described, which need not be
/// there.
struct CudnnTarget {
    cudnnHandle_t handle = nullptr;
    const CudnnDescriptor* device = nullptr;  ///< its properties
};

/// A plan, and the workspace that it needs.
struct CudnnPlan {
    CudnnDescriptor plan;
    std::size_t workspace_bytes = 0;
};

/// What is asked of a plan, beside bits that repeat from run to run.
struct CudnnPlanLimits {
    std::size_t workspace_bytes = 0;                            ///< it asks for no more
    std::span<const cudnnBackendNumericalNote_t> refused = {};  ///< notes that its engine has not
};

/// The first plan for an operation graph within the limits, of those that cuDNN's heuristics
/// propose and then of those that it falls back to, that can be made. Makes one kernel at run time
/// for each plan that it tries, about a second. Throws CudaFailure, saying what was against the
/// last one, if there is none.
CudnnPlan choose_plan(const CudnnFunctions& cudnn,
                      const CudnnTarget& target,
                      const CudnnDescriptor& graph,
                      const CudnnPlanLimits& limits);

}  // namespace pipetwin::cuda
