// SPDX-License-Identifier: Apache-2.0
#include "tests/support/scenario_plans.h"

#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "core/model/model.h"
#include "tests/support/error_of.h"

namespace pipetwin::testing {

LayerCost layer(
    const std::string& name, int forward, int output, int saved, std::vector<std::string> inputs) {
    LayerCost cost{.name = name, .inputs = std::move(inputs)};
    cost.parameter_bytes = Bytes{100};
    cost.optimizer = Duration(7);
    for (const int size : {1, 16}) {
        cost.samples.push_back({.micro_batch_size = size,
                                .forward = Duration(forward * size),
                                .backward_input = Duration(2 * forward * size),
                                .backward_weight = Duration(forward * size),
                                .input = Bytes{3 * size},
                                .output = Bytes{output * size},
                                .saved = Bytes{saved * size},
                                .workspace = Bytes{forward}});
    }
    return cost;
}

Profile chain_profile() {
    return {.dispatch = Duration(1),
            .layers = {layer("a", 10, 5, 13),
                       layer("b", 20, 7, 17),
                       layer("c", 30, 11, 64),
                       layer("d", 20, 2, 23),
                       layer("e", 40, 0, 31)},
            .links = {
                {.latency = Duration(800), .bytes_per_second = 1e9, .half_bandwidth = Bytes{10}}}};
}

int below(std::mt19937_64& random, int end) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(end));
}

Profile random_chain(std::mt19937_64& random, int fewest, int most) {
    Profile profile{.dispatch = Duration(below(random, 3))};
    const int layers = fewest == most ? most : fewest + below(random, most - fewest + 1);
    for (int i = 0; i < layers; ++i) {
        const int saved = 1 + below(random, 60);
        const int output = i + 1 < layers ? 1 + below(random, 40) : 0;
        const int forward = 1 + below(random, 100);
        profile.layers.push_back(layer(fmt::format("l{}", i), forward, output, saved));
    }
    profile.links = {{.latency = Duration(below(random, 50)), .bytes_per_second = 1e9}};
    return profile;
}

SettledScenario scenario_of(int stages, int micro_batches, int batch) {
    SettledScenario scenario;
    scenario.file = "x.toml";
    scenario.model.kind = ModelKind::Profile;
    scenario.training.batch = batch;
    scenario.pipeline.stages = stages;
    scenario.pipeline.micro_batches = micro_batches;
    scenario.pipeline.recompute = Recompute::None;
    return scenario;
}

Scenario open_scenario(int batch) {
    Scenario scenario = scenario_of(1, 1, batch).as_scenario();
    Scenario::PipelinePart& pipeline = scenario.pipeline;
    pipeline.stages.open();
    pipeline.micro_batches.open();
    pipeline.schedule.open();
    pipeline.chunks.open();
    pipeline.data_parallel.open();
    pipeline.recompute.open();
    return scenario;
}

SettledScenario RandomPipelines::scenario(const AskedSchedule& asked, int ranks) {
    const int micro_batches = ranks * (1 + below(3));
    SettledScenario scenario = scenario_of(ranks, micro_batches, micro_batches * (1 + below(2)));
    scenario.pipeline.schedule = asked.schedule;
    scenario.pipeline.chunks = asked.chunks;
    return scenario;
}

SettledScenario RandomPipelines::scenario_with_limit(const AskedSchedule& asked, int ranks) {
    SettledScenario limited = scenario(asked, ranks);
    if (below(2) == 0) {
        limited.cluster.memory_limit = Bytes{400 + below(3000)};
    }
    return limited;
}

SettledScenario partitioned(std::vector<int> pieces, int micro_batches, int batch) {
    SettledScenario scenario = scenario_of(static_cast<int>(pieces.size()), micro_batches, batch);
    scenario.pipeline.partition = std::move(pieces);
    return scenario;
}

Profile long_and_short_layer() {
    return {.dispatch = Duration(1), .layers = {layer("a", 4000, 5, 13), layer("b", 1000, 0, 31)}};
}

SettledScenario sharded_over_nodes() {
    SettledScenario scenario = partitioned({2}, 2, 8);
    scenario.pipeline.data_parallel = 4;
    scenario.pipeline.shard = Shard::Weights;
    scenario.pipeline.all_reduce = AllReduceKind::Ring;
    scenario.cluster.per_node = 1;
    scenario.cluster.link_gbps = 80;
    scenario.cluster.link_latency_us = 1;
    scenario.cluster.node_link_gbps = 4;
    scenario.cluster.node_link_latency_us = 1;
    return scenario;
}

Plan plan_of(const SettledScenario& scenario, const Profile& profile) {
    return make_plan(scenario, scenario_model(scenario, &profile), profile);
}

Error plan_error_of(const SettledScenario& scenario, const Profile& profile) {
    return error_of([&] { plan_of(scenario, profile); });
}

std::vector<std::vector<int>> all_partitions(int layers, int pieces) {
    if (pieces == 1) {
        return {{layers}};
    }
    std::vector<std::vector<int>> result;
    for (int first = 1; first + pieces - 1 <= layers; ++first) {
        for (std::vector<int> rest : all_partitions(layers - first, pieces - 1)) {
            rest.insert(rest.begin(), first);
            result.push_back(std::move(rest));
        }
    }
    return result;
}

}  // namespace pipetwin::testing
