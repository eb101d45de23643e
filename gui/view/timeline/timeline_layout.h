// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gui/view/run/twin.h"
#include "gui/view/run/view_transform.h"

/// From times to places on the screen: where rows, rectangles and ticks lie, and what is under the
/// mouse. Numbers in, numbers out - nothing here knows Qt, so all of it is tested without a window.
///
/// x counts pixels from the left edge of the time area, y from the top of the first row.
namespace pipetwin::gui {

/// A tick of the time axis.
struct Tick {
    double x = 0;
    Duration time{};
    std::string label;  ///< empty for the short ticks between labelled ones
};

/// The ticks of the time axis.
struct Axis {
    std::string unit;  ///< one for all labels: "ns", "us", "ms" or "s"
    std::vector<Tick> ticks;
};

/// Labelled ticks at 1, 2 or 5 times a power of ten, at least `min_spacing` pixels apart; short
/// ones between them where whole nanoseconds allow it. Only ticks at or after time 0.
Axis axis_ticks(const ViewTransform& view, double width, double min_spacing);

/// Heights of the parts of a rank, in pixels.
struct RowMetrics {
    double row_height = 24;
    double strip_height = 12;   ///< the error strip of a rank
    double memory_height = 24;  ///< its memory curve; 0: not shown
    double link_height = 0;     ///< its links; 0: not shown
    double gap = 16;            ///< above each rank, and below the last
    double folded_height = 8;   ///< of the rows of a folded rank
};

/// A rank among the others on the screen.
struct Track {
    int rank = 0;
    bool pinned = false;  ///< stays at the top when the others are scrolled
    bool folded = false;  ///< low rows, no strip, no memory
    bool hidden = false;

    bool operator==(const Track&) const = default;
};

/// All ranks from top to bottom: pinned ones first, each group in the order in which it was put.
using Tracks = std::vector<Track>;

/// The tracks of `ranks` ranks in order, all of them shown.
Tracks tracks_of(int ranks);

/// The row of a rank and a side.
struct Row {
    int rank = 0;
    Side side{};
    double y = 0;
    double height = 0;
    bool folded = false;
};

/// A part of a rank's room that holds no actions: its error strip, its memory curve, its links.
struct Band {
    int rank = 0;
    double y = 0;
    double height = 0;
};

/// Places of all rows and bands, in pixels.
struct RowLayout {
    std::vector<Row> rows;     ///< top to bottom
    std::vector<Band> strips;  ///< of errors; only where both sides are there
    std::vector<Band> curves;  ///< of memory
    std::vector<Band> links;   ///< only where messages pass over some
    double height = 0;         ///< of all of it, gaps included
    double pinned_height = 0;  ///< down to here it stays when the rest is scrolled

    /// The row at a place; null between rows and outside.
    const Row* row_at(double y) const;
    /// The row of a rank and a side; null where it is not shown.
    const Row* row_of(Side side, int rank) const;

    /// The rank whose room, gap included, a place is in; none below the last.
    std::optional<int> rank_at(double y) const;

    /// The place of the layout at a place on the screen, with the layout scrolled `scroll` pixels
    /// down.
    double from_screen(double y, double scroll) const;
    /// The place on the screen of a place of the layout.
    double on_screen(double y, double scroll) const;
};

/// Lays out the rows rank after rank: predicted, errors, measured, memory, links. What is missing
/// takes no room.
RowLayout layout_rows(const Twin& twin, Mode mode, const Tracks& tracks, const RowMetrics& metrics);

/// Least and largest height of a row, in pixels.
struct RowHeights {
    int least = 20;
    int most = 72;
};

/// Bands that are shown beside the rows.
struct ShownBands {
    bool memory = true;
    bool links = false;
};

/// The metrics with which the rows fill `height` as far as their limits allow; strip, memory, links
/// and gap grow with the rows.
RowMetrics filling(const Twin& twin,
                   Mode mode,
                   const Tracks& tracks,
                   const ShownBands& bands,
                   double height,
                   const RowHeights& rows);

}  // namespace pipetwin::gui
