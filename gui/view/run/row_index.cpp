// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/row_index.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin::gui {

namespace {

constexpr int spans_per_bin = 16;
constexpr int fewest_spans = 64;       // of a row that has bins: fewer are drawn one by one
constexpr std::int64_t full = 65'280;  // a bin that is filled, while levels are made: 255 << 8

}  // namespace

Duration compute_of(const PartTimes& times) {
    Duration sum{0};
    for (int part = 0; is_compute(static_cast<RowPart>(part)); ++part) {
        sum += times.of[as_index(part)];
    }
    return sum;
}

RowIndex::RowIndex(std::span<const Span> row, Duration zero)
    : actions_(std::make_shared<const RowActions>(row)), times_(row) {
    times_.subtract(zero);
    add_levels();
}

RowIndex::RowIndex(std::shared_ptr<const RowActions> actions, SpanTimes times)
    : actions_(std::move(actions)), times_(std::move(times)) {
    PIPETWIN_EXPECT(actions_->size() == times_.size(), "a time for each action");
    add_levels();
}

std::vector<Span> RowIndex::spans() const {
    std::vector<Span> spans;
    spans.reserve(as_index(size()));
    for (int cell = 0; cell < size(); ++cell) {
        spans.push_back((*this)[cell]);
    }
    return spans;
}

int RowIndex::first_ending_after(Duration time, int near) const {
    if (empty() || last_end() <= time) {
        return size();
    }
    // Steps that double, from where it may be; then halves of the last one.
    int low = near;
    int stride = 1;
    while (low + stride < size() && begin(low + stride) <= time) {
        low += stride;
        stride *= 2;
    }
    const int high = std::min(size(), low + stride);
    int cell = times_.first_beginning_after(time, std::min(low, high), high);
    // Of spans that follow each other only the last one that begins before can end after.
    while (cell > near && end(cell - 1) > time) {
        --cell;
    }
    return cell;
}

void RowIndex::add_to(Sums& sums, int cell) const {
    const Op op = this->op(cell);
    const Duration length = times_.length(cell);
    const Duration wait = times_.wait(cell);
    sums.parts[RowPart::Wait] += wait;
    sums.parts[part_of(op)] += length - wait;
    sums.compute += pipetwin::is_compute(op) ? length : Duration{0};
}

PartTimes RowIndex::before(Duration time) const {
    if (empty()) {
        return {};
    }
    const int cell = first_ending_after(time);
    Sums sums = sums_[as_index(cell / block)];
    for (int i = cell / block * block; i < cell; ++i) {
        add_to(sums, i);
    }
    if (cell < size() && begin(cell) < time) {
        const Duration waited = std::min(time, ready(cell)) - begin(cell);
        sums.parts[RowPart::Wait] += waited;
        sums.parts[part_of(op(cell))] += time - begin(cell) - waited;
    }
    return sums.parts;
}

PartTimes RowIndex::between(Duration begin, Duration end) const {
    PartTimes times = before(end);
    const PartTimes earlier = before(begin);
    for (std::size_t part = 0; part < times.of.size(); ++part) {
        times.of[part] -= earlier.of[part];
    }
    return times;
}

Duration RowIndex::compute_between(int first, int last) const {
    Duration sum{0};
    const auto add_up_to = [&](int end) {
        for (; first < end; ++first) {
            sum += pipetwin::is_compute(op(first)) ? times_.length(first) : Duration{0};
        }
    };
    const int first_block = (first + block - 1) / block;
    const int last_block = last / block;
    if (first_block < last_block) {
        add_up_to(first_block * block);
        sum += sums_[as_index(last_block)].compute - sums_[as_index(first_block)].compute;
        first = last_block * block;
    }
    add_up_to(last);
    return sum;
}

namespace {

/// Shares of bins while they are made, in parts of `full`.
using WideBin = PerPart<std::uint16_t>;

/// `value` is not negative; halves away from zero, as std::lround.
std::uint16_t rounded(double value) {
    const auto whole = static_cast<std::uint16_t>(value);
    return static_cast<std::uint16_t>(whole + (value - whole >= 0.5 ? 1 : 0));
}

std::vector<WideBin> halved(const std::vector<WideBin>& bins) {
    std::vector<WideBin> result((bins.size() + 1) / 2);
    for (std::size_t i = 0; i < bins.size(); ++i) {
        for (std::size_t part = 0; part < row_part_count; ++part) {
            // Each half is rounded down, by less than a millionth of what is seen.
            result[i / 2].of[part] =
                static_cast<std::uint16_t>(result[i / 2].of[part] + bins[i].of[part] / 2);
        }
    }
    return result;
}

}  // namespace

