#include "exec/cuda/cuda_host_link.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/units.h"
#include "exec/spin.h"

namespace pipetwin::cuda {

void* PinnedMemory::take(std::size_t bytes) {
    void* block = nullptr;
    // Portable: a green context is a context of its own.
    const cudaError_t error = cudaHostAlloc(&block, bytes, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
        static_cast<void>(cudaGetLastError());  // it is not sticky, and handled here
        throw Error(ErrorKind::Infeasible,
                    "memory",
                    fmt::format("the host has no {} left for stashes that leave the GPU",
                                format_bytes({static_cast<std::int64_t>(bytes)})),
                    "fewer micro-batches, recompute = \"always\", or offload = \"none\"");
    }
    check_runtime("cudaHostAlloc", error);
    return block;
}

void PinnedMemory::give_back(void* block, std::size_t /*bytes*/) noexcept {
    static_cast<void>(cudaFreeHost(block));
}

CudaHostLink::Event CudaHostLink::make_event() {
    cudaEvent_t event = nullptr;
    PIPETWIN_CUDA_CHECK(cudaEventCreate(&event));
    return Event(event);
}

CudaHostLink::CudaHostLink(const Place& place) : place_(place) {
    place_.enter();
    for (Stream& stream : streams_) {
        stream = make_stream();
    }
    zero_ = make_event();
}

CudaHostLink::~CudaHostLink() {
    try {
        place_.enter();
    } catch (const CudaFailure&) {  // NOLINT(bugprone-empty-catch): the device is lost anyway
    }
    for (const Stream& stream : streams_) {
        static_cast<void>(cudaStreamSynchronize(stream.get()));
    }
}

void CudaHostLink::restart() {
    started_ = 0;
    PIPETWIN_CUDA_CHECK(cudaEventRecord(zero_.get(), streams_[0].get()));
    PIPETWIN_CUDA_CHECK(cudaStreamSynchronize(streams_[0].get()));
    time_of_zero_ = std::chrono::steady_clock::now();
}

int CudaHostLink::start(Direction direction,
                        std::span<const Piece> pieces,
                        std::optional<int> after) {
    const auto number = static_cast<std::size_t>(started_);
    if (number == copies_.size()) {
        copies_.push_back({.begin = make_event(), .end = make_event()});
    }
    const cudaStream_t stream = streams_.at(static_cast<std::size_t>(direction)).get();
    if (after) {
        PIPETWIN_CUDA_CHECK(cudaStreamWaitEvent(stream, copy(*after).end.get(), 0));
    }
    const cudaMemcpyKind kind =
        direction == Direction::Out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    PIPETWIN_CUDA_CHECK(cudaEventRecord(copies_[number].begin.get(), stream));
    for (const Piece& piece : pieces) {
        PIPETWIN_CUDA_CHECK(cudaMemcpyAsync(piece.to, piece.from, piece.bytes, kind, stream));
    }
    PIPETWIN_CUDA_CHECK(cudaEventRecord(copies_[number].end.get(), stream));
    return started_++;
}

bool CudaHostLink::is_complete(int number) {
    const cudaError_t state = cudaEventQuery(copy(number).end.get());
    if (state != cudaErrorNotReady) {
        check_runtime("a copy between the GPU and host memory", state);
    }
    return state == cudaSuccess;
}

void CudaHostLink::wait(int number) {
    exec::spin_until([&] { return is_complete(number); });
}

/// By the GPU's clock.
exec::TimePoint CudaHostLink::time_of(const Event& event) const {
    float since_zero = 0;  // milliseconds
    PIPETWIN_CUDA_CHECK(cudaEventElapsedTime(&since_zero, zero_.get(), event.get()));
    return time_of_zero_ + std::chrono::nanoseconds(static_cast<std::int64_t>(since_zero * 1e6F));
}

exec::HostLink::Times CudaHostLink::times(int number) {
    const Copy& found = copy(number);
    const exec::TimePoint end = time_of(found.end);
    return {.begin = time_of(found.begin), .ready = end, .end = end};
}

}  // namespace pipetwin::cuda
