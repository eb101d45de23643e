#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/costs/profile.h"

namespace pipetwin {

/// `*.profile.json`, schema 1. Throws Error(BadInput) with file:line:column for syntax and a JSON
/// pointer
/// ("x.profile.json: /layers/3/samples/0/forward_ns: -5, expected ...") for content; unknown keys
/// are refused.
Profile parse_profile(std::string_view text, std::string_view place);

/// parse_profile(print_profile(x)) = x.
std::string print_profile(const Profile& profile);

/// By its ending: .csv is the hand-written form, else JSON.
Profile read_profile(const std::filesystem::path& file);

}  // namespace pipetwin
