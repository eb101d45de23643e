// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/costs/devices/device_profile.h"

namespace pipetwin {

/// Reads the profile of a device. Throws Error(BadInput) with `place`, the JSON pointer, what was
/// found and what was expected.
DeviceProfile parse_device_profile(std::string_view text, std::string_view place);

/// Text of a device profile: parse_device_profile(print_device_profile(x)) = x.
std::string print_device_profile(const DeviceProfile& device);

/// Reads a list of classes of links, each name once. Throws Error(BadInput) with `place`, the JSON
/// pointer, what was found and what was expected.
std::vector<LinkProfile> parse_link_profiles(std::string_view text, std::string_view place);

/// Text of a list of classes of links: parse_link_profiles(print_link_profiles(x)) = x.
std::string print_link_profiles(const std::vector<LinkProfile>& links);

}  // namespace pipetwin
