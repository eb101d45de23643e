// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace pipetwin {

/// Something in a folder of weights that is not as it must be.
struct HfFault {
    std::string where{};  ///< a file with a tensor, or with a key: "config.json: n_head"
    std::string what{};   ///< what was found and what was expected
    std::string hint{};   ///< what to do about this one; empty: what is to be done about all

    bool operator==(const HfFault&) const = default;
};

/// The Error(BadInput) that names every fault, one a line, up to a number of them, and how many
/// more there are. At least one fault.
Error hf_faults_error(const std::string& place,
                      const std::vector<HfFault>& faults,
                      std::string hint);

}  // namespace pipetwin
