// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace pipetwin {

/// The version of the program, "0.2.0". The library alone knows it, so that another version
/// compiles one source.
std::string_view program_version();

/// The day on which that version was released, "2026-11-28", as CITATION.cff has it.
std::string_view release_date();

}  // namespace pipetwin
