#pragma once

#include <cstddef>

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

/// The first plan for an operation graph, of those that cuDNN's heuristics propose and then of
/// those that it falls back to, that can be made, asks for no more workspace, and is not known to
/// change its bits from run to run. Makes one kernel at run time for each plan that it tries, about
/// a second. Throws CudaFailure, saying what was against the last one, if there is none.
CudnnPlan choose_plan(const CudnnFunctions& cudnn,
                      const CudnnTarget& target,
                      const CudnnDescriptor& graph,
                      std::size_t most_workspace_bytes);

}  // namespace pipetwin::cuda
