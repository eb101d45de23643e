// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/interop/jobs/placed_plan.h"

/// Plans for systems whose pipelines are PyTorch's.
namespace pipetwin {

/// A schedule in PyTorch's words.
struct TorchSchedule {
    std::string name{};                  ///< of a class; empty: no pipeline
    std::string csv{};                   ///< a schedule file; empty: none
    std::vector<std::string> remarks{};  ///< sentences
};

/// The plan's schedule. Throws Error(BadInput) about the key that the system cannot say, because
/// PyTorch has no such order, or, without a pipeline, one micro-batch follows the other.
TorchSchedule torch_schedule(const PlacedPlan& plan, std::string_view system);

/// A recipe of NeMo AutoModel as YAML. Throws Error(BadInput) about the first key that AutoModel
/// cannot say.
std::string print_automodel_recipe(const PlacedPlan& plan);

}  // namespace pipetwin
