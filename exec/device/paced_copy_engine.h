#pragma once

#include <memory>

#include "core/costs/profile.h"
#include "exec/device/copy_engine.h"

namespace pipetwin::exec {

/// A link to host memory that takes the time that `link` says on the clock of `device`, a paced
/// one. The bytes are moved, too, by a thread of its own. `device` outlives it.
std::unique_ptr<CopyEngine> make_paced_copy_engine(Device& device, const LinkCost& link);

}  // namespace pipetwin::exec
