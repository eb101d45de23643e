#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gui/twin.h"

/// From times to places on the screen: where rows, rectangles and ticks lie, and what is under the
/// mouse. Numbers in, numbers out - nothing here knows Qt, so all of it is tested without a window.
///
/// x counts pixels from the left edge of the time area, y from the top of the first row.
namespace pipetwin::gui {

/// Which time stands where.
struct ViewTransform {
    Duration origin{};           ///< the time at x = 0
    double ns_per_pixel = 1000;  ///< above 0

    double x_of(Duration time) const;
    Duration time_at(double x) const;

    /// Magnified `factor` times; the time under `x` stays there (to a nanosecond).
    ViewTransform zoomed(double factor, double x) const;

    /// Shows what lies `pixels` further right.
    ViewTransform panned(double pixels) const;

    bool operator==(const ViewTransform&) const = default;
};

/// Shows `begin` to `end` with a margin of 2 % on both sides. An empty range is shown as one of a
/// microsecond.
ViewTransform fitted(Duration begin, Duration end, double width);

/// The nearest view that does not lose the run: a pixel is at least a nanosecond, the window at
/// most twice as long as the run, and the window's middle lies inside the run.
ViewTransform clamped(const ViewTransform& view, Duration length, double width);

struct Tick {
    double x = 0;
    Duration time{};
    std::string label;  ///< empty for the short ticks between labelled ones
};

struct Axis {
    std::string unit;  ///< one for all labels: "ns", "us", "ms" or "s"
    std::vector<Tick> ticks;
};

/// Labelled ticks at 1, 2 or 5 times a power of ten, at least `min_spacing` pixels apart; short
/// ones between them where whole nanoseconds allow it. Only ticks at or after time 0.
Axis axis_ticks(const ViewTransform& view, double width, double min_spacing);

struct RowMetrics {
    double row_height = 24;
    double strip_height = 12;  ///< the error strip between the two rows of a rank
    double gap = 16;           ///< above each rank, and below the last
};

struct Row {
    int rank = 0;
    Side side{};
    double y = 0;
    double height = 0;
};

/// The error strip of a rank; only where both its rows are on the screen.
struct Strip {
    int rank = 0;
    double y = 0;
    double height = 0;
};

struct RowLayout {
    std::vector<Row> rows;  ///< top to bottom
    std::vector<Strip> strips;
    double height = 0;  ///< of all of it, gaps included

    /// Null between rows and outside.
    const Row* row_at(double y) const;
    const Row* row_of(Side side, int rank) const;
};

/// Rank after rank, predicted above measured. A side that is missing takes no room.
RowLayout layout_rows(const Twin& twin, Sides sides, const RowMetrics& metrics);

/// How high a row may be.
struct RowHeights {
    int least = 20;
    int most = 72;
};

/// The metrics with which the rows fill `height` as far as their limits allow; strip and gap grow
/// with the rows.
RowMetrics filling(const Twin& twin, Sides sides, double height, const RowHeights& rows);

enum class BoxKind {
    Action,    ///< a compute action, or the part of a message that is no wait
    Wait,      ///< the part of a message in which the rank waits
    Coalesced  ///< several pieces, each shorter than a pixel
};

/// A rectangle of a row, in whole pixels.
struct Box {
    BoxKind kind{};
    Op op{};       ///< Coalesced: the compute op that takes most of the time
    int cell = 0;  ///< Coalesced: the one with the longest piece
    int x = 0;
    int width = 0;       ///< at least 1
    double compute = 1;  ///< Coalesced: the share of its pixels in which the rank computes
};

/// The rectangles of a row between x = 0 and `width`, Coalesced ones first so that whole ones are
/// painted over them.
///
/// - An empty row, or one out of sight, has none.
/// - A span has up to two pieces: its wait (begin to ready) and the rest (ready to end).
/// - A piece without length has no rectangle.
/// - Pieces shorter than a pixel share one rectangle per pixel, which says how much of it is
/// compute: a row seen
///   from far away fades with its bubble instead of looking busy or empty. Neighbouring pixels that
///   look alike (same op, compute within 1/64) are one rectangle.
/// - Longer pieces are rounded to whole pixels, so that neighbours neither overlap nor leave a gap,
/// and cut at the
///   edges, so that no zoom overflows an int.
std::vector<Box> boxes_of(const std::vector<Span>& row, const ViewTransform& view, int width);

/// How far off the prediction of one action was, at the place where it was measured.
struct ErrorBar {
    int x = 0;
    int width = 0;
    double error =
        0;  ///< (predicted - measured) / measured duration: above 0 it was faster than predicted
};

/// One bar per compute action on both rows. Several that begin in one pixel share a bar with the
/// error of their sum: the worst of them would make a good prediction look bad from far away.
/// Actions that differ are left out.
std::vector<ErrorBar> error_bars_of(const std::vector<Span>& predicted,
                                    const std::vector<Span>& measured,
                                    const ViewTransform& view,
                                    int width);

/// The cell under `x`: the one that takes most of that pixel, else the nearest within 2 pixels.
std::optional<int> cell_at(const std::vector<Span>& row, const ViewTransform& view, double x);

/// The span under (x, y).
std::optional<SpanRef> hit(
    const Twin& twin, const RowLayout& layout, const ViewTransform& view, double x, double y);

}  // namespace pipetwin::gui
