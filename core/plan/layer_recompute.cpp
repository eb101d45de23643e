#include "core/plan/layer_recompute.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/partition/model_blocks.h"
#include "core/plan/stage_costs.h"

namespace pipetwin {

namespace {

/// Keeps `kept` bytes of what it saves, and computes the rest again.
void rebuild(LayerSample& sample, Bytes kept, Duration again) {
    kept = std::max(kept, Bytes{});
    sample.rebuilt = sample.saved - kept;
    // What is computed again and not for W goes with I, and is never added.
    const Bytes only_input = std::min(sample.input_saved, sample.rebuilt);
    sample.input_saved -= only_input;
    sample.rebuilt_for_weight = sample.rebuilt - only_input;
    sample.saved = kept;
    sample.backward_input += again;
}

}  // namespace

std::vector<LayerRange> recomputed_blocks(const Model& model) {
    std::vector<std::string> names;
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        names.push_back(model.layer(layer).spec.name);
    }
    const std::optional<ModelBlocks> blocks = model_blocks(names);
    if (!blocks) {
        throw Error(
            ErrorKind::Infeasible,
            "pipeline.recompute = \"block\"",
            "the names of the model's layers tell no blocks, such as \"block0\", \"block1\"",
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
                                  const LayerRecomputeRules& rules) {
    PIPETWIN_EXPECT(rules.blocks >= 1, "a group has a block");
    if (rules.mode == LayerRecompute::Selective) {
        for (LayerSample& sample : samples) {
            rebuild(sample, sample.saved - sample.core_saved, sample.core_forward);
        }
    }
    if (rules.mode != LayerRecompute::Block) {
        return samples;
    }
    for (const LayerRange& block : recomputed_blocks(model)) {
        for (int layer = block.first; layer < block.end; ++layer) {
            LayerSample& sample = samples[as_index(layer)];
            const Bytes input = input_gradient(model, samples, layer);
            const bool begins = layer == block.first && rules.blocks == 1;
            const bool stops = rules.stops_early && rules.blocks == 1 && layer + 1 == block.end;
            const Duration again = sample.forward - (stops ? sample.tail_forward : Duration{});
            rebuild(sample, begins ? std::min(input, sample.saved) : Bytes{}, again);
            sample.rebuilt_with_next = layer + 1 < block.end;
            sample.rebuilt_blocks = rules.blocks;
        }
    }
    return samples;
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
