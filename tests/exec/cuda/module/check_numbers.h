// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "exec/cuda/kernels/kernels.h"

/// Numbers of the checks on their way to the device and back.
namespace pipetwin::cuda {

/// Multiples of 1/16 in [-2, 2), which are bf16 numbers, in an order that repeats late.
std::vector<float> sixteenths(std::size_t size, std::uint32_t seed);

/// Elements of either type, in the floats of a buffer.
std::vector<float> packed(Real real, const std::vector<float>& values);
/// The first `size` elements of a buffer of that type.
std::vector<float> unpacked(Real real, std::size_t size, const std::vector<float>& from);

/// Scalar product in double.
double dot(const float* a, const float* b, std::size_t size);

/// Throws CudaFailure, naming `what`, if the norm of the difference is more than `tolerance` of the
/// norm of what is expected.
void expect_close(const char* what,
                  const std::vector<float>& found,
                  const std::vector<float>& expected,
                  double tolerance);

}  // namespace pipetwin::cuda
