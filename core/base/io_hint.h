// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace pipetwin {

/// What to do where the system refuses to open, read or write a file, by its error number (errno).
std::string io_hint(int code);

}  // namespace pipetwin
