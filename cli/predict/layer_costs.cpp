// SPDX-License-Identifier: Apache-2.0
#include "cli/predict/layer_costs.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/layer_estimate.h"
#include "core/model/model.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/choices.h"
#include "core/scenario/scenario.h"
#include "exec/executor/backend.h"
#include "exec/layers/make_layer.h"

namespace pipetwin::cli {

namespace {

/// The bytes of a layer, and for each micro-batch of its samples.
void count_bytes(const Model& model, int index, const exec::NumberFormat& format, LayerCost& cost) {
    const Layer& layer = model.layer(index);
    cost.parameter_bytes =
        Bytes{layer.parameter_count * static_cast<std::int64_t>(exec::size_of(format.real))};
    for (LayerSample& sample : cost.samples) {
        const exec::LayerBytes bytes =
            exec::layer_bytes(model, index, sample.micro_batch_size, format);
        sample.input = bytes.input;
        sample.output = bytes.output;
        sample.saved = bytes.saved;
        sample.workspace = bytes.workspace;
        sample.split = bytes.split;
    }
}

}  // namespace

Profile estimated_costs(const Scenario& scenario, const Model& model, const std::string& device) {
    if (!model.is_executable()) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"model.kind"},
                    "its layers have only costs, so nothing can be estimated",
                    "the profile of model.file has them: leave --device and --costs-out out");
    }
    const DeviceProfile found = find_device(device, "--device");
    const std::string precision(to_string(scenario.training.precision));
    if (!found.matrix_rates.contains(precision)) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"training.precision"},
                    fmt::format("{} has no matrix rate in {}", device, precision),
                    "'pipetwin devices' lists the rates of each device");
    }
    const int micro_batches = scenario.pipeline.micro_batches.value_or(1);
    const EstimateOptions options{
        .micro_batch_size = std::max(1, scenario.training.batch / micro_batches),
        .precision = precision};
    Profile profile = estimated_times(model, found, options);
    const exec::NumberFormat format =
        exec::number_format(scenario.training.precision, Backend::Cuda);
    const Model kept = exec::model_on(Backend::Cuda, model);
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        count_bytes(kept, layer, format, profile.layers[as_index(layer)]);
    }
    profile.tied_bytes =
        Bytes{kept.tied_count() * static_cast<std::int64_t>(exec::size_of(format.real))};
    check_profile(profile, "estimated costs");
    return profile;
}

}  // namespace pipetwin::cli
