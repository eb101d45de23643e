// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/interop/hf_faults.h"
#include "core/scenario/scenario.h"

/// Models of Hugging Face's config.json that this program trains, both ways.
namespace pipetwin {

/// A key of [model] with the value that a scenario would write, and the key that means the same in
/// a config.json.
struct HfModelKey {
    std::string_view name{};    ///< "d_model"
    std::string value{};        ///< "768"
    std::string_view theirs{};  ///< "n_embd"

    bool operator==(const HfModelKey&) const = default;
};

/// The keys that describe a model of a kind that a family of Hugging Face's is, in the order in
/// which a scenario is written. Empty for another kind.
std::vector<HfModelKey> hf_model_keys(const ScenarioParts::ModelPart& model);

/// What a config.json says of a model that can be trained here.
struct HfTrainable {
    ScenarioParts::ModelPart model{};
    std::string family{};                    ///< the word of "model_type"
    std::optional<std::string> precision{};  ///< "bf16", "fp16", "fp32"
    std::vector<std::string> notes{};        ///< what a training does a little differently
    std::vector<HfFault> lacks{};            ///< keys that ask for what no model here has
};

/// Reads a config.json. Throws Error(BadInput) as `parse_hf_config` does, and for a family of which
/// no kind of model is.
HfTrainable parse_hf_trainable(std::string_view text, std::string_view place);

/// The text of the config.json of a trained model. `dtype`: of its weights, "float32". Throws
/// Error(BadInput) as `hf_names`.
std::string print_hf_config(const ScenarioParts::ModelPart& model, std::string_view dtype);

}  // namespace pipetwin
