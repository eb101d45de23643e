// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/costs/profile.h"
#include "exec/device/copy_engine.h"

namespace pipetwin::exec {

/// Makes the copies to and from the host memory of `device`, a paced one: they take the time that
/// `link` says on its clock. The bytes are moved, too, by a thread of its own. `device` outlives
/// it.
std::unique_ptr<CopyEngine> make_paced_copy_engine(Device& device, const LinkCost& link);

}  // namespace pipetwin::exec
