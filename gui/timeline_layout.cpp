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

/// Widens the last box by a pixel if the two look alike.
void append_alike(std::vector<Box>& boxes, const Box& box) {
    if (!boxes.empty()) {
        Box& last = boxes.back();
        const bool alike = last.op == box.op && std::abs(last.compute - box.compute) < alike_share;
        if (alike && last.x + last.width == box.x) {
            last.compute = (last.compute * last.width + box.compute) / (last.width + 1);
            ++last.width;
            return;
        }
    }
    boxes.push_back(box);
}

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
            append_alike(coalesced_, column_.box());
        }
        column_ = Column(-1);
    }

    int width_;
    Column column_{-1};
    std::vector<Box> coalesced_;
    std::vector<Box> whole_;
};

/// Cells of a row: from the first one that ends in sight to the first one that begins behind.
struct CellRange {
    int first = 0;
    int last = 0;
};

CellRange in_sight(const RowIndex& row, const ViewTransform& view, double left, double right) {
    const int first = row.first_ending_after(view.time_at(left));
    const int behind = row.first_ending_after(view.time_at(right));
    return {.first = first, .last = std::min(row.size(), behind + 1)};
}

/// From this many to a pixel on, pieces are drawn from bins.
constexpr int crowd = 16;

bool is_crowd(const CellRange& cells, int width) {
    return cells.last - cells.first > crowd * width;
}

/// The pixels that a row has something in, of those between 0 and `width`.
struct PixelRange {
    int left = 0;
    int right = 0;

    int width() const { return right - left; }
};

PixelRange pixels_of(const RowIndex& row,
                     const CellRange& cells,
                     const ViewTransform& view,
                     int width) {
    if (cells.last <= cells.first) {
        return {};
    }
    const double first = std::floor(view.x_of(row.begin(cells.first)));
    const double last = std::ceil(view.x_of(row.end(cells.last - 1)));
    return {.left = static_cast<int>(std::clamp(first, 0.0, static_cast<double>(width))),
            .right = static_cast<int>(std::clamp(last, 0.0, static_cast<double>(width)))};
}

