// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/module/module.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "exec/cuda/cudnn/cudnn_attention.h"
#include "exec/cuda/device/cuda_device.h"
#include "exec/cuda/module/device_rates.h"
#include "exec/cuda/module/library_versions.h"
#include "exec/cuda/nccl/nccl_communicator.h"
#include "exec/cuda/nccl/nccl_link.h"
#include "exec/cuda/nccl/nccl_sum.h"
#include "exec/cuda/runtime/context_memory.h"

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

using pipetwin::cuda::CommandQueue;
using pipetwin::cuda::CudaDevice;
using pipetwin::cuda::DeviceMemory;
using pipetwin::cuda::GreenContext;

/// A part for each rank; null where they share all. Throws Error(Unavailable) where the driver
/// cannot divide the device.
std::vector<std::unique_ptr<GreenContext>> make_parts(const PipetwinCudaRequest& request) {
    const std::size_t ranks = pipetwin::as_index(request.ranks);
    if (request.own_multiprocessors == 0) {
        return std::vector<std::unique_ptr<GreenContext>>(ranks);
    }
    const std::span<const int> wanted =
        request.units == nullptr ? std::span<const int>() : std::span(request.units, ranks);
    try {
        const int units = pipetwin::cuda::units_of_device(request.device);
        const std::vector<int> parts = pipetwin::cuda::shares(units, request.ranks, wanted);
        return wanted.empty() ? pipetwin::cuda::cut_evenly(request.device, request.ranks)
                              : pipetwin::cuda::cut_device(request.device, parts);
    } catch (const pipetwin::cuda::CudaFailure& failure) {
        throw pipetwin::Error(
            pipetwin::ErrorKind::Unavailable,
            "cluster.gpu_shares",
            "this driver gives no rank multiprocessors of its own: " + failure.text(),
            "set cluster.gpu_shares = \"streams\": then ranks take what is free, and their timing "
            "does not validate the schedule");
    }
}

/// Bytes of the program's context on the device, which is made once, when it is first needed.
class ContextMemory {
  public:
    explicit ContextMemory(int device)
        : device_(device), before_(pipetwin::cuda::used_memory(device)) {
        PIPETWIN_CUDA_CHECK(cudaSetDevice(device));
        PIPETWIN_CUDA_CHECK(cudaFree(nullptr));
        const auto now = pipetwin::cuda::used_memory(device);
        if (before_ && now && !first_.contains(device)) {
            first_[device] = *now - *before_;
        }
        before_ = now;
    }

    /// With what was made on it since.
    std::optional<std::int64_t> bytes() const {
        const auto now = pipetwin::cuda::used_memory(device_);
        return before_ && now && first_.contains(device_)
                   ? std::optional(first_[device_] + *now - *before_)
                   : std::nullopt;
    }

  private:
    static inline std::map<int, std::int64_t> first_;  ///< by device
    int device_;
    std::optional<std::int64_t> before_;
};

/// Copies to other GPUs then go there straight; else through the host's memory.
void reach_peers(const PipetwinCudaRequest& request) {
    for (int peer = 0; peer < request.gpus; ++peer) {
        int can = 0;
        if (peer != request.device) {
            PIPETWIN_CUDA_CHECK(cudaDeviceCanAccessPeer(&can, request.device, peer));
        }
        if (can != 0) {
            const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
            if (error != cudaErrorPeerAccessAlreadyEnabled) {
                PIPETWIN_CUDA_CHECK(error);
            }
            static_cast<void>(cudaGetLastError());  // of an earlier run, which is no error here
        }
    }
}

void make_devices(const PipetwinCudaRequest& request, pipetwin::exec::Device** devices) {
    const ContextMemory context(request.device);
    reach_peers(request);
    cudaDeviceProp properties{};
    PIPETWIN_CUDA_CHECK(cudaGetDeviceProperties(&properties, request.device));
    std::vector<std::unique_ptr<GreenContext>> parts = make_parts(request);
    const std::optional<std::int64_t> context_bytes = context.bytes();
    const auto memory = std::make_shared<DeviceMemory>(
        request.device, static_cast<std::size_t>(request.memory_bytes));
    std::vector<std::unique_ptr<CudaDevice>> made;
    for (std::unique_ptr<GreenContext>& part : parts) {
        const pipetwin::cuda::Lane::Options options{
            .graphs = request.graphs != 0 ? CommandQueue::Graphs::Yes : CommandQueue::Graphs::No,
            .multiprocessors = properties.multiProcessorCount,
            .attention = {.compute_capability = properties.major * 10 + properties.minor,
                          .wanted = request.own_attention == 0},
            .cudnn_convolutions = request.own_convolutions == 0,
            .joins_gelus = request.own_gelu == 0};
        made.push_back(
            std::make_unique<CudaDevice>(request.device, memory, std::move(part), options));
    }
    made.front()->tell_for_all(context_bytes);
    for (std::unique_ptr<CudaDevice>& device : made) {
        *devices++ = device.release();
    }
}

