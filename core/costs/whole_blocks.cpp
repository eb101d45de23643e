// SPDX-License-Identifier: Apache-2.0
#include "core/costs/whole_blocks.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "core/costs/estimate_source.h"

namespace pipetwin {

namespace {

LayerTraffic together(LayerTraffic a, const LayerTraffic& b) {
    for (const auto time : times_of_traffic) {
        a.*time += b.*time;
    }
    for (const auto size : sizes_of_traffic) {
        a.*size += b.*size;
    }
    return a;
}

/// `a` runs first, `b` reads its output.
LayerSample together(const LayerSample& a, const LayerSample& b) {
    return {.micro_batch_size = a.micro_batch_size,
            .forward = a.forward + b.forward,
            .backward_input = a.backward_input + b.backward_input,
            .backward_weight = a.backward_weight + b.backward_weight,
            .accumulation = a.accumulation + b.accumulation,
            .input = a.input,
            .output = b.output,
            .saved = a.saved + b.saved,
            .workspace = std::max(a.workspace, b.workspace),
            // The gradient between them waits for W, too.
            .split = a.split + b.split + a.output - a.unread_gradient,
            .input_saved = a.input_saved + b.input_saved,
            .unread_gradient = b.unread_gradient,
            .spread = std::max(a.spread, b.spread),
            .forward_kernels = a.forward_kernels + b.forward_kernels,
            .backward_input_kernels = a.backward_input_kernels + b.backward_input_kernels,
            .backward_weight_kernels = a.backward_weight_kernels + b.backward_weight_kernels,
            .core_forward = a.core_forward + b.core_forward,
            .core_saved = a.core_saved + b.core_saved,
            .tail_forward = b.tail_forward,
            .whole_forward = a.whole_forward + b.whole_forward,
            .whole_backward = a.whole_backward + b.whole_backward,
            .whole_saved = a.whole_saved + b.whole_saved,
            .first_forward = a.first_forward + b.first_forward,
            .first_input = a.first_input + b.first_input,
            .first_weight = a.first_weight + b.first_weight,
            .last_forward = a.last_forward + b.last_forward,
            .last_input = a.last_input + b.last_input,
            .traffic = together(a.traffic, b.traffic),
            .modules = LayerModules(a.modules) += b.modules};
}

LayerCost together(const LayerCost& a, const LayerCost& b, std::string_view name) {
    LayerCost block = a;
    block.name = name;
    block.kind = "block";
    block.parameter_count += b.parameter_count;
    block.parameter_bytes += b.parameter_bytes;
    block.expert_bytes += b.expert_bytes;
    block.whole_bytes += b.whole_bytes;
    block.running_bytes += b.running_bytes;
    block.frozen_bytes += b.frozen_bytes;
    block.frozen_expert_bytes += b.frozen_expert_bytes;
    block.optimizer += b.optimizer;
    block.weight_cast += b.weight_cast;
    block.weight_copies += b.weight_copies;
    for (std::size_t i = 0; i < block.samples.size(); ++i) {
        block.samples[i] = together(a.samples[i], b.samples.at(i));
    }
    // Kept are numbers of devices, and sizes of micro-batches, that both halves know.
    std::erase_if(block.shared, [&b](const auto& entry) {
        const std::vector<LayerSample>* const other = b.shared_by(entry.first);
        return other == nullptr || !std::ranges::equal(entry.second,
                                                       *other,
                                                       {},
                                                       &LayerSample::micro_batch_size,
                                                       &LayerSample::micro_batch_size);
    });
    for (auto& [devices, samples] : block.shared) {
        for (std::size_t i = 0; i < samples.size(); ++i) {
            samples[i] = together(samples[i], b.shared.at(devices)[i]);
        }
    }
    block.tensor_sums += b.tensor_sums;
    block.output_rows = b.output_rows;
    for (const auto counted : {&LayerCost::operations, &LayerCost::masked_operations}) {
        block.*counted =
            a.*counted && b.*counted ? std::optional(*(a.*counted) + *(b.*counted)) : std::nullopt;
    }
    return block;
}

/// Layers that read the second half of a block read the block.
void rename_inputs(Profile& profile, const std::map<std::string, std::string>& block_of_half) {
    for (LayerCost& layer : profile.layers) {
        for (std::string& input : layer.inputs) {
            if (const auto found = block_of_half.find(input); found != block_of_half.end()) {
                input = found->second;
            }
        }
    }
}

}  // namespace

Profile with_whole_blocks(const Profile& profile) {
    constexpr std::string_view first_half = ".attention";
    std::map<std::string, std::string> block_of_half;
    Profile result = profile;
    result.layers.clear();
    for (std::size_t i = 0; i < profile.layers.size(); ++i) {
        const LayerCost& layer = profile.layers[i];
        const std::string_view name = layer.name;
        const std::string_view block =
            name.substr(0, name.ends_with(first_half) ? name.size() - first_half.size() : 0);
        const bool is_pair = !block.empty() && i + 1 < profile.layers.size() &&
                             profile.layers[i + 1].name == std::string(block) + ".feed_forward";
        result.layers.push_back(is_pair ? together(layer, profile.layers[i + 1], block) : layer);
        if (is_pair) {
            block_of_half.emplace(profile.layers[i + 1].name, block);
            ++i;
        }
    }
    rename_inputs(result, block_of_half);
    result.estimated_from = of_whole_blocks(profile.estimated_from);
    return result;
}

}  // namespace pipetwin
