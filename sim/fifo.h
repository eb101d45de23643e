#pragma once

#include <cstddef>
#include <vector>

#include "core/error.h"

namespace pipetwin::sim {

/// First in, first out, in a ring that grows: what is under way on an edge, of which there are few
/// at a time, however many come.
template <class Value>
class Fifo {
  public:
    bool empty() const { return count_ == 0; }

    void push(const Value& value) {
        if (count_ == ring_.size()) {
            grow();
        }
        ring_[(first_ + count_) & (ring_.size() - 1)] = value;
        ++count_;
    }

    const Value& front() const {
        PIPETWIN_EXPECT(count_ > 0, "something has come");
        return ring_[first_];
    }

    Value pop() {
        PIPETWIN_EXPECT(count_ > 0, "something has come");
        const Value value = ring_[first_];
        first_ = (first_ + 1) & (ring_.size() - 1);
        --count_;
        return value;
    }

  private:
    /// To the next power of two, with the first in front.
    void grow() {
        std::vector<Value> larger(ring_.empty() ? 4 : 2 * ring_.size());
        for (std::size_t i = 0; i < count_; ++i) {
            larger[i] = ring_[(first_ + i) & (ring_.size() - 1)];
        }
        ring_ = std::move(larger);
        first_ = 0;
    }

    std::vector<Value> ring_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
};

}  // namespace pipetwin::sim
