// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/cluster/link_choice.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/costs/devices/shipped_profiles.h"

namespace pipetwin {

std::optional<LinkCost> profiled_link(const Profile& profile, std::string_view between) {
    const auto found = std::ranges::find(profile.links, between, &LinkCost::between);
    return found == profile.links.end() ? std::nullopt : std::optional(*found);
}

WrittenLink written_link(const std::string& name, double gigabits_per_second, double latency_us) {
    return {.of_class = name.empty() ? std::nullopt : std::optional(link_cost(find_link(name))),
            .gigabits_per_second = gigabits_per_second,
            .latency_us = latency_us};
}

LinkCost slower(const LinkCost& a, const LinkCost& b) {
    if ((a.bytes_per_second == 0) != (b.bytes_per_second == 0)) {
        return a.bytes_per_second == 0 ? b : a;
    }
    if (a.bytes_per_second != b.bytes_per_second) {
        return a.bytes_per_second < b.bytes_per_second ? a : b;
    }
    return a.latency < b.latency ? b : a;
}

LinkCost faster_link(LinkCost link, double factor) {
    if (std::isinf(factor)) {
        return {.between = std::move(link.between)};
    }
    // Rounded down, as in sim/explain/sensitivity.h.
    link.latency =
        Duration{static_cast<std::int64_t>(static_cast<double>(link.latency.count()) / factor)};
    link.bytes_per_second *= factor;
    return link;
}

LinkCost WrittenLink::put_over(LinkCost link) const {
    if (of_class) {
        const std::string between = link.between;
        link = *of_class;
        link.between = between;
    }
    if (gigabits_per_second > 0) {
        link.bytes_per_second = gigabits_per_second * 1e9 / 8;
        link.half_bandwidth = {};
    }
    if (latency_us > 0) {
        link.latency = from_milliseconds(latency_us / 1e3, "link latency");
    }
    return link;
}

}  // namespace pipetwin
