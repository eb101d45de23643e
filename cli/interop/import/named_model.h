// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "cli/interop/import/importers.h"
#include "core/interop/launch/setting.h"

namespace pipetwin::cli {

/// Adds the sizes of the model that --model names, or, of ms-swift's command line, its flag
/// --model: those that the file does not set itself. A name that ms-swift's flag has and that is
/// not known here stays open, with a note. Throws as `sim::config_file` and
/// `megatron_model_flags`.
void add_named_model(LaunchFile& file, const ImportOptions& options);

/// The name that comes with the program for one of Hugging Face's: "Qwen/Qwen2.5-7B-Instruct" is
/// "qwen2.5-7b"; empty: there is none.
std::string shipped_name(std::string_view theirs);

}  // namespace pipetwin::cli
