// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/nccl/nccl_communicator.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "core/base/error.h"

namespace pipetwin::cuda {
namespace {

/// Makes a stream, of the highest priority where messages are short and another rank waits for
/// them.
Stream make_stream(bool is_urgent) {
    if (!is_urgent) {
        return cuda::make_stream();
    }
    int least = 0;
    int greatest = 0;
    PIPETWIN_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t stream = nullptr;
    PIPETWIN_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    return Stream(stream);
}

}  // namespace

std::vector<std::byte> make_nccl_id() {
    ncclUniqueId id{};
    PIPETWIN_NCCL_CHECK(ncclGetUniqueId(&id));
    std::vector<std::byte> bytes(sizeof id);
    std::memcpy(bytes.data(), &id, sizeof id);
    return bytes;
}

Communicator::Communicator(int device, std::span<const std::byte> id, const Member& member)
    : device_(device) {
    enter();
    stream_ = make_stream(member.is_urgent);
    ncclUniqueId known{};
    PIPETWIN_EXPECT(id.size() == sizeof known, "an id of NCCL");
    std::memcpy(&known, id.data(), sizeof known);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.minCTAs = 1;
    config.maxCTAs = member.multiprocessors;
    config.splitShare = 0;
    ncclComm_t communicator = nullptr;
    const ncclResult_t result =
        ncclCommInitRankConfig(&communicator, member.ranks, known, member.rank, &config);
    communicator_.reset(communicator);
    take("ncclCommInitRankConfig", result);
}

void Communicator::take(const char* call, ncclResult_t result) {
    busy_ = result == ncclInProgress;
    if (!busy_) {
        check_nccl(call, result);
    }
}

bool Communicator::is_free() {
    ncclResult_t state = ncclSuccess;
    PIPETWIN_NCCL_CHECK(ncclCommGetAsyncError(communicator_.get(), &state));
    if (busy_ && state == ncclInProgress) {
        return false;
    }
    if (state != ncclInProgress) {
        check_nccl("NCCL, to or from the neighbour", state);
    }
    busy_ = false;
    return true;
}

/// Finalizes the communicator, and waits for it a few seconds: messages of the last call may still
/// be on their way to the other ends, on threads of NCCL.
void Communicator::finish() noexcept {
    constexpr std::chrono::seconds patience{3};
    constexpr std::chrono::milliseconds nap{1};
    const auto end = std::chrono::steady_clock::now() + patience;
    if (cudaSetDevice(device_) != cudaSuccess) {
        return;
    }
    ncclResult_t state = ncclCommFinalize(communicator_.get());
    while (state == ncclInProgress && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(nap);
        if (ncclCommGetAsyncError(communicator_.get(), &state) != ncclSuccess) {
            return;
        }
    }
    if (state == ncclSuccess) {
        static_cast<void>(ncclCommDestroy(communicator_.release()));
    }
}

GpuBytes gpu_bytes(int device, std::size_t bytes) {
    PIPETWIN_CUDA_CHECK(cudaSetDevice(device));
    void* memory = nullptr;
    PIPETWIN_CUDA_CHECK(cudaMalloc(&memory, bytes));
    return GpuBytes(static_cast<std::byte*>(memory));
}

Event make_event() {
    cudaEvent_t event = nullptr;
    PIPETWIN_CUDA_CHECK(cudaEventCreate(&event));
    return Event(event);
}

bool is_done(const Event& event) {
    const cudaError_t error = cudaEventQuery(event.get());
    if (error == cudaErrorNotReady) {
        return false;
    }
    check_runtime("cudaEventQuery", error);
    return true;
}

}  // namespace pipetwin::cuda
