// SPDX-License-Identifier: Apache-2.0
#include "sim/stats/portable_math.h"

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

}  // namespace pipetwin::sim
