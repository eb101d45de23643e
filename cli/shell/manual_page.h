// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace pipetwin::cli {

struct CommandTable;
struct ProgramTable;

/// The manual page of a command, or of the program (`table.program`), in roff with man's macros.
std::string manual_page(const ProgramTable& table, const CommandTable& command);

/// The name of its file: "pipetwin-plan.1", "pipetwin.1".
std::string manual_page_file(const CommandTable& command);

}  // namespace pipetwin::cli
