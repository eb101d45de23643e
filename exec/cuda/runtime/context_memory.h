// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace pipetwin::cuda {

/// Bytes of the GPU that are in use, by all processes. CUDA reports it only to processes with a
/// context there; NVIDIA's management library, which comes with the driver, reports it to all, so
/// it can say what a context takes. None where it does not.
std::optional<std::int64_t> used_memory(int device);

}  // namespace pipetwin::cuda
