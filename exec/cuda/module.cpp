#include "exec/cuda/module.h"

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "exec/cuda/cuda_device.h"
#include "exec/cuda/self_test.h"

namespace {

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

using pipetwin::cuda::CommandQueue;
using pipetwin::cuda::CudaDevice;
using pipetwin::cuda::DeviceMemory;
using pipetwin::cuda::GreenContext;

void make_devices(const PipetwinCudaRequest& request, pipetwin::exec::Device** devices) {
    PIPETWIN_CUDA_CHECK(cudaSetDevice(request.device));
    cudaDeviceProp properties{};
    PIPETWIN_CUDA_CHECK(cudaGetDeviceProperties(&properties, request.device));
    const auto ranks = static_cast<std::size_t>(request.ranks);
    std::vector<std::unique_ptr<GreenContext>> parts(ranks);
    if (request.own_multiprocessors != 0) {
        const std::span<const int> wanted =
            request.units == nullptr ? std::span<const int>() : std::span(request.units, ranks);
        const int units = pipetwin::cuda::units_of_device(request.device);
        parts = pipetwin::cuda::cut_device(request.device,
                                           pipetwin::cuda::shares(units, request.ranks, wanted));
    }
    const auto memory =
        std::make_shared<DeviceMemory>(static_cast<std::size_t>(request.memory_bytes));
    std::vector<std::unique_ptr<CudaDevice>> made;
    for (std::unique_ptr<GreenContext>& part : parts) {
        const pipetwin::cuda::Lane::Options options{
            .graphs = request.graphs != 0 ? CommandQueue::Graphs::Yes : CommandQueue::Graphs::No,
            .multiprocessors = properties.multiProcessorCount,
            .attention = {.compute_capability = properties.major * 10 + properties.minor,
                          .wanted = request.own_attention == 0}};
        made.push_back(
            std::make_unique<CudaDevice>(request.device, memory, std::move(part), options));
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        devices[rank] = made[rank].release();
    }
}

}  // namespace

extern "C" {

int pipetwin_cuda_interface_version() {
    return pipetwin_cuda_interface;
}

void pipetwin_cuda_versions(PipetwinCudaVersions* versions) {
    *versions = pipetwin::cuda::library_versions();
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

void pipetwin_cuda_make_devices(const PipetwinCudaRequest* request,
                                pipetwin::exec::Device** devices) {
    make_devices(*request, devices);
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
