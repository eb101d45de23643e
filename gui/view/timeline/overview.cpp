// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/overview.h"

#include <algorithm>
#include <cmath>

#include "core/base/as_index.h"

namespace pipetwin::gui {

namespace {

double count(Duration duration) {
    return static_cast<double>(duration.count());
}

/// Adds a row's compute to the pixels from `first` on; a share of each of them.
void add_row(const RowIndex& row,
             const ViewTransform& inside,
             int first,
             float weight,
             std::span<float> pixels) {
    std::vector<RowIndex::Column> columns(pixels.size());
    if (row.columns(inside.time_at(first), inside.ns_per_pixel, columns)) {
        for (std::size_t i = 0; i < pixels.size(); ++i) {
            for (int part = 0; is_compute(static_cast<RowPart>(part)); ++part) {
                pixels[i] += weight * columns[i].share.of[as_index(part)];
            }
        }
        return;
    }
    for (std::size_t i = 0; i < pixels.size(); ++i) {
        const int x = first + static_cast<int>(i);
        const Duration busy = compute_of(row.between(inside.time_at(x), inside.time_at(x + 1)));
        pixels[i] += weight * static_cast<float>(count(busy) / inside.ns_per_pixel);
    }
}

}  // namespace

std::vector<float> utilisation_over_run(const Twin& twin,
                                        const StepPlaces& places,
                                        Side side,
                                        int pixels) {
    std::vector<float> use(as_index(std::max(0, pixels)));
    if (use.empty() || places.length() <= Duration{0} || !twin.has(side)) {
        return use;
    }
    const ViewTransform view{.origin = Duration{0},
                             .ns_per_pixel = count(places.length()) / pixels};
    for (int step = 0; step < places.step_count(); ++step) {
        const StepRows* const rows = twin.step(side, step);
        if (rows == nullptr || rows->ranks.empty()) {
            continue;
        }
        const StepPlace& place = places.of(side, step);
        const int first =
            std::clamp(static_cast<int>(view.x_of(place.on_axis(Duration{0}))), 0, pixels - 1);
        const int last = std::clamp(
            static_cast<int>(std::ceil(view.x_of(place.on_axis(rows->length)))), first + 1, pixels);
        for (const RowIndex& row : rows->ranks) {
            add_row(
                row,
                place.inside(view),
                first,
                1 / static_cast<float>(rows->ranks.size()),
                std::span(use).subspan(as_index(first), static_cast<std::size_t>(last - first)));
        }
    }
    for (float& share : use) {
        share = std::min(1.0F, share);
    }
    return use;
}

double RangeUse::busy_share() const {
    return length > Duration{0} ? count(compute) / count(length) : 0;
}

double RangeUse::bubble_share() const {
    return length > Duration{0} ? count(length - compute - update) / count(length) : 0;
}

RangeUse use_of_range(
    const Twin& twin, const StepPlaces& places, Side side, Duration begin, Duration end) {
    RangeUse use;
    for (int step = 0; step < places.step_count(); ++step) {
        const StepRows* const rows = twin.step(side, step);
        if (rows == nullptr || rows->ranks.empty()) {
            continue;
        }
        const StepPlace& place = places.of(side, step);
        const Duration from = std::max(Duration{0}, place.in_step(begin));
        const Duration to = std::min(rows->length, place.in_step(end));
        if (to <= from) {
            continue;
        }
        const auto ranks = static_cast<std::int64_t>(rows->ranks.size());
        PartTimes sum;
        for (const RowIndex& row : rows->ranks) {
            const PartTimes times = row.between(from, to);
            for (std::size_t part = 0; part < times.of.size(); ++part) {
                sum.of[part] += times.of[part];
            }
        }
        use.length += to - from;
        use.compute += compute_of(sum) / ranks;
        use.wait += sum[RowPart::Wait] / ranks;
        use.update += sum[RowPart::Update] / ranks;
        use.message += sum[RowPart::Message] / ranks;
    }
    use.idle = use.length - use.compute - use.wait - use.update - use.message;
    return use;
}

}  // namespace pipetwin::gui
