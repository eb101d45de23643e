// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "exec/transport/gpu_link.h"
#include "exec/transport/gpu_waits.h"
#include "exec/transport/process_group.h"
#include "exec/transport/remote_sum.h"

namespace pipetwin::exec {

/// One end of a channel whose messages go by a link of its own, of which the group tells the other
/// process. What makes room in it is another channel of that group, in host memory. Neither end
/// waits for the other's link, so it does not matter in which order two processes open those
/// between them.
std::unique_ptr<Channel> open_gpu_channel(GpuWaits& waits,
                                          const GpuLinks& links,
                                          const RemoteEnd& end);

/// Opens this process's end of a sum over `members`. The first makes the id and sends it to the
/// others.
std::unique_ptr<RemoteSum> open_gpu_sum(GpuWaits& waits,
                                        const GpuLinks& links,
                                        std::span<const int> members);

}  // namespace pipetwin::exec
