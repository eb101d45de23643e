// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <vector>

#include "exec/cuda/module/library_versions.h"
#include "exec/cuda/runtime/check.h"
#include "exec/cuda/runtime/context_memory.h"
#include "exec/cuda/runtime/green_context.h"
#include "tests/support/cuda_emulation/emulation.h"

extern "C" {

std::int64_t pipetwin_emulated_graph_launches() {
    return pipetwin::cuda::emulation::counts().graph_launches;
}

std::int64_t pipetwin_emulated_captures_at_work() {
    return pipetwin::cuda::emulation::counts().captures_at_work;
}

void pipetwin_emulated_inject(const pipetwin::cuda::emulation::Injection* injection) {
    pipetwin::cuda::emulation::inject(injection);
}

void pipetwin_emulated_set_gpus(int count) {
    pipetwin::cuda::emulation::set_gpus(count);
}

void pipetwin_emulated_injected(pipetwin::cuda::emulation::Injected* injected) {
    *injected = pipetwin::cuda::emulation::injected();
}

}  // extern "C"

/// In the place of what exec/cuda has of NCCL, NVML and the driver; products are beside this file.
namespace pipetwin::cuda {

PipetwinCudaVersions library_versions() {
    return {.runtime = 13000, .driver = 13000, .cublas = 0, .nccl = 0};
}

// The context that the first use of the device makes takes so much, and a green one so much more.

namespace {

std::atomic<std::int64_t> green_contexts = 0;

}  // namespace

std::optional<std::int64_t> used_memory(int /*device*/) {
    constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
    static const std::int64_t before_the_context = 3 * mebibyte;
    static std::atomic<bool> has_context = false;
    return before_the_context + (has_context.exchange(true) ? 480 * mebibyte : 0) +
           green_contexts * 10 * mebibyte;
}

// Green contexts: a stream each, 16 units of multiprocessors.

std::vector<std::unique_ptr<GreenContext>> cut_device(int /*device*/, std::span<const int> parts) {
    std::vector<std::unique_ptr<GreenContext>> contexts;
    for (const int share : parts) {
        std::unique_ptr<GreenContext> part(new GreenContext);
        PIPETWIN_CUDA_CHECK(cudaStreamCreateWithFlags(&part->stream_, cudaStreamNonBlocking));
        ++green_contexts;
        part->multiprocessors_ = share * multiprocessors_of_a_unit;
        contexts.push_back(std::move(part));
    }
    return contexts;
}

int units_of_device(int /*device*/) {
    return 16;
}

std::vector<std::unique_ptr<GreenContext>> cut_evenly(int device, int parts) {
    return cut_device(device, shares(units_of_device(device), parts, {}));
}

void GreenContext::enter() const {}

GreenContext::~GreenContext() {
    if (stream_ != nullptr) {
        --green_contexts;
        static_cast<void>(cudaStreamDestroy(stream_));
    }
}

}  // namespace pipetwin::cuda
