#pragma once

/// Functions from additions, multiplications and divisions alone: these give the same bits
/// everywhere, which a library's functions do not promise.
namespace pipetwin::sim {

/// exp(x) to 13 digits for |x| <= 16.
double portable_exp(double x);

/// The natural logarithm of x > 0, to 13 digits.
double portable_log(double x);

}  // namespace pipetwin::sim
