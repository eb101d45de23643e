// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/module/module.h"

namespace pipetwin::cuda {

/// Versions of the libraries; one that cannot say its version leaves 0.
PipetwinCudaVersions library_versions();

}  // namespace pipetwin::cuda
