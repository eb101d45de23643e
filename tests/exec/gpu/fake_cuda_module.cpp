// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "exec/cuda/module/module.h"

// A module without CUDA, to show the program every state of a machine: FAKE_CUDA_INTERFACE,
// FAKE_CUDA_ERROR and FAKE_CUDA_DEVICES are what it answers.

namespace {

int from_environment(const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

extern "C" {

int pipetwin_cuda_interface_version() {
    return from_environment("FAKE_CUDA_INTERFACE", pipetwin_cuda_interface);
}

void pipetwin_cuda_versions(PipetwinCudaVersions* versions) {
    *versions = {.runtime = 13000, .driver = 0, .cublas = 130100, .nccl = 22809};
}

int pipetwin_cuda_device_count(int* count) {
    *count = from_environment("FAKE_CUDA_DEVICES", 0);
    return from_environment("FAKE_CUDA_ERROR", 0);
}

int pipetwin_cuda_describe(int index, PipetwinCudaDevice* device) {
    *device = {
        .name = "", .compute_capability = 90, .multiprocessors = 132, .memory_bytes = index + 1};
    std::strcpy(device->name, "fake");
    return 0;
}

const char* pipetwin_cuda_error_text(int /*error*/) {
    return "fake error";
}

void pipetwin_cuda_make_devices(const PipetwinCudaRequest* /*request*/,
                                pipetwin::exec::Device** /*devices*/) {}

int pipetwin_cuda_memory(int /*index*/, std::int64_t* free_bytes, std::int64_t* total_bytes) {
    *free_bytes = 1;
    *total_bytes = 2;
    return 0;
}

std::int64_t pipetwin_cuda_attention_workspace(int /*index*/,
                                               const PipetwinCudaAttention* /*attention*/) {
    return 0;
}

void pipetwin_cuda_measure(int /*index*/,
                           const PipetwinCudaSizes* /*sizes*/,
                           PipetwinCudaRates* rates) {
    *rates = {.bf16_flops = 1, .fp32_flops = 2, .device_copy = 3, .to_device = 4, .from_device = 5};
}

void pipetwin_cuda_make_link_id(PipetwinCudaLinkId* id) {
    *id = {};
}

void pipetwin_cuda_make_link(int /*index*/,
                             const PipetwinCudaLinkId* /*id*/,
                             const PipetwinCudaLinkEnd* /*end*/,
                             pipetwin::exec::GpuLink** link) {
    *link = nullptr;
}

void pipetwin_cuda_make_gather(int /*index*/,
                               const PipetwinCudaLinkId* /*id*/,
                               const char* /*place*/,
                               const PipetwinCudaMember* /*member*/,
                               pipetwin::exec::GpuGather** gather) {
    *gather = nullptr;
}

void pipetwin_cuda_make_sum(int /*index*/,
                            const PipetwinCudaLinkId* /*id*/,
                            const PipetwinCudaMember* /*member*/,
                            pipetwin::exec::GpuSum** sum) {
    *sum = nullptr;
}

void pipetwin_cuda_abort(pipetwin::exec::GpuTraffic* const* /*traffic*/, int /*count*/) {}

}  // extern "C"
