// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/base/as_index.h"
#include "core/timeline/timeline.h"

namespace pipetwin {

/// Begin, ready and end of the spans of a row, at 16 bytes a span. The actions stand elsewhere: in
/// a plan's row, for one.
class SpanTimes {
  public:
    SpanTimes() = default;

    /// Room for `size` spans, each of which must be set before it is read.
    explicit SpanTimes(std::size_t size) : cells_(size) {}

    /// The times of a row of a timeline. Throws InternalError if its spans overlap or go backward.
    explicit SpanTimes(std::span<const Span> row);

    int size() const { return static_cast<int>(cells_.size()); }
    bool empty() const { return cells_.empty(); }

    /// Sets the times of a cell, begin <= ready <= end; once for each cell.
    void set(std::size_t cell, Duration begin, Duration ready, Duration end) {
        cells_[cell] = {begin.count(),
                        shortened((end - begin).count(), 2 * cell),
                        shortened((ready - begin).count(), 2 * cell + 1)};
    }

    /// Time at which the rank turns to the action, since the start of the step.
    Duration begin(int cell) const { return Duration{cells_[as_index(cell)].begin}; }
    /// Time at which the action has what it waited for.
    Duration ready(int cell) const { return begin(cell) + wait(cell); }
    /// Time at which the action ends.
    Duration end(int cell) const { return begin(cell) + length(cell); }

    /// Time from begin to end.
    Duration length(int cell) const {
        return Duration{length_at(cells_[as_index(cell)].length, 2 * as_index(cell))};
    }
    /// Time from begin to ready: the wait.
    Duration wait(int cell) const {
        return Duration{length_at(cells_[as_index(cell)].wait, 2 * as_index(cell) + 1)};
    }

    /// The first cell that begins after `time`, of cells `first` to `last` - 1; `last` if none
    /// does.
    int first_beginning_after(Duration time, int first, int last) const;

    /// Subtracts `zero` from all times; costs nothing where it is 0.
    void subtract(Duration zero);

    /// Prefetches the row behind `cell` for writing: with many rows written in turn the hardware
    /// prefetcher cannot follow.
    void prefetch_for_write(std::size_t cell) const {
        constexpr std::size_t ahead = 16;  // it may be beyond the row, where nothing is fetched
        constexpr int to_write = 1;
        __builtin_prefetch(cells_.data() + cell + ahead, to_write);
    }

    /// Bytes that the times take in memory.
    std::size_t bytes() const;

  private:
    struct Cell {
        Cell() {
        }  // NOLINT(*-member-init, *-use-equals-default): every cell is set before it is read
        Cell(std::int64_t begins, std::uint32_t lasts, std::uint32_t waits)
            : begin(begins), length(lasts), wait(waits) {}
        std::int64_t begin;
        std::uint32_t length;
        std::uint32_t wait;
    };
    /// A length that is too long for 32 bits stands in `long_ones_`, by its place.
    static constexpr std::uint32_t too_long = std::numeric_limits<std::uint32_t>::max();

    std::uint32_t shortened(std::int64_t length, std::size_t place) {
        return length < too_long ? static_cast<std::uint32_t>(length) : remembered(length, place);
    }
    std::uint32_t remembered(std::int64_t length, std::size_t place);
    std::int64_t length_at(std::uint32_t shortened, std::size_t place) const {
        return shortened != too_long ? shortened : long_ones_.at(place);
    }

    std::vector<Cell> cells_;
    std::unordered_map<std::size_t, std::int64_t> long_ones_;  ///< lengths at 2c, waits at 2c + 1
};

/// The times of a plan's step: ranks[r] are those of schedule.ranks[r].
struct StepTimes {
    std::vector<SpanTimes> ranks;
    std::vector<std::vector<Span>> links;        ///< as in Timeline, where they were kept
    std::vector<std::vector<Span>> host_copies;  ///< as in Timeline, where they were kept
};

/// The times of a timeline, without its actions, which stand in the plan's rows.
StepTimes step_times(Timeline timeline);

/// The timeline of these rows with these times.
Timeline timeline_of(const std::vector<std::vector<Action>>& rows, StepTimes times);

}  // namespace pipetwin
