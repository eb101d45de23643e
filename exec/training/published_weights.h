// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/interop/hf_folder.h"
#include "core/interop/hf_match.h"
#include "core/scenario/scenario.h"
#include "exec/executor/trained_parameters.h"

namespace pipetwin::exec {

/// Weights in a folder of Hugging Face's that a training begins with.
class PublishedWeights {
  public:
    /// Opens the folder and checks all that is in it, but for the numbers. Throws as HfFolder and
    /// `match_hf_folder` do.
    PublishedWeights(const std::filesystem::path& folder, const ScenarioParts::ModelPart& model);

    /// What a user should know: what was padded, left out or is computed a little differently.
    const std::vector<std::string>& notes() const { return match_.notes; }

    /// Writes every parameter's value, and what it is rounded from, and what averages it. Numbers
    /// are rounded once, to the nearest, to the type that is exact for the parameter, and from
    /// there to its value. The rest of the optimizer's state stays as it is. Throws
    /// Error(BadInput) where a file has become shorter, and Error(Io).
    void load(const TrainedParameters& parameters) const;

  private:
    HfFolder folder_;
    HfMatch match_;
};

}  // namespace pipetwin::exec
