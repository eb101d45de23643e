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

/// What a rank needs memory for in one step, found by walking its row with kernels that do nothing:
/// the code that asks is the code that will ask. Events - a turn to a cell, a request, a giving
/// back - count from 0.
struct RowNeeds {
    struct Need {
        std::size_t bytes = 0;  ///< as the arena takes it from its memory
        std::size_t begin = 0;  ///< event
        std::size_t end = 0;
        int cell = 0;  ///< in which it begins
        /// It begins as a request of this rank and ends with its receiver, or the other way round.
        std::optional<MessageName> sent{};
        std::optional<MessageName> received{};
    };
    std::vector<Need> requests;        ///< in their order
    std::vector<Need> arrivals;        ///< in their order
    std::vector<std::size_t> turns;    ///< [cell]: the event of turning to it, and one at the end
    std::vector<std::size_t> asked;    ///< [cell]: requests before it; one more at the end
    std::vector<std::size_t> at_work;  ///< [cell]: of those, not given back or sent before it
};

/// Records what one row asks of its memory and gives back, in place of the memory itself: addresses
/// that it gives are names.
class AllocationTrace {
  public:
    void turn();
    void* take(std::size_t bytes);
    void give_back(void* address);
    /// It goes to another rank, without a copy.
    void send(void* address, const MessageName& message);
    void* receive(std::size_t bytes, const MessageName& message);
    /// Its bytes are being copied to another rank: they stay until `free_copied` of the same edge.
    void copy(void* address, int edge);
    void free_copied(int edge);

    /// The row is at its end; what is not given back is needed until then.
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
