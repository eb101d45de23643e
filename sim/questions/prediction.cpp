// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/prediction.h"

#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/costs/profile_json.h"
#include "core/model/model.h"
#include "core/plan/offload.h"
#include "core/scenario/cost_table.h"
#include "core/timeline/memory_limits.h"
#include "sim/explain/breakdown.h"
#include "sim/questions/plan_memory.h"
#include "sim/search/partition_choice.h"
#include "sim/simulate/replay_error.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

Trace trace_of(const Plan& plan, TimelineSet timelines) {
    Trace trace;
    trace.plan_hash = plan.hash();
    trace.schedule_name = plan->schedule_name;
    trace.schedule = plan->schedule;
    trace.channel_capacity = plan->channel_capacity;
    trace.samples = plan.samples();
    trace.timelines = std::move(timelines);
    if (plan->partition) {  // plain numbers know no bytes
        trace.memory = footprint(plan, trace.timelines.steps.front());
    }
    return trace;
}

std::optional<OffloadEffect> offload_effect(const Plan& plan) {
    if (!plan->host_link) {
        return std::nullopt;
    }
    OffloadEffect effect;
    for (const auto& copies : stash_copies(plan)) {
        Bytes& copied = effect.copied.emplace_back();
        for (const StashCopy& copy : copies) {
            copied += copy.bytes;
        }
    }
    effect.peaks_on_device = peak_memory(plan);
    Conditions on_device = planned_conditions(plan);
    on_device.host_link.reset();
    effect.step_on_device = replayed_step(plan, on_device);
    return effect;
}

}  // namespace

Prediction predict(Plan plan) {
    const Undertaking undertaking =
        undertaking_of_plan({.stages = plan.stage_count(), .micro_batches = plan.micro_batches()});
    Timeline timeline = simulate(plan);
    Metrics metrics = measure(plan, timeline);
    const Breakdown parts = breakdown(plan, timeline);
    const MessagesInActions messages = messages_in_actions(plan, timeline);
    if (messages.shards > Duration{} || messages.tensor > Duration{}) {
        timeline.in_groups = times_in_groups(plan);
    }
    const IdleTime idle = idle_time(plan, timeline);
    std::vector<CriticalStep> critical = critical_path(plan, timeline);
    std::optional<OffloadEffect> offload = offload_effect(plan);
    return {.plan = std::move(plan),
            .timeline = std::move(timeline),
            .metrics = std::move(metrics),
            .breakdown = parts,
            .messages = messages,
            .idle = idle,
            .critical_path = std::move(critical),
            .offload = std::move(offload)};
}

Prediction predict(const SettledScenario& scenario,
                   const Model& model,
                   const Profile& profile,
                   std::optional<Bytes> memory_left,
                   FlopsCount flops_count) {
    Prediction prediction = predict(settled_plan(scenario, model, profile, memory_left));
    prediction.outlook =
        outlook(prediction.plan, prediction.metrics, scenario, profile, flops_count);
    return prediction;
}

Plan settled_plan(const SettledScenario& scenario,
                  const Model& model,
                  const Profile& profile,
                  std::optional<Bytes> memory_left) {
    const PlanSize size{.stages = std::int64_t{scenario.pipeline.stages} * scenario.pipeline.chunks,
                        .micro_batches = scenario.pipeline.micro_batches};
    expect_memory_for(size, "pipeline.micro_batches", memory_left);
    const Undertaking undertaking = undertaking_of_plan(size);
    Plan plan = make_settled_plan(scenario, model, profile);
    if (plan->host_link) {
        check_memory(plan, peak_memory(plan, simulate(plan)));
    } else {
        check_memory(plan);
    }
    return plan;
}

Trace predicted_trace(const Prediction& prediction) {
    TimelineSet timelines;
    timelines.steps.push_back(prediction.timeline);
    timelines.breakdown = prediction.breakdown;
    timelines.noise.steps = 1;
    if (prediction.plan->partition) {
        for (const DeviceMetrics& device : prediction.metrics.devices) {
            timelines.peak_bytes.push_back(device.peak.use.total());
        }
    }
    return trace_of(prediction.plan, std::move(timelines));
}

Trace measured_trace(const Plan& plan, TimelineSet measured) {
    if (!measured.breakdown) {
        measured.breakdown = breakdown(plan, median_step(measured));
    }
    if (!measured.replayed_step) {
        measured.replayed_step = replay_of_own_durations(plan, median_step(measured));
    }
    return trace_of(plan, std::move(measured));
}

}  // namespace pipetwin::sim
