// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/transport/gpu_link.h"

namespace pipetwin::cuda {

/// One end of a link.
struct LinkEnd {
    bool sends = false;
    exec::LinkMemory memory = exec::LinkMemory::Gpu;
    int multiprocessors = 1;  ///< that carry a message at most
};
/// A link by NCCL: a communicator of two, so that its messages wait for no others.
std::unique_ptr<exec::GpuLink> make_link(int device,
                                         std::span<const std::byte> id,
                                         const LinkEnd& end);

/// Aborts several at once. NCCL's abort of one communicator may wait for all that the GPU has under
/// way, and so for the others: NCCL gets all of them before it begins with the first.
void abort_together(std::span<exec::GpuTraffic* const> traffic) noexcept;

/// Makes the exchange that gathers bytes of all processes, by a communicator of all.
std::unique_ptr<exec::GpuGather> make_gather(int device,
                                             std::span<const std::byte> id,
                                             const exec::GpuMember& member);

/// By NCCL's own way of finding each other without an id: NCCL_COMM_ID, which is `place` until all
/// have come.
std::unique_ptr<exec::GpuGather> meet(int device,
                                      const std::string& place,
                                      const exec::GpuMember& member);

}  // namespace pipetwin::cuda
