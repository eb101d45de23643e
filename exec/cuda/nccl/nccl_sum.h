// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "exec/transport/gpu_link.h"

namespace pipetwin::cuda {

/// By a communicator of the members.
std::unique_ptr<exec::GpuSum> make_sum(int device,
                                       std::span<const std::byte> id,
                                       const exec::GpuMember& member);

}  // namespace pipetwin::cuda
