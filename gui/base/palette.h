// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <vector>

#include <QColor>
#include <QPalette>

#include "core/schedule/action.h"

namespace pipetwin::gui {

enum class Theme {
    Light,
    Dark,
    HighContrast,
    Print  ///< black on white, for paper
};
inline constexpr std::array themes{Theme::Light, Theme::Dark, Theme::HighContrast, Theme::Print};

/// "light", "dark", "high-contrast", "print": in settings and on the command line.
QString name_of(Theme theme);

/// The theme of this name; none for what is no theme.
std::optional<Theme> theme_called(const QString& name);

/// Look of one kind of action. Colour is never alone: every kind also has its letter and its
/// hatching.
struct OpStyle {
    QColor fill;
    QColor hatch;  ///< lines of the hatching, a shade off the fill
    QColor text;   ///< black or white, at least 4.5 : 1 on fill and on hatch
    Qt::BrushStyle pattern = Qt::NoBrush;
    QString letter;
};

/// Every colour of the program. The hues are those of the report's pictures: Okabe and Ito, "Color
/// Universal Design" (2008), which stay apart for colour-blind readers.
struct Palette {
    Theme theme{};
    QColor window;      ///< behind panels and labels
    QColor background;  ///< behind the rows
    QColor row;         ///< ground of what is no action: of lists, and behind many short actions
    QColor grid;
    QColor text;
    QColor faint_text;       ///< second rank, but still at least 4.5 : 1 on window and background
    QColor idle_fill;        ///< idle time, waits included: one look wherever it is shown
    QColor idle_hatch;       ///< its lines, at least 3 : 1 on idle_fill, row, window and background
    QColor highlight_fill;   ///< idle time that is highlighted
    QColor highlight_hatch;  ///< its lines, at least 3 : 1 on highlight_fill
    QColor memory_fill;      ///< as measured
    QColor memory_line;      ///< as predicted
    QColor critical;         ///< the longest chain
    QColor found;            ///< by a search
    QColor selection;
    QColor faster;  ///< measured faster than predicted
    QColor slower;
    QColor skip;           ///< a skip message with an output
    QColor skip_gradient;  ///< a skip message with a gradient
    QColor banner;
    QColor banner_text;

    OpStyle style(Op op) const;
};

Palette palette_of(Theme theme);

/// The kinds of action in the order of the legend: F, B, I, W, R, REDUCE_GRAD, NORM, OPT, then
/// messages (one for all of them).
std::vector<Op> legend_ops();

/// The colours of Qt's own widgets.
QPalette widget_palette(const Palette& palette);

/// The colour of an edge that stands out by 3:1 (WCAG 2.1, 1.4.11) from window and ground; on a
/// black window, in high contrast, the colour of text.
QColor edge_color(const QPalette& colors);

/// Style sheet for what a palette of Qt's widgets cannot say: room in lists, scroll bars whose
/// handle is seen, and in high contrast white borders.
QString style_sheet(const Palette& palette);

/// Contrast of two colours by WCAG 2.1, from 1 (the same) to 21 (black on white).
double contrast_ratio(const QColor& a, const QColor& b);

/// `share` of `over` mixed into `under`, in the colour space of the screen.
QColor mixed(const QColor& under, const QColor& over, double share);

}  // namespace pipetwin::gui
