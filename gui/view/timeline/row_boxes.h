// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "gui/view/timeline/timeline_layout.h"

/// From the actions of a row to the rectangles that stand for them.
namespace pipetwin::gui {

/// Kind of a rectangle.
enum class BoxKind {
    Action,    ///< a compute action, or the part of a message that is no wait
    Wait,      ///< the part of a message in which the rank waits
    Coalesced  ///< several pieces, each shorter than a pixel
};

/// A rectangle of a row, in whole pixels.
struct Box {
    BoxKind kind{};
    Op op{};       ///< Coalesced: one of the compute ops; over many pixels by their shares
    int cell = 0;  ///< Coalesced: the one with the longest piece; -1 where that is not known
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
///   from far away fades with its bubble instead of looking busy or empty. Where several compute
///   ops share pixels, neighbours take turns, each op as often as its share. Neighbouring pixels
///   that look alike (same op, compute within 1/64) are one rectangle.
/// - Longer pieces are rounded to whole pixels, so that neighbours neither overlap nor leave a gap,
/// and cut at the
///   edges, so that no zoom overflows an int.
/// - Where thousands of pieces share each pixel, their shares come from the row's bins.
std::vector<Box> boxes_of(const RowIndex& row, const ViewTransform& view, int width);

/// Computes the rectangles of a row, which replace the content of `boxes`.
void boxes_of(const RowIndex& row, const ViewTransform& view, int width, std::vector<Box>& boxes);

/// Error of the prediction of one action, at the place where it was measured.
struct ErrorBar {
    int x = 0;
    int width = 0;
    double error =
        0;  ///< (predicted - measured) / measured duration: above 0 it was faster than predicted
};

/// Host time that each compute action of a side includes.
struct SideDispatch {
    Duration predicted{};
    Duration measured{};

    bool any() const { return predicted > Duration{} || measured > Duration{}; }
};

/// One bar per compute action on both rows. Several that begin in one pixel share a bar with the
/// error of their sum: the worst of them would make a good prediction look bad from far away.
/// `twins`: for each measured cell the predicted one, -1 for none; empty for rows of the same
/// actions. `dispatch`: what each compute action includes and the errors leave out.
std::vector<ErrorBar> error_bars_of(const RowIndex& predicted,
                                    const RowIndex& measured,
                                    const ViewTransform& view,
                                    int width,
                                    std::span<const int> twins = {},
                                    const SideDispatch& dispatch = {});

/// Computes the bars of a row, which replace the content of `bars`.
void error_bars_of(const RowIndex& predicted,
                   const RowIndex& measured,
                   const ViewTransform& view,
                   int width,
                   std::span<const int> twins,
                   const SideDispatch& dispatch,
                   std::vector<ErrorBar>& bars);

/// The cell under `x`: the one that takes most of that pixel, else the nearest within 2 pixels.
std::optional<int> cell_at(const RowIndex& row, const ViewTransform& view, double x);

}  // namespace pipetwin::gui
