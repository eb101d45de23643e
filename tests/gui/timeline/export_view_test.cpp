// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/export_view.h"

#include <fstream>

#include <QImage>
#include <QTemporaryDir>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gui/timeline/timeline_view.h"
#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace export_view_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class ExportTest : public ::testing::Test {
  protected:
    ExportTest() {
        timeline_.resize(900, 400);
        timeline_.show_run(std::make_shared<const RunData>(canned_run({.jitter = 0.1})));
        timeline_.show();
    }

    std::string write(const char* name) {
        return export_scene(timeline_.scene(), timeline_.font(), path(name));
    }

    std::filesystem::path path(const char* name) const {
        return folder_.filePath(name).toStdString();
    }

    std::string content(const char* name) const {
        std::ifstream stream(path(name), std::ios::binary);
        return {std::istreambuf_iterator<char>(stream), {}};
    }

    QTemporaryDir folder_;
    Selection selection_;
    TimelineView timeline_{&selection_};
};

TEST_F(ExportTest, APngHasTwoPixelsForOneAndTheColoursOfTheView) {
    EXPECT_THAT(write("a.png"), IsEmpty());
    const QImage image(folder_.filePath("a.png"));
    EXPECT_EQ(image.size(), timeline_.scene().size * 2);
    const QRect place = timeline_.place_of({.side = Side::Predicted});
    EXPECT_EQ(image.pixelColor(2 * place.topLeft() + QPoint(8, 8)),
              palette_of(Theme::Light).style(Op::Forward).fill);
}

TEST_F(ExportTest, AnSvgIsTextThatCanBeRead) {
    EXPECT_THAT(write("a.svg"), IsEmpty());
    const std::string svg = content("a.svg");
    EXPECT_THAT(svg, HasSubstr("<svg"));
    EXPECT_THAT(svg, HasSubstr("rank 0"));
    EXPECT_THAT(svg, HasSubstr("</svg>"));
    EXPECT_LT(svg.size(), 1'000'000U);
}

// Boxes are rounded to pixels, so those of equally long actions may differ by one.
TEST_F(ExportTest, ActionsThatAreEquallyLongHaveTheSameLabel) {
    timeline_.show_run(
        std::make_shared<const RunData>(canned_run({.ranks = 1, .micro_batches = 9})));
    int whole = 0;
    int short_ones = 0;
    for (int width = 500; width < 1300; width += 7) {
        timeline_.resize(width, 400);
        EXPECT_THAT(write("labels.svg"), IsEmpty());
        const std::string svg = content("labels.svg");
        int labelled = 0;
        for (int micro_batch = 0; micro_batch < 9; ++micro_batch) {
            labelled += svg.find(">F" + std::to_string(micro_batch) + "<") != std::string::npos;
        }
        EXPECT_THAT(labelled, ::testing::AnyOf(0, 9)) << width;
        ++(labelled == 9 ? whole : short_ones);
    }
    EXPECT_GT(whole, 0);
    EXPECT_GT(short_ones, 0);
}

TEST_F(ExportTest, APdfIsOne) {
    EXPECT_THAT(write("a.pdf"), IsEmpty());
    EXPECT_THAT(content("a.pdf"), StartsWith("%PDF-"));
}

TEST_F(ExportTest, OtherEndingsAndPlacesAreRefusedWithASentence) {
    EXPECT_THAT(write("a.bmp"), HasSubstr("expected .png, .svg or .pdf"));
    EXPECT_THAT(write("not/there/a.png"), HasSubstr("cannot write: No such file"));
    EXPECT_THAT(write("not/there/a.svg"), HasSubstr("cannot write: No such file"));
    EXPECT_THAT(write("not/there/a.pdf"), HasSubstr("cannot write: No such file"));
}

}  // namespace export_view_test
}  // namespace pipetwin::gui
