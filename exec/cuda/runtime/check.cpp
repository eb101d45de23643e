// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/runtime/check.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace pipetwin::cuda {
namespace {

using Lasts = CudaFailure::Lasts;

/// "...; this process must be terminated", in the words of driver_types.h.
constexpr std::array lasting{cudaErrorECCUncorrectable,
                             cudaErrorNvlinkUncorrectable,
                             cudaErrorContained,
                             cudaErrorIllegalAddress,
                             cudaErrorLaunchTimeout,
                             cudaErrorContextIsDestroyed,
                             cudaErrorAssert,
                             cudaErrorHardwareStackError,
                             cudaErrorIllegalInstruction,
                             cudaErrorMisalignedAddress,
                             cudaErrorInvalidAddressSpace,
                             cudaErrorInvalidPc,
                             cudaErrorLaunchFailure,
                             cudaErrorTensorMemoryLeak,
                             cudaErrorExternalDevice};

const char* hint_for(Lasts lasts, cudaError_t error) {
    if (lasts == Lasts::ForGood) {
        return "start the run again; if it comes back, 'dmesg | grep Xid' says whether the GPU is "
               "sound, and 'compute-sanitizer pipetwin train ...' which kernel it was";
    }
    return error == cudaErrorMemoryAllocation
               ? "a smaller micro-batch, recompute = \"always\", or more stages need less memory"
               : "'pipetwin devices --measure' shows whether the GPU works at all";
}

[[noreturn]] void fail_with(
    std::string_view call, const char* text, int number, Lasts lasts, cudaError_t error) {
    // Other libraries ask for the last error and would take this one for theirs.
    static_cast<void>(cudaGetLastError());
    throw CudaFailure(fmt::format("{}: {} ({})", call.substr(0, call.find('(')), text, number),
                      hint_for(lasts, error),
                      lasts);
}

}  // namespace

bool is_for_good(cudaError_t error) {
    return std::ranges::find(lasting, error) != lasting.end();
}

void fail(std::string_view call, cudaError_t error) {
    fail_with(call,
              cudaGetErrorString(error),
              static_cast<int>(error),
              is_for_good(error) ? Lasts::ForGood : Lasts::Once,
              error);
}

void check(const char* call, bool ok, const char* text, int number) {
    if (!ok) {
        // The library may only have met what happened to the GPU; every call says that.
        std::size_t left = 0;
        std::size_t total = 0;
        const cudaError_t state = cudaMemGetInfo(&left, &total);
        fail_with(
            call, text, number, is_for_good(state) ? Lasts::ForGood : Lasts::Once, cudaSuccess);
    }
}

}  // namespace pipetwin::cuda
