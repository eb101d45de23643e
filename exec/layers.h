#pragma once

#include <cstdint>
#include <functional>

#include "core/action.h"
#include "core/model.h"
#include "core/scenario.h"
#include "core/units.h"

namespace pipetwin::exec {

class Tensor;

/// Told of a layer's work as soon as that part of it is done: how the profiler times the layers
/// inside a stage, and how the executor finds the layer whose output was the first that is not
/// finite. `layer` is the index in the model; `part` is Forward (in F and R), BackwardInput,
/// BackwardWeight (in B, I and W) or Optimizer (in OPT). `result` is the layer's output or the
/// gradient of its input, null where the part leaves none. A layer made of others tells of each of
/// them, with null, before it tells of itself: parts of one layer come several times and add up.
using LayerObserver = std::function<void(int layer, Op part, const Tensor* result)>;

struct StageOptions {
    Precision precision = Precision::Fp32;
    std::uint64_t seed = 1;
    int micro_batches = 1;
    int largest_micro_batch = 1;                     ///< samples; sizes the workspace
    OptimizerKind optimizer = OptimizerKind::AdamW;  ///< whose state is allocated
    bool input_gradient = false;
    bool shared_weights = false;  ///< with a stage of another pipeline
    LayerObserver after_layer;    ///< may be empty
};

/// What one layer occupies for one micro-batch, byte for byte as the arena counts it; the words of
/// LayerSample.
struct LayerBytes {
    Bytes input;
    Bytes output;
    Bytes saved;
    Bytes workspace;
    Bytes split;
};
LayerBytes layer_bytes(const Layer& layer, int samples, Precision precision);

}  // namespace pipetwin::exec
