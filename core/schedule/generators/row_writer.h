// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "core/base/as_index.h"
#include "core/schedule/schedule.h"

namespace pipetwin::schedules {

/// Appends actions to the row of one rank. Every kind of action counts its own micro-batches, chunk
/// by chunk: the third `F` of a chunk is the forward of micro-batch 2. Orders of the zero-bubble
/// family are written that way.
class RowWriter {
  public:
    /// `stages`: the rank's stages, by local chunk.
    RowWriter(std::vector<Action>& row, std::vector<int> stages)
        : row_(row), stages_(std::move(stages)), done_(stages_.size()) {}

    /// The next micro-batch of `op` on a chunk.
    void next(Op op, int chunk = 0) {
        const std::size_t index = as_index(chunk);
        add(op, chunk, done_[index][as_index(op)]);
    }

    /// A given micro-batch.
    void add(Op op, int chunk, int micro_batch) {
        const std::size_t index = as_index(chunk);
        row_.push_back({.op = op, .stage = stages_[index], .micro_batch = micro_batch});
        ++done_[index][as_index(op)];
    }

    /// How many actions of this kind the chunk has.
    int done(Op op, int chunk = 0) const { return done_[as_index(chunk)][as_index(op)]; }

    /// The last two actions are issued together.
    void overlap_last_two() { row_[row_.size() - 2].with_next = true; }

  private:
    std::vector<Action>& row_;
    std::vector<int> stages_;
    std::vector<std::array<int, op_count>> done_;
};

}  // namespace pipetwin::schedules
