// SPDX-License-Identifier: Apache-2.0
#include "core/costs/estimate_error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>

#include <fmt/format.h>

#include "core/base/number_text.h"
#include "core/costs/devices/evidence.h"
#include "core/costs/devices/measured_layout.h"
#include "core/costs/devices/shipped_profiles.h"

namespace pipetwin {

namespace {

ErrorRange of_kind(const RunKind& run) {
    if (run.shards_weights) {
        return {.low = 0.85, .high = 1.17, .of = "published runs with sharded weights"};
    }
    if (run.tensor_parallel > 1) {
        return {.low = 0.77, .high = 1.34, .of = "published runs with tensor parallelism"};
    }
    return {.low = 0.87, .high = 1.13, .of = "published runs without tensor parallelism"};
}

constexpr std::array<std::string_view, 4> devices_with_sharded_weights{
    "a100-sxm-80", "h100-sxm", "h100-sxm-96", "h200-sxm"};
constexpr std::array<std::string_view, 3> devices_with_whole_weights{
    "a100-sxm-80", "h100-sxm", "b200"};

}  // namespace

std::string unseen_text(const ErrorRange& range) {
    std::string text;
    if (!range.unseen_device.empty()) {
        text += fmt::format("; none of them was on {}", range.unseen_device);
    }
    if (range.largest_measured > 0) {
        text += fmt::format("; largest measured: {}", counted(range.largest_measured, "device"));
    }
    return text;
}

std::span<const std::string_view> devices_of_runs(const RunKind& run) {
    return run.shards_weights ? std::span<const std::string_view>(devices_with_sharded_weights)
                              : devices_with_whole_weights;
}

ErrorRange corrected_error() {
    return {
        .low = 0.83, .high = 1.20, .of = "published runs corrected by another run of their model"};
}

ErrorRange range_of_stack(const Evidence& evidence,
                          std::string_view stack,
                          std::string_view device,
                          int devices,
                          bool experts) {
    constexpr double of_other_device = 1.5;
    constexpr double of_other_stack = 2;
    constexpr double of_doubling = 0.02;
    double wider = 1;
    const std::string published =
        experts ? "published runs of models with experts" : "published runs";
    ErrorRange range{.of = fmt::format("{} of {} on {}", published, stack, device)};
    const PublishedRange* runs = evidence.range_of(stack, device, experts);
    if (runs == nullptr) {
        wider = of_other_device;
        runs = evidence.range_of(stack, "", experts);
        range.of = fmt::format("{} of {}", published, stack);
        range.unseen_device = device;
    }
    if (runs == nullptr) {
        wider = of_other_stack;
        runs = evidence.range_of("", "", experts);
        range.of = fmt::format("{} of other stacks", published);
    }
    if (runs == nullptr) {
        return range;
    }
    double scale = 1;
    if (devices > runs->largest_devices) {
        scale += of_doubling * std::log2(static_cast<double>(devices) / runs->largest_devices);
        range.largest_measured = runs->largest_devices;
    }
    range.low = std::pow(runs->low, wider) / scale;
    range.high = std::pow(runs->high, wider) * scale;
    return range;
}

ErrorRange estimate_error(const RunKind& run) {
    const ErrorRange estimated =
        run.stack.empty()
            ? of_kind(run)
            : range_of_stack(*shipped_evidence(), run.stack, run.device, run.devices, run.experts);
    const ErrorRange corrected = corrected_error();
    const auto width = [](const ErrorRange& range) { return range.high - range.low; };
    // A measured run of the cluster makes no prediction worse.
    return run.calibrated && width(corrected) < width(estimated) ? corrected : estimated;
}

namespace {

/// Nine of ten values of a normal distribution lie within so many standard deviations.
constexpr double nine_of_ten = 1.645;

/// Runs that published spreads weigh as much as.
constexpr double published_weight = 4;

struct Spread {
    double share;
    const char* of;
};

/// By nearness, of published runs with stacks that others correct; every set weighs the same: 472
/// predictions of 20 sets by another run of their set, 328 of 7 and 890 of 11, and 396 of 30 by all
/// runs of other models (bench/published_calibration --stacks).
constexpr std::array<Spread, 4> spreads{
    {{0.059, "this layout"},
     {0.14, "these stages with other micro-batches, schedule or shard"},
     {0.24, "other layouts of this model"},
     {0.113, "other models"}}};

const Spread& spread_of(Nearness nearness) {
    return spreads[static_cast<std::size_t>(nearness)];
}

std::size_t models_of(std::span<const MeasuredLayout> runs) {
    std::set<std::int64_t> models;
    for (const MeasuredLayout& run : runs) {
        models.insert(run.parameters);
    }
    return models.size();
}

/// What a run has in common with the nearest of the others.
Nearness nearest_of(std::span<const MeasuredLayout> runs, const MeasuredLayout& run) {
    Nearness nearest = Nearness::OtherModel;
    for (const MeasuredLayout& other : runs) {
        if (&other != &run) {
            nearest = std::min(nearest, nearness(other, run));
        }
    }
    return nearest;
}

}  // namespace

bool is_far_from_measured(std::span<const MeasuredLayout> runs, const MeasuredLayout& asked) {
    return nearest_of(runs, asked) >= Nearness::OtherLayout;
}

double published_spread(Nearness nearness) {
    return spread_of(nearness).share;
}

ErrorRange range_of_measured(std::span<const MeasuredLayout> runs, const MeasuredLayout& asked) {
    constexpr double of_doubling = 0.02;
    const Nearness nearest = nearest_of(runs, asked);
    int largest = 1;
    double squares = 0;
    double known = 0;
    for (const MeasuredLayout& run : runs) {
        largest = std::max(largest, run.devices);
        if (run.left_out && nearest_of(runs, run) >= nearest) {
            squares += std::pow(std::log1p(*run.left_out), 2);
            ++known;
        }
    }
    double published = std::log1p(published_spread(nearest)) / nine_of_ten;
    if (nearest == Nearness::OtherModel) {
        published *= std::sqrt(1 + 1 / static_cast<double>(models_of(runs)));
    }
    const double deviation = std::sqrt((published_weight * published * published + squares) /
                                       (published_weight + known));
    ErrorRange range{.of = fmt::format("predictions by {} of {}",
                                       counted(std::ssize(runs), "measured run"),
                                       spread_of(nearest).of)};
    double scale = std::exp(nine_of_ten * deviation);
    if (asked.devices > largest) {
        scale *= 1 + of_doubling * std::log2(static_cast<double>(asked.devices) / largest);
        range.largest_measured = largest;
    }
    range.low = 1 / scale;
    range.high = scale;
    return range;
}

double order_error(CostSource source, std::string_view stack) {
    if (!stack.empty() && (source == CostSource::Estimated || source == CostSource::Datasheet)) {
        const auto evidence = shipped_evidence();
        for (const PublishedRange* const runs :
             {evidence->range_of(stack, ""), evidence->range_of("", "")}) {
            if (runs != nullptr && runs->order_error) {
                return *runs->order_error;
            }
        }
    }
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
