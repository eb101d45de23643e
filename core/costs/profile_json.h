// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/costs/profile.h"

namespace pipetwin {

/// Reads the text of a `*.profile.json`, schema 1. Throws Error(BadInput) with file:line:column for
/// syntax and a JSON pointer
/// ("x.profile.json: /layers/3/samples/0/forward_ns: -5, expected ...") for content; unknown keys
/// are refused.
Profile parse_profile(std::string_view text, std::string_view place);

/// The text of a `*.profile.json`: parse_profile(print_profile(x)) = x.
std::string print_profile(const Profile& profile);

/// Reads a profile from a file: the hand-written form if its name ends in .csv, else JSON. The path
/// of a stack's file starts from the profile's folder, and is absolute in the result. Throws
/// Error(Io), and Error(BadInput) as `parse_profile_csv` and `parse_profile`.
Profile read_profile(const std::filesystem::path& file);

}  // namespace pipetwin
