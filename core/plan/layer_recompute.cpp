// SPDX-License-Identifier: Apache-2.0
#include "core/plan/layer_recompute.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/inner_layers.h"
#include "core/model/model.h"
#include "core/partition/model_blocks.h"
#include "core/plan/stage_costs.h"
#include "core/plan/stage_tensors.h"

namespace pipetwin {

namespace {

/// What the layers of a block save is computed again; in a chain without the input of a block that
/// is one by itself.
void rebuild_block(const Model& model,
                   LayerSamples& samples,
                   const LayerRange& block,
                   const LayerRecomputeRules& rules,
                   bool is_chain) {
    for (int layer = block.first; layer < block.end; ++layer) {
        LayerSample& sample = samples[as_index(layer)];
        const Bytes input = input_gradient(model, samples, layer);
        const bool begins = layer == block.first && rules.blocks == 1 && is_chain;
        const std::vector<bool>& keeps = model.layer(layer).keeps_input;
        if (is_chain && !keeps.empty() && !keeps.front()) {
            sample.saved += input;  // what is computed again is there whole
            sample.input_saved += input;
        }
        if (is_chain && reads_output(model, layer) &&
            ends_with_rectifier(model.layer(layer).spec)) {
            sample.saved += sample.output;  // a copy
            sample.input_saved += sample.output;
        }
        const bool stops = rules.stops_early && rules.blocks == 1 && layer + 1 == block.end;
        const Duration again = sample.forward - (stops ? sample.tail_forward : Duration{});
        rebuild(sample, begins ? std::min(input, sample.saved) : Bytes{}, again);
        sample.messages.backward_sums += std::min(again, sample.messages.forward_sums);
        sample.rebuilt_with_next = layer + 1 < block.end;
        sample.rebuilt_blocks = rules.blocks;
    }
}

/// The blocks of a model with branches.
std::vector<LayerRange> blocks_between_branches(const Model& model) {
    std::vector<LayerRange> ranges;
    int first = 0;
    for (const int count : neighbours_of_one_name(model.layer_names())) {
        const bool is_end = first == 0 || first + count == model.layer_count();
        if (!is_end) {
            ranges.push_back({.first = first, .end = first + count});
        }
        first += count;
    }
    return ranges;
}

}  // namespace

std::vector<LayerRange> recomputed_blocks(const Model& model) {
    if (!model.is_chain()) {
        return blocks_between_branches(model);
    }
    const std::optional<ModelBlocks> blocks = model_blocks(model.layer_names());
    if (!blocks) {
        throw Error(
            ErrorKind::Infeasible,
            KeyValue{"pipeline.recompute", "\"block\""},
            "the names of the model's layers show no blocks, such as \"block0\", \"block1\"",
            "\"always\" recomputes whole stages");
    }
    std::vector<LayerRange> ranges;
    int first = blocks->before;
    for (const int count : blocks->layers) {
        // What reads the model's input, and what makes the loss, keeps everything.
        const bool is_end = first == 0 || first + count == model.layer_count();
        if (!is_end) {
            ranges.push_back({.first = first, .end = first + count});
        }
        first += count;
    }
    return ranges;
}

LayerSamples with_layer_recompute(const Model& model,
                                  LayerSamples samples,
                                  const LayerRecomputeRules& rules,
                                  const std::vector<bool>& keeps) {
    PIPETWIN_EXPECT(rules.blocks >= 1, "a group has a block");
    if (rules.mode == LayerRecompute::Selective) {
        for (LayerSample& sample : samples) {
            rebuild(sample, sample.saved - sample.core_saved, sample.core_forward);
        }
    }
    if (rules.mode != LayerRecompute::Block) {
        return samples;
    }
    const bool is_chain = model.is_chain();
    for (LayerRange block : recomputed_blocks(model)) {
        // A boundary between stages may cut a block, whose halves then count on their own.
        while (!keeps.empty() && block.first < block.end && keeps[as_index(block.first)]) {
            ++block.first;
        }
        while (!keeps.empty() && block.first < block.end && keeps[as_index(block.end - 1)]) {
            --block.end;
        }
        if (block.first == block.end) {
            continue;
        }
        const bool is_alone = rules.blocks == 1 && block.end == block.first + 1;
        if (is_chain || !is_alone || kept_inside(model, samples, block.first) > Bytes{}) {
            rebuild_block(model, samples, block, rules, is_chain);
        }
    }
    return samples;
}

void rebuild(LayerSample& sample, Bytes kept, Duration again) {
    kept = std::max(kept, Bytes{});
    const Bytes dropped = sample.saved - kept;
    // What is there again and not for W goes with I, and is never added.
    const Bytes only_input = std::min(sample.input_saved, dropped);
    sample.input_saved -= only_input;
    sample.rebuilt += dropped;
    sample.rebuilt_for_weight += dropped - only_input;
    sample.saved = kept;
    sample.backward_input += again;
}

std::vector<LayerRange> block_groups(const std::vector<LayerRange>& blocks,
                                     LayerRange stage,
                                     int blocks_per_group) {
    std::vector<LayerRange> groups;
    int in_group = 0;
    for (const LayerRange& block : blocks) {
        const int first = std::max(block.first, stage.first) - stage.first;
        const int end = std::min(block.end, stage.end) - stage.first;
        if (first >= end) {
            continue;
        }
        if (in_group % blocks_per_group == 0) {
            groups.push_back({.first = first, .end = end});
        }
        groups.back().end = end;
        ++in_group;
    }
    return groups;
}

}  // namespace pipetwin
