// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/row_boxes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>

#include "core/base/as_index.h"

namespace pipetwin::gui {

namespace {

constexpr double hit_tolerance = 2;
constexpr double alike_share = 1.0 / 64;
constexpr float least_share = 0.002F;  // of a pixel that shows anything

double count(Duration duration) {
    return static_cast<double>(duration.count());
}

/// To the nearest whole number; a half away from zero.
int rounded(double x) {
    return static_cast<int>(x < 0 ? x - 0.5 : x + 0.5);
}

/// A part of a span that is painted alike.
struct Piece {
    BoxKind kind{};
    Op op{};
    int cell = 0;
    double begin = 0;  ///< in pixels, not rounded
    double end = 0;
};

constexpr std::size_t compute_parts = as_index(RowPart::Recompute) + 1;
using ComputeShares = std::array<double, compute_parts>;  // of a pixel

/// Chooses the op that each pixel shows of those that share it. Neighbouring pixels take turns:
/// over many, each op has as many pixels as its share of the compute.
class OpOfPixels {
  public:
    Op choose(int x, const ComputeShares& shares) {
        if (x != last_ + 1) {
            owed_.fill(0);
        }
        last_ = x;
        std::size_t chosen = 0;
        double all = 0;
        for (std::size_t part = 0; part < compute_parts; ++part) {
            all += shares[part];
            owed_[part] += shares[part];
            const bool more = shares[chosen] == 0 || owed_[part] > owed_[chosen];
            chosen = shares[part] > 0 && more ? part : chosen;
        }
        owed_[chosen] -= all;
        return op_of(static_cast<RowPart>(chosen));
    }

  private:
    int last_ = -2;
    ComputeShares owed_{};
};

double sum_of(const ComputeShares& shares) {
    return std::min(1.0, std::accumulate(shares.begin(), shares.end(), 0.0));
}

/// Sums up the pieces of one pixel column that are too short to be seen alone.
class Column {
  public:
    int x() const { return x_; }

    void restart(int x) {
        x_ = x;
        shares_.fill(0);
        longest_ = 0;
    }

    void add(const Piece& piece, double pixels) {
        if (is_compute(piece.op)) {
            shares_[as_index(part_of(piece.op))] += pixels;
        }
        if (pixels > longest_) {
            longest_ = pixels;
            longest_cell_ = piece.cell;
        }
    }

    bool empty() const { return longest_ <= 0; }

    Box box(OpOfPixels& ops) const {
        return {.kind = BoxKind::Coalesced,
                .op = ops.choose(x_, shares_),
                .cell = longest_cell_,
                .x = x_,
                .width = 1,
                .compute = sum_of(shares_)};
    }

  private:
    int x_ = -1;
    ComputeShares shares_{};
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
    /// Coalesced boxes go to `boxes`, whole ones after them when all are there.
    BoxBuilder(int width, std::vector<Box>& boxes) : width_(width), coalesced_(boxes) {}

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

    void finish() {
        flush();
        coalesced_.insert(coalesced_.end(), whole_.begin(), whole_.end());
    }

  private:
    /// A piece shorter than a pixel lies in one column or across two.
    void add_short(const Piece& piece) {
        const int first = piece.begin < 0 ? -1 : static_cast<int>(piece.begin);
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
            column_.restart(x);
        }
        column_.add(piece, pixels);
    }

    void add_whole(const Piece& piece) {
        // One pixel more than is seen on either side, so that a cut rectangle shows no edge.
        const auto to_pixel = [&](double x) { return rounded(std::clamp(x, -1.0, width_ + 1.0)); };
        const int left = to_pixel(piece.begin);
        const int right = std::max(left + 1, to_pixel(piece.end));
        whole_.push_back({piece.kind, piece.op, piece.cell, left, right - left});
    }

    void flush() {
        if (!column_.empty()) {
            append_alike(coalesced_, column_.box(ops_));
        }
    }

    int width_;
    Column column_;
    OpOfPixels ops_;
    std::vector<Box>& coalesced_;
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

/// Many cells to a pixel, though no crowd.
bool is_dense(const CellRange& cells, int width) {
    return cells.last - cells.first > 2 * width;
}

/// ViewTransform::x_of without its division, which takes as long as all else about a piece; what it
/// rounds better is not seen where rows are dense.
class NearlyPlaced {
  public:
    explicit NearlyPlaced(const ViewTransform& view)
        : origin_(view.origin), pixels_per_ns_(1 / view.ns_per_pixel) {}

    double operator()(Duration time) const { return count(time - origin_) * pixels_per_ns_; }

