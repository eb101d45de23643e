// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"
#include "exec/gpu/cuda_module.h"

// GPUs as a program without the executor sees them: not at all.

namespace pipetwin::exec {

namespace {

constexpr const char* no_executor = "this pipetwin has no executor, which looks for GPUs";

Error no_gpus() {
    return {ErrorKind::Unavailable, "CUDA", no_executor};
}

}  // namespace

CudaProbe probe_cuda() {
    CudaProbe probe;
    probe.detail = no_executor;
    return probe;
}

CudaMemory cuda_memory(int) {
    throw no_gpus();
}

CudaRates measure_cuda(int, const CudaRateSizes&) {
    throw no_gpus();
}

}  // namespace pipetwin::exec
