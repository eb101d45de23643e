// SPDX-License-Identifier: Apache-2.0
#include "core/plan/tensor_parallel.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/model/model.h"

namespace pipetwin {

Bytes part_of(Bytes bytes, int devices) {
    return Bytes{(bytes.count + devices - 1) / devices};
}

namespace {

/// What every device has whole of a layer whose shares are not known: its input.
void divide(LayerSample& sample, Bytes input, int devices) {
    sample.whole_saved = std::min(sample.saved, input);
    sample.saved = sample.whole_saved + part_of(sample.saved - sample.whole_saved, devices);
    sample.core_saved = part_of(sample.core_saved, devices);
    sample.split = part_of(sample.split, devices);
    sample.input_saved = std::min(part_of(sample.input_saved, devices), sample.saved);
    sample.workspace = part_of(sample.workspace, devices);
}

/// W reads the input of the layer's products, which is whole and as large as the layer's input, and
/// parts. `gather`: how long it takes until each device has all of the input again.
void divide_sequence(LayerSample& sample, Bytes input, Duration gather, int devices) {
    const auto all_but_one_part = [devices](Duration time) { return time - time / devices; };
    const auto other_parts = [devices](Bytes whole) { return whole - part_of(whole, devices); };
    const Bytes for_weight = sample.saved - sample.input_saved;
    const Bytes whole_for_weight = std::min({input, for_weight, sample.whole_saved});
    sample.forward -= all_but_one_part(sample.whole_forward);
    const Duration divided = all_but_one_part(sample.whole_backward);
    const Duration gathered = std::min(divided, gather);
    sample.backward_input -= divided - gathered;
    sample.messages.backward_sums += gathered;
    sample.saved -= other_parts(sample.whole_saved);
    sample.input_saved =
        std::max(Bytes{}, sample.saved - for_weight + other_parts(whole_for_weight));
    sample.output = part_of(sample.output, devices);
    sample.unread_gradient = std::min(sample.unread_gradient, sample.output);
}

}  // namespace

LayerSamples with_tensor_parallel(const Model& model,
                                  const Profile& profile,
                                  LayerSamples samples,
                                  const TensorParallel& tensor,
                                  SharesKnown known) {
    if (tensor.devices == 1) {
        return samples;
    }
    const auto sum_of = [&](Bytes bytes) {
        return all_reduce_time(AllReduceKind::Fastest,
                               {.replicas = tensor.devices,
                                .per_node = tensor.devices,
                                .inside = tensor.link,
                                .latency = tensor.latency},
                               bytes);
    };
    // What passes from layer to layer is whole while the sums are counted.
    std::vector<Bytes> outputs;
    for (const LayerSample& sample : samples) {
        outputs.push_back(sample.output);
    }
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        LayerSample& sample = samples[as_index(layer)];
        const int sums = profile.layers[as_index(layer)].tensor_sums;
        Bytes input;  // of other layers: the model's own input needs no gradient
        for (const int source : model.inputs_of(layer)) {
            input += outputs[as_index(source)];
        }
        if (sample.output.count > 0) {
            sample.messages.forward_sums = sums * sum_of(sample.output);
            sample.forward += sample.messages.forward_sums;
        }
        if (input.count > 0) {
            sample.messages.backward_sums = sums * sum_of(input);
            sample.backward_input += sample.messages.backward_sums;
        }
        const Bytes own_input = layer == 0 ? sample.input : input;
        if (known == SharesKnown::No) {
            divide(sample, own_input, tensor.devices);
        }
        if (tensor.sequence_parallel) {
            divide_sequence(sample, own_input, sums * sum_of(input) / 2, tensor.devices);
        }
    }
    return samples;
}

}  // namespace pipetwin
