// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>

#include "core/costs/profile.h"

namespace pipetwin {

class Model;
struct ScenarioParts;

}  // namespace pipetwin

/// Costs that are at hand for a scenario.
namespace pipetwin::sim {

/// Costs of a scenario's layers, and the file that they come from.
struct FoundProfile {
    Profile profile;
    std::filesystem::path file;
};
/// Finds the costs of a scenario's layers, in this order: --profile, the scenario's own file (kind
/// = "profile"), profile.json in `folder`, and NAME.profile.json in the current folder, which is
/// what `pipetwin profile` writes. Throws Error(BadInput), saying how to make one, if there is
/// none, and as `expect_stack_of_costs`.
FoundProfile find_profile(const ScenarioParts& scenario,
                          const std::filesystem::path& option,
                          const std::filesystem::path& folder);

/// Finds the costs of a scenario's layers as `find_profile` does; none where they are not known.
std::optional<FoundProfile> known_profile(const ScenarioParts& scenario,
                                          const std::filesystem::path& option,
                                          const std::filesystem::path& folder);

/// The scenario's model, which has to be the one that the costs are of. Throws Error(BadInput) with
/// the file of the costs where it is not.
Model model_with_costs(const ScenarioParts& scenario, const FoundProfile& found);

/// "gpt-text.profile.json" for scenarios/gpt-text.toml.
std::filesystem::path profile_name(const ScenarioParts& scenario);

}  // namespace pipetwin::sim
