// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "exec/cuda/runtime/owned.h"
#include "exec/device/memory.h"
#include "exec/memory_plan/block_heap.h"

namespace pipetwin::cuda {

/// The memory of all ranks of one GPU: one cudaMalloc, shared out by a BlockHeap; what does not fit
/// there any more gets another. Blocks begin at multiples of 256 bytes, as those of cudaMalloc do.
/// Ranks keep the blocks that they have freed (exec/device/arena.h), and what one rank gives back
/// to here is used by another only after both have finished; so no block is written while the GPU
/// still reads it.
class DeviceMemory final : public exec::Memory {
  public:
    /// Takes `bytes` of the device. Throws Error(Infeasible), naming what there is, if it has fewer
    /// left.
    DeviceMemory(int device, std::size_t bytes);

    /// Bytes that were taken from the device.
    std::size_t bytes();

    void* take(std::size_t bytes) override;
    void give_back(void* block, std::size_t bytes) noexcept override;

  private:
    struct Piece {
        Owned<std::byte*, cudaFree> memory;
        std::size_t bytes = 0;
        exec::BlockHeap heap;
    };
    Piece new_piece(std::size_t bytes) const;

    int device_;
    std::mutex mutex_;
    std::vector<Piece> pieces_;
};

}  // namespace pipetwin::cuda
