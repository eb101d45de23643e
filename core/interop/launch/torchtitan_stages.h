// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// How torchtitan shares the layers of a model out to the stages of a pipeline. What it refuses, or
/// would leave out, throws Error(Infeasible) at `place`.
namespace pipetwin {

/// A model of torchtitan.
struct TitanModel {
    std::string name;           ///< with its flavour, for people
    std::optional<int> blocks;  ///< none: not known here
    std::string shipped{};      ///< its name in profiles/models; empty: it is not there
};

/// The model of a name and a flavour (torchtitan/models/*/__init__.py).
TitanModel titan_model(std::string_view name, std::string_view flavor);

/// Layers of each stage by torchtitan's own distribution: embedding and head count as so many
/// layers, the first stages take what is left over.
std::vector<int> titan_blocks(
    int blocks, int stages, int less_first, int less_last, const std::string& place);

/// Layers of each stage by the distribution of 2024 and of the first months of 2025: equal parts,
/// what is left over to the stages between the first and the last, and then to the last
/// (torchtitan/distributed/pipeline.py, generate_split_points).
std::vector<int> titan_blocks_before_2025(int blocks, int stages, const std::string& place);

/// The layers with which a new stage begins, "layers.8" or in one text "layers.8,layers.16"; the
/// modules behind the layers count as one more.
std::vector<int> titan_split_points(const std::vector<std::string>& texts,
                                    const TitanModel& model,
                                    const std::string& place);

/// Layers of each stage between these points; empty where the model's layers are not known.
std::vector<int> titan_blocks_between(const std::vector<int>& points, const TitanModel& model);

/// Layers of each stage, of a list of modules for each. torchtitan runs a module in each stage that
/// names it, and leaves out those that no stage names, without a word; the partition of a scenario
/// has each layer once, in order.
std::vector<int> titan_blocks_of_modules(const std::vector<std::string>& stages,
                                         const TitanModel& model,
                                         const std::string& place);

}  // namespace pipetwin
