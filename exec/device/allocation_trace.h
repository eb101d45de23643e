// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace pipetwin::exec {

/// A boundary tensor on its way between two ranks: the index of its edge (core/schedule/edge.h) and
/// its micro-batch.
struct MessageName {
    int edge = 0;
    int micro_batch = 0;

    bool operator==(const MessageName&) const = default;
};

/// Memory requests of a rank in one step, found by walking its row with kernels that do nothing:
/// the code that asks is the code that will ask. Events - a turn to a cell, a request, a giving
/// back - count from 0.
struct RowNeeds {
    /// One block of memory and the events between which it is needed.
    struct Need {
        std::size_t bytes = 0;  ///< as the arena takes it from its memory
        std::size_t begin = 0;  ///< event
        std::size_t end = 0;
        int cell = 0;  ///< in which it begins
        /// The message as which the block is sent or received; none: it stays in this rank. A sent
        /// one begins as a request of this rank and ends with its receiver, and the reverse.
        std::optional<MessageName> sent{};
        std::optional<MessageName> received{};
    };
    std::vector<Need> requests;        ///< in their order
    std::vector<Need> arrivals;        ///< in their order
    std::vector<std::size_t> turns;    ///< [cell]: the event of turning to it, and one at the end
    std::vector<std::size_t> asked;    ///< [cell]: requests before it; one more at the end
    std::vector<std::size_t> at_work;  ///< [cell]: of `asked`, those not freed or sent before it
};

/// Records the needs of one row. Addresses that it gives are names, not memory.
class AllocationTrace {
  public:
    /// The row turns to its next action.
    void turn();
    /// Records a request; returns a name for it.
    void* take(std::size_t bytes);
    /// Records that a tensor is freed.
    void give_back(void* address);
    /// Records that a tensor goes to another rank, without a copy.
    void send(void* address, const MessageName& message);
    /// Records that a message arrives as a tensor of `bytes`; returns a name for it.
    void* receive(std::size_t bytes, const MessageName& message);
    /// Records that a tensor's bytes are being copied to another rank: they stay until
    /// `free_copied` of the same edge.
    void copy(void* address, int edge);
    /// Records that the copies over the edge are complete.
    void free_copied(int edge);

    /// Ends the row, and returns its needs. What is not given back is needed until then.
    RowNeeds end();

  private:
    struct Name {
        bool is_arrival = false;
        std::size_t index = 0;
    };
    struct Copied {
        std::size_t request = 0;
        int edge = 0;
    };
    RowNeeds::Need& need(void* address);
    void* name(bool is_arrival, std::size_t index);

    RowNeeds needs_;
    std::vector<Name> names_;  ///< by address
    std::vector<Copied> copied_;
    std::size_t event_ = 0;
    std::size_t at_work_ = 0;
};

}  // namespace pipetwin::exec
