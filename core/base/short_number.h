// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/base/units.h"

/// Numbers with as many digits as a reader compares: three significant ones.
namespace pipetwin {

/// A number rounded to three significant digits, without an exponent: "1230000", "204", "39.8",
/// "1.84", "0.0521", "0".
std::string short_number(double number);

/// A time with three significant digits in the unit that fits: "39.8 ms", "204 us", "850 ns", "0
/// ns".
std::string short_time(Duration duration);

/// A time within a longer one, such as the begin of an action in its step: in the unit of `whole`,
/// with the decimals that give `whole` so many significant digits, so that neighbours differ:
/// "203.7 ms" and "2.4 ms" of 211 ms with 4 digits.
std::string time_within(Duration time, Duration whole, int digits = 4);

/// A share as a percentage with three significant digits, at most two of them decimals: "100 %",
/// "42.9 %", "8.73 %", "0.05 %".
std::string short_percent(double share);

}  // namespace pipetwin
