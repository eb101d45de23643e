// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "exec/cuda/device/lane.h"
#include "exec/cuda/kernels/cuda_kernels.h"
#include "exec/cuda/runtime/device_memory.h"
#include "exec/cuda/runtime/green_context.h"
#include "exec/cuda/runtime/named_range.h"
#include "exec/device/device.h"

namespace pipetwin::cuda {

/// One rank's share of a GPU: all of it, which the ranks then share as it comes, or multiprocessors
/// of its own. The host issues the calls of an action, and those of the next one while the GPU does
/// them: its clock is the device's clock, and what an action freed may be used by the next.
class CudaDevice final : public exec::Device {
  public:
    /// `part` is null where ranks share the whole device.
    CudaDevice(int device,
               std::shared_ptr<DeviceMemory> memory,
               std::unique_ptr<GreenContext> part,
               const Lane::Options& options);
    ~CudaDevice() override;

    void enter_thread() override;
    void leave_thread() noexcept override;
    exec::TimePoint now() override;
    bool launch(const Action& action) override;
    void prepare_launch() override { lane_.prepare(); }
    exec::TimePoint complete(const Action& action,
                             exec::TimePoint begin,
                             Duration planned) override;
    void finish() override;
    void discard() noexcept override;
    void mark(std::function<void(exec::TimePoint)> then) override;
    exec::Memory& memory() override { return *memory_; }
    std::unique_ptr<exec::CopyEngine> make_copy_engine(const LinkCost& planned) override;
    std::span<double> results(std::size_t count) override;
    const exec::Kernels& kernels() override { return kernels_; }
    exec::MemoryBeside memory_beside() const override;
    std::string note() const override;

    /// Makes this device report what all ranks of its GPU have in common. The GPU's contexts take
    /// `context_bytes`, if that is known.
    void tell_for_all(std::optional<std::int64_t> context_bytes);

  private:
    using Results = Owned<double*, cudaFreeHost>;

    std::shared_ptr<DeviceMemory> memory_;
    std::unique_ptr<GreenContext> part_;
    Place place_;
    Lane lane_;
    CudaKernels kernels_;
    std::optional<NamedRange> range_;  ///< of the action that was launched
    std::vector<Results> results_;     ///< in host memory that the GPU can write to
    std::size_t results_bytes_ = 0;
    bool tells_for_all_ = false;
    std::optional<std::int64_t> context_bytes_;
};

}  // namespace pipetwin::cuda
