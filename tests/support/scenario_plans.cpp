#include "tests/support/scenario_plans.h"

#include <utility>

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

SettledScenario partitioned(std::vector<int> pieces, int micro_batches, int batch) {
    SettledScenario scenario = scenario_of(static_cast<int>(pieces.size()), micro_batches, batch);
    scenario.pipeline.partition = std::move(pieces);
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
