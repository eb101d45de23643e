// SPDX-License-Identifier: Apache-2.0
#include "gui/base/palette.h"

#include <set>

#include <QFontMetrics>
#include <QGuiApplication>
#include <gtest/gtest.h>

namespace pipetwin::gui {
namespace palette_test {

constexpr double readable = 4.5;  // WCAG 2.1, level AA for text

class EveryTheme : public ::testing::TestWithParam<Theme> {};

INSTANTIATE_TEST_SUITE_P(Palette, EveryTheme, ::testing::ValuesIn(themes), [](const auto& theme) {
    return name_of(theme.param).remove('-').toStdString();
});

TEST_P(EveryTheme, TextIsReadableOnEveryFillAndItsHatching) {
    const Palette palette = palette_of(GetParam());
    for (const Op op : legend_ops()) {
        const OpStyle style = palette.style(op);
        EXPECT_GE(contrast_ratio(style.text, style.fill), readable) << op_text(op);
        EXPECT_GE(contrast_ratio(style.text, style.hatch), readable) << op_text(op);
    }
}

TEST_P(EveryTheme, TextIsReadableOnEveryGround) {
    const Palette palette = palette_of(GetParam());
    for (const QColor& ground : {palette.window, palette.background, palette.row}) {
        EXPECT_GE(contrast_ratio(palette.text, ground), readable);
        EXPECT_GE(contrast_ratio(palette.faint_text, ground), readable);
    }
    EXPECT_GE(contrast_ratio(palette.banner_text, palette.banner), readable);
    EXPECT_GE(contrast_ratio(palette.background, palette.text), readable);  // chip at the mouse
}

TEST_P(EveryTheme, MarksAndBarsStandOutFromTheGround) {
    constexpr double visible = 3;  // WCAG 2.1, graphical objects
    const Palette palette = palette_of(GetParam());
    for (const QColor& mark : {palette.selection,
                               palette.faster,
                               palette.slower,
                               palette.critical,
                               palette.found,
                               palette.skip,
                               palette.skip_gradient,
                               palette.memory_line}) {
        EXPECT_GE(contrast_ratio(mark, palette.background), visible);
    }
    EXPECT_GE(contrast_ratio(palette.memory_line, palette.memory_fill), visible);
}

/// Idle time is known by its lines: they stand out from the idle time and from all that is beside
/// it.
TEST_P(EveryTheme, IdleTimeStandsOutFromItsSurroundings) {
    constexpr double visible = 3;  // WCAG 2.1, 1.4.11: graphical objects
    const Palette palette = palette_of(GetParam());
    for (const QColor& ground :
         {palette.idle_fill, palette.row, palette.window, palette.background}) {
        EXPECT_GE(contrast_ratio(palette.idle_hatch, ground), visible)
            << ground.name().toStdString();
    }
    for (const QColor& ground : {palette.highlight_fill, palette.window, palette.background}) {
        EXPECT_GE(contrast_ratio(palette.highlight_hatch, ground), visible)
            << ground.name().toStdString();
    }
}

/// Lines of one lightness look alike to those who see no colours.
TEST_P(EveryTheme, OutputsAndGradientsOfSkipMessagesDifferInLightness) {
    const Palette palette = palette_of(GetParam());
    EXPECT_GE(contrast_ratio(palette.skip, palette.skip_gradient), 1.5);
    std::set<QRgb> fills;
    for (const Op op : legend_ops()) {
        fills.insert(palette.style(op).fill.rgb());
    }
    EXPECT_FALSE(fills.contains(palette.skip.rgb()));
    EXPECT_FALSE(fills.contains(palette.skip_gradient.rgb()));
}

TEST_P(EveryTheme, WidgetTextIsReadable) {
    const QPalette colors = widget_palette(palette_of(GetParam()));
    const auto ratio = [&](QPalette::ColorRole text, QPalette::ColorRole ground) {
        return contrast_ratio(colors.color(text), colors.color(ground));
    };
    EXPECT_GE(ratio(QPalette::WindowText, QPalette::Window), readable);
    EXPECT_GE(ratio(QPalette::Text, QPalette::Base), readable);
    EXPECT_GE(ratio(QPalette::ButtonText, QPalette::Button), readable);
    EXPECT_GE(ratio(QPalette::HighlightedText, QPalette::Highlight), readable);
    EXPECT_GE(ratio(QPalette::ToolTipText, QPalette::ToolTipBase), readable);
    EXPECT_GE(ratio(QPalette::PlaceholderText, QPalette::Window), readable);
}

TEST_P(EveryTheme, KindsDifferByMoreThanColour) {
    const Palette palette = palette_of(GetParam());
    std::set<QString> letters;
    std::set<int> patterns;
    std::set<QRgb> fills;
    for (const Op op : legend_ops()) {
        const OpStyle style = palette.style(op);
        letters.insert(style.letter);
        fills.insert(style.fill.rgb());
        patterns.insert(static_cast<int>(style.pattern));
    }
    EXPECT_EQ(letters.size(), legend_ops().size());
    EXPECT_EQ(fills.size(), legend_ops().size());
    EXPECT_GE(patterns.size(), legend_ops().size() - 1);  // F and messages are plain
}

TEST(Themes, AreCalledByTheirNames) {
    for (const Theme theme : themes) {
        EXPECT_EQ(theme_called(name_of(theme)), theme);
        EXPECT_EQ(palette_of(theme).theme, theme);
    }
    EXPECT_EQ(theme_called("pink"), std::nullopt);
}

TEST(Contrast, IsThatOfTheStandard) {
    EXPECT_NEAR(contrast_ratio(Qt::black, Qt::white), 21, 1e-9);
    EXPECT_NEAR(contrast_ratio(Qt::white, Qt::white), 1, 1e-9);
    EXPECT_NEAR(contrast_ratio(QColor(0x777777), Qt::white), 4.48, 0.01);
}

TEST(Mixed, GoesFromOneColourToTheOther) {
    EXPECT_EQ(mixed(Qt::black, Qt::white, 0), QColor(Qt::black));
    EXPECT_EQ(mixed(Qt::black, Qt::white, 1), QColor(Qt::white));
    EXPECT_EQ(mixed(Qt::black, Qt::white, 0.5), QColor(128, 128, 128));
}

/// Without fonts Qt paints every glyph as the same box and says nothing.
TEST(Fonts, AreInstalled) {
    const QFontMetrics metrics{QGuiApplication::font()};
    EXPECT_LT(metrics.horizontalAdvance("iiii"), metrics.horizontalAdvance("WWWW"))
        << "install fonts-dejavu-core";
}

}  // namespace palette_test
}  // namespace pipetwin::gui
