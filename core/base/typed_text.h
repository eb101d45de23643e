// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace pipetwin {

/// A text with hyphens, quotes and blanks as they are typed, in place of the dashes, quotes and
/// blanks that a document shows: "--cluster" for "\u2013cluster" with two dashes.
std::string as_typed(std::string_view text);

/// Whether a text begins with a dash of a document, where an option begins with hyphens.
bool begins_with_dash(std::string_view text);

/// Whether a text begins or ends with a dash, quote or blank of a document.
bool is_in_foreign_signs(std::string_view text);

/// The text without the blanks around it.
std::string_view trimmed(std::string_view text);

}  // namespace pipetwin
