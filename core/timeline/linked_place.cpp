// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/linked_place.h"

#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/suggest.h"

namespace pipetwin {

namespace {

constexpr std::array<std::string_view, 3> place_keys{"step", "rank", "ms"};

[[noreturn]] void refuse_part(std::string_view part, std::string_view asked_by) {
    const std::string_view key = part.substr(0, part.find('='));
    const std::string_view near = nearest_word(key, {place_keys.begin(), place_keys.end()});
    const bool is_known = near == key;
    throw Error(ErrorKind::Usage,
                std::string(asked_by),
                is_known ? fmt::format("'{}', expected {}=N with {}",
                                       part,
                                       key,
                                       key == "ms" ? "a number of zero or more"
                                                   : "a whole number of zero or more")
                         : fmt::format("'{}', expected step=N, rank=N or ms=X", part),
                near.empty() || is_known ? "write it as in --at step=3,rank=1,ms=12.5"
                                         : fmt::format("did you mean '{}'?", near));
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
    Number number{};
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, number);
    return status == std::errc{} && rest == end && !text.empty() && number >= 0
               ? std::optional(number)
               : std::nullopt;
}

}  // namespace

LinkedPlace parse_place(std::string_view text, std::string_view asked_by) {
    LinkedPlace place;
    std::string_view rest = text;
    do {
        const std::size_t comma = rest.find(',');
        const std::string_view part = rest.substr(0, comma);
        rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
        const std::size_t equals = part.find('=');
        const std::string_view key = part.substr(0, equals);
        const std::string_view value =
            equals == std::string_view::npos ? "" : part.substr(equals + 1);
        if (key == "step" && number_of<int>(value)) {
            place.step = number_of<int>(value);
        } else if (key == "rank" && number_of<int>(value)) {
            place.rank = number_of<int>(value);
        } else if (key == "ms" && number_of<double>(value) &&
                   std::isfinite(*number_of<double>(value))) {
            place.ms = number_of<double>(value);
        } else {
            refuse_part(part, asked_by);
        }
    } while (!rest.empty());
    return place;
}

std::string place_text(const LinkedPlace& place) {
    std::vector<std::string> parts;
    if (place.step) {
        parts.push_back(fmt::format("step={}", *place.step));
    }
    if (place.rank) {
        parts.push_back(fmt::format("rank={}", *place.rank));
    }
    if (place.ms) {
        parts.push_back(fmt::format("ms={}", *place.ms));
    }
    return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace pipetwin
