// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "exec/base/random.h"

namespace pipetwin::exec {

/// to[i] = scale * stream.normal(first + i), rounded to the type of `to`. Has the bits of that
/// formula, also in fp32, where it takes a fraction of the time.
void normal_numbers(const RandomStream& stream,
                    double scale,
                    std::uint64_t first,
                    std::span<float> to);
void normal_numbers(const RandomStream& stream,
                    double scale,
                    std::uint64_t first,
                    std::span<double> to);

}  // namespace pipetwin::exec
