// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "exec/transport/gpu_link.h"
#include "exec/transport/process_group.h"

namespace pipetwin::exec {

/// Joins processes that have nothing but a GPU each and `place` ("host:port", on the host of the
/// first) in common, as those that torchrun starts: whatever they say goes by NCCL. Throws
/// Error(Unavailable) where not all have come in time, or where NCCL does not work here.
std::unique_ptr<ProcessGroup> join_nccl(GpuLinks links,
                                        const std::string& place,
                                        const GpuMember& self);

}  // namespace pipetwin::exec
