// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace pipetwin::cli {

/// A word as a user types it in a shell: in quotes where it holds blanks or signs that a shell
/// would obey, and with escapes (bash) where it holds what a terminal would obey.
std::string shell_word(std::string_view word);

}  // namespace pipetwin::cli
