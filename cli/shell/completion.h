// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace pipetwin::cli {

struct ProgramTable;

/// A script that bash sources: a function that completes commands, options and their values.
std::string bash_completion(const ProgramTable& table);
/// A function of zsh, in a file "_pipetwin" of a folder in its `fpath`.
std::string zsh_completion(const ProgramTable& table);
/// A script for fish, "pipetwin.fish" in one of its folders of completions.
std::string fish_completion(const ProgramTable& table);

}  // namespace pipetwin::cli
