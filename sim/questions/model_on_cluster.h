// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"
#include "core/text/override.h"
#include "sim/questions/found_profile.h"
#include "sim/questions/node_counts.h"

/// A model by its name on a cluster by its name, as a scenario that leaves everything else open.
namespace pipetwin::sim {

/// What `plan MODEL --cluster NAME` asks.
struct ModelQuestion {
    std::filesystem::path model;  ///< a name, a config.json or its folder, or a *.profile.json
    std::string cluster;          ///< a name, or a file as in profiles/clusters
    int nodes = 1;
    std::optional<int> sequence{};         ///< tokens per sample
    std::optional<double> batch_tokens{};  ///< tokens per step, about
    /// Number type of the estimate; none: bf16, where the device has it.
    std::optional<std::string> precision{};
    std::optional<std::string> stack{};  ///< none: that of the cluster's file, if it has any
    bool whole_blocks = false;           ///< attention and feed-forward stay in one stage
    std::vector<Override> overrides{};   ///< of keys of the scenario
    std::filesystem::path costs_file{};  ///< where the costs will be, for the scenario
};

/// A model on a cluster: its scenario and its costs.
struct ModelOnCluster {
    Scenario scenario;
    FoundProfile found;
    std::string config{};  ///< its config.json, for exports; empty: only its costs are known
    std::vector<std::string> notes{};  ///< what a reader should know
    NodesOfModel nodes{};              ///< scenarios of the same question
};

/// "llama-3-70b on 8x-h100-sxm".
std::string question_name(const std::filesystem::path& model, std::string_view cluster);

/// Samples of `sequence` tokens for about `batch_tokens` tokens per step, such that replicas on so
/// many devices can share them out. An exact number of samples that `devices` divides is kept; else
/// the result is, of all numbers within 5 %, one that has the largest common divisor with
/// `devices`, and of these the one that most powers of two divide.
int samples_for(double batch_tokens, int sequence, int devices);

/// Throws Error(BadInput) for a file or folder in which no model is described.
void expect_model_file(const std::filesystem::path& model);

/// Estimates the model's costs on the cluster's device and leaves the pipeline open. Throws
/// Error(Usage) for overrides that the question says itself, and as `estimated_model` and
/// `scenario_over`.
ModelOnCluster model_on_cluster(const ModelQuestion& question);

}  // namespace pipetwin::sim
