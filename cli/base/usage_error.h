// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/base/error.h"

namespace pipetwin::cli {

/// What CLI11 says of a command line, as Error(Usage) in the words of all other errors: the option,
/// what stands there, what was expected, and what to write. `command` is null where none was given.
Error usage_error(const CLI::ParseError& error,
                  CLI::App* command,
                  const std::vector<std::string>& args);

}  // namespace pipetwin::cli
