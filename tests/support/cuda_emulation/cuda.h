// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/cuda_emulation/cuda_runtime_api.h"

/// The words of the driver's interface that headers of exec/cuda use.

using CUgreenCtx = struct CUgreenCtx_st*;
using CUcontext = struct CUctx_st*;
using CUstream = cudaStream_t;
