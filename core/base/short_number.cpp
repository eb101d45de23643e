// SPDX-License-Identifier: Apache-2.0
#include "core/base/short_number.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace pipetwin {

namespace {

constexpr int significant = 3;
constexpr std::array units{"ns", "us", "ms", "s"};
constexpr double next_unit = 1000;

/// Decimals that leave three significant digits of a number, which may be rounded up to a power of
/// ten by them.
int decimals_of(double number) {
    if (number == 0 || !std::isfinite(number)) {
        return 0;
    }
    const auto decimals = [](double of) {
        return significant - 1 - static_cast<int>(std::floor(std::log10(std::abs(of))));
    };
    const double unit = std::pow(10.0, decimals(number));
    return std::max(0, decimals(std::round(number * unit) / unit));
}

/// Without the sign of a number that is rounded to zero.
std::string fixed(double number, int decimals) {
    std::string text = fmt::format("{:.{}f}", number, decimals);
    const bool is_zero = text.find_first_of("123456789") == std::string::npos;
    return is_zero && text.starts_with('-') ? text.substr(1) : text;
}

}  // namespace

std::string short_number(double number) {
    if (std::isfinite(number) && std::abs(number) >= std::pow(10.0, significant)) {
        const double unit =
            std::pow(10.0, std::floor(std::log10(std::abs(number))) + 1 - significant);
        number = std::round(number / unit) * unit;
    }
    return fixed(number, decimals_of(number));
}

std::string short_time(Duration duration) {
    auto number = static_cast<double>(duration.count());
    std::size_t unit = 0;
    // 999.6 us is rounded to three digits, which are those of 1.00 ms.
    while (unit + 1 < units.size() && std::abs(number) >= next_unit - 0.5) {
        number /= next_unit;
        ++unit;
    }
    return fmt::format("{} {}", unit == 0 ? fixed(number, 0) : short_number(number), units[unit]);
}

std::string time_within(Duration time, Duration whole, int digits) {
    auto longest = std::abs(static_cast<double>(whole.count()));
    auto number = static_cast<double>(time.count());
    std::size_t unit = 0;
    for (; unit + 1 < units.size() && longest >= next_unit; ++unit) {
        longest /= next_unit;
        number /= next_unit;
    }
    const int before_point =
        longest < 1 ? 1 : static_cast<int>(std::floor(std::log10(longest))) + 1;
    const int decimals = unit == 0 ? 0 : std::max(0, digits - before_point);
    return fmt::format("{} {}", fixed(number, decimals), units[unit]);
}

std::string short_percent(double share) {
    constexpr int most_decimals = 2;
    const double percent = 100 * share;
    return fmt::format("{} %", fixed(percent, std::min(most_decimals, decimals_of(percent))));
}

}  // namespace pipetwin
