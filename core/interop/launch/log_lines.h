// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace pipetwin {

/// A text without blanks and carriage returns at its ends.
std::string_view trimmed_line(std::string_view text);

/// Whether there is a number, and it is finite and above 0.
inline bool is_positive(std::optional<double> number) {
    return number && std::isfinite(*number) && *number > 0;
}

/// The number behind the first `text` of a line, and blanks; none: there is none.
template <typename Number>
std::optional<Number> number_behind(std::string_view line, std::string_view text) {
    const std::size_t at = line.find(text);
    if (at == std::string_view::npos) {
        return std::nullopt;
    }
    const std::string_view rest = trimmed_line(line.substr(at + text.size()));
    Number number{};
    const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    return status == std::errc{} && end != rest.data() ? std::optional(number) : std::nullopt;
}

/// Calls `take` with each line of a log and its number, from 1, without the escape sequences of a
/// terminal (colours). A line in which carriage returns stand is several with one number, of which
/// empty ones are left out. A line is valid until `take` returns.
void for_each_log_line(std::string_view text,
                       const std::function<void(std::string_view line, int number)>& take);

}  // namespace pipetwin
