#include "core/plan/tensor_parallel.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/costs/all_reduce.h"

namespace pipetwin {

Bytes part_of(Bytes bytes, int devices) {
    return Bytes{(bytes.count + devices - 1) / devices};
}

LayerSamples with_tensor_parallel(const Model& model,
                                  LayerSamples samples,
                                  const TensorParallel& tensor) {
    if (tensor.devices == 1) {
        return samples;
    }
    const auto sum_of = [&](Bytes bytes) {
        return all_reduce_time(
            AllReduceKind::Ring,
            {.replicas = tensor.devices, .per_node = tensor.devices, .inside = tensor.link},
            bytes);
    };
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        LayerSample& sample = samples[as_index(layer)];
        Bytes input;  // of other layers: the model's own input needs no gradient
        for (const int source : model.inputs_of(layer)) {
            input += samples[as_index(source)].output;
        }
        if (sample.output.count > 0) {
            sample.forward += sum_of(sample.output);
        }
        if (input.count > 0) {
            sample.backward_input += sum_of(input);
        }
        const Bytes whole = std::min(sample.saved, layer == 0 ? sample.input : input);
        sample.saved = whole + part_of(sample.saved - whole, tensor.devices);
        sample.split = part_of(sample.split, tensor.devices);
        sample.workspace = part_of(sample.workspace, tensor.devices);
    }
    return samples;
}

}  // namespace pipetwin
