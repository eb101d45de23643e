#include "gui/timeline_layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace pipetwin::gui {

namespace {

constexpr double margin_share = 0.02;
constexpr double min_ns_per_pixel = 1;
constexpr double hit_tolerance = 2;
constexpr double alike_share = 1.0 / 64;
constexpr std::size_t op_count = static_cast<std::size_t>(Op::Optimizer) + 1;

/// To whole nanoseconds; far outside any run (30 years) where the place is, so that no sum
/// overflows.
Duration rounded(double nanoseconds) {
    return Duration{std::llround(std::clamp(nanoseconds, -1e18, 1e18))};
}

double count(Duration duration) {
    return static_cast<double>(duration.count());
}

/// A step of the axis: 1, 2 or 5 times a power of ten nanoseconds.
struct TickStep {
    std::int64_t ns = 1;
    std::int64_t parts = 1;  ///< short ticks between two labelled ones, plus one
};

TickStep tick_step(double min_ns) {
    for (std::int64_t power = 1;; power *= 10) {
        for (const auto& [factor, parts] : {std::pair{1, 5}, {2, 4}, {5, 5}}) {
            const std::int64_t step = power * factor;
            if (static_cast<double>(step) >= min_ns) {
                return {.ns = step, .parts = step % parts == 0 ? parts : 1};
            }
        }
    }
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

int decimals_for(std::int64_t step, std::int64_t unit) {
    int decimals = 0;
    for (; step % unit != 0; unit /= 10) {
        ++decimals;
    }
    return decimals;
}

/// A part of a span that is painted alike.
struct Piece {
    BoxKind kind{};
    Op op{};
    int cell = 0;
    double begin = 0;  ///< in pixels, not rounded
    double end = 0;
};

/// Sums up the pieces of one pixel column that are too short to be seen alone.
class Column {
  public:
    explicit Column(int x) : x_(x) {}

    int x() const { return x_; }

    void add(const Piece& piece, double pixels) {
        if (is_compute(piece.op)) {
            of_op_[static_cast<std::size_t>(piece.op)] += pixels;
            compute_ += pixels;
        }
        if (pixels > longest_) {
            longest_ = pixels;
            longest_cell_ = piece.cell;
        }
    }

    bool empty() const { return longest_ <= 0; }

    Box box() const {
        const auto* const most = std::max_element(of_op_.begin(), of_op_.end());
        return {.kind = BoxKind::Coalesced,
                .op = static_cast<Op>(most - of_op_.begin()),
                .cell = longest_cell_,
                .x = x_,
                .width = 1,
                .compute = std::min(1.0, compute_)};
    }

  private:
    int x_;
    std::array<double, op_count> of_op_{};
    double compute_ = 0;
    double longest_ = 0;
    int longest_cell_ = 0;
};

/// Turns the pieces of a row, given in the order of time, into rectangles.
class BoxBuilder {
  public:
    explicit BoxBuilder(int width) : width_(width) {}

    void add(const Piece& piece) {
        if (piece.end <= piece.begin || piece.end <= 0 || piece.begin >= width_) {
            return;
        }
        if (piece.end - piece.begin < 1) {
            add_short(piece);
        } else {
            add_whole(piece);
        }
    }

    std::vector<Box> finish() {
        flush();
        coalesced_.insert(coalesced_.end(), whole_.begin(), whole_.end());
        return std::move(coalesced_);
    }

  private:
    /// A piece shorter than a pixel lies in one column or across two.
    void add_short(const Piece& piece) {
        const int first = static_cast<int>(std::floor(piece.begin));
        const double border = first + 1;
        add_to_column(first, piece, std::min(piece.end, border) - piece.begin);
        if (piece.end > border) {
            add_to_column(first + 1, piece, piece.end - border);
        }
    }

    void add_to_column(int x, const Piece& piece, double pixels) {
        if (x < 0 || x >= width_) {
            return;
        }
        if (x != column_.x()) {
            flush();
            column_ = Column(x);
        }
        column_.add(piece, pixels);
    }

    void add_whole(const Piece& piece) {
        // One pixel more than is seen on either side, so that a cut rectangle shows no edge.
        const auto to_pixel = [&](double x) {
            return static_cast<int>(std::lround(std::clamp(x, -1.0, width_ + 1.0)));
        };
        const int left = to_pixel(piece.begin);
        const int right = std::max(left + 1, to_pixel(piece.end));
        whole_.push_back({piece.kind, piece.op, piece.cell, left, right - left});
    }

    void flush() {
        if (!column_.empty()) {
            append(column_.box());
        }
        column_ = Column(-1);
    }

    /// Widens the box before it if the two look alike.
    void append(const Box& box) {
        if (!coalesced_.empty()) {
            Box& last = coalesced_.back();
            const bool alike =
                last.op == box.op && std::abs(last.compute - box.compute) < alike_share;
            if (alike && last.x + last.width == box.x) {
                last.compute = (last.compute * last.width + box.compute) / (last.width + 1);
                ++last.width;
                return;
            }
        }
        coalesced_.push_back(box);
    }

    int width_;
    Column column_{-1};
    std::vector<Box> coalesced_;
    std::vector<Box> whole_;
};

using RowIterator = std::vector<Span>::const_iterator;

/// The first span that ends after the time at `x`. Spans of a row follow each other, so all before
/// it are out of sight.
RowIterator first_after(const std::vector<Span>& row, const ViewTransform& view, double x) {
    return std::partition_point(
        row.begin(), row.end(), [&](const Span& span) { return view.x_of(span.end) <= x; });
}

/// The gap between ranks stays wider than the strip between the rows of a rank, so that it is seen
/// what belongs together.
RowMetrics metrics_for(double row_height) {
    return {.row_height = row_height,
            .strip_height = std::max(12.0, std::floor(0.3 * row_height)),
            .gap = std::max(14.0, std::floor(0.5 * row_height))};
}

}  // namespace

double ViewTransform::x_of(Duration time) const {
    return count(time - origin) / ns_per_pixel;
}

Duration ViewTransform::time_at(double x) const {
    return origin + rounded(x * ns_per_pixel);
}

ViewTransform ViewTransform::zoomed(double factor, double x) const {
    const double finer = ns_per_pixel / factor;
    return {.origin = origin + rounded(x * (ns_per_pixel - finer)), .ns_per_pixel = finer};
}

ViewTransform ViewTransform::panned(double pixels) const {
    return {.origin = time_at(pixels), .ns_per_pixel = ns_per_pixel};
}

ViewTransform fitted(Duration begin, Duration end, double width) {
    const Duration length = end > begin ? end - begin : Duration{1000};
    const double ns_per_pixel = count(length) * (1 + 2 * margin_share) / std::max(1.0, width);
    return {.origin = begin - rounded(count(length) * margin_share), .ns_per_pixel = ns_per_pixel};
}

ViewTransform clamped(const ViewTransform& view, Duration length, double width) {
    const double run = std::max(1.0, count(length));
    const double pixels = std::max(1.0, width);
    const double coarsest = std::max(min_ns_per_pixel, 2 * run / pixels);
    const double scale = std::clamp(view.ns_per_pixel, min_ns_per_pixel, coarsest);
    const double half = scale * pixels / 2;
    const double middle = std::clamp(count(view.origin) + half, 0.0, run);
    return {.origin = rounded(middle - half), .ns_per_pixel = scale};
}

Axis axis_ticks(const ViewTransform& view, double width, double min_spacing) {
    const TickStep step = tick_step(std::min(1e18, min_spacing * view.ns_per_pixel));
    const Duration last = std::max(Duration{0}, view.time_at(width));
    const Unit unit = unit_for(last);
    const int decimals = decimals_for(step.ns, unit.ns);
    const std::int64_t part = step.ns / step.parts;
    const std::int64_t first = std::max<std::int64_t>(0, (view.origin.count() + part - 1) / part);

    Axis axis{.unit = unit.name, .ticks = {}};
    for (std::int64_t i = first; i * part <= last.count(); ++i) {
        const Duration time{i * part};
        const bool labelled = i % step.parts == 0;
        const double value = count(time) / static_cast<double>(unit.ns);
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

RowLayout layout_rows(const Twin& twin, Sides sides, const RowMetrics& metrics) {
    RowLayout layout;
    double y = 0;
    for (int rank = 0; rank < twin.rank_count(); ++rank) {
        y += metrics.gap;
        const auto add_row = [&](Side side) {
            layout.rows.push_back(
                {.rank = rank, .side = side, .y = y, .height = metrics.row_height});
            y += metrics.row_height;
        };
        const bool predicted =
            shows(sides, Side::Predicted) && twin.row(Side::Predicted, rank) != nullptr;
        const bool measured =
            shows(sides, Side::Measured) && twin.row(Side::Measured, rank) != nullptr;
        if (predicted) {
            add_row(Side::Predicted);
        }
        if (predicted && measured) {
            layout.strips.push_back({.rank = rank, .y = y, .height = metrics.strip_height});
            y += metrics.strip_height;
        }
        if (measured) {
            add_row(Side::Measured);
        }
    }
    layout.height = layout.rows.empty() ? 0 : y + metrics.gap;
    return layout;
}

RowMetrics filling(const Twin& twin, Sides sides, double height, const RowHeights& rows) {
    for (int row = rows.most; row > rows.least; --row) {
        const RowMetrics metrics = metrics_for(row);
        if (layout_rows(twin, sides, metrics).height <= height) {
            return metrics;
        }
    }
    return metrics_for(rows.least);
}

std::vector<Box> boxes_of(const std::vector<Span>& row, const ViewTransform& view, int width) {
    BoxBuilder builder(width);
    for (auto at = first_after(row, view, 0); at != row.end(); ++at) {
        const double begin = view.x_of(at->begin);
        if (begin >= width) {
            break;
        }
        const double ready = view.x_of(at->ready);
        const int cell = static_cast<int>(at - row.begin());
        builder.add({BoxKind::Wait, at->action.op, cell, begin, ready});
        builder.add({BoxKind::Action, at->action.op, cell, ready, view.x_of(at->end)});
    }
    return builder.finish();
}

std::vector<ErrorBar> error_bars_of(const std::vector<Span>& predicted,
                                    const std::vector<Span>& measured,
                                    const ViewTransform& view,
                                    int width) {
    const auto to_pixel = [&](Duration time) {
        return static_cast<int>(std::lround(std::clamp(view.x_of(time), -1.0, width + 1.0)));
    };
    std::vector<ErrorBar> bars;
    Duration expected{0};  // of all actions in the last bar
    Duration length{0};
    for (auto at = first_after(measured, view, 0); at != measured.end(); ++at) {
        const auto cell = static_cast<std::size_t>(at - measured.begin());
        if (view.x_of(at->begin) >= width || cell >= predicted.size()) {
            break;
        }
        if (!is_compute(at->action.op) || predicted[cell].action != at->action) {
            continue;
        }
        const int x = to_pixel(at->begin);
        if (bars.empty() || bars.back().x != x) {
            bars.push_back({.x = x, .width = 1, .error = 0});
            expected = length = Duration{0};
        }
        expected += predicted[cell].end - predicted[cell].begin;
        length += at->end - at->begin;
        bars.back().width = std::max(1, to_pixel(at->end) - x);
        bars.back().error = length > Duration{0} ? count(expected - length) / count(length) : 0;
    }
    return bars;
}

std::optional<int> cell_at(const std::vector<Span>& row, const ViewTransform& view, double x) {
    const double left = std::floor(x);
    const double right = left + 1;
    std::optional<int> best;
    double best_score = -hit_tolerance;  // pixels covered, or minus the distance
    for (auto at = first_after(row, view, left - hit_tolerance); at != row.end(); ++at) {
        const double begin = view.x_of(at->begin);
        const double end = view.x_of(at->end);
        if (begin > right + hit_tolerance) {
            break;
        }
        const double score = std::min(end, right) - std::max(begin, left);
        if (at->end > at->begin && score > best_score) {
            best_score = score;
            best = static_cast<int>(at - row.begin());
        }
    }
    return best;
}

std::optional<SpanRef> hit(
    const Twin& twin, const RowLayout& layout, const ViewTransform& view, double x, double y) {
    const Row* const row = layout.row_at(y);
    const std::vector<Span>* const spans =
        row == nullptr ? nullptr : twin.row(row->side, row->rank);
    const std::optional<int> cell = spans == nullptr ? std::nullopt : cell_at(*spans, view, x);
    if (!cell) {
        return std::nullopt;
    }
    return SpanRef{.side = row->side, .rank = row->rank, .cell = *cell};
}

}  // namespace pipetwin::gui