/// Adds up how long each part has lasted, and hands it out to the bins that it covers: what lies in
/// a bin is what was added since its begin.
class RowIndex::BinFiller {
  public:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

    /// Without bins it computes sums alone.
    BinFiller(std::size_t bins, std::int64_t bin, bool from_zero)
        : bin_(bin), until_(bins == 0 ? never : 0), current_(bins), bins_(bins) {
        if (bins > 0 && from_zero) {
            current_ = 0;
            until_ = bin;
        }
    }

    /// From `begin` to `ready` a wait, then the part. Of times that follow each other.
    void add(RowPart part, std::int64_t begin, std::int64_t ready, std::int64_t end) {
        if (end > until_) {
            add_across(RowPart::Wait, begin, ready);
            add_across(part, ready, end);
            return;
        }
        times_[RowPart::Wait] += ready - begin;
        times_[part] += end - ready;
    }

    PartTimes times() const {
        PartTimes times;
        for (std::size_t part = 0; part < times.of.size(); ++part) {
            times.of[part] = Duration{times_.of[part]};
        }
        return times;
    }

    std::vector<WideBin> finish() {
        flush();
        return std::move(bins_);
    }

  private:
    void add_across(RowPart part, std::int64_t begin, std::int64_t end) {
        if (begin >= end) {
            return;
        }
        while (end > until_) {
            if (begin < until_) {
                times_[part] += until_ - begin;
                begin = until_;
            }
            flush();
            const std::int64_t number = begin / bin_;
            current_ = static_cast<std::size_t>(number);
            until_ = (number + 1) * bin_;
        }
        times_[part] += end - begin;
    }

    void flush() {
        if (current_ < bins_.size()) {
            for (std::size_t part = 0; part < times_.of.size(); ++part) {
                if (const std::int64_t time = times_.of[part] - before_.of[part]; time != 0) {
                    const double share = static_cast<double>(time) / static_cast<double>(bin_);
                    bins_[current_].of[part] =
                        rounded(static_cast<double>(full) * std::min(1.0, share));
                }
            }
        }
        before_ = times_;
    }

    std::int64_t bin_;
    std::int64_t until_;   ///< the end of the current bin
    std::size_t current_;  ///< beyond the bins: before time 0
    std::vector<WideBin> bins_;
    PerPart<std::int64_t> times_;
    PerPart<std::int64_t> before_;  ///< at the begin of the current bin
};

/// Finds where each slot begins while the cells go by.
class RowIndex::SlotFiller {
  public:
    /// Fills `count` slots, as long as a bin each; without any, `next_begin` never comes.
    SlotFiller(std::size_t count, std::int64_t bin)
        : bin_(bin), next_begin_(count == 0 ? BinFiller::never : 0), slots_(count) {}

    /// The begin of the next slot: the first cell that ends after it is the slot's.
    std::int64_t next_begin() const { return next_begin_; }

    /// `compute` is that of all cells before.
    void begin_at(int cell, std::int64_t end, std::int64_t compute) {
        for (; next_begin_ < end; next_begin_ += bin_) {
            begin_next(cell, compute);
        }
    }

    /// Ends the slots: those that are left begin behind the last cell.
    std::vector<Slot> finish(int cells, std::int64_t compute) {
        while (count_ < slots_.size()) {
            begin_next(cells, compute);
        }
        return std::move(slots_);
    }

  private:
    void begin_next(int cell, std::int64_t compute) {
        if (count_ > 0) {
            slots_[count_ - 1].compute = static_cast<float>(compute - compute_before_);
        }
        slots_[count_++].cell = static_cast<std::uint32_t>(cell);
        compute_before_ = compute;
    }

    std::int64_t bin_;
    std::int64_t next_begin_;
    std::int64_t compute_before_ = 0;  ///< the last one that has begun
    std::size_t count_ = 0;
    std::vector<Slot> slots_;
};