/// The gap between ranks stays wider than the strip between the rows of a rank, so that it is seen
/// what belongs together.
RowMetrics metrics_for(double row_height, bool memory) {
    return {.row_height = row_height,
            .strip_height = std::max(12.0, std::floor(0.3 * row_height)),
            .memory_height = memory ? std::max(16.0, std::floor(0.6 * row_height)) : 0,
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
    for (const auto* const bands : {&strips, &curves}) {
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
        if (both && (mode_ == Mode::Both || mode_ == Mode::Error) && !track.folded) {
            const double height =
                mode_ == Mode::Error ? metrics_.row_height : metrics_.strip_height;
            add_band(layout_.strips, track, height);
        }
        if (measured && (!predicted || shows(mode_, Side::Measured))) {
            add_row(track, Side::Measured);
        }
        if (metrics_.memory_height > 0 && !track.folded) {
            add_band(layout_.curves, track, metrics_.memory_height);
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
                   bool memory,
                   double height,
                   const RowHeights& rows) {
    for (int row = rows.most; row > rows.least; --row) {
        const RowMetrics metrics = metrics_for(row, memory);
        if (layout_rows(twin, mode, tracks, metrics).height <= height) {
            return metrics;
        }
    }
    return metrics_for(rows.least, memory);
}

namespace {

/// The op that takes most of the compute; of what takes none, the first.
Op main_op(const PerPart<float>& share) {
    RowPart most = RowPart::Forward;
    for (int part = 0; part < row_part_count; ++part) {
        const auto candidate = static_cast<RowPart>(part);
        if (candidate != RowPart::Wait && share[candidate] > share[most]) {
            most = candidate;
        }
    }
    return op_of(most);
}

/// Nothing where the bins are coarser than a pixel.
std::optional<std::vector<Box>> boxes_from_bins(const RowIndex& row,
                                                const ViewTransform& view,
                                                const PixelRange& pixels) {
    std::vector<RowIndex::Column> columns(static_cast<std::size_t>(pixels.width()));
    if (!row.columns(view.time_at(pixels.left), view.ns_per_pixel, columns)) {
        return std::nullopt;
    }
    std::vector<Box> boxes;
    for (int x = pixels.left; x < pixels.right; ++x) {
        const PerPart<float>& share = columns[static_cast<std::size_t>(x - pixels.left)].share;
        double compute = 0;
        for (int part = 0; is_compute(static_cast<RowPart>(part)); ++part) {
            compute += static_cast<double>(share.of[static_cast<std::size_t>(part)]);
        }
        const bool anything =
            std::ranges::any_of(share.of, [](float part) { return part > 0.002F; });
        if (anything) {
            append_alike(boxes,
                         {.kind = BoxKind::Coalesced,
                          .op = main_op(share),
                          .cell = -1,
                          .x = x,
                          .width = 1,
                          .compute = std::min(1.0, compute)});
        }
    }
    return boxes;
}

}  // namespace

std::vector<Box> boxes_of(const RowIndex& row, const ViewTransform& view, int width) {
    const CellRange cells = in_sight(row, view, 0, width);
    const PixelRange pixels = pixels_of(row, cells, view, width);
    if (is_crowd(cells, pixels.width())) {
        if (auto boxes = boxes_from_bins(row, view, pixels)) {
            return *std::move(boxes);
        }
    }
    BoxBuilder builder(width);
    for (int cell = cells.first; cell < cells.last; ++cell) {
        const Span span = row[cell];
        const double ready = view.x_of(span.ready);
        builder.add({BoxKind::Wait, span.action.op, cell, view.x_of(span.begin), ready});
        builder.add({BoxKind::Action, span.action.op, cell, ready, view.x_of(span.end)});
    }
    return builder.finish();
}

namespace {

/// A bar for every pixel, from sums over the actions that begin in it.
std::vector<ErrorBar> crowded_error_bars(const RowIndex& predicted,
                                         const RowIndex& measured,
                                         const ViewTransform& view,
                                         const PixelRange& pixels) {
    std::vector<ErrorBar> bars;
    int cell = measured.first_ending_after(view.time_at(pixels.left));
    Duration expected_before = predicted.compute_before(cell);
    Duration length_before = measured.compute_before(cell);
    for (int x = pixels.left; x < pixels.right; ++x) {
        cell = measured.first_ending_after(view.time_at(x + 1));
        const Duration expected = predicted.compute_before(cell) - expected_before;
        const Duration length = measured.compute_before(cell) - length_before;
        if (length > Duration{0}) {
            const double error = count(expected - length) / count(length);
            bars.push_back({.x = x, .width = 1, .error = error});
        }
        expected_before += expected;
        length_before += length;
    }
    return bars;
}

}  // namespace

std::vector<ErrorBar> error_bars_of(const RowIndex& predicted,
                                    const RowIndex& measured,
                                    const ViewTransform& view,
                                    int width) {
    const auto to_pixel = [&](Duration time) {
        return static_cast<int>(std::lround(std::clamp(view.x_of(time), -1.0, width + 1.0)));
    };
    CellRange cells = in_sight(measured, view, 0, width);
    cells.last = std::min(cells.last, predicted.size());
    const PixelRange pixels = pixels_of(measured, cells, view, width);
    if (is_crowd(cells, pixels.width()) && measured.size() == predicted.size()) {
        return crowded_error_bars(predicted, measured, view, pixels);
    }
    std::vector<ErrorBar> bars;
    Duration expected{0};  // of all actions in the last bar
    Duration length{0};
    for (int cell = cells.first; cell < cells.last; ++cell) {
        const Span there = measured[cell];
        const Span here = predicted[cell];
        if (!is_compute(there.action.op) || here.action != there.action) {
            continue;
        }
        const int x = to_pixel(there.begin);
        if (bars.empty() || bars.back().x != x) {
            bars.push_back({.x = x, .width = 1, .error = 0});
            expected = length = Duration{0};
        }
        expected += here.end - here.begin;
        length += there.end - there.begin;
        bars.back().width = std::max(1, to_pixel(there.end) - x);
        bars.back().error = length > Duration{0} ? count(expected - length) / count(length) : 0;
    }
    return bars;
}

std::optional<int> cell_at(const RowIndex& row, const ViewTransform& view, double x) {
    const double left = std::floor(x);
    const double right = left + 1;
    std::optional<int> best;
    double best_score = -hit_tolerance;  // pixels covered, or minus the distance
    const CellRange cells = in_sight(row, view, left - hit_tolerance, right + hit_tolerance);
    for (int cell = cells.first; cell < cells.last; ++cell) {
        const double begin = view.x_of(row.begin(cell));
        const double end = view.x_of(row.end(cell));
        const double score = std::min(end, right) - std::max(begin, left);
        if (row.takes_time(cell) && score > best_score) {
            best_score = score;
            best = cell;
        }
    }
    return best;
}

}  // namespace pipetwin::gui
