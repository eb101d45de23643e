// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/interop/import/importers.h"
#include "core/interop/megatron_flags.h"

namespace pipetwin::cli {

/// Tables of a scenario that say what Megatron-LM's flags say, and with --device the costs of the
/// model. Throws as `megatron_sizes` and `megatron_model`, at `place`.
Imported megatron_fragment(const MegatronFlags& flags,
                           const ImportOptions& options,
                           const std::string& place);

/// Throws Error(Usage) for an option that says what the flags say, too.
void expect_flag_options(const ImportOptions& options);

/// Takes --vocabulary where the flags do not say the number of words. Throws Error(Usage) where
/// they do.
void take_vocabulary(MegatronFlags& flags, const ImportOptions& options);

}  // namespace pipetwin::cli
