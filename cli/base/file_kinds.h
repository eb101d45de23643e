// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/base/options.h"
#include "core/artifacts/file_kinds.h"

namespace pipetwin::cli {

/// Throws Error(BadInput) for the first file of a command line that is of another kind than its
/// place is for, saying what it is and which command takes it. Files that are not there, or are not
/// recognised, are left to their readers.
void expect_kinds_of_files(const Command& command);

}  // namespace pipetwin::cli
