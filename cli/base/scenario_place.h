// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "cli/base/options.h"
#include "core/base/error.h"
#include "core/text/override.h"

namespace pipetwin::cli {

/// The scenario file that a command reads; empty where it reads none.
std::filesystem::path scenario_of(const Command& command);

/// The error with the line and column of the key that it is about, where its place is a scenario as
/// a whole or a key alone ("x.toml", "pipeline.partition"): what no reader could know, since it
/// follows from several keys. The key is the first that its place, text or hint names; where
/// `overrides` set it the place names that. Other errors stay as they are.
Error with_scenario_place(const Error& error,
                          const std::filesystem::path& scenario,
                          const std::vector<Override>& overrides);

}  // namespace pipetwin::cli
