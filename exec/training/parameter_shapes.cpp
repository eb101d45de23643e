// SPDX-License-Identifier: Apache-2.0
#include "exec/training/parameter_shapes.h"

#include <algorithm>
#include <iterator>

#include "core/model/model.h"
#include "exec/device/kernels.h"
#include "exec/layers/make_layer.h"

namespace pipetwin::exec {

ParameterShapes::ParameterShapes(const Model& model,
                                 NumberFormat format,
                                 OptimizerKind optimizer,
                                 bool averages_weights) {
    arena_.rehearse(&trace_);
    ParameterMaker::Settings settings{.draws = false,
                                      .optimizer_slots = traits(optimizer).state_slots,
                                      .averages_weights = averages_weights,
                                      .format = format,
                                      .table_name = model.layer(0).spec.name + ".tokens"};
    for (int index = 0; index < model.layer_count(); ++index) {
        const Layer& layer = model.layer(index);
        layers_.push_back(make_layer(model, index, format));
        ParameterMaker maker(arena_, null_kernels(), settings);
        layers_.back()->create_parameters(maker, layer.spec.name, false);
        if (index == 0 && !layers_.front()->parameters().empty()) {
            settings.table = layers_.front()->parameters().front();
        }
    }
}

TrainedParameters ParameterShapes::parameters() const {
    TrainedParameters trained;
    std::vector<Parameter*>& whole = trained.pieces.emplace_back();
    for (const std::unique_ptr<ExecutableLayer>& layer : layers_) {
        std::ranges::copy(layer->parameters(), std::back_inserter(whole));
    }
    for (const std::unique_ptr<ExecutableLayer>& layer : layers_) {
        std::ranges::copy(layer->state(), std::back_inserter(whole));
    }
    return trained;
}

}  // namespace pipetwin::exec
