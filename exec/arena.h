#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/footprint.h"
#include "exec/memory.h"
#include "exec/tensor.h"

namespace pipetwin::exec {

/// The memory of one rank: hands out tensors, counts live bytes by kind and their high-water mark,
/// and keeps freed blocks for the next request of the same size, so that a steady training step
/// asks the system for nothing. Used by one thread at a time. Outlives its tensors.
class Arena {
  public:
    /// `memory` outlives it.
    explicit Arena(Memory& memory = host_memory()) : memory_(memory) {}
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena();

    /// Contents are undefined. Throws Error(Infeasible), naming the bytes, if the system has no
    /// memory left.
    Tensor allocate(DType type, std::int64_t rows, std::int64_t columns, MemoryKind kind);

    /// Counts bytes that no tensor holds: the room that a channel promises. `bytes` may be
    /// negative.
    void reserve(MemoryKind kind, Bytes bytes);

    /// The rank's scratch memory for the inside of one call, shared by all its layers: at least
    /// `bytes`, counted as Workspace. Grows to the largest request, never shrinks; contents do not
    /// survive to the next call.
    std::byte* workspace(Bytes bytes);

    /// Whoever can free tensors of this arena when there is no memory left: `free_some` says
    /// whether it has freed any. Empty: nobody.
    void when_short(std::function<bool()> free_some) { free_some_ = std::move(free_some); }

    const MemoryUse& live() const { return live_; }
    /// Composition at the first moment of the highest total since the last reset.
    const MemoryUse& peak() const { return peak_; }
    void reset_peak();

    /// What a tensor of so many bytes takes of its memory: whole cache lines, so that the smallest
    /// share none between threads.
    static std::size_t capacity_for(Bytes bytes);

    /// Deals the free blocks of arenas with the same memory out anew, to each as many of a size as
    /// it has, in the order of their addresses. Tensors that went from rank to rank have mixed
    /// them; a step that begins with this gets the addresses of the step before.
    static void deal_free_blocks(std::span<Arena* const> arenas);

    const Memory& memory() const { return memory_; }

  private:
    friend class Tensor;
    void add(MemoryKind kind, Bytes bytes) noexcept;
    void* take(std::size_t capacity);
    void take_back(void* block, std::size_t capacity) noexcept;

    Memory& memory_;
    MemoryUse live_;
    MemoryUse peak_;
    Bytes live_total_;
    Bytes peak_total_;
    std::map<std::size_t, std::vector<void*>> free_;  ///< by capacity
    Tensor workspace_;
    std::function<bool()> free_some_;
};

}  // namespace pipetwin::exec
