// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/runtime/context_memory.h"

#include <dlfcn.h>

#include <array>

#include <cuda_runtime_api.h>

namespace pipetwin::cuda {
namespace {

// The types of nvml.h, which is no part of every toolkit.
struct Memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};
using Init = int (*)();
using HandleByPciBusId = int (*)(const char*, void**);
using MemoryInfo = int (*)(void*, Memory*);

template <class Function>
Function look_up(void* library, const char* name) {
    return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

std::optional<std::int64_t> used_memory(int device) {
    // The library stays loaded: the driver has it open, too.
    static void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        return std::nullopt;
    }
    static const auto init = look_up<Init>(library, "nvmlInit_v2");
    static const auto handle_of =
        look_up<HandleByPciBusId>(library, "nvmlDeviceGetHandleByPciBusId_v2");
    static const auto memory_of = look_up<MemoryInfo>(library, "nvmlDeviceGetMemoryInfo");
    std::array<char, 32> bus{};
    void* handle = nullptr;
    Memory memory{};
    if (init == nullptr || handle_of == nullptr || memory_of == nullptr || init() != 0 ||
        cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device) != cudaSuccess ||
        handle_of(bus.data(), &handle) != 0 || memory_of(handle, &memory) != 0) {
        return std::nullopt;
    }
    return static_cast<std::int64_t>(memory.used);
}

}  // namespace pipetwin::cuda