  private:
    Duration origin_;
    double pixels_per_ns_;
};

/// The pixels between 0 and `width` in which a row has something.
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

}  // namespace

namespace {

/// False where the bins are coarser than a pixel.
bool add_boxes_from_bins(const RowIndex& row,
                         const ViewTransform& view,
                         const PixelRange& pixels,
                         std::vector<Box>& boxes) {
    thread_local std::vector<RowIndex::Column> columns;
    columns.resize(as_index(pixels.width()));
    if (!row.columns(view.time_at(pixels.left), view.ns_per_pixel, columns)) {
        return false;
    }
    OpOfPixels ops;
    for (int x = pixels.left; x < pixels.right; ++x) {
        const auto& share = columns[as_index(x - pixels.left)].share.of;
        if (*std::ranges::max_element(share) > least_share) {
            ComputeShares compute;
            std::copy_n(share.begin(), compute_parts, compute.begin());
            append_alike(boxes,
                         {.kind = BoxKind::Coalesced,
                          .op = ops.choose(x, compute),
                          .cell = -1,
                          .x = x,
                          .width = 1,
                          .compute = sum_of(compute)});
        }
    }
    return true;
}

}  // namespace

void boxes_of(const RowIndex& row, const ViewTransform& view, int width, std::vector<Box>& boxes) {
    boxes.clear();
    const CellRange cells = in_sight(row, view, 0, width);
    const PixelRange pixels = pixels_of(row, cells, view, width);
    if (is_crowd(cells, pixels.width()) && add_boxes_from_bins(row, view, pixels, boxes)) {
        return;
    }
    BoxBuilder builder(width, boxes);
    const auto add_cells = [&](const auto& x_of) {
        for (int cell = cells.first; cell < cells.last; ++cell) {
            if (!row.takes_time(cell)) {
                continue;
            }
            const Op op = row.op(cell);
            const double ready = x_of(row.ready(cell));
            if (row.waits(cell)) {
                builder.add({BoxKind::Wait, op, cell, x_of(row.begin(cell)), ready});
            }
            builder.add({BoxKind::Action, op, cell, ready, x_of(row.end(cell))});
        }
    };
    if (is_dense(cells, width)) {
        add_cells(NearlyPlaced(view));
    } else {
        add_cells([&view](Duration time) { return view.x_of(time); });
    }
    builder.finish();
}

std::vector<Box> boxes_of(const RowIndex& row, const ViewTransform& view, int width) {
    std::vector<Box> boxes;
    boxes_of(row, view, width, boxes);
    return boxes;
}

namespace {

/// A bar for every pixel, from sums over the actions that begin in it, or nearly.
void add_crowded_error_bars(const RowIndex& predicted,
                            const RowIndex& measured,
                            const ViewTransform& view,
                            const PixelRange& pixels,
                            std::vector<ErrorBar>& bars) {
    int slot = measured.slot_at(view.time_at(pixels.left));
    Duration before = predicted.compute_before(measured.cell_of_slot(slot));
    for (int x = pixels.left; x < pixels.right; ++x) {
        const int next = measured.slot_at(view.time_at(x + 1));
        const double length = measured.compute_of_slots(slot, next);
        const Duration after = predicted.compute_before(measured.cell_of_slot(next));
        if (length > 0) {
            const double expected = count(after - before);
            bars.push_back({.x = x, .width = 1, .error = (expected - length) / length});
        }
        slot = next;
        before = after;
    }
}

/// A bar for every action, or for those that begin in one pixel.
template <class Place>
void add_error_bars(const RowIndex& predicted,
                    const RowIndex& measured,
                    const Place& x_of,
                    const CellRange& cells,
                    int width,
                    std::span<const int> twins,
                    const SideDispatch& dispatch,
                    std::vector<ErrorBar>& bars) {
    const auto to_pixel = [&](Duration time) {
        return rounded(std::clamp(x_of(time), -1.0, width + 1.0));
    };
    Duration expected{0};  // of all actions in the last bar
    Duration length{0};
    const auto finish_bar = [&] {
        if (length > Duration{0}) {
            bars.back().error = count(expected - length) / count(length);
        }
    };
    for (int cell = cells.first; cell < cells.last; ++cell) {
        const int twin = twins.empty() ? cell : twins[as_index(cell)];
        if (!is_compute(measured.op(cell)) || twin < 0) {
            continue;
        }
        const Duration begin = measured.begin(cell);
        const Duration end = measured.end(cell);
        const int x = to_pixel(begin);
        if (bars.empty() || bars.back().x != x) {
            finish_bar();
            bars.push_back({.x = x, .width = 1, .error = 0});
            expected = length = Duration{0};
        }
        const auto without = [](Duration host, Duration time) {
            return time - std::min(host, time);
        };
        expected += without(dispatch.predicted, predicted.end(twin) - predicted.begin(twin));
        length += without(dispatch.measured, end - begin);
        bars.back().width = std::max(1, to_pixel(end) - x);
    }
    finish_bar();
}

}  // namespace

void error_bars_of(const RowIndex& predicted,
                   const RowIndex& measured,
                   const ViewTransform& view,
                   int width,
                   std::span<const int> twins,
                   const SideDispatch& dispatch,
                   std::vector<ErrorBar>& bars) {
    bars.clear();
    const CellRange cells = in_sight(measured, view, 0, width);
    const PixelRange pixels = pixels_of(measured, cells, view, width);
    const bool has_slots =
        measured.slot_count() > 0 && count(measured.slot_length()) < view.ns_per_pixel;
    if (is_crowd(cells, pixels.width()) && has_slots && twins.empty() && !dispatch.any()) {
        add_crowded_error_bars(predicted, measured, view, pixels, bars);
    } else if (is_dense(cells, width)) {
        add_error_bars(
            predicted, measured, NearlyPlaced(view), cells, width, twins, dispatch, bars);
    } else {
        const auto x_of = [&view](Duration time) { return view.x_of(time); };
        add_error_bars(predicted, measured, x_of, cells, width, twins, dispatch, bars);
    }
}

std::vector<ErrorBar> error_bars_of(const RowIndex& predicted,
                                    const RowIndex& measured,
                                    const ViewTransform& view,
                                    int width,
                                    std::span<const int> twins,
                                    const SideDispatch& dispatch) {
    std::vector<ErrorBar> bars;
    error_bars_of(predicted, measured, view, width, twins, dispatch, bars);
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
