// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/module/module.h"

namespace pipetwin::cuda {

/// Measures how fast the device multiplies and copies, each rate the median of several, timed by
/// events after one that does not count. No copy takes more than an eighth of the free memory.
/// Throws CudaFailure.
PipetwinCudaRates measure_rates(int device, const PipetwinCudaSizes& sizes);

}  // namespace pipetwin::cuda