/// The problem that a lane would ask for (exec/cuda/device/cuda_kernels.cpp).
pipetwin::cuda::AttentionProblem problem_of(const PipetwinCudaAttention& attention) {
    using pipetwin::cuda::AttentionProblem;
    const pipetwin::cuda::AttentionShape shape{.samples = attention.samples,
                                               .positions = attention.positions,
                                               .heads = attention.heads,
                                               .key_value_heads = attention.key_value_heads,
                                               .head_size = attention.head_size,
                                               .padded_keys = attention.padded_keys};
    return shape.is_causal()
               ? AttentionProblem(shape)
               : AttentionProblem::with_gradients_apart(
                     shape, {.q_stride = attention.q_stride, .k_stride = attention.k_stride});
}

std::int64_t workspace_of(int device, const PipetwinCudaAttention& attention) {
    PIPETWIN_CUDA_CHECK(cudaSetDevice(device));
    cudaDeviceProp properties{};
    PIPETWIN_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    using pipetwin::cuda::AttentionDirection;
    pipetwin::cuda::CudnnAttention cudnn(
        pipetwin::cuda::load_cudnn(),
        {.compute_capability = properties.major * 10 + properties.minor});
    std::size_t most = 0;
    for (const auto direction : {AttentionDirection::Forward, AttentionDirection::Backward}) {
        if (const auto plan = cudnn.plan(problem_of(attention), direction)) {
            most = std::max(most, plan->workspace_bytes);
        }
    }
    return static_cast<std::int64_t>(most);
}

std::span<const std::byte> bytes_of(const PipetwinCudaLinkId& id) {
    return std::as_bytes(std::span(id.bytes));
}

int memory_of(int device, std::int64_t& free_bytes, std::int64_t& total_bytes) {
    std::size_t left = 0;
    std::size_t total = 0;
    try {
        const ContextMemory context(device);
        PIPETWIN_CUDA_CHECK(cudaMemGetInfo(&left, &total));
    } catch (const pipetwin::cuda::CudaFailure&) {
        const cudaError_t error = cudaSetDevice(device);
        return static_cast<int>(error == cudaSuccess ? cudaErrorInvalidDevice : error);
    }
    free_bytes = static_cast<std::int64_t>(left);
    total_bytes = static_cast<std::int64_t>(total);
    return static_cast<int>(cudaSuccess);
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

int pipetwin_cuda_memory(int index, std::int64_t* free_bytes, std::int64_t* total_bytes) {
    return memory_of(index, *free_bytes, *total_bytes);
}

std::int64_t pipetwin_cuda_attention_workspace(int index, const PipetwinCudaAttention* attention) {
    return workspace_of(index, *attention);
}

void pipetwin_cuda_measure(int index, const PipetwinCudaSizes* sizes, PipetwinCudaRates* rates) {
    *rates = pipetwin::cuda::measure_rates(index, *sizes);
}

void pipetwin_cuda_make_link_id(PipetwinCudaLinkId* id) {
    const std::vector<std::byte> bytes = pipetwin::cuda::make_nccl_id();
    PIPETWIN_EXPECT(bytes.size() == sizeof id->bytes, "an id of NCCL");
    std::memcpy(id->bytes, bytes.data(), sizeof id->bytes);
}

void pipetwin_cuda_make_link(int index,
                             const PipetwinCudaLinkId* id,
                             const PipetwinCudaLinkEnd* end,
                             pipetwin::exec::GpuLink** link) {
    using pipetwin::exec::LinkMemory;
    const LinkMemory memory = end->in_host_memory != 0 ? LinkMemory::Host : LinkMemory::Gpu;
    *link = pipetwin::cuda::make_link(
                index,
                bytes_of(*id),
                {.sends = end->sends != 0, .memory = memory, .multiprocessors = end->ctas})
                .release();
}

void pipetwin_cuda_make_gather(int index,
                               const PipetwinCudaLinkId* id,
                               const char* place,
                               const PipetwinCudaMember* member,
                               pipetwin::exec::GpuGather** gather) {
    const pipetwin::exec::GpuMember self{.index = member->index, .count = member->count};
    *gather = (place != nullptr ? pipetwin::cuda::meet(index, place, self)
                                : pipetwin::cuda::make_gather(index, bytes_of(*id), self))
                  .release();
}

void pipetwin_cuda_make_sum(int index,
                            const PipetwinCudaLinkId* id,
                            const PipetwinCudaMember* member,
                            pipetwin::exec::GpuSum** sum) {
    *sum = pipetwin::cuda::make_sum(
               index, bytes_of(*id), {.index = member->index, .count = member->count})
               .release();
}

void pipetwin_cuda_abort(pipetwin::exec::GpuTraffic* const* traffic, int count) {
    pipetwin::cuda::abort_together(std::span(traffic, static_cast<std::size_t>(count)));
}

}  // extern "C"
