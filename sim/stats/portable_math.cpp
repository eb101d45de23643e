#include "sim/stats/portable_math.h"

#include <cmath>

namespace pipetwin::sim {

double portable_exp(double x) {
    constexpr int halvings = 8;
    constexpr int terms = 12;
    const double small = x / (1 << halvings);
    double sum = 1;
    for (int i = terms; i > 0; --i) {
        sum = 1 + sum * small / i;
    }
    for (int i = 0; i < halvings; ++i) {
        sum *= sum;
    }
    return sum;
}

double portable_log(double x) {
    constexpr double log_two = 0.69314718055994530942;
    int exponent = 0;
    const double part = std::frexp(x, &exponent);  // exact; in [0.5, 1)
    // log(part) = 2 artanh(y) = 2 (y + y^3 / 3 + y^5 / 5 + ...), |y| <= 1/3
    const double y = (part - 1) / (part + 1);
    double power = y;
    double sum = y;
    for (int odd = 3; odd < 40; odd += 2) {
        power *= y * y;
        sum += power / odd;
    }
    return 2 * sum + exponent * log_two;
}

}  // namespace pipetwin::sim
