// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/event_words.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

namespace pipetwin {

using std::string_view;

std::optional<Duration> microseconds_of(string_view text, std::int64_t most) {
    const bool negative = text.starts_with('-');
    text.remove_prefix(negative || text.starts_with('+') ? 1 : 0);
    if (text.find_first_not_of("0123456789.") != string_view::npos) {  // 1.5e3
        double value = 0;
        const char* const end = text.data() + text.size();
        const auto [rest, status] = std::from_chars(text.data(), end, value);
        const bool good = status == std::errc{} && rest == end && value >= 0 &&
                          value <= static_cast<double>(most) && (!negative || value == 0);
        return good ? std::optional(Duration{std::llround(value * 1000)}) : std::nullopt;
    }
    const std::size_t point = std::min(text.find('.'), text.size());
    const string_view whole = text.substr(0, point);
    const string_view parts = text.substr(std::min(point + 1, text.size()));
    std::int64_t value = 0;
    const auto [rest, status] = std::from_chars(whole.data(), whole.data() + whole.size(), value);
    if (status != std::errc{} || rest != whole.data() + whole.size() || value > most ||
        parts.find('.') != string_view::npos) {
        return std::nullopt;
    }
    std::int64_t nanoseconds = value * 1000;
    constexpr std::array<std::int64_t, 3> weights{100, 10, 1};
    for (std::size_t i = 0; i < std::min(parts.size(), weights.size()); ++i) {
        nanoseconds += weights.at(i) * (parts[i] - '0');
    }
    nanoseconds += parts.size() > 3 && parts[3] >= '5' ? 1 : 0;
    return negative && nanoseconds > 0 ? std::nullopt : std::optional(Duration{nanoseconds});
}

string_view message_word(string_view name) {
    const std::size_t colon = name.find(':');
    if (colon == string_view::npos || colon == 0 || colon > 16) {
        return {};
    }
    const string_view word = name.substr(std::min(name.find_first_not_of(':', colon), name.size()));
    for (const string_view known : {string_view("send"), string_view("recv")}) {
        const string_view after = word.starts_with(known) ? word.substr(known.size()) : "x";
        if (after.empty() || after.front() == ' ' || after == "_" || after == "_any_source_") {
            return known;
        }
    }
    return {};
}

std::pair<int, int> ends_of_message(string_view name) {
    const std::size_t arrow = std::min(name.find("->"), name.find("<-"));
    const std::size_t space = name.rfind(' ', std::min(arrow, name.size()));
    if (arrow == string_view::npos || space == string_view::npos) {
        return {-1, -1};
    }
    const string_view left = name.substr(space + 1, arrow - space - 1);
    const string_view right = name.substr(arrow + 2);
    std::array<int, 2> ranks{-1, -1};
    for (const auto& [text, rank] : {std::pair(left, &ranks[0]), std::pair(right, &ranks[1])}) {
        const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), *rank);
        if (status != std::errc{} || rest == text.data() || *rank < 0 ||
            *rank > largest_traced_rank) {
            return {-1, -1};
        }
    }
    return name[arrow] == '-' ? std::pair(ranks[0], ranks[1]) : std::pair(ranks[1], ranks[0]);
}

std::optional<int> number_behind(string_view name, string_view lead) {
    if (!name.starts_with(lead)) {
        return std::nullopt;
    }
    int number = 0;
    const char* const end = name.data() + name.size();
    const auto [rest, status] = std::from_chars(name.data() + lead.size(), end, number);
    return status == std::errc{} && rest == end && number >= 0 ? std::optional(number)
                                                               : std::nullopt;
}

}  // namespace pipetwin
