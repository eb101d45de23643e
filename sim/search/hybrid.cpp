// SPDX-License-Identifier: Apache-2.0
#include "sim/search/hybrid.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/replica_sums.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/cluster.h"
#include "core/scenario/cost_table.h"
#include "core/scenario/rank_device.h"
#include "sim/engine/conditions.h"

namespace pipetwin::sim {

namespace {

void require_alike(const Scenario& scenario) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    if (!cluster.devices.empty() || !cluster.speeds.empty() ||
        cluster.placement == Placement::Written) {
        throw Error(ErrorKind::Infeasible,
                    scenario.file.string(),
                    "the hybrid shares out devices that are all alike, but [cluster] tells them "
                    "apart",
                    "leave out cluster.devices, cluster.speeds and a written cluster.placement, or "
                    "plan without --hybrid")
            .about("cluster.devices");
    }
}

void require_whole_experts(const Scenario& scenario, const Shape& shape) {
    if (shape.divides_experts()) {
        throw Error(
            ErrorKind::Infeasible,
            scenario.file.string(),
            fmt::format("the hybrid has replicas of whole stages, but the best plan divides "
                        "the experts of a layer (pipeline.expert_parallel = {})",
                        shape.expert_parallel),
            "plan without --hybrid")
            .about("pipeline.expert_parallel");
    }
}

/// Every device as a replica of one stage: what connects any number of them.
Cluster one_wide_stage(SettledScenario& scenario, const Profile& profile, int devices) {
    scenario.pipeline.data_parallel = devices;
    scenario.pipeline.shard_group = {};
    scenario.cluster.memory_limits.clear();
    return {scenario, profile, 1};
}

/// Rounded up, so that no part of a nanosecond is lost.
Duration one_of(Duration time, int parts) {
    return Duration{(time.count() + parts - 1) / parts};
}

}  // namespace

double Hybrid::samples_per_second() const {
    return micro_batch_size / to_seconds(split.largest);
}

Hybrid hybrid_like(const Scenario& scenario,
                   const Model& model,
                   const Profile& profile,
                   const FoundPlan& plan) {
    require_alike(scenario);
    require_whole_experts(scenario, plan.candidate.shape);
    SettledScenario wide = with_plan(scenario, plan);
    const Shape& shape = plan.candidate.shape;
    const int devices = std::max(scenario.cluster.count, shape.devices()) /
                        (shape.tensor_parallel * shape.context_parallel);
    const int micro_batches = shape.data_parallel * shape.micro_batches;
    const int size = std::max(1, scenario.training.batch / micro_batches);

    const Cluster cluster = one_wide_stage(wide, profile, devices);
    const ReplicaGroups groups = cluster.replica_groups(0);
    const DeviceGroup& group = groups.all;
    const LinkCost& link = group.members > group.per_node ? group.between : group.inside;
    LayerRules rules = cluster.layer_rules();
    rules.gathered = {};  // gradients are summed once
    const CostTable table = cost_table(model, profile, {size}, device_kinds(cluster), rules);
    const LayerSamples& samples = table.front().front();
    const auto layers = static_cast<int>(samples.size());
    const std::vector<StageState> states =
        stage_states(profile,
                     {samples},
                     Partition(std::vector<int>(samples.size(), 1), layers),
                     {.devices = shape.tensor_parallel});
    const bool recomputes = plan.recompute != RecomputeRules(Recompute::None);
    const StageCosts costs(model, samples);

    ReplicationProblem problem{};
    problem.devices = devices;
    for (int layer = 0; layer < layers; ++layer) {
        const StageCost cost = costs.of(layer, layer + 1);
        problem.work.push_back(cost.forward + (recomputes ? cost.recompute : Duration{}) +
                               cost.backward);
        problem.weights.push_back(states[as_index(layer)].weights);
        problem.boundary.push_back(layer == 0 ? Duration{} : occupation(link, cost.input));
    }
    const int gradient =
        gradient_bytes_per_byte(profile.precision, has_fp32_gradients(scenario, profile));
    const auto sum_of = [&](Bytes weights, int replicas) {
        ReplicaGroups some = groups;
        some.all.members = replicas;
        return whole_sums_time(some,
                               {.count = weights.count / bytes_per_number(profile.precision),
                                .bytes = weights * gradient});
    };
    problem.all_reduce = [&](Bytes weights, int replicas) {
        return one_of(sum_of(weights, replicas), micro_batches);
    };
    problem.replicas.resize(as_index(std::min(devices, micro_batches)));
    std::iota(problem.replicas.begin(), problem.replicas.end(), 1);

    Hybrid hybrid{.split = replicated_partition(problem),
                  .devices = devices,
                  .micro_batch_size = size,
                  .micro_batches = micro_batches};
    const Partition& partition = hybrid.split.partition;
    for (int stage = 0; stage < partition.stage_count(); ++stage) {
        const int first = partition.first_layer(stage);
        const auto sum = [&](const auto& of) {
            const auto begin = of.begin() + first;
            return std::accumulate(begin,
                                   begin + partition.layers_in(stage),
                                   typename std::decay_t<decltype(of)>::value_type{});
        };
        hybrid.work.push_back(sum(problem.work));
        hybrid.all_reduce.push_back(
            sum_of(sum(problem.weights), hybrid.split.replicas[as_index(stage)]));
    }
    return hybrid;
}

}  // namespace pipetwin::sim
