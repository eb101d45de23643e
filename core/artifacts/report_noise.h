// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "core/artifacts/chrome_trace.h"

namespace pipetwin {

/// Completes the noise of a measured trace that an older version wrote into a run folder: what such
/// a trace does not keep, the report.json beside it says. Never throws for what the report holds.
void complete_noise(Trace& trace, const std::filesystem::path& file);

}  // namespace pipetwin
