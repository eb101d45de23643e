// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

/// Numbers in sentences of messages, tables and windows.
namespace pipetwin {

/// A written number with its noun, which is plural unless the number is one.
std::string with_noun(std::string_view number, bool is_one, std::string_view noun);

/// A number with its noun: "1 rank", "2 ranks", "8 micro-batches", "3 entries", "4 processes".
template <std::integral Count>
std::string counted(Count count, std::string_view noun) {
    return with_noun(std::to_string(count), count == 1, noun);
}

/// The form of a verb, or of another word, that goes with a number: `one` with 1, else `more`.
template <std::integral Count>
std::string_view verb_for(Count count, std::string_view one, std::string_view more) {
    return count == 1 ? one : more;
}

/// A whole number with a comma between thousands: "4,194,304".
std::string with_separators(std::int64_t number);

/// A share as a percentage with one decimal: "15.8 %".
std::string rounded_percent(double share);

/// Whether `rounded_percent` writes a share as more than 0.0 %.
bool shows_percent(double share);

}  // namespace pipetwin
