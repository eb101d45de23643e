// SPDX-License-Identifier: Apache-2.0
#include "core/plan/tensor_parallel.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/costs/devices/number_type.h"
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

/// Times of the messages of a layer: halves of all-reduces of its output, and of the gradient of
/// its input.
struct HalfSums {
    Duration gather{};        ///< of what its first product reads, as large as its output
    Duration sum{};           ///< of the output
    Duration input_gather{};  ///< in a backward: of gradients as large as its input, and of that
    Duration input_sum{};     ///< of the gradient of the input
};

bool has_ends(const LayerSample& sample) {
    return sample.first_forward > Duration{} || sample.last_forward > Duration{};
}

/// Takes half of the computation for the products that messages go on beside.
void assume_ends(LayerSample& sample) {
    sample.first_forward = sample.last_forward = sample.forward / 4;
    sample.first_input = sample.last_input = sample.backward_input / 4;
    sample.first_weight = sample.backward_weight / 2;
}

/// Sets how much longer the messages make forward and backward, and returns by how much the input's
/// second gather does.
Duration hide(LayerSample& sample, const HalfSums& of, const MessageLanes& lanes) {
    sample.messages.forward_sums = added(sample.first_forward, of.gather, lanes.tensor_gather) +
                                   added(sample.last_forward, of.sum, lanes.tensor_sum);
    sample.messages.backward_sums = added(sample.last_input, of.input_gather, lanes.tensor_gather) +
                                    added(sample.first_weight, of.input_sum, lanes.tensor_bulk);
    return added(sample.first_input, of.input_gather, lanes.tensor_bulk);
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
                               {.members = tensor.devices,
                                .per_node = tensor.per_node > 0 ? tensor.per_node : tensor.devices,
                                .inside = tensor.link,
                                .between = tensor.between_nodes,
                                .latency = tensor.latency},
                               bytes);
    };
    const bool hides = tensor.sequence_parallel && tensor.lanes && !tensor.is_measured;
    const MessageLanes* const lanes = hides ? &*tensor.lanes : nullptr;
    if (hides && std::ranges::none_of(samples, has_ends)) {
        std::ranges::for_each(samples, assume_ends);
    }
    const bool is_narrow =
        hides && lanes->has_narrow_gathers && has_narrow_products(profile.precision);
    const auto gather_of = [&](Bytes bytes) {
        constexpr std::int64_t narrower = 2;  // one byte of two
        return sum_of(is_narrow ? part_of(bytes, narrower) : bytes) / 2;
    };
    // What passes from layer to layer is whole while the sums are counted.
    std::vector<Bytes> outputs;
    for (const LayerSample& sample : samples) {
        outputs.push_back(sample.output);
    }
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        LayerSample& sample = samples[as_index(layer)];
        const int sums = profile.layers[as_index(layer)].tensor_sums;
        Bytes input;         // of other layers: the model's own input needs no gradient
        Bytes summed_input;  // the part of its gradient that is summed
        for (const int source : model.inputs_of(layer)) {
            input += outputs[as_index(source)];
            summed_input +=
                part_of(outputs[as_index(source)], profile.layers[as_index(source)].output_rows);
        }
        const Bytes summed = part_of(sample.output, profile.layers[as_index(layer)].output_rows);
        LayerMessages& messages = sample.messages;
        messages.forward_sums = sums * sum_of(summed);
        messages.backward_sums = sums * sum_of(summed_input);
        Duration again = messages.backward_sums / 2;
        if (hides && has_ends(sample)) {
            again = hide(sample,
                         {.gather = sums * gather_of(summed),
                          .sum = messages.forward_sums / 2,
                          .input_gather = sums * gather_of(summed_input),
                          .input_sum = messages.backward_sums / 2},
                         *lanes);
        }
        if (tensor.is_measured) {
            messages.forward_sums = sample.devices_forward;
            messages.backward_sums = sample.devices_backward;
            again = {};  // they are among these
        }
        sample.forward += messages.forward_sums;
        sample.backward_input += messages.backward_sums;
        const Bytes own_input = layer == 0 ? sample.input : input;
        if (known == SharesKnown::No) {
            divide(sample, own_input, tensor.devices);
        }
        if (tensor.sequence_parallel) {
            divide_sequence(sample, own_input, again, tensor.devices);
        }
    }
    return samples;
}

}  // namespace pipetwin
