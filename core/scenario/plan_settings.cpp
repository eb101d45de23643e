// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/plan_settings.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "core/base/number_text.h"
#include "core/plan/cost_notes.h"
#include "core/plan/shape_notes.h"
#include "core/scenario/cluster/network_notes.h"

namespace pipetwin {

namespace {

/// "1f1b", or the name of the schedule file.
std::string schedule_name(const SettledScenario& scenario) {
    const std::string& schedule = scenario.pipeline.schedule;
    return has_schedule_file(scenario) ? std::filesystem::path(schedule).filename().string()
                                       : schedule;
}

/// Messages beside products go through buffers as large as the input of a block.
void add_tensor_buffers(PlanParts& parts, const Profile& profile, const Cluster& cluster) {
    const Bytes input = samples_at(profile, parts.micro_batch_sizes.front()).front().output;
    const Bytes buffers{
        static_cast<std::int64_t>(cluster.tensor_buffers() * static_cast<double>(input.count))};
    for (std::size_t rank = 0; rank < parts.context.size(); ++rank) {
        parts.context_parts[rank].tensor_buffers = buffers;
        parts.context[rank] += buffers;
    }
}

AskedShape asked_shape(const SettledScenario& scenario) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    return {.schedule = pipeline.schedule,
            .chunks = pipeline.chunks,
            .group_size = pipeline.group_size,
            .micro_batches = pipeline.micro_batches,
            .samples = replica_batch(scenario),
            .data_parallel = pipeline.data_parallel,
            .tensor_parallel = pipeline.tensor_parallel,
            .stages = pipeline.stages,
            .sequence_parallel = pipeline.sequence_parallel,
            .tensor_overlap = pipeline.tensor_overlap == true,
            .scatter_boundaries = pipeline.scatter_boundaries,
            .shard = to_string(pipeline.shard),
            .shard_group = !pipeline.shard_group.is_all(),
            .overlap_gather = pipeline.overlap_gather == true,
            .prefetch = pipeline.prefetch};
}

void add(std::vector<std::string>& notes, std::vector<std::string> more) {
    std::ranges::move(more, std::back_inserter(notes));
}

}  // namespace

PlanParts plan_settings(const SettledScenario& scenario, const Profile& profile) {
    PlanParts parts;
    parts.schedule_name = schedule_name(scenario);
    parts.stale_gradients = has_stale_gradients(scenario);
    parts.chunks = scenario.pipeline.chunks;
    parts.recompute = scenario.pipeline.recompute;
    parts.recompute_timing = scenario.pipeline.recompute_timing;
    parts.layer_recompute = scenario.pipeline.layer_recompute;
    parts.recompute_blocks = scenario.pipeline.recompute_blocks;
    parts.recompute_only = scenario.pipeline.recompute_only;
    parts.channel_capacity = scenario.pipeline.channel_capacity.known();
    parts.dispatch = profile.dispatch;
    parts.replicas = scenario.pipeline.data_parallel;
    parts.prefetch = 2 * scenario.pipeline.prefetch;  // a block has two layers
    parts.tensor_parallel = scenario.pipeline.tensor_parallel;
    parts.sequence_parallel =
        scenario.pipeline.tensor_parallel > 1 && scenario.pipeline.sequence_parallel;
    parts.context_parallel = scenario.pipeline.context_parallel;
    parts.expert_parallel = scenario.pipeline.expert_parallel;
    parts.expert_tensor_parallel = scenario.pipeline.expert_tensor_devices();
    parts.overlap_reduction = scenario.pipeline.overlap_reduction;
    // For a mini-batch smaller than their number there are as many as samples.
    parts.micro_batch_sizes =
        micro_batch_sizes(replica_batch(scenario), scenario.pipeline.micro_batches);
    return parts;
}

void add_memory(PlanParts& parts,
                const SettledScenario& scenario,
                const Profile& profile,
                const Cluster& cluster) {
    const Scenario::ClusterPart& written = scenario.cluster;
    bool any_profile = false;
    bool any_context = false;
    for (const RankDevice& device : cluster.devices()) {
        parts.context.push_back(device.context);
        parts.context_parts.push_back(device.parts);
        any_profile = any_profile || device.profile != nullptr;
        any_context = any_context || device.context > Bytes{};
    }
    if (!any_profile && !any_context) {
        parts.context.clear();
        parts.context_parts.clear();
    } else {
        add_tensor_buffers(parts, profile, cluster);
    }
    parts.allocator_reserve =
        allocator_reserve(written.allocator_reserve, stack_of(scenario, profile).get());
    const bool no_limits = !written.memory_limit && written.memory_limits.empty() && !any_profile;
    if (no_limits || (written.memory_limit && parts.allocator_reserve == 0)) {
        parts.memory_limit = written.memory_limit;
        return;
    }
    for (const RankDevice& device : cluster.devices()) {
        parts.memory_limits.push_back(device.memory_limit.value());
    }
}

void add_notes(PlanParts& parts, const NotedPlan& of) {
    const std::vector<RankDevice>& devices = of.cluster.devices();
    add(parts.notes, device_notes(of.scenario, of.profile, devices));
    add(parts.notes, network_notes(of.cluster));
    add(parts.notes, spread_notes(of.profile));
    add(parts.notes, shape_notes(asked_shape(of.scenario)));
    std::vector<std::string> scaled = size_notes(of.profile, of.micro_batch_sizes);
    const bool estimated = !scaled.empty() || std::ranges::any_of(devices, &RankDevice::scaled) ||
                           std::ranges::any_of(of.profile.layers, [](const LayerCost& layer) {
                               return layer.source == CostSource::Estimated;
                           });
    add(parts.notes, std::move(scaled));
    parts.cost_source = estimated ? CostSource::Estimated : of.profile.source;
    if (of.offloaded_blocks > 0) {
        parts.notes.push_back(fmt::format(
            "activations of the first {} are in host memory until their backward "
            "(pipeline.offload_blocks{}): {} for each device",
            counted(of.offloaded_blocks, "block"),
            of.scenario.pipeline.offload_blocks.is_auto() ? ", as many as are needed" : "",
            format_bytes(of.in_host_memory)));
    }
    const Scenario::ClusterPart& written = of.scenario.cluster;
    const bool sets_interference = written.interference || !written.pair_interference.empty();
    add(parts.notes, share_notes(of.profile, parts.tensor_parallel));
    add(parts.notes, gpu_notes(of.profile, of.grid, parts.schedule_name, sets_interference));
    if (of.grid.tied_ends) {
        parts.notes.push_back(tied_note(of.profile.precision, of.rules));
    }
}

}  // namespace pipetwin
