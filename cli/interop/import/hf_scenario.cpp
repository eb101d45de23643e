// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/hf_scenario.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/input.h"
#include "cli/interop/import/launch_tables.h"
#include "cli/predict/layer_costs.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/profile_json.h"
#include "core/interop/hf_faults.h"
#include "core/interop/hf_trainable.h"
#include "core/model/model.h"
#include "core/scenario/scenario.h"

namespace pipetwin::cli {

namespace {

/// Micro-batches of the batch that is written, so that a pipeline has some to fill itself with.
constexpr int micro_batches_of_batch = 32;
constexpr int devices_of_a_node = 8;

/// Options that change an estimate from the sizes alone.
void refuse_options_of_profiles(const HfOptions& hf) {
    const std::array<std::pair<bool, const char*>, 9> given{
        std::pair{hf.stack.has_value(), "--stack"},
        std::pair{hf.efficiency.has_value(), "--efficiency"},
        std::pair{hf.memory_efficiency.has_value(), "--memory-efficiency"},
        std::pair{hf.has_attention, "--attention"},
        std::pair{hf.loss.has_value(), "--loss"},
        std::pair{hf.kernels.has_value(), "--kernels"},
        std::pair{!hf.weights.empty(), "--weights"},
        std::pair{!hf.calibration.empty(), "--calibrate"},
        std::pair{hf.whole_blocks, "--whole-blocks"}};
    for (const auto& [is_given, option] : given) {
        if (is_given) {
            throw Error(ErrorKind::Usage,
                        option,
                        "with --trainable the costs are those of the layers that are trained here",
                        "leave one of them out");
        }
    }
}

/// The word of training.precision for what the options or the file say.
std::string trained_precision(const ImportOptions& options,
                              const HfTrainable& model,
                              std::vector<std::string>& notes) {
    const std::optional<std::string>& chosen = options.hf.precision;
    const std::string word = chosen.value_or(model.precision.value_or("fp32"));
    if (word == "fp32" || word == "bf16") {
        return word;
    }
    if (chosen) {
        throw Error(
            ErrorKind::Usage,
            "--precision",
            fmt::format("'{}', expected fp32 or bf16, in which models are trained here", *chosen),
            "leave it out, or name one of them");
    }
    notes.push_back(fmt::format("the file says {}, which is not trained here: bf16", word));
    return "bf16";
}

/// The lines of [model], without keys that say what holds anyway.
std::string model_table(const ScenarioParts::ModelPart& model) {
    ScenarioParts::ModelPart plain = model;  // what a scenario has that writes no such key
    plain.llama = {.layers = model.llama.layers,
                   .d_model = model.llama.d_model,
                   .heads = model.llama.heads,
                   .routing = {.experts = model.llama.routing.experts}};
    plain.gpt = {};
    const std::vector<HfModelKey> usual = hf_model_keys(plain);
    constexpr std::array<std::string_view, 11> always{"layers",
                                                      "d_model",
                                                      "heads",
                                                      "context",
                                                      "vocabulary",
                                                      "feed_forward",
                                                      "tied",
                                                      "key_value_heads",
                                                      "experts",
                                                      "experts_per_token",
                                                      "expert_feed_forward"};
    std::string text = fmt::format("[model]\nkind = \"{}\"\n", to_string(model.kind));
    const std::vector<HfModelKey> keys = hf_model_keys(model);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const bool is_always = std::ranges::find(always, keys[i].name) != always.end();
        if (is_always || keys[i].value != usual[i].value) {
            text += fmt::format("{} = {}\n", keys[i].name, keys[i].value);
        }
    }
    return text;
}

/// What makes the model small enough for this machine, as options.
std::string reduction(const ScenarioParts::ModelPart& model, bool has_device) {
    std::vector<std::string> sets{
        "model.layers=2",
        "model.d_model=64",
        "model.heads=4",
        "model.context=64",
        "model.vocabulary=256",
        model.kind == ModelKind::Moe ? "model.expert_feed_forward=128" : "model.feed_forward=128"};
    if (model.has_llama_sizes()) {
        const LlamaSizes& llama = model.llama;
        sets.emplace_back(llama.key_value_heads == llama.heads ? "model.key_value_heads=4"
                                                               : "model.key_value_heads=2");
        if (llama.head_size * llama.heads != llama.d_model) {
            sets.emplace_back("model.head_size=16");
        }
    }
    if (has_device) {
        sets.emplace_back("cluster.device=this-machine");
    }
    sets.emplace_back("cluster.count=2");
    return "--set " + fmt::format("{}", fmt::join(sets, " --set "));
}

std::string scenario_text(const ImportOptions& options,
                          const HfTrainable& model,
                          const std::string& precision,
                          int batch) {
    const std::string name = options.common.out.filename().string();
    const std::string& device = options.hf.device.value_or("");
    std::string text = toml_comment(fmt::format(
        "{} of {}, by 'pipetwin import hf --trainable'.", model.family, input_name(options.file)));
    text += toml_comment(fmt::format("Plan:                    pipetwin plan {}", name));
    text += toml_comment(fmt::format("Train a small one here:  pipetwin run {} {}",
                                     name,
                                     reduction(model.model, !device.empty())));
    text += toml_comment("Begin with its weights:  add --weights FOLDER, with the sizes below");
    text += model_table(model.model);
    text += "\n[data]\nkind = \"synthetic\"  # or \"tokens\" with a path\n";
    text += fmt::format("\n[training]\nbatch = {}\nprecision = \"{}\"\n", batch, precision);
    text += "\n[pipeline]\nstages = \"auto\"\nmicro_batches = \"auto\"\nschedule = \"auto\"\n";
    text += fmt::format("\n[cluster]\ncount = {}\n", devices_of_a_node);
    if (!device.empty()) {
        text += fmt::format("device = \"{}\"\nper_node = {}\n", device, devices_of_a_node);
    }
    return text;
}

}  // namespace

Imported hf_scenario(const ImportOptions& options, std::string_view text, std::string_view place) {
    refuse_options_of_profiles(options.hf);
    HfTrainable model = parse_hf_trainable(text, place);
    if (!model.lacks.empty()) {
        throw hf_faults_error(
            std::string(place),
            model.lacks,
            "leave --trainable out: a profile of it can be planned and simulated");
    }
    const int sequence = options.hf.sequence.value();
    (model.model.has_llama_sizes() ? model.model.llama.context : model.model.gpt.context) =
        sequence;
    Imported imported;
    imported.notes = std::move(model.notes);
    const std::string precision = trained_precision(options, model, imported.notes);
    const int batch = options.micro_batch_size.value_or(1) * micro_batches_of_batch;
    imported.content = scenario_text(options, model, precision, batch);
    const Scenario scenario = parse_scenario(imported.content, options.common.out, {});
    const Model layers = scenario_model(scenario);
    if (options.hf.device) {
        imported.profile = print_profile(estimated_costs(scenario, layers, *options.hf.device));
    } else {
        imported.notes.emplace_back(
            "no --device: 'pipetwin plan' needs costs, which 'pipetwin profile' measures here");
    }
    imported.result.layers = layers.layer_count();
    imported.result.parameters = 0;
    for (int layer = 0; layer < layers.layer_count(); ++layer) {
        *imported.result.parameters += layers.layer(layer).parameter_count;
    }
    *imported.result.parameters -= layers.tied_count();
    return imported;
}

}  // namespace pipetwin::cli
