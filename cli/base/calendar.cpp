// SPDX-License-Identifier: Apache-2.0
#include "cli/base/calendar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "core/base/ascii.h"
#include "core/base/error.h"

namespace pipetwin::cli {

namespace {

using std::chrono::year_month_day;

constexpr std::string_view example_day = "2027-03-31";

year_month_day ymd(int year, int month, int day) {
    return {std::chrono::year(year),
            std::chrono::month(static_cast<unsigned>(month)),
            std::chrono::day(static_cast<unsigned>(day))};
}

/// The runs of digits of a text whose other characters are '-', '.', '/' or blanks; empty for any
/// other text.
std::vector<std::string> digits_of(std::string_view text) {
    std::vector<std::string> parts{""};
    for (const char c : text) {
        if (ascii::is_digit(c)) {
            parts.back() += c;
        } else if (std::string_view("-./ ").find(c) != std::string_view::npos) {
            parts.emplace_back();
        } else {
            return {};
        }
    }
    return parts;
}

int number_of_digits(const std::string& text) {
    int number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

/// The day that is probably meant by three numbers in another order or form: "31.3.2027",
/// "2027/3/31", "20270331"; none: it is not known.
std::optional<year_month_day> meant_day(std::string_view text) {
    std::vector<std::string> parts = digits_of(text);
    constexpr std::size_t compact = 8;
    if (parts.size() == 1 && parts.front().size() == compact) {
        parts = {parts[0].substr(0, 4), parts[0].substr(4, 2), parts[0].substr(6)};
    }
    if (parts.size() != 3) {
        return std::nullopt;
    }
    const auto is_short = [](const std::string& part) {
        return part.size() == 1 || part.size() == 2;
    };
    if (is_short(parts[0]) && is_short(parts[1]) && parts[2].size() == 4 &&
        text.find('.') != std::string_view::npos) {
        std::swap(parts[0], parts[2]);
    }
    if (parts[0].size() != 4 || !is_short(parts[1]) || !is_short(parts[2])) {
        return std::nullopt;
    }
    const year_month_day day =
        ymd(number_of_digits(parts[0]), number_of_digits(parts[1]), number_of_digits(parts[2]));
    return day.ok() ? std::optional(day) : std::nullopt;
}

[[noreturn]] void refuse_day(std::string_view option,
                             std::string_view text,
                             const std::string& why,
                             const std::optional<year_month_day>& meant) {
    throw Error(ErrorKind::Usage,
                std::string(option),
                fmt::format("'{}'{}", text, why),
                meant ? fmt::format("did you mean '{}'?", day_text(*meant))
                      : fmt::format("write it as in {} {}", option, example_day));
}

}  // namespace

year_month_day today() {
    const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm local{};
    localtime_r(&now, &local);
    constexpr int first_year = 1900;
    return ymd(first_year + local.tm_year, 1 + local.tm_mon, local.tm_mday);
}

year_month_day read_day(std::string_view text, std::string_view option) {
    const std::vector<std::string> parts = digits_of(text);
    const bool has_form = text.size() == example_day.size() && parts.size() == 3 &&
                          parts[0].size() == 4 && parts[1].size() == 2 && text[4] == '-' &&
                          text[7] == '-';
    constexpr std::size_t most_digits = 4;
    if (option == "--until" && parts.size() == 1 && text.size() <= most_digits && !text.empty()) {
        throw Error(ErrorKind::Usage,
                    std::string(option),
                    fmt::format("'{}', expected a day as year-month-day", text),
                    fmt::format("a number of days is that of --days {}", text));
    }
    if (!has_form) {
        refuse_day(option, text, ", expected a day as year-month-day", meant_day(text));
    }
    const int year = number_of_digits(parts[0]);
    const int month = number_of_digits(parts[1]);
    const int day = number_of_digits(parts[2]);
    constexpr int months = 12;
    if (month < 1 || month > months) {
        refuse_day(option,
                   text,
                   fmt::format(": there is no month {}, expected 01 to 12", parts[1]),
                   day >= 1 && day <= months && ymd(year, day, month).ok()
                       ? std::optional(ymd(year, day, month))
                       : std::nullopt);
    }
    const year_month_day result = ymd(year, month, day);
    if (!result.ok()) {
        const std::chrono::year_month_day_last last(result.year(),
                                                    std::chrono::month_day_last(result.month()));
        refuse_day(option,
                   text,
                   fmt::format(": this month has the days 01 to {:02}", unsigned(last.day())),
                   day > 0 ? std::optional(year_month_day(last)) : std::nullopt);
    }
    return result;
}

std::string day_text(const year_month_day& day) {
    return fmt::format(
        "{:04}-{:02}-{:02}", int(day.year()), unsigned(day.month()), unsigned(day.day()));
}

int days_between(const year_month_day& from, const year_month_day& until) {
    return static_cast<int>((std::chrono::sys_days(until) - std::chrono::sys_days(from)).count());
}

}  // namespace pipetwin::cli
