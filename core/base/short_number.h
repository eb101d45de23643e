#pragma once

#include <string>

#include "core/base/units.h"

/// Numbers with as many digits as a reader compares: three significant ones.
namespace pipetwin {

/// A number with three significant digits and no exponent: "1234567", "204", "39.8", "1.84",
/// "0.0521", "0".
std::string short_number(double number);

/// A time with three significant digits in the unit that fits: "39.8 ms", "204 us", "850 ns", "0
/// ns".
std::string short_time(Duration duration);

/// A share as a percentage with three significant digits, at most two of them decimals: "100 %",
/// "42.9 %", "8.73 %", "0.05 %".
std::string short_percent(double share);

}  // namespace pipetwin
