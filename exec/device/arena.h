// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/timeline/footprint.h"
#include "exec/device/memory.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {

class AllocationTrace;
struct MessageName;

/// Planned places of a step's tensors, found by a rehearsal of the step
/// (exec/memory_plan/step_layout.h).
struct StepPlaces {
    /// The place of one requested tensor.
    struct Place {
        std::size_t bytes = 0;  ///< Arena::capacity_for
        void* address = nullptr;
    };
    std::vector<Place> requests{};       ///< in their order
    std::vector<std::size_t> asked{};    ///< [cell]: as RowNeeds
    std::vector<std::size_t> at_work{};  ///< [cell]: as RowNeeds
};

/// The memory of one rank: hands out tensors, and counts live bytes by kind and their high-water
/// mark. In a step that it has the places of, a tensor lies where the plan says, in one piece of
/// memory that was taken and touched before; else freed blocks are kept for the next request of the
/// same size. Used by one thread at a time. Outlives its tensors.
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

    /// Sets the function that is called when no memory is left: `free_some` frees tensors of this
    /// arena, and returns false if there was none to free. Empty: no function.
    void when_short(std::function<bool()> free_some) { free_some_ = std::move(free_some); }

    /// Gives tensors names instead of memory from now on; `trace` records the requests. Null:
    /// no more.
    void rehearse(AllocationTrace* trace);
    /// The tensor that arrives with a message of another rank, while the arena rehearses.
    Tensor rehearse_arrival(DType type,
                            std::int64_t rows,
                            std::int64_t columns,
                            const MessageName& message);

    /// Takes one piece of memory for the places of a step, and returns its address. May be called
    /// once.
    void* take_room(std::size_t bytes);
    /// Sets the places of the tensors in all steps from now on.
    void follow(StepPlaces places) { places_ = std::move(places); }
    /// Requests are those of a step now, up to `end_step`. What is not asked for in the planned
    /// order, cell by cell, gets a block of its own, and so does the rest of the step.
    void begin_step();
    /// Requests are those of the row's action in `cell` from now on.
    void turn_to(std::size_t cell);
    void end_step() { follows_ = false; }
    /// Number of steps with a request that the plan did not have.
    int unforeseen() const { return unforeseen_; }

    const MemoryUse& live() const { return live_; }
    /// Composition at the first moment of the highest total since the last reset.
    const MemoryUse& peak() const { return peak_; }
    /// Begins to look for the peak anew, from the live bytes.
    void reset_peak();

    /// Bytes of memory that a tensor of `bytes` takes: whole cache lines, so that the smallest
    /// share none between threads.
    static std::size_t capacity_for(Bytes bytes);

    /// Gives all unused blocks back to the memory. The blocks of an evaluation go from rank to rank
    /// in one direction only, and would pile up at its end.
    void give_back_free_blocks();

    /// Deals the free blocks of arenas with the same memory out anew, to each as many of a size as
    /// it has, in the order of their addresses. Tensors that went from rank to rank have mixed
    /// them; a step that begins with this gets the addresses of the step before.
    static void deal_free_blocks(std::span<Arena* const> arenas);

    const Memory& memory() const { return memory_; }
    Memory& memory() { return memory_; }

  private:
    friend class Tensor;
    void add(MemoryKind kind, Bytes bytes) noexcept;
    void* next_place(std::size_t capacity);
    void leave_plan();
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
    AllocationTrace* trace_ = nullptr;
    void* room_ = nullptr;
    std::size_t room_bytes_ = 0;
    StepPlaces places_;
    bool follows_ = false;
    std::size_t next_ = 0;     ///< request of the step
    std::size_t at_work_ = 0;  ///< planned places in use
    int unforeseen_ = 0;
};

}  // namespace pipetwin::exec