void RowIndex::add_sums(BinFiller& bins, SlotFiller begins) {
    sums_.reserve(as_index(size() / block + 2));
    std::int64_t compute = 0;
    const auto sums = [&] { return Sums{.parts = bins.times(), .compute = Duration{compute}}; };
    for (int first = 0; first < size(); first += block) {
        sums_.push_back(sums());
        for (int cell = first; cell < std::min(first + block, size()); ++cell) {
            const std::int64_t length = times_.length(cell).count();
            const std::int64_t begin = times_.begin(cell).count();
            if (begin + length > begins.next_begin()) {
                begins.begin_at(cell, begin + length, compute);
            }
            if (length == 0) {
                continue;  // most messages
            }
            const Op done = op(cell);
            bins.add(part_of(done), begin, begin + times_.wait(cell).count(), begin + length);
            compute += pipetwin::is_compute(done) ? length : 0;
        }
    }
    sums_.push_back(sums());
    slots_ = begins.finish(size(), compute);
}

void RowIndex::add_levels() {
    const std::int64_t length = last_end().count();
    const bool any = size() >= fewest_spans && length > 0;
    const std::int64_t bin = any ? std::max<std::int64_t>(1, length / (size() / spans_per_bin)) : 1;
    const std::size_t count = any ? static_cast<std::size_t>(length / bin + 1) : 0;
    BinFiller filler(count, bin, !empty() && begin(0) >= Duration{0});
    add_sums(filler, SlotFiller(any ? count + 1 : 0, bin));
    if (!any) {
        return;
    }
    std::vector<WideBin> bins = filler.finish();
    for (std::int64_t width = bin;; width *= 2, bins = halved(bins)) {
        Level& level = levels_.emplace_back();
        level.bin = width;
        level.bins.resize(bins.size());
        for (std::size_t i = 0; i < bins.size(); ++i) {
            for (std::size_t part = 0; part < row_part_count; ++part) {
                level.bins[i].of[part] =
                    static_cast<std::uint8_t>((bins[i].of[part] + 128U) / 256U);
            }
        }
        if (bins.size() == 1) {
            break;
        }
    }
}

int RowIndex::slot_at(Duration time) const {
    const std::int64_t bin = levels_.front().bin;
    const std::int64_t nearest = (time.count() + bin / 2) / bin;
    return static_cast<int>(std::clamp<std::int64_t>(nearest, 0, slot_count() - 1));
}

double RowIndex::compute_of_slots(int first, int last) const {
    double sum = 0;
    for (; first < last; ++first) {
        sum += static_cast<double>(slots_[as_index(first)].compute);
    }
    return sum;
}

bool RowIndex::columns(Duration begin, double ns_per_column, std::span<Column> columns) const {
    const Level* fitting = nullptr;
    for (const Level& level : levels_) {
        if (static_cast<double>(level.bin) <= ns_per_column) {
            fitting = &level;
        }
    }
    if (fitting == nullptr) {
        return false;
    }
    const auto bin = static_cast<double>(fitting->bin);
    const auto bins = static_cast<std::int64_t>(fitting->bins.size());
    const double per_column = ns_per_column / bin;
    double left = static_cast<double>(begin.count()) / bin;
    for (Column& column : columns) {
        const double right = left + per_column;
        PerPart<float> share;
        const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(left)));
        const auto last = std::min(bins, static_cast<std::int64_t>(std::ceil(right)));
        for (std::int64_t i = first; i < last; ++i) {
            const auto place = static_cast<double>(i);
            const auto weight = static_cast<float>(
                (std::min(right, place + 1) - std::max(left, place)) / (255 * per_column));
            const Bin& from = fitting->bins[as_index(i)];
            for (std::size_t part = 0; part < row_part_count; ++part) {
                share.of[part] += weight * static_cast<float>(from.of[part]);
            }
        }
        column.share = share;
        left = right;
    }
    return true;
}

std::size_t RowIndex::bytes() const {
    const auto size_of = [](const auto& values) {
        return values.capacity() * sizeof(values.front());
    };
    std::size_t sum = times_.bytes() + (actions_ == nullptr ? 0 : actions_->bytes()) +
                      size_of(sums_) + size_of(slots_);
    for (const Level& level : levels_) {
        sum += size_of(level.bins);
    }
    return sum;
}

}  // namespace pipetwin::gui
