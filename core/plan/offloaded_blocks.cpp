// SPDX-License-Identifier: Apache-2.0
#include "core/plan/offloaded_blocks.h"

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/layer_modules.h"
#include "core/plan/layer_recompute.h"

namespace pipetwin {

LayerSamples with_offloaded_blocks(const Model& model,
                                   LayerSamples samples,
                                   int blocks,
                                   const std::optional<LinkCost>& host_link) {
    if (blocks == 0) {
        return samples;
    }
    if (!model.is_chain()) {
        throw Error(ErrorKind::Infeasible,
                    KeyValue{"pipeline.offload_blocks", fmt::to_string(blocks)},
                    "the model has branches, and activations of blocks of chains alone can be in "
                    "host memory",
                    "set pipeline.offload_blocks = 0");
    }
    int left = blocks;
    for (const LayerRange& block : recomputed_blocks(model)) {
        if (left-- == 0) {
            break;
        }
        Bytes of_block;
        for (int layer = block.first; layer < block.end; ++layer) {
            of_block += samples[as_index(layer)].saved;
        }
        for (int layer = block.first; layer < block.end; ++layer) {
            LayerSample& sample = samples[as_index(layer)];
            sample.workspace += 2 * of_block - sample.saved;
            sample.rebuilt += sample.saved;
            sample.rebuilt_for_weight += sample.saved - sample.input_saved;
            sample.saved = sample.input_saved = Bytes{};
        }
        add_copies(samples, as_index(block.first), as_index(block.end), of_block, host_link);
    }
    return samples;
}

Bytes offloaded_bytes(const Model& model, const LayerSamples& samples, int blocks) {
    Bytes all;
    int left = blocks;
    for (const LayerRange& block : recomputed_blocks(model)) {
        if (left-- <= 0) {
            break;
        }
        for (int layer = block.first; layer < block.end; ++layer) {
            all += samples[as_index(layer)].saved;
        }
    }
    return all;
}

}  // namespace pipetwin
