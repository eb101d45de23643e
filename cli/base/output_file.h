// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

#include "cli/base/console.h"

/// What a command writes besides the folder of a run.
namespace pipetwin::cli {

/// Writes a file that the user named, as `write_file` does. Where the disk is full it tries again
/// for a few seconds and warns the user, then throws Error(Io). Throws Error(Io) at once for an
/// error that does not pass with time.
void write_output(const std::filesystem::path& file, std::string_view content, Console& console);

/// Writes a file whose name the user did not choose, as `replace_file` does, and waits as
/// `write_output` does.
void write_own_output(const std::filesystem::path& file,
                      std::string_view content,
                      Console& console);

/// Throws Error(Io) if something stands where the result shall go and `force` does not allow to
/// replace it. Called before any work.
void require_free(const std::filesystem::path& out, bool force, std::string_view option = "--out");

}  // namespace pipetwin::cli
