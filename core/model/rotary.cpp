// SPDX-License-Identifier: Apache-2.0
#include "core/model/rotary.h"

#include <cmath>
#include <numbers>

namespace pipetwin {

double rotary_frequency(const Rotary& rotary, int pair, int head_size) {
    const double plain = std::pow(rotary.base, -2.0 * pair / head_size);
    const double divided = plain / rotary.factor;
    if (rotary.context == 0) {
        return divided;
    }
    const double turns = rotary.context * plain / (2 * std::numbers::pi);
    if (turns < rotary.low_frequency) {
        return divided;
    }
    if (turns > rotary.high_frequency) {
        return plain;
    }
    const double share =
        (turns - rotary.low_frequency) / (rotary.high_frequency - rotary.low_frequency);
    return (1 - share) * divided + share * plain;
}

}  // namespace pipetwin
