// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/layer_spec.h"
#include "core/model/pixels.h"

/// Layers that models of images are written with. Not for use outside this folder.
namespace pipetwin {

/// A convolution without bias whose padding keeps the size of the image at a stride of 1.
LayerSpec image_convolution(std::string name, int outputs, Pixels kernel, int stride = 1);

/// A window of so many pixels a side that moves by `stride`, the padding of each side.
LayerSpec image_pool(std::string name, LayerType type, int kernel, int stride, int padding = 0);

/// A layer without keys.
LayerSpec plain_layer(std::string name, LayerType type);

/// `layer`, reading what is named.
LayerSpec reading(LayerSpec layer, std::vector<std::string> inputs);

/// One unit of layers.
LayerSpec layer_sequence(std::string name, std::vector<LayerSpec> inner);

/// Throws Error(BadInput) about a key of the scenario's [model].
[[noreturn]] void refuse_model_key(std::string_view key, std::string text, std::string hint);

}  // namespace pipetwin
