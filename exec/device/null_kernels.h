// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/device/kernels.h"

namespace pipetwin::exec {

/// Kernels that do nothing: used to record a step's allocations without computing.
const Kernels& null_kernels();

}  // namespace pipetwin::exec
