#include "exec/cuda/module.h"

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <string_view>

#include "exec/cuda/check.h"
#include "exec/cuda/self_test.h"

namespace {

/// A library that cannot say its version leaves 0.
void fill_versions(PipetwinCudaVersions& versions) {
    versions = {};
    static_cast<void>(cudaRuntimeGetVersion(&versions.runtime));
    static_cast<void>(cudaDriverGetVersion(&versions.driver));
    versions.cublas = static_cast<int>(cublasLtGetVersion());
    static_cast<void>(ncclGetVersion(&versions.nccl));
}

int describe(int index, PipetwinCudaDevice& device) {
    cudaDeviceProp properties{};
    const cudaError_t error = cudaGetDeviceProperties(&properties, index);
    if (error == cudaSuccess) {
        device = {};
        const std::string_view name = properties.name;
        std::copy_n(name.begin(), std::min(name.size(), std::size(device.name) - 1), device.name);
        device.compute_capability = properties.major * 10 + properties.minor;
        device.multiprocessors = properties.multiProcessorCount;
        device.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
    }
    return static_cast<int>(error);
}

struct NamedCheck {
    const char* name;
    std::string (*run)();
};

constexpr std::array checks{
    NamedCheck{"device buffer", pipetwin::cuda::check_buffer},
    NamedCheck{"kernel", pipetwin::cuda::check_kernel},
    NamedCheck{"attention", pipetwin::cuda::check_attention},
    NamedCheck{"cuBLAS product", pipetwin::cuda::check_product},
    NamedCheck{"NCCL loopback", pipetwin::cuda::check_loopback},
};

}  // namespace

extern "C" {

int pipetwin_cuda_interface_version() {
    return pipetwin_cuda_interface;
}

void pipetwin_cuda_versions(PipetwinCudaVersions* versions) {
    fill_versions(*versions);
}

int pipetwin_cuda_device_count(int* count) {
    return static_cast<int>(cudaGetDeviceCount(count));
}

int pipetwin_cuda_describe(int index, PipetwinCudaDevice* device) {
    return describe(index, *device);
}

const char* pipetwin_cuda_error_text(int error) {
    return cudaGetErrorString(static_cast<cudaError_t>(error));
}

void pipetwin_cuda_self_test(int index, PipetwinCudaReport report, void* context) {
    for (const NamedCheck& check : checks) {
        try {
            PIPETWIN_CUDA_CHECK(cudaSetDevice(index));
            report(context, check.name, 1, check.run().c_str());
        } catch (const std::exception& error) {
            report(context, check.name, 0, error.what());
        }
    }
}

}  // extern "C"
