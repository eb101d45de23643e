// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/device/cuda_device.h"

#include <algorithm>

#include "exec/cuda/device/cuda_copy_engine.h"

namespace pipetwin::cuda {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

CudaDevice::CudaDevice(int device,
                       std::shared_ptr<DeviceMemory> memory,
                       std::unique_ptr<GreenContext> part,
                       const Lane::Options& options)
    : memory_(std::move(memory)),
      part_(std::move(part)),
      place_{.device = device, .part = part_.get()},
      lane_(place_, *memory_, options),
      kernels_(lane_) {}

CudaDevice::~CudaDevice() = default;

void CudaDevice::enter_thread() {
    place_.enter();
}

// A green context is current in one thread at most.
void CudaDevice::leave_thread() noexcept {
    static_cast<void>(cudaSetDevice(place_.device));
}

exec::TimePoint CudaDevice::now() {
    return Clock::now();
}

exec::TimePoint CudaDevice::complete(const Action& action,
                                     exec::TimePoint /*begin*/,
                                     Duration /*planned*/) {
    const bool is_communication = is_message(action.op);
    if (is_communication) {  // a tensor changes hands after its action was completed
        return Clock::now();
    }
    if (!lane_.has_launched()) {
        launch(action);
    }
    const exec::TimePoint end = lane_.await_launch();
    range_.reset();
    return end;
}

bool CudaDevice::launch(const Action& action) {
    range_.emplace("PP:" + to_string(action));
    lane_.launch();
    return true;
}

void CudaDevice::discard() noexcept {
    lane_.discard();
    range_.reset();
}

void CudaDevice::finish() {
    lane_.finish();
}

void CudaDevice::mark(std::function<void(exec::TimePoint)> then) {
    lane_.mark(std::move(then));
}

std::unique_ptr<exec::CopyEngine> CudaDevice::make_copy_engine(const LinkCost& /*planned*/) {
    return std::make_unique<CudaCopyEngine>(place_);
}

std::span<double> CudaDevice::results(std::size_t count) {
    place_.enter();
    const std::size_t bytes = std::max<std::size_t>(count, 1) * sizeof(double);
    void* numbers = nullptr;
    PIPETWIN_CUDA_CHECK(cudaHostAlloc(&numbers, bytes, cudaHostAllocPortable));
    results_bytes_ += bytes;
    results_.emplace_back(static_cast<double*>(numbers));
    std::fill_n(results_.back().get(), count, 0.0);
    return {results_.back().get(), count};
}

void CudaDevice::tell_for_all(std::optional<std::int64_t> context_bytes) {
    tells_for_all_ = true;
    context_bytes_ = context_bytes;
}

exec::MemoryBeside CudaDevice::memory_beside() const {
    const auto bytes = [](std::size_t count) { return Bytes{static_cast<std::int64_t>(count)}; };
    exec::MemoryBeside beside;
    beside.own = {
        {.name = "cuBLAS workspace", .bytes = bytes(Products::workspace_bytes)},
        {.name = "kernels' scratch",
         .bytes = bytes(lane_.scratch_bytes() - lane_.cudnn_scratch_bytes())},
        {.name = "pinned host memory", .bytes = bytes(lane_.pinned_bytes() + results_bytes_)}};
    if (lane_.cudnn_scratch_bytes() > 0) {
        beside.own.push_back(
            {.name = "cuDNN workspace", .bytes = bytes(lane_.cudnn_scratch_bytes())});
    }
    beside.of_pool = bytes(lane_.scratch_bytes());
    if (tells_for_all_) {
        if (context_bytes_) {
            beside.common.push_back({.name = "CUDA context", .bytes = Bytes{*context_bytes_}});
        }
        beside.pool = bytes(memory_->bytes());
    }
    return beside;
}

std::string CudaDevice::note() const {
    const std::string& why = lane_.why_no_graphs();
    return why.empty() ? ""
                       : "the GPU's calls are made one by one, since no CUDA graph could be made "
                         "of them (" +
                             why + "): short actions take longer";
}

}  // namespace pipetwin::cuda
