// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <toml++/toml.h>

/// Slips of typing in TOML, and what was meant.
namespace pipetwin {

/// What a key takes, as far as a slip can be told by it.
enum class ValueKind { Other, Boolean, Number, WholeNumber, Numbers, Bytes };

/// The line of a document as it can be read, where its slip is known: quotes and dashes of a
/// document, a word without quotes, "key: value", a comma or comment of another language at the
/// end, True, 1,024, a bracket that is missing. Empty: nothing is known.
std::string mended_line(std::string_view line);

/// The value as TOML that was meant where a key expects a list, a number, or true or false: "[2,
/// 1]" for "2, 1" in quotes, "400" for "400 Gbps" of link_gbps, "1000" for 1e3. Empty: nothing is
/// known.
std::string meant_value(std::string_view key, const toml::node& written, ValueKind expected);

}  // namespace pipetwin
