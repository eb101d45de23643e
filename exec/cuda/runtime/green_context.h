// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace pipetwin::cuda {

/// A part of a GPU's multiprocessors, to itself: what runs on its stream runs on them alone, at the
/// same time as the other parts. The L2 cache, memory and clocks stay common to all.
class GreenContext {
  public:
    ~GreenContext();
    GreenContext(const GreenContext&) = delete;
    GreenContext& operator=(const GreenContext&) = delete;

    /// Makes it the calling thread's.
    void enter() const;
    cudaStream_t stream() const { return stream_; }
    int multiprocessors() const { return multiprocessors_; }

  private:
    friend std::vector<std::unique_ptr<GreenContext>> cut_device(int device,
                                                                 std::span<const int> parts);
    friend std::vector<std::unique_ptr<GreenContext>> cut_evenly(int device, int parts);
    GreenContext() = default;
    struct Maker;  ///< makes one of the driver's groups of multiprocessors

    int device_ = 0;
    CUgreenCtx green_ = nullptr;
    CUcontext context_ = nullptr;
    CUstream stream_ = nullptr;
    int multiprocessors_ = 0;
};

/// Multiprocessors of a unit: parts of a GPU whose sizes are given consist of whole units.
inline constexpr int multiprocessors_of_a_unit = 8;

/// [part]: its share in units, where parts are `wanted` (in units; empty: equal shares) and the
/// device has `units`. Throws Error(Infeasible), naming both, if they are not enough.
std::vector<int> shares(int units, int parts, std::span<const int> wanted);

/// Makes one green context per part; `parts` are their sizes in units. Throws CudaFailure.
std::vector<std::unique_ptr<GreenContext>> cut_device(int device, std::span<const int> parts);

/// Makes `parts` green contexts of one size, the largest of which the device has so many. Each has
/// at least as many multiprocessors as equal shares in units have. Throws CudaFailure.
std::vector<std::unique_ptr<GreenContext>> cut_evenly(int device, int parts);

/// Number of units that the device has.
int units_of_device(int device);

}  // namespace pipetwin::cuda
