#pragma once

#include "exec/device/kernels.h"

namespace pipetwin::exec {

/// Kernels that compute nothing and touch no memory: with them layers ask for what they need, and
/// that is all that happens.
const Kernels& null_kernels();

}  // namespace pipetwin::exec
