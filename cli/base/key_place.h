// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "core/base/error.h"
#include "core/text/override.h"

namespace pipetwin::cli {

/// The error with the line and column of its key in the scenario, or with the option that set it,
/// in front of its place; an error about the scenario as a whole is at its beginning. Others stay
/// as they are.
Error with_place_of_key(const Error& error,
                        const std::filesystem::path& scenario,
                        const std::vector<Override>& overrides);

}  // namespace pipetwin::cli
