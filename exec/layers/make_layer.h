// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/base/units.h"
#include "core/costs/profile.h"
#include "exec/device/number_format.h"
#include "exec/layers/layer.h"

namespace pipetwin {

struct Layer;
class Model;

}  // namespace pipetwin

namespace pipetwin::exec {

/// The layer that `spec` describes, without parameters. Throws Error(Unavailable) for an opaque
/// layer.
std::unique_ptr<ExecutableLayer> make_layer(const LayerSpec& spec,
                                            const SampleShape& input,
                                            NumberFormat format);

/// The layer that reads outputs of these shapes, one or several, without parameters. Throws
/// Error(Unavailable) for an opaque layer.
std::unique_ptr<ExecutableLayer> make_layer(const LayerSpec& spec,
                                            const std::vector<SampleShape>& inputs,
                                            NumberFormat format);

/// A layer of a model, which may read several outputs, without parameters. Throws
/// Error(Unavailable) for an opaque layer.
std::unique_ptr<ExecutableLayer> make_layer(const Model& model, int index, NumberFormat format);

/// Memory of one layer for one micro-batch, byte for byte as the arena counts it; the words of
/// LayerSample.
struct LayerBytes {
    Bytes input;  ///< 0 for a layer that reads several outputs
    Bytes output;
    Bytes saved;
    Bytes workspace;
    Bytes split;
    Bytes input_saved;
    Bytes unread_gradient;
    Bytes core;
};
/// The sample with these bytes; its core attention is not known by that.
LayerSample with_bytes(LayerSample sample, const LayerBytes& bytes);
/// Bytes of a layer's running statistics, with what they follow within a step.
Bytes running_bytes(const Layer& layer, NumberFormat format);

/// The memory of a layer of a model for a micro-batch of `samples` samples. Throws
/// Error(Unavailable) for an opaque layer.
LayerBytes layer_bytes(const Model& model, int index, int samples, NumberFormat format);

}  // namespace pipetwin::exec
