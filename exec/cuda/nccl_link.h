#pragma once

#include <memory>
#include <span>
#include <vector>

#include "exec/gpu_link.h"

namespace pipetwin::cuda {

/// What both ends of one link are made with.
std::vector<std::byte> make_link_id();

/// A link by NCCL: a communicator of two, so that its messages wait for no others, on one
/// multiprocessor and a stream of its own. Non-blocking: what takes two to begin, NCCL does on a
/// thread of its own.
std::unique_ptr<exec::GpuLink> make_link(int device, std::span<const std::byte> id, bool sends);

}  // namespace pipetwin::cuda
