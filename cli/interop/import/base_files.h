// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/interop/import/importers.h"
#include "core/interop/launch/setting.h"

/// Files that a configuration continues.
namespace pipetwin::cli {

/// Whether a text is Primus's YAML for a run of this framework: "torchtitan" or "maxtext".
bool is_primus_of(std::string_view text, std::string_view framework);

/// Where a file may lie that another continues: beside it, or below `folder` of the Primus that it
/// is part of, as "models/megatron" in primus/configs. None: at neither.
std::optional<std::filesystem::path> base_file(const std::filesystem::path& file,
                                               const std::string& name,
                                               std::string_view folder);

/// Takes one file: the text, and its name.
using TakeBase = std::function<LaunchFile(const std::string& text, const std::string& place)>;
/// Adds the settings of a base to those of a file that says them otherwise.
using AddBase = std::function<void(LaunchFile& file, const LaunchFile& base)>;

/// Adds what the files that this one continues say, and what those continue. Throws
/// Error(BadInput) for one that is not found, unless options.insist leaves it out: then it is added
/// to `left_out`.
void add_bases(LaunchFile& file,
               const ImportOptions& options,
               std::string_view folder,
               const TakeBase& take,
               const AddBase& add,
               std::vector<std::string>& left_out);

/// Adds what the file says that a Primus module's `config` names, and what that continues, and
/// takes the key out; where the file is not found, neither beside this one nor below
/// "modules/megatron", nothing is done. As in Primus, such a file stands between the overrides and
/// the model's.
void add_primus_module(LaunchFile& file,
                       const ImportOptions& options,
                       const TakeBase& take,
                       const AddBase& add,
                       std::vector<std::string>& left_out);

/// The settings of a framework in Primus's YAML, with those of the files that it continues, by
/// their names in the framework ("training.seq_len").
LaunchFile primus_settings(const std::string& text,
                           const ImportOptions& options,
                           std::string_view framework,
                           std::vector<std::string>& left_out);

}  // namespace pipetwin::cli
