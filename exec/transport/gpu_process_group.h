// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "exec/transport/gpu_link.h"
#include "exec/transport/process_group.h"

namespace pipetwin::exec {

/// The processes of `base`, with channels whose messages go from GPU to GPU (RemoteEnd::on_device).
/// Whatever else is said goes by `base`: where the links begin, what makes room in a channel with a
/// capacity, and when to stop.
std::unique_ptr<ProcessGroup> with_gpus(std::unique_ptr<ProcessGroup> base, GpuLinks links);

}  // namespace pipetwin::exec
