#include "sim/calibration/step_range.h"

#include <array>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

namespace pipetwin::sim {

std::optional<ErrorRange> step_range(const Plan& plan,
                                     const SettledScenario& scenario,
                                     const Profile& profile) {
    const std::optional<CostSource>& source = plan->cost_source;
    if (source != CostSource::Estimated && source != CostSource::Datasheet) {
        return std::nullopt;
    }
    if (has_routed_experts(profile)) {
        return profile.run_calibrations.empty() ? std::nullopt : std::optional(corrected_error());
    }
    return estimate_error({.shards_weights = scenario.pipeline.shard == Shard::Weights,
                           .tensor_parallel = scenario.pipeline.tensor_parallel,
                           .calibrated = !profile.run_calibrations.empty()});
}

namespace {

struct Unit {
    std::int64_t nanoseconds;
    std::string_view name;
};

/// The largest unit that a duration has one of.
Unit unit_of(Duration duration) {
    constexpr std::array<Unit, 4> units{
        {{1'000'000'000, "s"}, {1'000'000, "ms"}, {1'000, "us"}, {1, "ns"}}};
    for (const Unit& unit : units) {
        if (duration.count() >= unit.nanoseconds) {
            return unit;
        }
    }
    return units.back();
}

/// Three digits, or all in front of the point.
std::string short_number(double value) {
    return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0);
}

}  // namespace

std::string range_text(Duration step, const ErrorRange& range) {
    const Unit unit = unit_of(step);
    const double in_unit =
        static_cast<double>(step.count()) / static_cast<double>(unit.nanoseconds);
    return fmt::format("{} to {} {}",
                       short_number(range.low * in_unit),
                       short_number(range.high * in_unit),
                       unit.name);
}

}  // namespace pipetwin::sim
