// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/usual_cluster.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/costs/devices/shipped_profiles.h"

namespace pipetwin {

std::string usual_cluster(const std::string& device) {
    constexpr std::string_view tpu = "tpu-";
    const std::vector<std::string> known = cluster_names();
    const std::string slice =
        device.starts_with(tpu) ? device.substr(tpu.size()) : device;  // as "v5p" of tpu-v5p
    for (const std::string& name :
         {fmt::format("8x-{}", device), fmt::format("{}-nvl72", device), slice}) {
        if (std::ranges::count(known, name) > 0) {
            return name;
        }
    }
    return {};
}

}  // namespace pipetwin
