// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace pipetwin {

/// The version of the program, "0.2.0". The library alone knows it, so that another version
/// compiles one source.
std::string_view program_version();

}  // namespace pipetwin
