// SPDX-License-Identifier: Apache-2.0
#include "core/costs/cost_factors.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>

namespace pipetwin {

namespace {

Bytes scaled_bytes(Bytes bytes, double factor) {
    return Bytes{std::llround(static_cast<double>(bytes.count) * factor)};
}

/// Bytes of which `fixed` stay and the rest is multiplied.
Bytes scaled_beside(Bytes bytes, Bytes fixed, double factor) {
    const Bytes stays = std::min(bytes, fixed);
    return stays + scaled_bytes(bytes - stays, factor);
}

/// `input`: bytes that the layer reads, part of what it keeps.
void multiply(LayerSample& sample, Bytes input, const CostFactors& factors) {
    for (const auto time : times_of_sample) {
        sample.*time = scaled(sample.*time, factors.compute);
    }
    for (std::vector<ModuleBytes>* const modules : {&sample.modules.made, &sample.modules.inputs}) {
        for (ModuleBytes& module : *modules) {
            module.forward = scaled(module.forward, factors.compute);
            module.bytes = scaled_bytes(module.bytes, factors.memory);
        }
    }
    for (const auto time : times_of_traffic) {
        sample.traffic.*time = scaled(sample.traffic.*time, factors.compute);
    }
    const Bytes kept_input = std::min(input, sample.saved);
    for (const auto size :
         {&LayerSample::saved, &LayerSample::input_saved, &LayerSample::whole_saved}) {
        sample.*size = scaled_beside(sample.*size, kept_input, factors.memory);
    }
    for (const auto size :
         {&LayerSample::workspace, &LayerSample::split, &LayerSample::core_saved}) {
        sample.*size = scaled_bytes(sample.*size, factors.memory);
    }
    sample.core_saved = std::min(sample.core_saved, sample.saved);
}

/// Bytes of a layer's output at a size: of the sample of that size, else in proportion to the
/// nearest one.
Bytes output_at(const LayerCost& layer, int micro_batch_size, int devices) {
    const std::vector<LayerSample>* samples = layer.shared_by(devices);
    if (samples == nullptr || samples->empty()) {
        samples = &layer.samples;
    }
    const auto nearest =
        std::ranges::min_element(*samples, {}, [micro_batch_size](const LayerSample& sample) {
            return std::abs(std::int64_t{sample.micro_batch_size} - micro_batch_size);
        });
    return scaled_bytes(nearest->output,
                        static_cast<double>(micro_batch_size) / nearest->micro_batch_size);
}

/// Layers by name, and what each reads.
class LayerInputs {
  public:
    explicit LayerInputs(const Profile& profile) : profile_(profile) {
        for (std::size_t layer = 0; layer < profile.layers.size(); ++layer) {
            index_.emplace(profile.layers[layer].name, layer);
        }
    }

    /// Bytes that a layer reads for the micro-batch of `sample`.
    Bytes bytes(std::size_t layer, const LayerSample& sample, int devices) const {
        const auto output_of = [&](std::size_t source) {
            return output_at(profile_.layers[source], sample.micro_batch_size, devices);
        };
        const std::vector<std::string>& names = profile_.layers[layer].inputs;
        if (names.empty()) {
            return layer == 0 ? sample.input : output_of(layer - 1);
        }
        Bytes sum;
        for (const std::string& name : names) {
            sum += output_of(index_.at(name));
        }
        return sum;
    }

  private:
    const Profile& profile_;
    std::unordered_map<std::string_view, std::size_t> index_;
};

}  // namespace

Profile with_factors(const Profile& profile, const CostFactors& factors) {
    const LayerInputs inputs(profile);
    Profile result = profile;
    result.messages_inside *= factors.messages;
    result.messages_between *= factors.messages;
    for (std::size_t layer = 0; layer < result.layers.size(); ++layer) {
        LayerCost& cost = result.layers[layer];
        cost.optimizer = scaled(cost.optimizer, factors.update);
        for (LayerSample& sample : cost.samples) {
            multiply(sample, inputs.bytes(layer, sample, 1), factors);
        }
        for (auto& [devices, samples] : cost.shared) {
            for (LayerSample& sample : samples) {
                multiply(sample, inputs.bytes(layer, sample, devices), factors);
            }
        }
    }
    return result;
}

Profile with_known_factors(const Profile& profile, const CostFactors& factors) {
    Profile result = with_factors(profile, factors);
    result.run_calibrations.push_back(
        {.compute_factor = factors.compute, .memory_factor = factors.memory});
    return result;
}

}  // namespace pipetwin
