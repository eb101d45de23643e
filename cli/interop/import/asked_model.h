// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"
#include "core/text/override.h"
#include "sim/questions/prediction.h"

/// A model by its name on a cluster by its name, as a scenario that leaves everything else open.
namespace pipetwin::cli {

/// What `plan MODEL --cluster NAME` asks.
struct ModelQuestion {
    std::filesystem::path model;  ///< a name, a config.json or its folder, or a *.profile.json
    std::string cluster;          ///< a name, or a file as in profiles/clusters
    int nodes = 1;
    std::optional<int> sequence{};         ///< tokens per sample
    std::optional<double> batch_tokens{};  ///< tokens per step, about
    /// Number type of the estimate; none: bf16, where the device has it.
    std::optional<std::string> precision{};
    bool whole_blocks = false;           ///< attention and feed-forward stay in one stage
    std::vector<Override> overrides{};   ///< of keys of the scenario
    std::filesystem::path costs_file{};  ///< where the costs will be, for the scenario
};

/// The scenario of a question, and the costs of its model.
struct AskedModel {
    Scenario scenario;
    sim::FoundProfile found;
    int samples = 0;       ///< of a step
    std::string config{};  ///< its config.json, for exports; empty: only its costs are known
    std::vector<std::string> notes{};  ///< what the reader should know, for stderr
    /// The scenario of the same question with so many nodes.
    std::function<Scenario(int nodes)> on_nodes{};
};

/// "llama-3-70b on 8x-h100-sxm".
std::string question_name(const std::filesystem::path& model, std::string_view cluster);

/// Samples of `sequence` tokens for about `batch_tokens` tokens per step, such that replicas on so
/// many devices can share them out. An exact number of samples that `devices` divides is kept; else
/// the result is, of all numbers within 5 %, one that has the largest common divisor with
/// `devices`, and of these the one that most powers of two divide.
int samples_for(double batch_tokens, int sequence, int devices);

/// Estimates the model's costs on the cluster's device and leaves the pipeline open. Throws
/// Error(Usage) where the question lacks what it needs, and as `import_hf` and `parse_scenario`.
AskedModel asked_model(const ModelQuestion& question);

}  // namespace pipetwin::cli
