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

/// The file where its name says that it is a scenario; else none.
std::filesystem::path if_scenario(const std::filesystem::path& file);

/// Throws as `expect_kind` for a file that has no runs for --calibrate.
void expect_measured_runs(const std::filesystem::path& file);

}  // namespace pipetwin::cli
