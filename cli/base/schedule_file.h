// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "core/schedule/schedule.h"

namespace pipetwin::cli {

/// Reads a schedule file as it is, which may be no valid one; "-" is standard input. A file of too
/// many cells is refused before any of it is kept. Throws as `parse_schedule_csv` and `read_file`.
Schedule read_schedule_file(const std::filesystem::path& file);

}  // namespace pipetwin::cli
