#pragma once

#include <memory>

#include "core/profile.h"
#include "exec/host_link.h"

namespace pipetwin::exec {

/// A link to host memory that takes the time that `link` says on the clock of `device`, a paced
/// one. The bytes are moved, too, by a thread of its own. `device` outlives it.
std::unique_ptr<HostLink> make_paced_host_link(Device& device, const LinkCost& link);

}  // namespace pipetwin::exec
