// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/memory_row.h"

#include <algorithm>
#include <utility>

#include "core/base/as_index.h"

namespace pipetwin::gui {

MemoryRow::MemoryRow(const MemoryCurve& curve, int cells) {
    Values values;
    values.totals.reserve(curve.size());
    for (const MemoryPoint& point : curve) {
        values.totals.push_back(point.use.total());
    }
    if (curve.size() != 2 * as_index(cells)) {
        values.times.reserve(curve.size());
        for (const MemoryPoint& point : curve) {
            values.times.push_back(point.time);
        }
    }
    for (std::size_t i = 0; i < values.totals.size(); ++i) {
        const Bytes total = values.totals[i];
        if (i % block == 0) {
            values.of_block.push_back({.least = total, .most = total});
        }
        values.of_block.back().add(total);
    }
    take(std::move(values));
}

MemoryRow::MemoryRow(RankTotals totals) {
    take({.totals = std::move(totals.values),
          .of_block = std::move(totals.of_block),
          .times = {},
          .peak = {}});
}

void MemoryRow::take(Values values) {
    for (const ByteRange& range : values.of_block) {
        values.peak = std::max(values.peak, range.most);
    }
    values_ = std::make_shared<const Values>(std::move(values));
}

/// The place of the last value that has begun by `time`, or of the first value. `near` is such a
/// place of an earlier time.
std::size_t MemoryRow::last_until(const RowIndex& row, Duration time, std::size_t near) const {
    if (!values_->times.empty()) {
        const auto next = std::upper_bound(
            values_->times.begin() + static_cast<std::ptrdiff_t>(near), values_->times.end(), time);
        return next == values_->times.begin()
                   ? 0
                   : static_cast<std::size_t>(next - values_->times.begin()) - 1;
    }
    const int ending = row.first_ending_after(time, static_cast<int>(near / 2));
    const bool begun = ending < row.size() && row.begin(ending) <= time;
    if (begun) {
        return 2 * as_index(ending);
    }
    return ending == 0 ? 0 : 2 * as_index(ending) - 1;
}

Bytes MemoryRow::at(const RowIndex& row, Duration time) const {
    return empty() ? Bytes{} : values_->totals[last_until(row, time)];
}

ByteRange MemoryRow::of_values(std::size_t first, std::size_t last) const {
    ByteRange range{.least = values_->totals[first], .most = values_->totals[first]};
    for (std::size_t i = first; i <= last;) {
        const bool whole = i % block == 0 && i + block <= last + 1;
        const ByteRange next =
            whole ? values_->of_block[i / block]
                  : ByteRange{.least = values_->totals[i], .most = values_->totals[i]};
        range = {.least = std::min(range.least, next.least),
                 .most = std::max(range.most, next.most)};
        i += whole ? block : 1;
    }
    return range;
}

ByteRange MemoryRow::between(const RowIndex& row, Duration begin, Duration end) const {
    return empty() ? ByteRange{} : of_values(last_until(row, begin), last_until(row, end));
}

/// Cell by cell, from pixel to pixel: where few cells share each, as fast as they go by.
void MemoryRow::walk(const RowIndex& row,
                     const ViewTransform& view,
                     int x,
                     std::span<ByteRange> columns) const {
    const Bytes* const totals = values_->totals.data();
    const int cells = row.size();
    std::size_t place = last_until(row, view.time_at(x));
    int cell = static_cast<int>((place + 1) / 2);  // the first that ends later
    for (ByteRange& column : columns) {
        const Duration time = view.time_at(++x);
        ByteRange range{.least = totals[place], .most = totals[place]};
        for (; cell < cells && row.end(cell) <= time; ++cell) {
            place = 2 * as_index(cell) + 1;
            range.add(totals[place - 1]);
            range.add(totals[place]);
        }
        if (cell < cells && row.begin(cell) <= time) {
            place = 2 * as_index(cell);
            range.add(totals[place]);
        }
        column = range;
    }
}

std::vector<ByteRange> MemoryRow::columns(const RowIndex& row,
                                          const ViewTransform& view,
                                          int x,
                                          int count) const {
    std::vector<ByteRange> columns;
    if (empty()) {
        return columns;
    }
    columns.resize(as_index(std::max(0, count)));
    const bool crowd = values_->times.empty() && row.slot_count() > 0 &&
                       2 * static_cast<double>(row.slot_length().count()) < view.ns_per_pixel;
    if (crowd) {
        // The values of a cell stand at twice its number, the one before it below them.
        const auto place_of = [&](int pixel) {
            const int cell = row.cell_of_slot(row.slot_at(view.time_at(pixel)));
            return as_index(std::max(0, 2 * cell - 1));
        };
        std::size_t place = place_of(x);
        for (ByteRange& column : columns) {
            const std::size_t next = place_of(++x);
            column = of_values(place, next);
            place = next;
        }
        return columns;
    }
    const bool many = row.slot_count() > 0 &&
                      static_cast<double>(row.slot_length().count()) < 2 * view.ns_per_pixel;
    if (values_->times.empty() && !many) {
        walk(row, view, x, columns);
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
