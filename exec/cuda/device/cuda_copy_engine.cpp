// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/device/cuda_copy_engine.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/units.h"
#include "exec/base/spin.h"

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
                    "fewer micro-batches, recompute = \"always\", or offload = \"none\"")
            .because(ErrorReason::Memory);
    }
    check_runtime("cudaHostAlloc", error);
    return block;
}

void PinnedMemory::give_back(void* block, std::size_t /*bytes*/) noexcept {
    static_cast<void>(cudaFreeHost(block));
}

CudaCopyEngine::Event CudaCopyEngine::make_event() {
    cudaEvent_t event = nullptr;
    PIPETWIN_CUDA_CHECK(cudaEventCreate(&event));
    return Event(event);
}

CudaCopyEngine::CudaCopyEngine(const Place& place) : place_(place) {
    place_.enter();
    for (Stream& stream : streams_) {
        stream = make_stream();
    }
    zero_ = make_event();
}

CudaCopyEngine::~CudaCopyEngine() {
    try {
        place_.enter();
    } catch (const CudaFailure&) {  // NOLINT(bugprone-empty-catch): the device is lost anyway
    }
    for (const Stream& stream : streams_) {
        static_cast<void>(cudaStreamSynchronize(stream.get()));
    }
}

void CudaCopyEngine::restart() {
    started_ = 0;
    const exec::TimePoint before = std::chrono::steady_clock::now();
    PIPETWIN_CUDA_CHECK(cudaEventRecord(zero_.get(), streams_[0].get()));
    exec::spin_until([this] { return has_come(zero_); });
    time_of_zero_ = before + (std::chrono::steady_clock::now() - before) / 2;
}

int CudaCopyEngine::start(Direction direction,
                          std::span<const Piece> pieces,
                          std::optional<int> after) {
    const std::size_t number = as_index(started_);
    if (number == copies_.size()) {
        copies_.push_back({.begin = make_event(), .end = make_event()});
    }
    const cudaStream_t stream = streams_.at(as_index(direction)).get();
    if (after) {
        PIPETWIN_CUDA_CHECK(cudaStreamWaitEvent(stream, copy(*after).end.get(), 0));
    }
    PIPETWIN_CUDA_CHECK(cudaEventRecord(copies_[number].begin.get(), stream));
    for (const Piece& piece : pieces) {
        PIPETWIN_CUDA_CHECK(
            cudaMemcpyAsync(piece.to, piece.from, piece.bytes, cudaMemcpyDefault, stream));
    }
    PIPETWIN_CUDA_CHECK(cudaEventRecord(copies_[number].end.get(), stream));
    return started_++;
}

bool CudaCopyEngine::has_come(const Event& event) {
    const cudaError_t state = cudaEventQuery(event.get());
    if (state != cudaErrorNotReady) {
        check_runtime("cudaEventQuery of a copy from or to the GPU's memory", state);
    }
    return state == cudaSuccess;
}

bool CudaCopyEngine::is_complete(int number) {
    return has_come(copy(number).end);
}

void CudaCopyEngine::wait(int number) {
    exec::spin_until([&] { return is_complete(number); });
}

std::function<exec::TimePoint()> CudaCopyEngine::arrival(int number) {
    const Copy& awaited = copy(number);  // a deque's elements stay where they are
    return [this, &awaited] {
        exec::spin_until([&] { return has_come(awaited.end); });
        return time_of(awaited.end);
    };
}

/// By the GPU's clock, which is not read at the very moment at which ours is; but what has happened
/// is past.
exec::TimePoint CudaCopyEngine::time_of(const Event& event) const {
    float since_zero = 0;  // milliseconds
    PIPETWIN_CUDA_CHECK(cudaEventElapsedTime(&since_zero, zero_.get(), event.get()));
    const auto passed = std::chrono::nanoseconds(static_cast<std::int64_t>(since_zero * 1e6F));
    return std::min(time_of_zero_ + passed, std::chrono::steady_clock::now());
}

exec::CopyEngine::Times CudaCopyEngine::times(int number) {
    const Copy& found = copy(number);
    const exec::TimePoint end = time_of(found.end);
    return {.begin = time_of(found.begin), .ready = end, .end = end};
}

}  // namespace pipetwin::cuda
