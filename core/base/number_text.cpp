// SPDX-License-Identifier: Apache-2.0
#include "core/base/number_text.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

namespace pipetwin {

namespace {

/// The plural of a noun, by the rules of spelling alone.
std::string plural_of(std::string_view noun) {
    const auto ends_with_one_of = [noun](std::initializer_list<std::string_view> ends) {
        return std::ranges::any_of(ends,
                                   [noun](std::string_view end) { return noun.ends_with(end); });
    };
    if (noun.ends_with('y') && !ends_with_one_of({"ay", "ey", "oy", "uy"})) {
        return fmt::format("{}ies", noun.substr(0, noun.size() - 1));
    }
    return fmt::format("{}{}", noun, ends_with_one_of({"ch", "sh", "s", "x"}) ? "es" : "s");
}

}  // namespace

std::string with_noun(std::string_view number, bool is_one, std::string_view noun) {
    return fmt::format("{} {}", number, is_one ? std::string(noun) : plural_of(noun));
}

std::string with_separators(std::int64_t number) {
    const std::string digits = fmt::format("{}", number);
    std::string text;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        const bool group_begins = i > 0 && (digits.size() - i) % 3 == 0;
        text += group_begins ? "," : "";
        text += digits[i];
    }
    return text;
}

std::string rounded_percent(double share) {
    return fmt::format("{:.1f} %", 100 * share);
}

bool shows_percent(double share) {
    return share > 0 && rounded_percent(share) != rounded_percent(0);
}

}  // namespace pipetwin
