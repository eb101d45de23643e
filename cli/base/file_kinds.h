// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "cli/base/options.h"
#include "core/artifacts/file_kinds.h"

namespace pipetwin::cli {

/// Throws Error(BadInput) for a file of another kind than these, saying what it is and which
/// command takes it. A file that is not there, or is not recognised, is left to its reader.
void expect_kind(const std::filesystem::path& file,
                 std::initializer_list<FileKind> kinds,
                 std::string_view expected);

/// Throws Error(BadInput) for the first file of a command line that is of another kind than its
/// place is for, as `expect_kind` does.
void expect_kinds_of_files(const Command& command);

}  // namespace pipetwin::cli
