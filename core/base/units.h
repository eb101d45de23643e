// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

/// Time and memory as integers with a type. This is the only place that turns them into double.
namespace pipetwin {

/// Integer nanoseconds. Simulated time is never a floating-point number.
using Duration = std::chrono::nanoseconds;

/// A number of bytes; may be negative as a difference.
struct Bytes {
    std::int64_t count = 0;

    constexpr auto operator<=>(const Bytes&) const = default;
    constexpr Bytes& operator+=(Bytes other) {
        count += other.count;
        return *this;
    }
    constexpr Bytes& operator-=(Bytes other) {
        count -= other.count;
        return *this;
    }
    friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
    friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
    friend constexpr Bytes operator-(Bytes a) { return {-a.count}; }
    friend constexpr Bytes operator*(Bytes a, std::int64_t n) { return {a.count * n}; }
    friend constexpr Bytes operator*(std::int64_t n, Bytes a) { return {a.count * n}; }
};

/// Seconds as a floating-point number, for rates and display.
double to_seconds(Duration duration);
/// Milliseconds as a floating-point number, for display.
double to_milliseconds(Duration duration);

/// Rounds once, to the nearest nanosecond. Throws Error(BadInput), naming `what` and the value, if
/// `milliseconds` is negative, not finite or above 73 years.
Duration from_milliseconds(double milliseconds, std::string_view what);

/// No step lasts longer, so that no sum of its times overflows.
constexpr Duration longest_step = std::chrono::seconds(1'000'000);

/// duration * factor, rounded to the nearest nanosecond. Throws Error(BadInput) if that is longer
/// than a step may last.
Duration scaled(Duration duration, double factor);

/// Throws Error(BadInput) at `place` if the actions and messages of a step, one after the other,
/// last longer than `longest_step`.
void require_bounded_step(double seconds, std::string_view place);

/// Time of `bytes` at `bytes_per_second`, rounded up to a nanosecond; zero where the rate is 0
/// (which stands for "infinitely fast"). Throws Error(BadInput) above 292 years.
Duration transfer_time(Bytes bytes, double bytes_per_second);

/// "4.00 GiB", "512 B".
std::string format_bytes(Bytes bytes);

/// "12.345 ms", "850 ns", "3.210 s": three decimals in the unit that fits.
std::string format_duration(Duration duration);

/// Reads "4 GiB", "80 GB", "1024" (bytes). Throws Error(BadInput) naming the text and the units
/// known.
Bytes parse_bytes(std::string_view text);

}  // namespace pipetwin
