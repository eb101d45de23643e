// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/cudnn_plan.h"

#include <algorithm>

namespace pipetwin::cuda {
namespace {

std::vector<CudnnDescriptor> proposals(const CudnnFunctions& cudnn,
                                       const CudnnTarget& target,
                                       const CudnnDescriptor& graph,
                                       cudnnBackendHeurMode_t mode) {
    CudnnDescriptor heuristics(cudnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    if (target.device != nullptr) {
        heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
    }
    heuristics.finalize();
    return heuristics.descriptors_of(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
}

/// Throws CudaFailure if the engine is known for a note that is refused.
void check_notes(const CudnnDescriptor& configuration,
                 std::span<const cudnnBackendNumericalNote_t> refused) {
    const CudnnDescriptor engine =
        configuration.descriptor_of(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    const auto notes =
        engine.values_of<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
    if (std::ranges::find(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != notes.end()) {
        throw CudaFailure("an engine whose bits differ from run to run");
    }
    for (const cudnnBackendNumericalNote_t note : notes) {
        if (std::ranges::find(refused, note) != refused.end()) {
            throw CudaFailure("an engine with cuDNN's numerical note " +
                              std::to_string(static_cast<int>(note)) +
                              ", which rounds more than a sum of products in fp32");
        }
    }
}

CudnnPlan make_plan(const CudnnFunctions& cudnn,
                    const CudnnTarget& target,
                    const CudnnDescriptor& configuration) {
    CudnnDescriptor plan(cudnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (target.handle != nullptr) {
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
    }
    if (target.device != nullptr) {
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.device);
    }
    plan.finalize();
    const auto bytes = plan.value_of<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    return {.plan = std::move(plan), .workspace_bytes = static_cast<std::size_t>(bytes)};
}

}  // namespace

CudnnPlan choose_plan(const CudnnFunctions& cudnn,
                      const CudnnTarget& target,
                      const CudnnDescriptor& graph,
                      const CudnnPlanLimits& limits) {
    std::string against_it = "its heuristics propose nothing";
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
        std::vector<CudnnDescriptor> configurations;
        try {
            configurations = proposals(cudnn, target, graph, mode);
        } catch (const CudaFailure& failure) {
            against_it = failure.text();
        }
        for (const CudnnDescriptor& configuration : configurations) {
            try {
                check_notes(configuration, limits.refused);
                CudnnPlan made = make_plan(cudnn, target, configuration);
                if (made.workspace_bytes <= limits.workspace_bytes) {
                    return made;
                }
                against_it = "a workspace of " + std::to_string(made.workspace_bytes) +
                             " bytes, where " + std::to_string(limits.workspace_bytes) +
                             " are allowed";
            } catch (const CudaFailure& failure) {
                against_it = failure.text();
            }
        }
    }
    throw CudaFailure("cuDNN has no plan: " + against_it);
}

}  // namespace pipetwin::cuda
