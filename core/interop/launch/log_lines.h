// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace pipetwin {

/// A text without blanks and carriage returns at its ends.
std::string_view trimmed_line(std::string_view text);

/// Calls `take` with each line of a log and its number, from 1, without the escape sequences of a
/// terminal (colours). A line in which carriage returns stand is several with one number, of which
/// empty ones are left out. A line is valid until `take` returns.
void for_each_log_line(std::string_view text,
                       const std::function<void(std::string_view line, int number)>& take);

}  // namespace pipetwin
