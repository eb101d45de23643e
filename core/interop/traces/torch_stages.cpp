// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/median.h"
#include "core/interop/traces/torch_trace.h"

/// Costs of the stages of a trace.
namespace pipetwin {

namespace {

using std::string_view;

/// The value at `share` of the sorted ones.
Duration percentile(std::vector<Duration> values, double share) {
    const auto index =
        static_cast<std::ptrdiff_t>(std::llround(share * static_cast<double>(values.size() - 1)));
    std::ranges::nth_element(values, values.begin() + index);
    return values[as_index(index)];
}

/// At most 100, the largest that a profile may state.
double spread(const std::vector<Duration>& values) {
    constexpr double largest = 100;
    const Duration middle = median(values);
    const Duration width = percentile(values, 0.9) - percentile(values, 0.1);
    return middle <= Duration{} ? 0 : std::min(largest, to_seconds(width) / to_seconds(middle));
}

[[noreturn]] void refuse_stage(int stage, string_view place, string_view what) {
    throw Error(ErrorKind::BadInput,
                std::string(place),
                fmt::format("stage {} has no {}", stage, what),
                "give the traces of all ranks, each with at least one whole step");
}

LayerSample stage_sample(int stage, const StageDurations& durations, string_view place) {
    if (durations.forward.empty()) {
        refuse_stage(stage, place, "forward (F)");
    }
    const bool in_parts = !durations.backward_input.empty() || !durations.backward_weight.empty();
    if (in_parts && durations.backward_input.empty()) {
        refuse_stage(stage, place, "backward of the input (I), but one of the weights (W)");
    }
    if (in_parts && durations.backward_weight.empty()) {
        refuse_stage(stage, place, "backward of the weights (W), but one of the input (I)");
    }
    if (!in_parts && durations.backward.empty()) {
        refuse_stage(stage, place, "backward (B, or I and W)");
    }
    LayerSample sample{.forward = median(durations.forward)};
    sample.spread = spread(durations.forward);
    if (in_parts) {
        sample.backward_input = median(durations.backward_input);
        sample.backward_weight = median(durations.backward_weight);
        sample.spread = std::max(
            {sample.spread, spread(durations.backward_input), spread(durations.backward_weight)});
    } else {
        const Duration whole = median(durations.backward);
        sample.backward_input = whole / 2;
        sample.backward_weight = whole - sample.backward_input;
        sample.spread = std::max(sample.spread, spread(durations.backward));
    }
    return sample;
}

}  // namespace

StageTimes stage_times(const Trace& trace) {
    StageTimes times;
    for (const Timeline& step : trace.timelines.steps) {
        for (const auto& row : step.ranks) {
            for (const Span& span : row) {
                StageDurations& stage = times[span.action.stage];
                const Duration duration = span.end - span.begin;
                switch (span.action.op) {
                    case Op::Forward:
                        stage.forward.push_back(duration);
                        break;
                    case Op::Backward:
                        stage.backward.push_back(duration);
                        break;
                    case Op::BackwardInput:
                        stage.backward_input.push_back(duration);
                        break;
                    case Op::BackwardWeight:
                        stage.backward_weight.push_back(duration);
                        break;
                    default:
                        break;
                }
            }
        }
    }
    return times;
}

Profile stage_profile(const StageTimes& stages, int micro_batch_size, string_view place) {
    Profile profile{.source = CostSource::Imported};
    for (const auto& [stage, durations] : stages) {
        const int expected = static_cast<int>(profile.layers.size());
        if (stage != expected) {
            refuse_stage(expected, place, "range at all, though there are later stages");
        }
        LayerSample sample = stage_sample(stage, durations, place);
        sample.micro_batch_size = micro_batch_size;
        profile.layers.push_back(
            {.name = fmt::format("stage{}", stage), .kind = "stage", .samples = {sample}});
    }
    check_profile(profile, place);
    return profile;
}

}  // namespace pipetwin
