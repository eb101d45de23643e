// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "exec/layers/layer.h"

/// Makers of layers, each defined behind its layer. The table of make_layer.cpp says which layer of
/// a model which of them makes.
namespace pipetwin::exec {

using Made = std::unique_ptr<ExecutableLayer>;
/// Maker of layers that read one output.
using LayerMaker = Made (*)(const LayerSpec& spec, const SampleShape& input, NumberFormat format);
/// Maker of layers that read several outputs.
using JoiningMaker = Made (*)(const LayerSpec& spec,
                              const std::vector<SampleShape>& inputs,
                              NumberFormat format);

/// Maker of one class of layers.
template <class Made_>
Made made(const LayerSpec& spec, const SampleShape& input, NumberFormat format) {
    return std::make_unique<Made_>(spec, input, format);
}
/// Maker of one class of joining layers.
template <class Made_>
Made made_of_several(const LayerSpec& spec,
                     const std::vector<SampleShape>& inputs,
                     NumberFormat format) {
    return std::make_unique<Made_>(spec, inputs, format);
}

extern const LayerMaker make_gelu, make_swiglu, make_rectifier;
extern const LayerMaker make_row_norm, make_batch_norm, make_sample_norm;
extern const LayerMaker make_embedding, make_linear, make_attention, make_experts;
extern const LayerMaker make_dropout, make_dropout_of_whole;
extern const LayerMaker make_positions, make_reshape, make_channel_padding;
extern const LayerMaker make_convolution, make_max_pool, make_average_pool;
extern const LayerMaker make_upsampling, make_image_padding;
extern const LayerMaker make_cross_entropy, make_binary_cross_entropy;
extern const LayerMaker make_residual, make_sequence;
extern const JoiningMaker make_join, make_cross_attention, make_cross_entropy_of_two, make_graph;

}  // namespace pipetwin::exec
