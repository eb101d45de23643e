// SPDX-License-Identifier: Apache-2.0
#include "gui/base/palette.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/svg/skip_curves.h"
#include "core/svg/svg_pieces.h"

namespace pipetwin::gui {

namespace {

/// Black or white, whichever is read better on both colours.
QColor text_on(const QColor& fill, const QColor& hatch) {
    const auto worst = [&](const QColor& text) {
        return std::min(contrast_ratio(text, fill), contrast_ratio(text, hatch));
    };
    const QColor black(Qt::black);
    const QColor white(Qt::white);
    return worst(black) >= worst(white) ? black : white;
}

struct OpLook {
    Qt::BrushStyle pattern;
    const char* letter;
};

OpLook look_of(Op op) {
    switch (op) {
        case Op::Forward:
            return {Qt::NoBrush, "F"};
        case Op::Backward:
            return {Qt::BDiagPattern, "B"};
        case Op::BackwardInput:
            return {Qt::FDiagPattern, "I"};
        case Op::BackwardWeight:
            return {Qt::HorPattern, "W"};
        case Op::Recompute:
            return {Qt::Dense6Pattern, "R"};
        case Op::ReduceGradient:
            return {Qt::CrossPattern, "RG"};
        case Op::GradientNorm:
            return {Qt::VerPattern, "NORM"};
        case Op::Optimizer:
            return {Qt::DiagCrossPattern, "OPT"};
        default:
            break;
    }
    return {Qt::NoBrush, "\u2192"};
}

/// A colour of the report's pictures.
QColor color_of(std::string_view text) {
    return QColor(QLatin1String(text.data(), static_cast<qsizetype>(text.size())));
}

/// The fill of the report's pictures, but for kinds of action that these do not tell apart from
/// others: the norm, the collectives of a sharded stage, and messages, which they draw as waits.
QColor fill_of(Op op) {
    if (op == Op::GradientNorm) {
        return {0xe8, 0xc4, 0xd8};
    }
    if (is_message(op) || op == Op::Unshard || op == Op::Reshard) {
        return {0x9a, 0xa0, 0xa6};
    }
    return color_of(svg::style_of(svg::look_of(op)).fill);
}

/// Relative luminance of WCAG 2.1.
double luminance(const QColor& color) {
    const auto linear = [](double channel) {
        return channel <= 0.04045 ? channel / 12.92 : std::pow((channel + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * linear(color.redF()) + 0.7152 * linear(color.greenF()) +
           0.0722 * linear(color.blueF());
}

Palette light() {
    return {.theme = Theme::Light,
            .window = QColor(0xf6f7f9),
            .background = QColor(0xffffff),
            .row = QColor(0xeef0f3),
            .grid = QColor(0xd5d9df),
            .text = QColor(0x16191d),
            .faint_text = QColor(0x565d66),
            .idle_fill = color_of(svg::idle_fill),
            .idle_hatch = color_of(svg::idle_hatch),
            .highlight_fill = QColor(0xfff2c4),
            .highlight_hatch = QColor(0x9c6a00),
            .memory_fill = QColor(0xb9c4d4),
            .memory_line = QColor(0x23405f),
            .critical = QColor(0xc2002f),
            .found = QColor(0x7a00c8),
            .selection = QColor(0x16191d),
            .faster = QColor(0x0072b2),
            .slower = QColor(0xd55e00),
            .skip = color_of(svg::skip_ink),
            .skip_gradient = color_of(svg::skip_gradient_ink),
            .banner = QColor(0xfbe3d6),
            .banner_text = QColor(0x5a2400)};
}

Palette dark() {
    return {.theme = Theme::Dark,
            .window = QColor(0x1d2025),
            .background = QColor(0x15171b),
            .row = QColor(0x262a31),
            .grid = QColor(0x3a4049),
            .text = QColor(0xeceff3),
            .faint_text = QColor(0xa6aeb9),
            .idle_fill = QColor(0x22262c),
            .idle_hatch = QColor(0x7f8896),
            .highlight_fill = QColor(0x4a3c10),
            .highlight_hatch = QColor(0xd9a520),
            .memory_fill = QColor(0x3d4a5c),
            .memory_line = QColor(0xbcd3ee),
            .critical = QColor(0xff6b81),
            .found = QColor(0xd9a0ff),
            .selection = QColor(0xffffff),
            .faster = QColor(0x56b4e9),
            .slower = QColor(0xee8a3a),
            .skip = QColor(0xffffff),
            .skip_gradient = QColor(0xf0a8d0),
            .banner = QColor(0x54270b),
            .banner_text = QColor(0xffe6d6)};
}

Palette high_contrast() {
    Palette palette = dark();
    palette.theme = Theme::HighContrast;
    palette.window = palette.background = palette.row = QColor(Qt::black);
    palette.grid = QColor(0x9a9a9a);
    palette.text = palette.faint_text = palette.selection = QColor(0xffffff);
    palette.idle_fill = QColor(Qt::black);
    palette.idle_hatch = QColor(0xffffff);
    palette.highlight_fill = QColor(Qt::black);
    palette.highlight_hatch = QColor(0xffff00);
    palette.memory_fill = QColor(0x6b6b6b);
    palette.memory_line = QColor(0xffffff);
    palette.critical = QColor(0xff8fa0);
    palette.found = QColor(0xffff00);
    palette.faster = QColor(0x6cc8ff);
    palette.slower = QColor(0xffa04d);
    palette.banner = QColor(0xffff00);
    palette.banner_text = QColor(Qt::black);
    return palette;
}

Palette print() {
    Palette palette = light();
    palette.theme = Theme::Print;
    palette.window = palette.background = QColor(0xffffff);
    palette.row = QColor(0xf4f4f4);
    palette.grid = QColor(0xbdbdbd);
    palette.text = palette.selection = QColor(Qt::black);
    palette.faint_text = QColor(0x3a3a3a);
    palette.idle_fill = QColor(0xffffff);
    return palette;
}

}  // namespace

OpStyle Palette::style(Op op) const {
    const OpLook look = look_of(op);
    const QColor fill = fill_of(op);
    // Lighter lines under black text, darker ones under white: the hatching never costs contrast.
    const bool black_text = text_on(fill, fill) == QColor(Qt::black);
    const QColor hatch = black_text ? mixed(fill, Qt::white, 0.32) : mixed(fill, Qt::black, 0.30);
    return {.fill = fill,
            .hatch = hatch,
            .text = text_on(fill, hatch),
            .pattern = look.pattern,
            .letter = QString::fromUtf8(look.letter)};
}

QString name_of(Theme theme) {
    switch (theme) {
        case Theme::Light:
            return QStringLiteral("light");
        case Theme::Dark:
            return QStringLiteral("dark");
        case Theme::HighContrast:
            return QStringLiteral("high-contrast");
        case Theme::Print:
            break;
    }
    return QStringLiteral("print");
}

std::optional<Theme> theme_called(const QString& name) {
    for (const Theme theme : themes) {
        if (name_of(theme) == name) {
            return theme;
        }
    }
    return std::nullopt;
}

Palette palette_of(Theme theme) {
    switch (theme) {
        case Theme::Light:
            return light();
        case Theme::Dark:
            return dark();
        case Theme::HighContrast:
            return high_contrast();
        case Theme::Print:
            break;
    }
    return print();
}

std::vector<Op> legend_ops() {
    return {Op::Forward,
            Op::Backward,
            Op::BackwardInput,
            Op::BackwardWeight,
            Op::Recompute,
            Op::ReduceGradient,
            Op::GradientNorm,
            Op::Optimizer,
            Op::SendForward};
}

QPalette widget_palette(const Palette& palette) {
    const bool is_light = palette.window.lightness() > 128;
    const QColor accent(is_light ? 0x0072b2 : 0x56b4e9);
    const QColor disabled = mixed(palette.window, palette.text, 0.45);

    QPalette colors;
    colors.setColor(QPalette::Window, palette.window);
    colors.setColor(QPalette::WindowText, palette.text);
    colors.setColor(QPalette::Base, palette.background);
    colors.setColor(QPalette::AlternateBase, palette.row);
    colors.setColor(QPalette::Text, palette.text);
    colors.setColor(QPalette::Button, palette.window);
    colors.setColor(QPalette::ButtonText, palette.text);
    colors.setColor(QPalette::BrightText, palette.slower);
    colors.setColor(QPalette::ToolTipBase, palette.window);
    colors.setColor(QPalette::ToolTipText, palette.text);
    colors.setColor(QPalette::PlaceholderText, palette.faint_text);
    colors.setColor(QPalette::Link, accent);
    colors.setColor(QPalette::Highlight, accent);
    colors.setColor(QPalette::HighlightedText, is_light ? Qt::white : Qt::black);
    for (const auto role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText}) {
        colors.setColor(QPalette::Disabled, role, disabled);
    }
    return colors;
}

QColor edge_color(const QPalette& colors) {
    constexpr double wanted = 3.05;  // what is painted is rounded
    constexpr int lighter = 110;     // as Fusion paints those of boxes
    const QColor window = colors.color(QPalette::Window);
    const QColor text = colors.color(QPalette::WindowText);
    if (window == QColor(Qt::black)) {
        return text;  // high contrast: as bold as can be
    }
    const auto stands_out = [&](const QColor& edge) {
        return std::min(contrast_ratio(edge, window),
                        contrast_ratio(edge, colors.color(QPalette::Base))) >= wanted;
    };
    QColor edge = text;
    for (int percent = 100; percent > 0; --percent) {
        const QColor paler = mixed(window, text, percent / 100.0);
        if (!stands_out(paler) || !stands_out(paler.lighter(lighter))) {
            break;
        }
        edge = paler;
    }
    return edge;
}

QString style_sheet(const Palette& palette) {
    const QString roomy =
        QStringLiteral(
            "QTreeView::item, QTableView::item { padding: 2px 5px 2px 4px; border: none; }"
            "QListWidget::item { padding: 3px 6px; }"
            // A list whose items have a padding draws no selection of its own.
            "QTreeView::item:selected, QTableView::item:selected, QListView::item:selected {"
            "background: palette(highlight); color: palette(highlighted-text); }"
            "QHeaderView::section { padding: 2px 1px 2px 7px; border: none;"
            "border-bottom: 1px solid %1; background: %2; color: %3; }"
            "QHeaderView::up-arrow, QHeaderView::down-arrow { subcontrol-position: top center;"
            "width: 7px; height: 7px; }"
            "QFrame#Banner { background: %4; }"
            "QFrame#Banner > QLabel, QFrame#Banner > QToolButton { color: %5; border: none;"
            "background: transparent; }"
            // Fusion's handle is as light as its groove is dark: one is taken for the other.
            "QScrollBar:vertical { background: %2; border: none; width: 12px; }"
            "QScrollBar:horizontal { background: %2; border: none; height: 12px; }"
            "QScrollBar::handle { background: %6; border-radius: 4px; margin: 2px; }"
            "QScrollBar::handle:vertical { min-height: 24px; }"
            "QScrollBar::handle:horizontal { min-width: 24px; }"
            "QScrollBar::handle:hover, QScrollBar::handle:pressed { background: %3; }"
            "QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }"
            "QScrollBar::add-page, QScrollBar::sub-page { background: none; }")
            .arg(palette.grid.name(),
                 palette.window.name(),
                 palette.faint_text.name(),
                 palette.banner.name(),
                 palette.banner_text.name(),
                 edge_color(widget_palette(palette)).name());
    if (palette.theme != Theme::HighContrast) {
        return roomy;
    }
    return roomy +
           QStringLiteral(
               // Not boxes with arrows: a border of ours would leave these out.
               "QPushButton, QToolButton, QLineEdit, QFrame#Finder,"
               "QFrame#SearchLine { border: 1px solid white; padding: 3px 8px; }"
               "QPushButton:focus, QLineEdit:focus, QSlider:focus { border: 2px solid yellow; }"
               "QAbstractItemView::indicator, QCheckBox::indicator { width: 12px; height: 12px;"
               "border: 1px solid white; background: black; }"
               "QAbstractItemView::indicator:checked, QCheckBox::indicator:checked { background: "
               "white; }"
               "QSlider::groove:horizontal { height: 2px; background: white; }"
               "QSlider::handle:horizontal { width: 12px; margin: -8px 0; background: white; }"
               "QSlider::handle:horizontal:disabled { background: gray; }"
               "QTabBar::tab { border: 1px solid white; padding: 4px 10px; }"
               "QTabBar::tab:selected { background: white; color: black; }");
}

double contrast_ratio(const QColor& a, const QColor& b) {
    const double first = luminance(a);
    const double second = luminance(b);
    return (std::max(first, second) + 0.05) / (std::min(first, second) + 0.05);
}

QColor mixed(const QColor& under, const QColor& over, double share) {
    const auto mix = [share](int from, int to) {
        return static_cast<int>(std::lround(from + share * (to - from)));
    };
    return {mix(under.red(), over.red()),
            mix(under.green(), over.green()),
            mix(under.blue(), over.blue())};
}

}  // namespace pipetwin::gui
