// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/plan_json.h"

#include <nlohmann/json.hpp>

#include "core/costs/contention.h"
#include "core/costs/profile.h"
#include "core/plan/plan.h"
#include "core/plan/stage_cost.h"
#include "core/schedule/recompute.h"
#include "core/schedule/validate.h"
#include "core/timeline/footprint.h"

namespace pipetwin {

namespace {

using nlohmann::ordered_json;

constexpr int plan_schema_version = 1;

template <class T>
ordered_json or_null(const std::optional<T>& value) {
    return value ? ordered_json(*value) : ordered_json(nullptr);
}

template <class Values, class ToJson>
ordered_json array_of(const Values& values, ToJson to_json) {
    ordered_json array = ordered_json::array();
    for (const auto& value : values) {
        array.push_back(to_json(value));
    }
    return array;
}

ordered_json cost_json(const StageCost& cost) {
    return {{"forward_ns", cost.forward.count()},
            {"recompute_ns", cost.recompute.count()},
            {"backward_ns", cost.backward.count()},
            {"backward_input_ns", cost.backward_input.count()},
            {"backward_weight_ns", cost.backward_weight.count()},
            {"input_bytes", cost.input.count},
            {"output_bytes", cost.output.count},
            {"saved_bytes", cost.saved.count},
            {"forward_drop_peak_bytes", cost.forward_drop_peak.count},
            {"backward_peak_bytes", cost.backward_peak.count}};
}

ordered_json state_json(const StageState& state) {
    ordered_json object{{"weights_bytes", state.weights.count},
                        {"gradients_bytes", state.gradients.count},
                        {"optimizer_state_bytes", state.optimizer_state.count},
                        {"workspace_bytes", (state.workspace + state.gathered).count},
                        {"optimizer_ns", state.optimizer.count()},
                        {"norm_ns", state.norm.count()}};
    if (state.running > Bytes{}) {
        object["running_bytes"] = state.running.count;
    }
    return object;
}

ordered_json link_json(const LinkCost& link) {
    return {{"between", link.between},
            {"latency_ns", link.latency.count()},
            {"bytes_per_second", link.bytes_per_second},
            {"half_bandwidth_bytes", link.half_bandwidth.count}};
}

/// The keys of `peak_bytes` in every JSON result.
ordered_json peak_json(const MemoryUse& peak) {
    ordered_json object{{"total", peak.total().count}};
    for (int kind = 0; kind < memory_kind_count; ++kind) {
        const auto which = static_cast<MemoryKind>(kind);
        object[std::string(to_string(which))] = peak[which].count;
    }
    return object;
}

ordered_json contention_json(const Contention& contention) {
    ordered_json links = ordered_json::array();
    for (std::size_t link = 0; link < contention.shared_links.size(); ++link) {
        links.push_back(
            {{"name",
              contention.link_names.empty() ? ordered_json(nullptr)
                                            : ordered_json(contention.link_names[link])},
             {"bytes_per_second", contention.shared_links[link]}});
    }
    return {{"cores", contention.cores},
            {"interference", contention.interference},
            {"link_sharing", contention.sharing == LinkSharing::Fair ? "fair" : "fifo"},
            {"shared_links", std::move(links)},
            {"way_of_edge", contention.way_of_edge},
            {"way_of_copies", contention.way_of_copies}};
}

}  // namespace

ordered_json recompute_json(const RecomputeRules& rules, LayerRecompute of_layers) {
    if (of_layers != LayerRecompute::None) {
        return to_string(of_layers);
    }
    return rules.everywhere() ? ordered_json(to_string(rules))
                              : array_of(rules.modes(), [](Recompute mode) {
                                    return ordered_json(to_string(mode));
                                });
}

std::string print_plan(const Plan& plan) {
    const PlanParts& parts = plan.parts();
    const auto stage_costs = [](const std::vector<StageCost>& costs) {
        return array_of(costs, cost_json);
    };
    std::optional<std::vector<int>> partition;
    if (parts.partition) {
        partition = parts.partition->layers_per_stage();
    }
    std::optional<std::int64_t> memory_limit;
    if (parts.memory_limit) {
        memory_limit = parts.memory_limit->count;
    }
    std::optional<ordered_json> host_link;
    if (parts.host_link) {
        host_link = link_json(*parts.host_link);
    }
    const auto count = [](Bytes bytes) { return ordered_json(bytes.count); };
    const auto nanoseconds = [](Duration time) { return ordered_json(time.count()); };
    std::optional<std::string_view> source;
    if (parts.cost_source) {
        source = to_string(*parts.cost_source);
    }
    ordered_json root{{"schema_version", plan_schema_version},
                      {"hash", plan.hash()},
                      {"schedule", parts.schedule_name},
                      {"ranks", plan.rank_count()},
                      {"chunks", parts.chunks},
                      {"micro_batches", plan.micro_batches()},
                      {"recompute", recompute_json(parts.recompute, parts.layer_recompute)},
                      {"recompute_blocks", parts.recompute_blocks},
                      {"recompute_only", parts.recompute_only},
                      {"recompute_timing", to_string(parts.recompute_timing)},
                      {"stale_gradients", parts.stale_gradients},
                      {"rank_of_stage", parts.schedule.rank_of_stage},
                      {"weights_of_stage", parts.schedule.weights_of_stage},
                      {"partition", or_null(partition)},
                      {"layer_names", parts.layer_names},
                      {"micro_batch_sizes", parts.micro_batch_sizes},
                      {"cost_class", parts.cost_class},
                      {"costs", array_of(parts.costs, stage_costs)},
                      {"states", array_of(parts.states, state_json)},
                      {"links", array_of(parts.links, link_json)},
                      {"reductions", array_of(parts.reductions, link_json)},
                      {"tied_gradient_bytes", parts.tied_gradient.count},
                      {"host_link", or_null(host_link)},
                      {"dispatch_ns", parts.dispatch.count()},
                      {"channel_capacity", or_null(parts.channel_capacity)},
                      {"smallest_capacity", smallest_capacity(parts.schedule)},
                      {"memory_limit_bytes", or_null(memory_limit)},
                      {"memory_limits_bytes", array_of(parts.memory_limits, count)},
                      {"context_bytes", array_of(parts.context, count)},
                      {"replicas", parts.replicas},
                      {"tensor_parallel", parts.tensor_parallel},
                      {"all_reduce_ns", array_of(parts.all_reduce, nanoseconds)},
                      {"overlap_reduction", parts.overlap_reduction},
                      {"weight_gather_ns", array_of(parts.weight_gather, nanoseconds)},
                      {"cost_source", or_null(source)},
                      {"notes", parts.notes},
                      {"peak_bytes", array_of(peak_memory(plan), peak_json)}};
    if (!parts.bucketed_sums.empty()) {
        const auto sums_json = [](const BucketedSums& sums) {
            return ordered_json{{"head_ns", sums.head.count()},
                                {"tail_ns", sums.tail.count()},
                                {"slowed_ns", sums.slowed.count()}};
        };
        root["bucketed_sums"] = array_of(parts.bucketed_sums, sums_json);
    }
    if (parts.contention.any()) {
        root["contention"] = contention_json(parts.contention);
    }
    if (!parts.message_bytes.empty()) {  // of models with branches alone
        const auto pair = [](const StagePair& stages) {
            return ordered_json{stages.from, stages.to};
        };
        root["skips"] = array_of(parts.schedule.skips, pair);
        root["message_bytes"] = array_of(
            parts.message_bytes,
            [&count](const std::vector<Bytes>& of_pairs) { return array_of(of_pairs, count); });
    }
    return root.dump(1) + "\n";
}

}  // namespace pipetwin
