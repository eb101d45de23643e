// SPDX-License-Identifier: Apache-2.0
#include "cli/text/gpu_text.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace pipetwin::cli {

namespace {

std::string amount_text(const exec::UnplannedMemory& line) {
    const bool alike =
        line.ranks.size() > 1 &&
        std::ranges::adjacent_find(line.ranks, std::not_equal_to<>()) == line.ranks.end();
    return alike                   ? format_bytes(line.ranks.front()) + " per rank"
           : line.ranks.size() > 1 ? format_bytes(line.total) + " in all ranks together"
                                   : format_bytes(line.total);
}

}  // namespace

std::string memory_beside_text(const std::vector<exec::UnplannedMemory>& beside) {
    if (beside.empty()) {
        return {};
    }
    std::vector<std::string> lines;
    for (const exec::UnplannedMemory& line : beside) {
        lines.push_back(fmt::format("{} {}", line.name, amount_text(line)));
    }
    return fmt::format("memory outside the plan: {}", fmt::join(lines, ", "));
}

Json memory_beside_json(const std::vector<exec::UnplannedMemory>& beside) {
    Json json = Json::array();
    for (const exec::UnplannedMemory& line : beside) {
        json.push_back({{"name", line.name}, {"bytes", line.total.count}, {"ranks", nullptr}});
        if (!line.ranks.empty()) {
            json.back()["ranks"] = Json::array();
            for (const Bytes bytes : line.ranks) {
                json.back()["ranks"].push_back(bytes.count);
            }
        }
    }
    return json;
}

std::vector<std::string> measured_text(const MeasuredDevice& device) {
    const exec::CudaRates& rates = device.rates;
    const auto rate = [](double bytes_per_second) {
        return fmt::format("{:.4g} GB/s", bytes_per_second / 1e9);
    };
    return {
        fmt::format(
            "{} free of {}", format_bytes(device.memory.free), format_bytes(device.memory.total)),
        fmt::format("matrix products {:.4g} TFLOP/s bf16, {:.4g} TFLOP/s fp32",
                    rates.bf16_flops / 1e12,
                    rates.fp32_flops / 1e12),
        fmt::format("copies {} on the device, {} from pinned host memory, {} to it",
                    rate(rates.device_copy),
                    rate(rates.to_device),
                    rate(rates.from_device))};
}

Json rates_json(const exec::CudaRates& rates) {
    return {{"bf16_flops_per_second", rates.bf16_flops},
            {"fp32_flops_per_second", rates.fp32_flops},
            {"device_copy_bytes_per_second", rates.device_copy},
            {"host_to_device_bytes_per_second", rates.to_device},
            {"device_to_host_bytes_per_second", rates.from_device}};
}

}  // namespace pipetwin::cli
