// SPDX-License-Identifier: Apache-2.0
#include "core/base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"

namespace pipetwin {

double to_seconds(Duration duration) {
    return static_cast<double>(duration.count()) / 1e9;
}

double to_milliseconds(Duration duration) {
    return static_cast<double>(duration.count()) / 1e6;
}

Duration from_milliseconds(double milliseconds, std::string_view what) {
    const double nanoseconds = milliseconds * 1e6;
    // Room for sums of a few durations.
    constexpr double largest = static_cast<double>(std::numeric_limits<std::int64_t>::max()) / 4;
    if (!std::isfinite(milliseconds) || milliseconds < 0 || nanoseconds >= largest) {
        throw Error(ErrorKind::BadInput,
                    std::string(what),
                    fmt::format("{} ms is not a duration", milliseconds),
                    "give a finite number of milliseconds that is not negative");
    }
    return Duration{std::llround(nanoseconds)};
}

Duration scaled(Duration duration, double factor) {
    const double nanoseconds = static_cast<double>(duration.count()) * factor;
    require_bounded_step(nanoseconds / 1e9, "a scaled duration");
    return Duration{std::llround(nanoseconds)};
}

void require_bounded_step(double seconds, std::string_view place) {
    if (seconds > to_seconds(longest_step)) {
        throw Error(
            ErrorKind::BadInput,
            std::string(place),
            fmt::format("the actions of a step last {:.3g} s together, expected at most {:.0f}",
                        seconds,
                        to_seconds(longest_step)),
            "check the units of the costs and the rate of the links");
    }
}

Duration transfer_time(Bytes bytes, double bytes_per_second) {
    if (bytes_per_second <= 0 || bytes.count <= 0) {
        return Duration{};
    }
    // In integers where the rate is whole: a quotient that is just above a whole number of
    // nanoseconds by rounding alone would be rounded up to the next.
    constexpr double exact = 0x1p53;
    if (bytes_per_second < exact && bytes_per_second == std::floor(bytes_per_second)) {
        __extension__ using Wide = __int128;
        const auto rate = static_cast<std::int64_t>(bytes_per_second);
        const Wide whole = (Wide{bytes.count} * std::nano::den + rate - 1) / rate;
        if (whole < std::numeric_limits<std::int64_t>::max()) {
            return Duration{static_cast<std::int64_t>(whole)};
        }
    }
    const double nanoseconds = std::ceil(static_cast<double>(bytes.count) / bytes_per_second * 1e9);
    if (nanoseconds >= static_cast<double>(std::numeric_limits<std::int64_t>::max())) {
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("{} at {} bytes per second take more than 292 years",
                                format_bytes(bytes),
                                bytes_per_second),
                    "check the rate of the link");
    }
    return Duration{static_cast<std::int64_t>(nanoseconds)};
}

namespace {

constexpr std::array binary_units{std::pair{"TiB", 1LL << 40},
                                  std::pair{"GiB", 1LL << 30},
                                  std::pair{"MiB", 1LL << 20},
                                  std::pair{"KiB", 1LL << 10}};
constexpr std::array decimal_units{std::pair{"TB", 1'000'000'000'000LL},
                                   std::pair{"GB", 1'000'000'000LL},
                                   std::pair{"MB", 1'000'000LL},
                                   std::pair{"KB", 1'000LL},
                                   std::pair{"B", 1LL},
                                   std::pair{"", 1LL}};

[[noreturn]] void refuse_bytes(std::string_view text) {
    throw Error(
        ErrorKind::BadInput,
        "",
        fmt::format("'{}' is not an amount of memory", text),
        "write a number and a unit: B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, as in \"4 GiB\"");
}

long long unit_factor(std::string_view unit, std::string_view text) {
    for (const auto& [name, factor] : binary_units) {
        if (unit == name) {
            return factor;
        }
    }
    for (const auto& [name, factor] : decimal_units) {
        if (unit == name) {
            return factor;
        }
    }
    refuse_bytes(text);
}

}  // namespace

std::string format_bytes(Bytes bytes) {
    for (const auto& [name, factor] : binary_units) {
        if (std::abs(bytes.count) >= factor) {
            return fmt::format(
                "{:.2f} {}", static_cast<double>(bytes.count) / static_cast<double>(factor), name);
        }
    }
    return fmt::format("{} B", bytes.count);
}

std::string format_duration(Duration duration) {
    const std::int64_t magnitude = std::abs(duration.count());
    if (magnitude < 1'000) {
        return fmt::format("{} ns", duration.count());
    }
    if (magnitude < 1'000'000) {
        return fmt::format("{:.3f} us", static_cast<double>(duration.count()) / 1e3);
    }
    if (magnitude < 1'000'000'000) {
        return fmt::format("{:.3f} ms", to_milliseconds(duration));
    }
    return fmt::format("{:.3f} s", to_seconds(duration));
}

Bytes parse_bytes(std::string_view text) {
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, number);
    if (status != std::errc{} || !std::isfinite(number) || number < 0) {
        refuse_bytes(text);
    }
    std::string_view unit(rest, static_cast<std::size_t>(end - rest));
    while (!unit.empty() && unit.front() == ' ') {
        unit.remove_prefix(1);
    }
    const double bytes = number * static_cast<double>(unit_factor(unit, text));
    if (bytes >= 9.2e18) {
        refuse_bytes(text);
    }
    return Bytes{std::llround(bytes)};
}

}  // namespace pipetwin
