// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/module/library_versions.h"

#include "exec/cuda/runtime/check_libraries.h"

namespace pipetwin::cuda {

PipetwinCudaVersions library_versions() {
    PipetwinCudaVersions versions{};
    static_cast<void>(cudaRuntimeGetVersion(&versions.runtime));
    static_cast<void>(cudaDriverGetVersion(&versions.driver));
    versions.cublas = static_cast<int>(cublasLtGetVersion());
    static_cast<void>(ncclGetVersion(&versions.nccl));
    return versions;
}

}  // namespace pipetwin::cuda
