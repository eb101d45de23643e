// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/interop/hf_folder.h"
#include "core/interop/hf_names.h"
#include "core/scenario/scenario.h"

namespace pipetwin {

/// Where the numbers of a slice are in a folder.
struct HfSource {
    const HfFolder::Tensor* tensor = nullptr;
    std::int64_t rows = 0;  ///< of the folder's tensor that are read: its first ones
};

/// A folder of weights beside the model that is to begin with them: all of it fits.
struct HfMatch {
    HfNames names{};
    std::vector<std::vector<HfSource>> sources{};  ///< [parameter][slice]
    std::vector<std::string> notes{};              ///< what a user should know
};

/// Finds every parameter of a model in a folder, and looks at config.json where it is there. Files
/// may have names without their prefix, buffers that are no weights, a copy of a tied table, a
/// shorter vocabulary, a longer one whose further rows are all alike, which is padding, and more
/// positions. Throws Error(BadInput) that names all that is wrong: tensors that are missing, belong
/// to no parameter, have another shape or a dtype without numbers, and keys of config.json that are
/// at odds with the scenario; also as `hf_names`, and as HfFolder::read.
HfMatch match_hf_folder(const HfFolder& folder, const ScenarioParts::ModelPart& model);

}  // namespace pipetwin
