// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace pipetwin::sim {

/// A first-in, first-out queue in a ring that grows: for what is under way on an edge, of which
/// there are few at a time, however many come. The first few lie in the object itself, beside the
/// other data of the edge.
template <class Value>
class Fifo {
  public:
    bool empty() const { return count_ == 0; }

    /// Adds a value at the end.
    void push(const Value& value) {
        if (count_ > mask_) {
            grow();
        }
        ring()[(first_ + count_) & mask_] = value;
        ++count_;
    }

    /// The value that came first. Throws InternalError for an empty queue.
    const Value& front() const {
        PIPETWIN_EXPECT(count_ > 0, "something has come");
        return ring()[first_];
    }

    /// Removes and returns the value that came first. Throws InternalError for an empty queue.
    Value pop() {
        PIPETWIN_EXPECT(count_ > 0, "something has come");
        const Value value = ring()[first_];
        first_ = (first_ + 1) & mask_;
        --count_;
        return value;
    }

  private:
    static constexpr std::uint32_t few = 4;

    const Value* ring() const { return mask_ < few ? few_.data() : many_.data(); }
    Value* ring() { return mask_ < few ? few_.data() : many_.data(); }

    /// Grows the ring to the next power of two, with the first value in front.
    void grow() {
        std::vector<Value> larger(std::size_t{2} * (mask_ + 1));
        for (std::uint32_t i = 0; i < count_; ++i) {
            larger[i] = ring()[(first_ + i) & mask_];
        }
        many_ = std::move(larger);
        mask_ = 2 * mask_ + 1;
        first_ = 0;
    }

    std::uint32_t first_ = 0;
    std::uint32_t count_ = 0;
    std::uint32_t mask_ = few - 1;  ///< the ring's size is one more, a power of two
    std::array<Value, few> few_{};
    std::vector<Value> many_;
};

}  // namespace pipetwin::sim
