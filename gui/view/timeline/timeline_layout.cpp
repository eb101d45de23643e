// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/timeline_layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "core/svg/svg_pieces.h"

namespace pipetwin::gui {

namespace {

/// A step of the axis: 1, 2 or 5 times a power of ten nanoseconds.
struct TickStep {
    std::int64_t ns = 1;
    std::int64_t parts = 1;  ///< short ticks between two labelled ones, plus one
};

TickStep tick_step(double min_ns) {
    const auto step = static_cast<std::int64_t>(svg::tick_step(std::max(1.0, min_ns)));
    const bool of_two = fmt::to_string(step).front() == '2';
    const std::int64_t parts = of_two ? 4 : 5;
    return {.ns = step, .parts = step % parts == 0 ? parts : 1};
}

struct Unit {
    const char* name;
    std::int64_t ns;
};

/// The unit in which the latest visible time is a comfortable number.
Unit unit_for(Duration latest) {
    constexpr std::array<Unit, 4> units{
        {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}}};
    const auto* const found = std::find_if(
        units.begin(), units.end(), [&](const Unit& unit) { return latest.count() >= unit.ns; });
    return found == units.end() ? units.back() : *found;
}

/// The gap between ranks stays wider than the strip between the rows of a rank, so that it is seen
/// what belongs together.
RowMetrics metrics_for(double row_height, const ShownBands& bands) {
    return {.row_height = row_height,
            .strip_height = std::max(12.0, std::floor(0.3 * row_height)),
            .memory_height = bands.memory ? std::max(16.0, std::floor(0.6 * row_height)) : 0,
            .link_height = bands.links ? std::max(14.0, std::floor(0.4 * row_height)) : 0,
            .gap = std::max(14.0, std::floor(0.5 * row_height))};
}

}  // namespace

Axis axis_ticks(const ViewTransform& view, double width, double min_spacing) {
    const TickStep step = tick_step(std::min(1e18, min_spacing * view.ns_per_pixel));
    const Duration last = std::max(Duration{0}, view.time_at(width));
    const Unit unit = unit_for(last);
    const int decimals =
        svg::tick_decimals(static_cast<double>(step.ns) / static_cast<double>(unit.ns));
    const std::int64_t part = step.ns / step.parts;
    const std::int64_t first = std::max<std::int64_t>(0, (view.origin.count() + part - 1) / part);

    Axis axis{.unit = unit.name, .ticks = {}};
    for (std::int64_t i = first; i * part <= last.count(); ++i) {
        const Duration time{i * part};
        const bool labelled = i % step.parts == 0;
        const double value = static_cast<double>(time.count()) / static_cast<double>(unit.ns);
        axis.ticks.push_back({.x = view.x_of(time),
                              .time = time,
                              .label = labelled ? fmt::format("{:.{}f}", value, decimals) : ""});
    }
    return axis;
}

const Row* RowLayout::row_at(double y) const {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
        return y >= row.y && y < row.y + row.height;
    });
    return found == rows.end() ? nullptr : &*found;
}

const Row* RowLayout::row_of(Side side, int rank) const {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
        return row.side == side && row.rank == rank;
    });
    return found == rows.end() ? nullptr : &*found;
}

std::optional<int> RowLayout::rank_at(double y) const {
    std::optional<int> found;
    double nearest = height + 1;
    const auto look = [&](int rank, double bottom) {
        if (y < bottom && bottom < nearest) {
            nearest = bottom;
            found = rank;
        }
    };
    for (const Row& row : rows) {
        look(row.rank, row.y + row.height);
    }
    for (const auto* const bands : {&strips, &curves, &links}) {
        for (const Band& band : *bands) {
            look(band.rank, band.y + band.height);
        }
    }
    return found;
}

double RowLayout::from_screen(double y, double scroll) const {
    return y < pinned_height ? y : y + scroll;
}

double RowLayout::on_screen(double y, double scroll) const {
    return y < pinned_height ? y : y - scroll;
}

Tracks tracks_of(int ranks) {
    Tracks tracks;
    for (int rank = 0; rank < ranks; ++rank) {
        tracks.push_back({.rank = rank});
    }
    return tracks;
}

namespace {

/// Puts one rank below the other.
class RowStack {
  public:
    RowStack(const Twin& twin, Mode mode, const RowMetrics& metrics)
        : twin_(twin), mode_(mode), metrics_(metrics) {}

    void add(const Track& track) {
        const bool predicted = twin_.row(Side::Predicted, 0, track.rank) != nullptr;
        const bool measured = twin_.row(Side::Measured, 0, track.rank) != nullptr;
        const bool both = predicted && measured;
        y_ += track.folded ? metrics_.gap / 2 : metrics_.gap;
        if (predicted && (!measured || shows(mode_, Side::Predicted))) {
            add_row(track, Side::Predicted);
        }
        if (both && mode_ == Mode::Error) {  // all that there is of the rank, folded or not
            add_band(layout_.strips,
                     track,
                     track.folded ? 2 * metrics_.folded_height : metrics_.row_height);
        } else if (both && mode_ == Mode::Both && !track.folded) {
            add_band(layout_.strips, track, metrics_.strip_height);
        }
        if (measured && (!predicted || shows(mode_, Side::Measured))) {
            add_row(track, Side::Measured);
        }
        if (metrics_.memory_height > 0 && !track.folded) {
            add_band(layout_.curves, track, metrics_.memory_height);
        }
        if (metrics_.link_height > 0 && !track.folded) {
            add_band(layout_.links, track, metrics_.link_height);
        }
    }

    void end_pinned() { layout_.pinned_height = y_ > 0 ? y_ + metrics_.gap / 2 : 0; }

    RowLayout finish() {
        layout_.height = y_ > 0 ? y_ + metrics_.gap : 0;
        return std::move(layout_);
    }

  private:
    void add_row(const Track& track, Side side) {
        const double height = track.folded ? metrics_.folded_height : metrics_.row_height;
        layout_.rows.push_back(
            {.rank = track.rank, .side = side, .y = y_, .height = height, .folded = track.folded});
        y_ += height;
    }

    void add_band(std::vector<Band>& bands, const Track& track, double height) {
        bands.push_back({.rank = track.rank, .y = y_, .height = height});
        y_ += height;
    }

    const Twin& twin_;
    Mode mode_;
    const RowMetrics& metrics_;
    RowLayout layout_;
    double y_ = 0;
};

}  // namespace

RowLayout layout_rows(const Twin& twin,
                      Mode mode,
                      const Tracks& tracks,
                      const RowMetrics& metrics) {
    RowStack stack(twin, mode, metrics);
    const auto add_all = [&](bool pinned) {
        for (const Track& track : tracks) {
            if (track.pinned == pinned && !track.hidden) {
                stack.add(track);
            }
        }
    };
    add_all(true);
    stack.end_pinned();
    add_all(false);
    return stack.finish();
}

RowMetrics filling(const Twin& twin,
                   Mode mode,
                   const Tracks& tracks,
                   const ShownBands& bands,
                   double height,
                   const RowHeights& rows) {
    for (int row = rows.most; row > rows.least; --row) {
        const RowMetrics metrics = metrics_for(row, bands);
        if (layout_rows(twin, mode, tracks, metrics).height <= height) {
            return metrics;
        }
    }
    return metrics_for(rows.least, bands);
}

}  // namespace pipetwin::gui
