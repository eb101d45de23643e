#include "gui/memory_row.h"

#include <algorithm>
#include <utility>

namespace pipetwin::gui {

MemoryRow::MemoryRow(const MemoryCurve& curve, int cells) {
    totals_.reserve(curve.size());
    for (const MemoryPoint& point : curve) {
        totals_.push_back(point.use.total());
    }
    if (curve.size() != 2 * static_cast<std::size_t>(cells)) {
        times_.reserve(curve.size());
        for (const MemoryPoint& point : curve) {
            times_.push_back(point.time);
        }
    }
    add_ranges();
}

MemoryRow::MemoryRow(std::vector<Bytes> totals) : totals_(std::move(totals)) {
    add_ranges();
}

void MemoryRow::add_ranges() {
    of_block_.reserve(totals_.size() / block + 1);
    for (std::size_t first = 0; first < totals_.size(); first += block) {
        const std::size_t end = std::min(first + block, totals_.size());
        ByteRange even{.least = totals_[first], .most = totals_[first]};
        ByteRange odd = even;
        // Two at a time, as each comparison waits for the one before it.
        for (std::size_t i = first; i + 1 < end; i += 2) {
            even.add(totals_[i]);
            odd.add(totals_[i + 1]);
        }
        even.add(totals_[end - 1]);
        even.add(odd.least);
        even.add(odd.most);
        of_block_.push_back(even);
        peak_ = std::max(peak_, even.most);
    }
}

/// The place of the last value that has begun by then; of those that have not, the first. `near` is
/// such a place of an earlier time.
std::size_t MemoryRow::last_until(const RowIndex& row, Duration time, std::size_t near) const {
    if (!times_.empty()) {
        const auto next = std::upper_bound(
            times_.begin() + static_cast<std::ptrdiff_t>(near), times_.end(), time);
        return next == times_.begin() ? 0 : static_cast<std::size_t>(next - times_.begin()) - 1;
    }
    const int ending = row.first_ending_after(time, static_cast<int>(near / 2));
    const bool begun = ending < row.size() && row.begin(ending) <= time;
    if (begun) {
        return 2 * static_cast<std::size_t>(ending);
    }
    return ending == 0 ? 0 : 2 * static_cast<std::size_t>(ending) - 1;
}

Bytes MemoryRow::at(const RowIndex& row, Duration time) const {
    return empty() ? Bytes{} : totals_[last_until(row, time)];
}

ByteRange MemoryRow::of_values(std::size_t first, std::size_t last) const {
    ByteRange range{.least = totals_[first], .most = totals_[first]};
    for (std::size_t i = first; i <= last;) {
        const bool whole = i % block == 0 && i + block <= last + 1;
        const ByteRange next =
            whole ? of_block_[i / block] : ByteRange{.least = totals_[i], .most = totals_[i]};
        range = {.least = std::min(range.least, next.least),
                 .most = std::max(range.most, next.most)};
        i += whole ? block : 1;
    }
    return range;
}

ByteRange MemoryRow::between(const RowIndex& row, Duration begin, Duration end) const {
    return empty() ? ByteRange{} : of_values(last_until(row, begin), last_until(row, end));
}

std::vector<ByteRange> MemoryRow::columns(const RowIndex& row,
                                          const ViewTransform& view,
                                          int x,
                                          int count) const {
    std::vector<ByteRange> columns;
    if (empty()) {
        return columns;
    }
    columns.resize(static_cast<std::size_t>(std::max(0, count)));
    const bool crowd = times_.empty() && row.slot_count() > 0 &&
                       2 * static_cast<double>(row.slot_length().count()) < view.ns_per_pixel;
    if (crowd) {
        // The values of a cell stand at twice its number, the one before it below them.
        const auto place_of = [&](int pixel) {
            const int cell = row.cell_of_slot(row.slot_at(view.time_at(pixel)));
            return static_cast<std::size_t>(std::max(0, 2 * cell - 1));
        };
        std::size_t place = place_of(x);
        for (ByteRange& column : columns) {
            const std::size_t next = place_of(++x);
            column = of_values(place, next);
            place = next;
        }
        return columns;
    }
    std::size_t first = last_until(row, view.time_at(x));
    for (ByteRange& column : columns) {
        const std::size_t last = last_until(row, view.time_at(++x), first);
        column = of_values(first, last);
        first = last;
    }
    return columns;
}

}  // namespace pipetwin::gui
