// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/text/json_output.h"

/// What `plan MODEL --out` writes beside a plan for the systems that train it.
namespace pipetwin::cli {

/// A plan in the words of another training system, or the reason why it cannot be said in them.
struct PlanExport {
    std::string_view format;           ///< as `export` names it, where it has it
    std::string_view file;             ///< its name in the folder of the plan
    std::string content{};             ///< empty: there is none
    std::vector<std::string> notes{};  ///< settings that go with it, and what differs
    std::string why_not{};             ///< where there is none
    std::string hint{};                ///< what would help then
};

/// The plan of a folder in the formats of Megatron-LM, torchtitan and PyTorch, with scripts that
/// start it, and the commands that go on from there. `config`: the model's
/// config.json, empty where it is not known; costs do not hold the sizes. Throws Error where the
/// folder holds no plan.
std::vector<PlanExport> plan_exports(const std::filesystem::path& folder,
                                     const std::string& config);

/// What lies in the folder of a plan, what goes with each export, and the commands that go on from
/// there; lines broken at `width`.
std::string written_text(const std::filesystem::path& folder,
                         const std::vector<PlanExport>& exports,
                         int width);

/// What was exported as JSON: {"folder": ..., "exports": [{"format", "file", "notes", "why_not"}]};
/// "file" is null where there is none, "why_not" where there is one.
Json written_json(const std::filesystem::path& folder, const std::vector<PlanExport>& exports);

}  // namespace pipetwin::cli
