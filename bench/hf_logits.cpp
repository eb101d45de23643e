// SPDX-License-Identifier: Apache-2.0
#include "bench/support/curve_command.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/scenario/settled_scenario.h"
#include "core/text/json_text.h"
#include "exec/device/arena.h"
#include "exec/device/device.h"
#include "exec/executor/backend.h"
#include "exec/stage/stage.h"
#include "exec/training/published_weights.h"

/// Logits of a model with weights of Hugging Face's, for another program that computes them, too:
///
///     hf_logits FOLDER SCENARIO.toml [key=value ...]
///
/// reads FOLDER/weights, a folder as `train --weights` takes it, and FOLDER/tokens, int32 numbers,
/// sample by sample, and leaves the logits of every position in FOLDER/logits: fp32, or fp64 where
/// training.precision says so.
using namespace pipetwin;

namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 28U;

/// The model without the loss at its end.
Model logits_model(const Model& model) {
    std::vector<LayerSpec> layers;
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        layers.push_back(model.layer(layer).spec);
    }
    layers.back().inner.pop_back();
    return Model::chain(model.layer(0).input, std::move(layers));
}

exec::Batch read_batch(const std::filesystem::path& file, int positions) {
    const std::string bytes = read_file(file, most_bytes);
    exec::Batch batch;
    batch.positions = positions;
    batch.target_positions = positions;
    batch.tokens.resize(bytes.size() / sizeof(std::int32_t));
    std::memcpy(batch.tokens.data(), bytes.data(), bytes.size());
    batch.samples = static_cast<int>(batch.tokens.size()) / positions;
    return batch;
}

void write_logits(const bench::CurveCommand& command) {
    const SettledScenario& scenario = command.scenario;
    const Model model = logits_model(scenario_model(scenario));
    const exec::Batch batch = read_batch(command.folder / "tokens", model.layer(0).input.positions);
    const std::unique_ptr<exec::Device> device = exec::make_cpu_device();
    exec::Arena arena;
    exec::Stage stage(
        *device,
        arena,
        model,
        {.stage = 0, .first_layer = 0, .layer_count = model.layer_count()},
        {.format = exec::number_format(scenario.training.precision, scenario.cluster.backend),
         .micro_batches = 1,
         .largest_micro_batch = batch.samples,
         .layer_done = {}});
    exec::TrainedParameters parameters;
    parameters.pieces = {stage.parameters()};
    parameters.write = [](std::span<const std::byte> from, exec::Tensor& to) {
        PIPETWIN_EXPECT(std::ssize(from) == to.bytes().count, "all bytes of a tensor");
        std::memcpy(to.data(), from.data(), from.size());
    };
    exec::PublishedWeights(command.folder / "weights", scenario.model).load(parameters);
    device->enter_thread();
    exec::Tensor logits;
    stage.evaluate(0,
                   {},
                   {.batch = &batch, .first_sample = 0, .samples = batch.samples},
                   std::span(&logits, 1));
    device->finish();
    std::ofstream(command.folder / "logits", std::ios::binary)
        .write(static_cast<const char*>(logits.data()), logits.bytes().count);
}

}  // namespace

int main(int argc, char** argv) {
    return bench::run_curve_command(argc, argv, {}, write_logits);
}
