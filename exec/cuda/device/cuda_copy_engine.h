// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <deque>

#include "core/base/as_index.h"
#include "exec/cuda/device/lane.h"
#include "exec/cuda/runtime/owned.h"
#include "exec/device/copy_engine.h"

namespace pipetwin::cuda {

/// Host memory that the GPU's copy engines reach by themselves.
class PinnedMemory final : public exec::Memory {
  public:
    void* take(std::size_t bytes) override;
    void give_back(void* block, std::size_t bytes) noexcept override;
};

/// A rank's copies between its GPU and pinned host memory, or another GPU's: a stream for each
/// direction, so that the copy engines work beside the kernels and beside each other. Source: vDNN
/// (Rhu et al., MICRO 2016).
class CudaCopyEngine final : public exec::CopyEngine {
  public:
    /// Makes the engine of a rank that computes at `place`, on the thread that uses it.
    explicit CudaCopyEngine(const Place& place);
    CudaCopyEngine(const CudaCopyEngine&) = delete;
    CudaCopyEngine& operator=(const CudaCopyEngine&) = delete;
    ~CudaCopyEngine() override;

    exec::Memory& memory() override { return memory_; }
    void restart() override;
    int start(Direction direction,
              std::span<const Piece> pieces,
              std::optional<int> after) override;
    bool is_complete(int copy) override;
    void wait(int copy) override;
    Times times(int copy) override;
    std::function<exec::TimePoint()> arrival(int copy) override;

  private:
    using Event = Owned<cudaEvent_t, cudaEventDestroy>;
    struct Copy {
        Event begin;
        Event end;
    };
    static Event make_event();
    const Copy& copy(int number) const { return copies_.at(as_index(number)); }
    static bool has_come(const Event& event);
    exec::TimePoint time_of(const Event& event) const;

    Place place_;
    PinnedMemory memory_;
    std::array<Stream, 2> streams_;  ///< [direction]
    std::deque<Copy> copies_;        ///< of the longest step so far; their events are used again
    int started_ = 0;                ///< in this step
    Event zero_;                     ///< at the beginning of the step
    exec::TimePoint time_of_zero_;
};

}  // namespace pipetwin::cuda
