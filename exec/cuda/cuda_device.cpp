#include "exec/cuda/cuda_device.h"

#include <algorithm>

#include "exec/cuda/cuda_copy_engine.h"
#include "exec/cuda/named_range.h"

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

exec::TimePoint CudaDevice::now() {
    return Clock::now();
}

exec::TimePoint CudaDevice::complete(const Action& action,
                                     exec::TimePoint /*begin*/,
                                     Duration /*planned*/) {
    const bool is_communication = is_send(action.op) || is_receive(action.op);
    if (is_communication) {  // a tensor changes hands after its action was completed
        return Clock::now();
    }
    const NamedRange range("PP:" + to_string(action));
    return lane_.finish();
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
    void* numbers = nullptr;
    PIPETWIN_CUDA_CHECK(cudaHostAlloc(
        &numbers, std::max<std::size_t>(count, 1) * sizeof(double), cudaHostAllocPortable));
    results_.emplace_back(static_cast<double*>(numbers));
    std::fill_n(results_.back().get(), count, 0.0);
    return {results_.back().get(), count};
}

}  // namespace pipetwin::cuda
