// SPDX-License-Identifier: Apache-2.0
#include "core/costs/estimate_error.h"

#include <array>

#include <fmt/format.h>

namespace pipetwin {

namespace {

ErrorRange of_kind(const RunKind& run) {
    if (run.shards_weights) {
        return {.low = 0.85, .high = 1.21, .of = "published runs with sharded weights"};
    }
    if (run.tensor_parallel > 1) {
        return {.low = 0.77, .high = 1.34, .of = "published runs with tensor parallelism"};
    }
    return {.low = 0.92, .high = 1.13, .of = "published runs without tensor parallelism"};
}

constexpr std::array<std::string_view, 4> devices_with_sharded_weights{
    "a100-sxm-80", "h100-sxm", "h100-sxm-96", "h200-sxm"};
constexpr std::array<std::string_view, 3> devices_with_whole_weights{
    "a100-sxm-80", "h100-sxm", "b200"};

}  // namespace

std::string unseen_text(const ErrorRange& range) {
    return range.unseen_device.empty()
               ? ""
               : fmt::format("; none of them was on {}", range.unseen_device);
}

std::span<const std::string_view> devices_of_runs(const RunKind& run) {
    return run.shards_weights ? std::span<const std::string_view>(devices_with_sharded_weights)
                              : devices_with_whole_weights;
}

ErrorRange corrected_error() {
    return {
        .low = 0.83, .high = 1.20, .of = "published runs corrected by another run of their model"};
}

ErrorRange estimate_error(const RunKind& run) {
    const ErrorRange estimated = of_kind(run);
    const ErrorRange corrected = corrected_error();
    const auto width = [](const ErrorRange& range) { return range.high - range.low; };
    // A measured run of the cluster makes no prediction worse.
    return run.calibrated && width(corrected) < width(estimated) ? corrected : estimated;
}

double order_error(CostSource source) {
    switch (source) {
        case CostSource::Estimated:
        case CostSource::Datasheet:
            return 0.13;
        case CostSource::Imported:
            return 0.03;
        case CostSource::Measured:
            return 0.02;
    }
    return 0.13;
}

}  // namespace pipetwin
