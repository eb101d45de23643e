// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

/// Files that a command reads, standard input among them.
namespace pipetwin::cli {

/// Name of `file` in errors and results; "-" is standard input.
std::string input_name(const std::filesystem::path& file);

/// Whether a path leads to a folder; false where nothing can be said of it.
bool is_folder(const std::filesystem::path& path);

/// Reads a whole file; "-" is standard input. `look`, if given, gets every part as it comes and may
/// throw. Throws as `read_file`.
std::string read_input(const std::filesystem::path& file,
                       std::size_t max_bytes,
                       const std::function<void(std::string_view)>& look = {});

}  // namespace pipetwin::cli
