// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/legend.h"

#include <set>

#include <QImage>
#include <gtest/gtest.h>

#include "tests/gui/canned.h"
#include "tests/gui/planned.h"

namespace pipetwin::gui {
namespace legend_test {

class LegendInEveryTheme : public ::testing::TestWithParam<Theme> {
  protected:
    std::set<QRgb> colours() { return colours(legend_.sizeHint().width()); }

    std::set<QRgb> colours(int width) {
        legend_.resize(width, legend_.sizeHint().height());
        const QImage image = legend_.grab().toImage();
        std::set<QRgb> found;
        for (int x = 0; x < image.width(); ++x) {
            for (int y = 0; y < image.height(); ++y) {
                found.insert(image.pixel(x, y));
            }
        }
        return found;
    }

    Palette palette_ = palette_of(GetParam());
    Legend legend_;
};

INSTANTIATE_TEST_SUITE_P(Theme,
                         LegendInEveryTheme,
                         ::testing::ValuesIn(themes),
                         [](const auto& theme) {
                             return name_of(theme.param).remove('-').toStdString();
                         });

TEST_P(LegendInEveryTheme, ShowsWhatTheRunHasAndNothingElse) {
    legend_.set_colors(palette_);
    legend_.show_run(canned_run({.jitter = 0.1}));
    const std::set<QRgb> seen = colours();
    for (const Op op : {Op::Forward, Op::Backward, Op::Optimizer}) {
        EXPECT_TRUE(seen.contains(palette_.style(op).fill.rgb())) << op_text(op);
        EXPECT_TRUE(seen.contains(palette_.style(op).text.rgb())) << op_text(op);
    }
    EXPECT_TRUE(seen.contains(palette_.idle_fill.rgb()));
    EXPECT_TRUE(seen.contains(palette_.text.rgb())) << "words, in a real font";
    EXPECT_TRUE(seen.contains(palette_.faster.rgb()));
    EXPECT_TRUE(seen.contains(palette_.slower.rgb()));
    EXPECT_FALSE(seen.contains(palette_.style(Op::BackwardWeight).fill.rgb()));
}

/// A narrow one leaves words out, not what stands last.
TEST_P(LegendInEveryTheme, HasEveryColourHoweverNarrowItIs) {
    legend_.set_colors(palette_);
    legend_.show_run(canned_run({.jitter = 0.1}));
    const int whole = legend_.sizeHint().width();
    for (const int percent : {100, 80, 65, 50}) {
        const std::set<QRgb> seen = colours(whole * percent / 100);
        EXPECT_TRUE(seen.contains(palette_.style(Op::Forward).fill.rgb())) << percent;
        EXPECT_TRUE(seen.contains(palette_.idle_hatch.rgb())) << percent;
        EXPECT_TRUE(seen.contains(palette_.slower.rgb())) << percent;
    }
    EXPECT_TRUE(legend_.toolTip().contains("F: forward"));
}

TEST_P(LegendInEveryTheme, ExplainsSkipMessagesWhereThereAreSome) {
    legend_.set_colors(palette_);
    legend_.show_run(*run_with_skips());
    EXPECT_TRUE(legend_.toolTip().contains("skip message"));
    EXPECT_TRUE(legend_.accessibleDescription().contains("skip message"));
    EXPECT_TRUE(colours().contains(palette_.skip_gradient.rgb()));
    legend_.show_run(canned_run());
    EXPECT_FALSE(legend_.toolTip().contains("skip message"));
    EXPECT_FALSE(colours().contains(palette_.skip_gradient.rgb()));
}

TEST_P(LegendInEveryTheme, OfOneSideHasNoErrors) {
    legend_.set_colors(palette_);
    RunData run = canned_run();
    legend_.show_run(run);
    const int both = legend_.sizeHint().width();
    run.twin.measured.clear();
    run.measured.reset();
    run.comparison.reset();
    legend_.show_run(run);
    EXPECT_LT(legend_.sizeHint().width(), both);
    EXPECT_FALSE(colours().contains(palette_.slower.rgb()));
}

}  // namespace legend_test
}  // namespace pipetwin::gui
