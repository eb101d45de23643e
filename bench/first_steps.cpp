// SPDX-License-Identifier: Apache-2.0
#include "bench/support/curve_command.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/interop/safetensors.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"
#include "exec/data/batch.h"
#include "exec/executor/executor.h"
#include "exec/profiling/profiler.h"
#include "exec/replicas/replicas.h"

/// The first steps of a training, number by number, for another program that repeats them:
///
///     first_steps FOLDER SCENARIO.toml [--not-deferred] [--small-residuals] [--smooth]
///                 [--without-dropout] [--losses-only] [key=value ...]
///
/// leaves in FOLDER the weights and running statistics before the first step
/// (before.safetensors), those behind every step with the gradients of that step under
/// "NAME.gradient" (step-1.safetensors, ...), what every step has read (step-1.values or
/// step-1.tokens, step-1.targets, and step-1.lengths where sources are padded: fp32 and int32,
/// sample by sample) and steps.json: sizes,
/// losses and norms of gradients. In half precision "NAME.master" is what NAME is rounded from.
/// Where several devices or replicas divide the training no gradients are written: each has a part
/// of them.
///
/// --not-deferred: running statistics move once a micro-batch, as torch's. --small-residuals:
/// the last gains of a ResNet's blocks of three convolutions begin with 0.2, so that a deep model
/// does not multiply rounding differences. --smooth: GELU stands in for ReLU, and the mean of a
/// window for its largest number, so that gradients have no jumps. --without-dropout: no layer
/// drops anything, whatever the model says. --losses-only: no weights behind any step.
using namespace pipetwin;

