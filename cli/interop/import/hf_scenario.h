// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "cli/interop/import/importers.h"

namespace pipetwin::cli {

/// A scenario of the model that a config.json describes, for `import hf --trainable`: it can be
/// planned and simulated, and trained, whole or made smaller with --set. With --device, costs of
/// its layers on that device beside it. `text` is the file, `place` its name in errors. Throws
/// Error(BadInput) for a model that cannot be trained, naming every key that asks for what is not
/// there, and Error(Usage) for an option that says nothing about a scenario.
Imported hf_scenario(const ImportOptions& options, std::string_view text, std::string_view place);

}  // namespace pipetwin::cli
