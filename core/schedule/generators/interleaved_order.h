// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

namespace pipetwin::schedules {

/// Which chunk and micro-batch comes as the k-th forward or backward of a rank, where micro-batches
/// go through the chunks in groups:
///
///     group size 2, two chunks      forward    0.0 0.1 1.0 1.1  0.2 0.3 1.2 1.3 ...
///     (chunk.micro-batch)           backward   1.0 1.1 0.0 0.1  1.2 1.3 0.2 0.3 ...
///
/// The last group may be smaller than the others.
class InterleavedOrder {
  public:
    InterleavedOrder(int micro_batches, int chunks, int group_size)
        : micro_batches_(micro_batches), chunks_(chunks), group_size_(group_size) {}

    /// A chunk of the rank, and the micro-batch that passes it.
    struct Turn {
        int chunk = 0;
        int micro_batch = 0;
    };
    /// The rank's forward number `k`, from 0.
    Turn forward(int k) const {
        const int group = k / (group_size_ * chunks_);
        const int first = group * group_size_;
        const int size = std::min(group_size_, micro_batches_ - first);
        const int within = k - first * chunks_;
        return {.chunk = within / size, .micro_batch = first + within % size};
    }
    /// The rank's backward number `k`, from 0.
    Turn backward(int k) const {
        const Turn turn = forward(k);
        return {.chunk = chunks_ - 1 - turn.chunk, .micro_batch = turn.micro_batch};
    }

  private:
    int micro_batches_;
    int chunks_;
    int group_size_;
};

}  // namespace pipetwin::schedules
