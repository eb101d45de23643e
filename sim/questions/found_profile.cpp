// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/found_profile.h"

#include <system_error>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/costs/profile_json.h"
#include "core/model/model.h"
#include "core/scenario/cost_table.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/scenario.h"

namespace pipetwin::sim {

namespace {

bool is_file(const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

std::filesystem::path profile_name(const ScenarioParts& scenario) {
    return scenario.file.stem().string() + ".profile.json";
}

std::optional<FoundProfile> known_profile(const ScenarioParts& scenario,
                                          const std::filesystem::path& option,
                                          const std::filesystem::path& folder) {
    std::filesystem::path file = option;
    if (file.empty() && scenario.model.kind == ModelKind::Profile) {
        file = scenario.model.profile;
    }
    const std::filesystem::path beside = scenario.file.parent_path() / "profile.json";
    if (file.empty() && !folder.empty() && is_file(folder / "profile.json")) {
        file = folder / "profile.json";
    }
    if (file.empty() && scenario.file.filename() == "scenario.toml" && is_file(beside)) {
        file = beside;
    }
    if (file.empty() && is_file(profile_name(scenario))) {
        file = profile_name(scenario);
    }
    if (file.empty()) {
        return std::nullopt;
    }
    return FoundProfile{.profile = read_profile(file), .file = file};
}

FoundProfile find_profile(const ScenarioParts& scenario,
                          const std::filesystem::path& option,
                          const std::filesystem::path& folder) {
    std::optional<FoundProfile> found = known_profile(scenario, option, folder);
    if (!found) {
        const bool is_changed =
            static_cast<const ScenarioParts&>(read_scenario(scenario.file)) != scenario;
        throw Error(
            ErrorKind::BadInput,
            scenario.file.string(),
            "the costs of the layers on this machine are not known yet",
            fmt::format("run 'pipetwin profile {}' first{}, or name a profile with --profile FILE",
                        scenario.file.string(),
                        is_changed ? " (with the same --set)" : ""));
    }
    expect_stack_of_costs(scenario, found->profile);
    return *std::move(found);
}

Model model_with_costs(const ScenarioParts& scenario, const FoundProfile& found) {
    Model model = scenario_model(scenario, &found.profile);
    try {
        require_same_layers(model, found.profile);
    } catch (const Error& error) {
        throw error.placed(found.file.string());
    }
    return model;
}

}  // namespace pipetwin::sim