namespace {

namespace fs = std::filesystem;

constexpr const char* without_dropout = "--without-dropout";
constexpr const char* not_deferred = "--not-deferred";
constexpr const char* small_residuals = "--small-residuals";
constexpr const char* smooth = "--smooth";
constexpr const char* losses_only = "--losses-only";

template <typename Number>
void write_numbers(const fs::path& path, const std::vector<Number>& numbers) {
    std::ofstream file(path, std::ios::binary);
    const auto bytes = std::as_bytes(std::span(numbers));
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
}

std::string safetensors_type(exec::DType type) {
    switch (type) {
        case exec::DType::F32:
            return "F32";
        case exec::DType::F64:
            return "F64";
        case exec::DType::I32:
            return "I32";
        case exec::DType::BF16:
            return "BF16";
        default:
            throw InternalError("a type of numbers of weights");
    }
}

/// A tensor of a parameter under the name that it gets.
struct NamedTensor {
    std::string name;
    const exec::Parameter* parameter;
    const exec::Tensor* tensor;
};

void write_tensors(const fs::path& path,
                   exec::Executor& executor,
                   const std::vector<NamedTensor>& tensors) {
    SafetensorsHeader header;
    for (const auto& [name, parameter, tensor] : tensors) {
        const exec::PaddedMatrix matrix = parameter->matrix();
        header.tensors.push_back({.name = name,
                                  .dtype = safetensors_type(tensor->dtype()),
                                  .shape = {matrix.rows, matrix.columns}});
    }
    place_tensors(header);
    std::ofstream file(path, std::ios::binary);
    file << print_safetensors_header(header);
    const exec::TrainedParameters trained = executor.trained();
    std::vector<std::byte> bytes;
    for (const auto& [name, parameter, tensor] : tensors) {
        trained.read_numbers(*parameter, *tensor, bytes);
        file.write(reinterpret_cast<const char*>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
    }
}

/// The weights of the whole model, whoever has parts of them.
void write_whole_model(const fs::path& path, exec::Replicas& pipelines) {
    pipelines.with_parameters([&](const exec::TrainedParameters& trained) {
        SafetensorsHeader header;
        std::vector<std::vector<std::byte>> numbers;
        for (const std::vector<exec::Parameter*>& piece : trained.pieces) {
            for (const exec::Parameter* const parameter : piece) {
                const exec::Tensor& value = parameter->value;
                header.tensors.push_back({.name = parameter->name,
                                          .dtype = safetensors_type(value.dtype()),
                                          .shape = {value.rows(), value.columns()}});
                trained.read_numbers(*parameter, value, numbers.emplace_back());
            }
        }
        place_tensors(header);
        std::ofstream file(path, std::ios::binary);
        file << print_safetensors_header(header);
        for (const std::vector<std::byte>& bytes : numbers) {
            file.write(reinterpret_cast<const char*>(bytes.data()),
                       static_cast<std::streamsize>(bytes.size()));
        }
    });
}

/// Weights and running statistics, and the gradients of the last step.
void write_model(const fs::path& path, exec::Executor& executor, bool with_gradients) {
    std::vector<NamedTensor> tensors;
    for (const exec::Parameter* const parameter : executor.parameters()) {
        tensors.push_back({parameter->name, parameter, &parameter->value});
        if (with_gradients) {
            tensors.push_back({parameter->name + ".gradient", parameter, &parameter->gradient});
        }
        if (!parameter->master.empty()) {
            tensors.push_back({parameter->name + ".master", parameter, &parameter->master});
        }
    }
    for (const exec::Parameter* const state : executor.state()) {
        tensors.push_back({state->name, state, &state->value});
    }
    write_tensors(path, executor, tensors);
}

void make_residuals_small(exec::Executor& executor) {
    for (exec::Parameter* const parameter : executor.parameters()) {
        if (parameter->name.ends_with(".bn3.gain")) {
            exec::Tensor& gain = parameter->value;
            const std::vector<double> wide(as_index(gain.size()), 0.2);
            const std::vector<float> narrow(wide.begin(), wide.end());
            executor.writer()(gain.dtype() == exec::DType::F64 ? std::as_bytes(std::span(wide))
                                                               : std::as_bytes(std::span(narrow)),
                              gain);
        }
    }
}

LayerSpec changed(LayerSpec spec, const std::set<std::string>& options) {
    if (options.contains(without_dropout)) {
        spec.dropout = 0;
    }
    if (options.contains(not_deferred)) {
        spec.deferred = false;
    }
    if (options.contains(smooth) && spec.type == LayerType::Relu) {
        spec.type = LayerType::Gelu;
    }
    if (options.contains(smooth) && spec.type == LayerType::MaxPool) {
        spec.type = LayerType::AvgPool;
        spec.count_padding = false;
    }
    for (LayerSpec& inner : spec.inner) {
        inner = changed(std::move(inner), options);
    }
    return spec;
}

/// The scenario's model with what the options change.
Model model_of(const bench::CurveCommand& command) {
    const Model model = scenario_model(command.scenario);
    std::vector<LayerSpec> layers;
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        layers.push_back(changed(model.layer(layer).spec, command.options));
    }
    return Model::graph(model.layer(0).input, std::move(layers));
}

void write_steps(const bench::CurveCommand& command) {
    const SettledScenario& scenario = command.scenario;
    const Model model = model_of(command);
    const Plan plan = exec::unmeasured_plan(scenario, model);
    exec::Replicas pipelines(plan, model, exec::executor_options(scenario));
    exec::Executor& executor = pipelines.first();
    const bool is_divided = plan->replicas * plan->tensor_parallel > 1;
    const auto write = [&](const std::string& name, bool with_gradients) {
        const fs::path path = command.folder / (name + ".safetensors");
        if (is_divided) {
            write_whole_model(path, pipelines);
        } else {
            write_model(path, executor, with_gradients);
        }
    };
    if (command.options.contains(small_residuals)) {
        make_residuals_small(executor);
    }
    write("before", false);
    const auto data = exec::open_data(scenario, model);
    std::vector<double> losses;
    std::vector<double> norms;
    exec::StepResult result;
    for (int step = 0; step < scenario.training.steps; ++step) {
        const exec::Batch batch = data->batch(step, scenario.training.batch);
        pipelines.run_step(batch, step, result);
        losses.push_back(result.loss);
        norms.push_back(result.grad_norm);
        const std::string name = fmt::format("step-{}", step + 1);
        if (batch.width == 0) {
            write_numbers(command.folder / (name + ".tokens"), batch.tokens);
        } else {
            write_numbers(command.folder / (name + ".values"), batch.values);
        }
        write_numbers(command.folder / (name + ".targets"), batch.targets);
        if (!batch.lengths.empty()) {
            write_numbers(command.folder / (name + ".lengths"), batch.lengths);
        }
        if (!command.options.contains(losses_only)) {
            write(name, true);
        }
    }
    const SampleShape& input = model.layer(0).input;
    const nlohmann::json about{
        {"precision", to_string(scenario.training.precision)},
        {"image", {input.image.height, input.image.width, input.width}},
        {"positions", input.positions},
        {"units", model.layer_count()},
        {"micro_batches",
         micro_batch_sizes(scenario.training.batch, scenario.pipeline.micro_batches)},
        {"losses", losses},
        {"grad_norms", norms}};
    std::ofstream(command.folder / "steps.json") << about.dump() << '\n';
}

}  // namespace

int main(int argc, char** argv) {
    return bench::run_curve_command(
        argc,
        argv,
        {not_deferred, small_residuals, smooth, without_dropout, losses_only},
        write_steps);
}
