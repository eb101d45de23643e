// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/model/layer_spec.h"
#include "exec/device/window_kernels.h"

namespace pipetwin::exec {

/// The window of a convolution or a pool that reads images of shape `input`. Throws Error(BadInput)
/// where it does not fit.
WindowShape window_of(const LayerSpec& spec, const SampleShape& input);

}  // namespace pipetwin::exec
