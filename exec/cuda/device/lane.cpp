// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/device/lane.h"

#include <algorithm>

#include "exec/base/spin.h"

namespace pipetwin::cuda {
namespace {

using Clock = std::chrono::steady_clock;

/// In a graph that is being made, a note that every launch of it records the event anew.
cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(stream, &status);
    if (error != cudaSuccess) {
        return error;
    }
    return cudaEventRecordWithFlags(
        event,
        stream,
        status == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault);
}

std::byte* allocate(std::size_t bytes) {
    void* memory = nullptr;
    PIPETWIN_CUDA_CHECK(cudaMalloc(&memory, bytes));
    return static_cast<std::byte*>(memory);
}

}  // namespace

Lane::Event Lane::make_event() {
    cudaEvent_t event = nullptr;
    PIPETWIN_CUDA_CHECK(cudaEventCreate(&event));
    return Event(event);
}

void Place::enter() const {
    PIPETWIN_CUDA_CHECK(cudaSetDevice(device));
    if (part != nullptr) {
        part->enter();
    }
}

cudaStream_t Lane::entered_stream() {
    place_.enter();
    if (place_.part != nullptr) {
        return place_.part->stream();
    }
    own_stream_ = make_stream();
    return own_stream_.get();
}

Lane::Lane(const Place& place, DeviceMemory& memory, const Options& options)
    : place_(place),
      queue_(entered_stream(), options.graphs),
      memory_(memory),
      products_workspace_(allocate(Products::workspace_bytes)),
      products_(products_workspace_.get(), options.multiprocessors),
      joins_gelus_(options.joins_gelus),
      attention_(load_cudnn(), options.attention),
      convolutions_(load_cudnn(), options.cudnn_convolutions),
      begun_(make_event()),
      done_(make_event()) {
    void* staging = nullptr;
    PIPETWIN_CUDA_CHECK(cudaHostAlloc(&staging, pinned_bytes(), cudaHostAllocDefault));
    staging_.reset(static_cast<std::byte*>(staging));
}

Lane::~Lane() {
    try {
        place_.enter();
    } catch (const CudaFailure&) {  // NOLINT(bugprone-empty-catch): the device is lost anyway
    }
    static_cast<void>(cudaStreamSynchronize(stream()));
    if (scratch_ != nullptr) {
        memory_.give_back(scratch_, scratch_bytes_);
    }
}

std::byte* Lane::staged(std::size_t bytes) {
    std::byte* const place = stage(bytes);
    if (place != nullptr) {
        return place;
    }
    finish();
    return stage(bytes);
}

/// Null where not enough is left.
std::byte* Lane::stage(std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    std::size_t& staged = staged_.at(half_);
    if (staged + rounded > most_staged) {
        return nullptr;
    }
    std::byte* const place = staging_.get() + half_ * most_staged + staged;
    staged += rounded;
    return place;
}

void* Lane::scratch(std::size_t bytes) {
    void* const place = cudnn_scratch(bytes);
    kernels_scratch_bytes_ = std::max(kernels_scratch_bytes_, bytes);
    return place;
}

void* Lane::cudnn_scratch(std::size_t bytes) {
    if (bytes > scratch_bytes_) {
        finish();  // what is listed still uses the old one
        if (scratch_ != nullptr) {
            memory_.give_back(std::exchange(scratch_, nullptr), scratch_bytes_);
            scratch_bytes_ = 0;
        }
        scratch_ = memory_.take(bytes);
        scratch_bytes_ = bytes;
    }
    return scratch_;
}

// The events of marks are used again in the next launch.
void Lane::mark(std::function<void(TimePoint)> then) {
    if (is_under_way_) {
        awaited_ = await_launch();
    }
    if (marks_.size() == events_.size()) {
        events_.push_back(make_event());
    }
    list().add("cudaEventRecord", record, events_[marks_.size()].get());
    marks_.push_back(std::move(then));
}

// What is under way still uses its operands, which may soon belong to another rank.
void Lane::discard() noexcept {
    marks_.clear();
    staged_ = {};
    half_ = 0;
    is_under_way_ = false;
    awaited_.reset();
    try {
        place_.enter();
    } catch (const CudaFailure&) {  // NOLINT(bugprone-empty-catch): nothing is under way any more
    }
    static_cast<void>(cudaStreamSynchronize(stream()));
    static_cast<void>(cudaGetLastError());
    queue_.discard();
}

void Lane::prepare() {
    place_.enter();
    queue_.prepare();
}

void Lane::launch() {
    try {
        place_.enter();
        queue_.prepare();
        launched_at_ = Clock::now();
        PIPETWIN_CUDA_CHECK(cudaEventRecord(begun_.get(), stream()));
        queue_.flush();
        PIPETWIN_CUDA_CHECK(cudaEventRecord(done_.get(), stream()));
    } catch (const CudaFailure& failure) {
        throw queue_.explained(failure);
    }
    is_under_way_ = true;
    half_ = 1 - half_;
}

Lane::TimePoint Lane::await_launch() {
    if (awaited_) {
        return *std::exchange(awaited_, std::nullopt);
    }
    try {
        const TimePoint end = wait_until_done();
        queue_.forget();
        is_under_way_ = false;
        return end;
    } catch (const CudaFailure& failure) {
        throw queue_.explained(failure);
    }
}

Lane::TimePoint Lane::finish() {
    if (is_under_way_) {
        awaited_ = await_launch();
    }
    const std::optional<TimePoint> earlier = std::exchange(awaited_, std::nullopt);
    launch();
    const TimePoint end = await_launch();
    awaited_ = earlier;
    return end;
}

// The host may come late, as it was busy: then the GPU's clock says when the launch was done.
Lane::TimePoint Lane::wait_until_done() {
    TimePoint end;
    if (is_done()) {
        float lasted = 0;  // milliseconds
        PIPETWIN_CUDA_CHECK(cudaEventElapsedTime(&lasted, begun_.get(), done_.get()));
        end = std::min(
            Clock::now(),
            launched_at_ + std::chrono::nanoseconds(static_cast<std::int64_t>(lasted * 1e6F)));
    } else {
        exec::spin_until([this] { return is_done(); });
        end = Clock::now();
    }
    staged_.at(1 - half_) = 0;
    if (list().empty()) {
        half_ = 0;
    }
    const std::vector<std::function<void(TimePoint)>> marks = std::exchange(marks_, {});
    for (std::size_t i = 0; i < marks.size(); ++i) {
        float before_end = 0;  // milliseconds
        PIPETWIN_CUDA_CHECK(cudaEventElapsedTime(&before_end, events_[i].get(), done_.get()));
        marks[i](end - std::chrono::nanoseconds(static_cast<std::int64_t>(before_end * 1e6F)));
    }
    return end;
}

bool Lane::is_done() const {
    const cudaError_t state = cudaEventQuery(done_.get());
    if (state != cudaErrorNotReady) {
        check_runtime("cudaEventQuery", state);
    }
    return state == cudaSuccess;
}

}  // namespace pipetwin::cuda
