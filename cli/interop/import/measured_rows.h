// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/interop/import/importers.h"

namespace pipetwin::cli {

/// Adds what a log of Megatron-LM measured: a note with the median step, and with --rows-out a row
/// of --calibrate with the settings of `imported.content`. `batch`: samples of a step; none: not
/// known. Throws Error(BadInput) at `place` where rows are asked for and no step is there.
void add_measured_steps(Imported& imported,
                        const ImportOptions& options,
                        std::string_view log,
                        std::optional<int> batch,
                        const std::string& place);

}  // namespace pipetwin::cli
