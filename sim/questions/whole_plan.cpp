// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/whole_plan.h"

#include <utility>
#include <vector>

#include "core/interop/hf_config.h"
#include "core/model/decoder_model.h"
#include "core/partition/model_blocks.h"
#include "core/scenario/rank_device.h"
#include "sim/questions/training_bill.h"

namespace pipetwin::sim {

WholePlan whole_plan(const Scenario& scenario,
                     const Model& model,
                     const Profile& profile,
                     SearchResult search,
                     const WholePlanOptions& options) {
    EveryShape shapes;
    if (options.every_shape) {
        shapes = best_of_every_shape(
            scenario, model, profile, search, improved_shapes, options.progress);
        add_simulated(shapes, search);
    }
    Prediction prediction = predict(with_plan(scenario, search.ranked.front()),
                                    model,
                                    profile,
                                    options.memory_left,
                                    options.flops_count);
    // Costs of other devices than the profile's are estimated, too.
    search.cost_source = prediction.plan->cost_source.value_or(profile.source);
    return {.search = std::move(search),
            .shapes = std::move(shapes),
            .prediction = std::move(prediction)};
}

std::optional<std::int64_t> known_parameters(const Profile& profile) {
    std::int64_t sum = 0;
    for (const LayerCost& layer : profile.layers) {
        const bool is_last = &layer == &profile.layers.back();
        const Bytes tied = is_last ? profile.tied_bytes : Bytes{};  // they count in the first layer
        if (layer.parameter_count == 0 && layer.parameter_bytes > tied) {
            return std::nullopt;
        }
        sum += layer.parameter_count;
    }
    return sum;
}

ModelSizes model_sizes(const std::string& config, const Profile& profile) {
    ModelSizes sizes;
    sizes.weights = -profile.tied_bytes;
    std::vector<std::string> names;
    for (const LayerCost& layer : profile.layers) {
        sizes.weights += layer.parameter_bytes;
        names.push_back(layer.name);
    }
    const std::optional<ModelBlocks> blocks = model_blocks(names);
    sizes.layers = blocks ? blocks->count() : static_cast<int>(names.size());
    if (config.empty()) {
        sizes.parameters = known_parameters(profile);
        return sizes;
    }
    const DecoderModel model = parse_hf_config(config, "config.json");
    sizes.parameters = parameter_count(model);
    sizes.layers = model.blocks + model.encoder_blocks;
    sizes.heads = model.attention.heads;
    sizes.key_value_heads = model.attention.key_value_heads;
    return sizes;
}

std::optional<double> Answer::headroom() const {
    return memory ? std::optional(1 - static_cast<double>(peak.count) /
                                          static_cast<double>(memory->count))
                  : std::nullopt;
}

Answer answer_of(const Scenario& scenario,
                 const Profile& profile,
                 const FoundPlan& plan,
                 const Training& training) {
    const SettledScenario settled = with_plan(scenario, plan);
    const Shape& shape = plan.candidate.shape;
    const std::vector<RankDevice> devices = rank_devices(settled, profile, shape.stages);
    Answer answer{.devices = shape.devices(), .device = scenario.cluster.device, .peak = plan.peak};
    if (devices.front().memory_limit) {
        answer.memory = devices.front().memory_limit;
    }
    answer.seconds_per_step = to_seconds(plan.step);
    answer.tokens_per_step = double{1} * scenario.training.batch * training.sequence;
    answer.tokens_per_second = answer.tokens_per_step / answer.seconds_per_step;
    const TrainingBill bill = training_bill({.step = plan.step,
                                             .tokens_per_second = answer.tokens_per_second,
                                             .devices = answer.devices,
                                             .tokens = training.tokens,
                                             .price = training.price});
    answer.days = bill.days;
    answer.device_hours = bill.device_hours;
    answer.cost = bill.cost;
    return answer;
}

}  // namespace pipetwin::sim
