// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/device_profile.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/costs/devices/number_type.h"

namespace pipetwin {

MatrixEfficiency matrix_efficiency(const DeviceProfile& device, std::string_view precision) {
    constexpr MatrixEfficiency of_others{.large = 0.65, .half_size = 96};
    const auto& known = device.matrix_efficiencies;
    const auto listed = known.find(precision);
    const bool as_bf16 = listed == known.end() && precision == "fp8";
    const auto found = as_bf16 ? known.find("bf16") : listed;
    return found == device.matrix_efficiencies.end() ? of_others : found->second.value;
}

AttentionEfficiency attention_efficiency(const DeviceProfile& device) {
    constexpr AttentionEfficiency of_others{.forward = 0.6, .backward = 0.5, .half_sequence = 256};
    return device.attention_efficiency ? device.attention_efficiency->value : of_others;
}

LinkCost neighbour_link(const DeviceProfile& device) {
    const LinkFacts& facts = device.device_link ? *device.device_link : device.host_link;
    return {.latency = facts.latency.value, .bytes_per_second = facts.bytes_per_second.value};
}

LinkCost link_cost(const LinkProfile& link) {
    return {.latency = link.facts.latency.value,
            .bytes_per_second = link.facts.bytes_per_second.value,
            .half_bandwidth = link.half_bandwidth.value};
}

std::string_view to_string(ScaleCosts how) {
    switch (how) {
        case ScaleCosts::None:
            return "none";
        case ScaleCosts::Compute:
            return "compute";
        case ScaleCosts::Memory:
            return "memory";
        case ScaleCosts::Cautious:
            return "cautious";
    }
    PIPETWIN_EXPECT(false, "scaling of costs out of range");
}

double time_ratio(const DeviceProfile& from,
                  const DeviceProfile& to,
                  std::string_view precision,
                  ScaleCosts how) {
    const auto rate = [precision](const DeviceProfile& device) {
        return matrix_rate(
            device, precision, "scale by the memory rates: cluster.scale_costs = \"memory\"");
    };
    const auto compute = [&] { return rate(from) / rate(to); };
    const auto memory = [&] { return from.memory_rate.value / to.memory_rate.value; };
    switch (how) {
        case ScaleCosts::None:
            return 1;
        case ScaleCosts::Compute:
            return compute();
        case ScaleCosts::Memory:
            return memory();
        case ScaleCosts::Cautious:
            return std::max(compute(), memory());
    }
    PIPETWIN_EXPECT(false, "scaling of costs out of range");
}

double matrix_rate(const DeviceProfile& device, std::string_view precision, std::string hint) {
    const auto found = device.matrix_rates.find(rate_precision(precision));
    if (found == device.matrix_rates.end()) {
        std::vector<std::string_view> known;
        for (const auto& [name, rate] : device.matrix_rates) {
            known.push_back(name);
        }
        throw Error(
            ErrorKind::BadInput,
            fmt::format("device '{}'", device.name),
            fmt::format(
                "no matrix rate at precision '{}', only at {}", precision, fmt::join(known, ", ")),
            std::move(hint));
    }
    return found->second.value;
}

}  // namespace pipetwin
