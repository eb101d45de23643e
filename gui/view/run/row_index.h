// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/as_index.h"
#include "core/timeline/span_times.h"
#include "gui/view/run/row_actions.h"

namespace pipetwin::gui {

/// Kind of work that a rank spends a moment on.
enum class RowPart : std::uint8_t {
    Forward,
    Backward,
    BackwardInput,
    BackwardWeight,
    Recompute,
    Update,   ///< reductions, norms, updates
    Message,  ///< sends and receives, without their waits
    Wait,     ///< for a message, for room, for a stash: begin to ready
};
/// Number of values of `RowPart`.
constexpr int row_part_count = 8;

/// The part that the time between ready and end of an action counts to.
constexpr RowPart part_of(Op op) {
    constexpr std::array<RowPart, op_count> parts{RowPart::Forward,
                                                  RowPart::Backward,
                                                  RowPart::BackwardInput,
                                                  RowPart::BackwardWeight,
                                                  RowPart::Recompute,
                                                  RowPart::Message,
                                                  RowPart::Message,
                                                  RowPart::Message,
                                                  RowPart::Message,
                                                  RowPart::Update,
                                                  RowPart::Update,
                                                  RowPart::Update,
                                                  RowPart::Update,
                                                  RowPart::Update};
    return parts[as_index(op)];
}
static_assert(part_of(Op::Recompute) == RowPart::Recompute &&
              part_of(Op::SendForward) == RowPart::Message &&
              part_of(Op::RecvBackward) == RowPart::Message &&
              part_of(Op::ReduceGradient) == RowPart::Update &&
              part_of(Op::Optimizer) == RowPart::Update);

/// An action that counts to a part; for Wait any message.
constexpr Op op_of(RowPart part) {
    constexpr std::array<Op, row_part_count> ops{Op::Forward,
                                                 Op::Backward,
                                                 Op::BackwardInput,
                                                 Op::BackwardWeight,
                                                 Op::Recompute,
                                                 Op::Optimizer,
                                                 Op::SendForward,
                                                 Op::RecvForward};
    return ops[as_index(part)];
}

/// True for F, B, I, W and R.
constexpr bool is_compute(RowPart part) {
    return part <= RowPart::Recompute;
}

/// [part]: a number for each part.
template <class Number>
struct PerPart {
    std::array<Number, row_part_count> of{};

    Number& operator[](RowPart part) { return of[as_index(part)]; }
    const Number& operator[](RowPart part) const { return of[as_index(part)]; }
    bool operator==(const PerPart&) const = default;
};
/// [part]: a time for each part.
using PartTimes = PerPart<Duration>;

/// Time of F, B, I, W and R together.
Duration compute_of(const PartTimes& times);

/// The spans of one row of one step, at 21 bytes each, with what is needed to draw millions of them
/// and to sum them up: in all at most 24 bytes a span.
///
/// - Sums before every 128th span: how long each part lasts between any two times, exactly, in
///   O(log spans).
/// - A pyramid of bins over time, of which each says which share of it every part fills: the lowest
///   holds about 16 spans a bin, each further one twice as much time. They are for pixels; no
///   number that a person reads comes from them.
class RowIndex {
  public:
    RowIndex() = default;

    /// Indexes the spans of a row, which follow each other and do not overlap, as
    /// core/timeline/timeline.h says; their times are taken from `zero` on.
    explicit RowIndex(std::span<const Span> row, Duration zero = Duration{0});

    /// Indexes these actions with their times.
    RowIndex(std::shared_ptr<const RowActions> actions, SpanTimes times);

    int size() const { return times_.size(); }
    bool empty() const { return times_.empty(); }

    Span operator[](int cell) const {
        return {
            .action = action(cell), .begin = begin(cell), .ready = ready(cell), .end = end(cell)};
    }
    Op op(int cell) const { return actions_->op(cell); }
    Action action(int cell) const { return (*actions_)[cell]; }
    Duration begin(int cell) const { return times_.begin(cell); }
    Duration ready(int cell) const { return times_.ready(cell); }
    Duration end(int cell) const { return times_.end(cell); }

    const std::shared_ptr<const RowActions>& share_actions() const { return actions_; }

    /// True if both rows have the same actions in the same order.
    bool same_actions(const RowIndex& other) const {
        return actions_ == other.actions_ ||
               (size() == other.size() && (empty() || *actions_ == *other.actions_));
    }

    bool waits(int cell) const { return times_.wait(cell) > Duration{0}; }
    bool takes_time(int cell) const { return times_.length(cell) > Duration{0}; }

    /// Time at which the last span ends; zero in an empty row.
    Duration last_end() const { return empty() ? Duration{0} : end(size() - 1); }

    /// The first cell that ends after `time`; `size()` where none does. Found fast if it is `near`
    /// or soon after it; it may not lie before `near`.
    int first_ending_after(Duration time, int near = 0) const;

    /// Time of each part between two times.
    PartTimes between(Duration begin, Duration end) const;

    /// The sum of end - begin over the F, B, I, W and R of the cells from `first` up to `last`.
    Duration compute_between(int first, int last) const;

    /// The sum of end - begin over the F, B, I, W and R of all cells before `cell`.
    Duration compute_before(int cell) const {
        const int whole = cell / block;
        return sums_[as_index(whole)].compute + compute_between(whole * block, cell);
    }

    /// Share of each part in a stretch of time, from 0 to 1.
    struct Column {
        PerPart<float> share;
    };
    /// Fills the shares of neighbouring stretches of time, from the coarsest bins that are no
    /// longer than a stretch; false where even the finest are longer: then its spans are few enough
    /// to be walked.
    bool columns(Duration begin, double ns_per_column, std::span<Column> columns) const;

    /// Number of slots: stretches of time as long as the finest bins, one after the other from time
    /// 0, for pixels that hold many spans. There are none in a row of few spans.
    int slot_count() const { return static_cast<int>(slots_.size()); }
    Duration slot_length() const {
        return levels_.empty() ? Duration{0} : Duration{levels_[0].bin};
    }

    /// The slot whose begin is nearest to `time`; the first or the last where it lies outside.
    int slot_at(Duration time) const;

    /// The first cell that ends after the slot begins.
    int cell_of_slot(int slot) const { return static_cast<int>(slots_[as_index(slot)].cell); }

    /// Compute time of the cells from that of slot `first` up to that of slot `last`, in ns;
    /// rounded to a ten-millionth.
    double compute_of_slots(int first, int last) const;

    /// All spans of the row.
    std::vector<Span> spans() const;

    /// Bytes that the index takes in memory.
    std::size_t bytes() const;

  private:
    using Bin = PerPart<std::uint8_t>;  ///< 255: all of it
    struct Level {
        std::int64_t bin = 1;  ///< nanoseconds
        std::vector<Bin> bins;
    };
    struct Sums {
        PartTimes parts;
        Duration compute{};
    };
    struct Slot {
        std::uint32_t cell = 0;
        float compute = 0;  ///< up to the cell of the next slot
    };
    static constexpr int block = 128;

    class BinFiller;
    class SlotFiller;
    void add_sums(BinFiller& bins, SlotFiller begins);
    void add_levels();
    void add_to(Sums& sums, int cell) const;
    PartTimes before(Duration time) const;

    std::shared_ptr<const RowActions> actions_;  ///< null: there are none
    SpanTimes times_;
    std::vector<Sums> sums_;     ///< before each block
    std::vector<Level> levels_;  ///< the finest first
    std::vector<Slot> slots_;
};

}  // namespace pipetwin::gui
