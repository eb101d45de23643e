// SPDX-License-Identifier: Apache-2.0
#include "gui/base/pixel_canvas.h"

#include <random>
#include <vector>

#include <QImage>
#include <QPicture>
#include <gtest/gtest.h>

namespace pipetwin::gui {
namespace pixel_canvas_test {

constexpr int width = 83;
constexpr int height = 40;
constexpr QRect area(7, 5, 61, 27);

/// Rectangles, columns, hatchings and bars, some of them partly outside the area.
void paint_anything(QPainter& painter, unsigned seed, bool hatched) {
    std::vector<QRgb> ground(area.width(), QColor(Qt::white).rgb());
    painter.fillRect(0, 0, width, height, Qt::gray);
    painter.fillRect(area, Qt::white);
    PixelCanvas canvas(painter, area, ground);
    std::mt19937 random(seed);
    const auto below = [&](int end) {
        return static_cast<int>(random() % static_cast<unsigned>(end));
    };
    const auto color = [&] { return QColor(below(256), below(256), below(256)); };
    for (int i = 0; i < 12; ++i) {
        canvas.fill_columns(below(width) - 5, below(30), color().rgb());
    }
    for (int i = 0; i < 6 && hatched; ++i) {
        constexpr std::array patterns{
            Qt::NoBrush, Qt::FDiagPattern, Qt::Dense6Pattern, Qt::CrossPattern};
        const int x = below(width);
        canvas.hatch_columns(x, 5 + below(20), color().rgb(), patterns[random() % 4], x);
    }
    for (int i = 0; i < 8; ++i) {
        canvas.fill(QRect(below(width) - 5, below(height) - 5, below(20), below(20)), color());
    }
    std::vector<int> tops;
    std::vector<int> bottoms;
    for (int x = 0; x < area.width(); ++x) {
        tops.push_back(below(height));
        bottoms.push_back(below(height));
    }
    canvas.bars(area.x(), tops, bottoms, color().rgb());
    canvas.finish();
}

/// What it looks like with the painter's own rectangles.
QImage drawn(double ratio, unsigned seed, bool hatched, bool as_rectangles) {
    QImage image(QSizeF(width * ratio, height * ratio).toSize(), QImage::Format_RGB32);
    image.setDevicePixelRatio(ratio);
    image.fill(Qt::black);
    QPainter painter(&image);
    if (as_rectangles) {
        QPicture picture;
        QPainter recorder(&picture);
        paint_anything(recorder, seed, hatched);
        recorder.end();
        painter.drawPicture(0, 0, picture);
    } else {
        paint_anything(painter, seed, hatched);
    }
    return image;
}

TEST(PixelCanvas, LooksLikeThePaintersOwnRectangles) {
    for (unsigned seed = 0; seed < 30; ++seed) {
        EXPECT_EQ(drawn(1, seed, true, false), drawn(1, seed, true, true)) << seed;
    }
}

// Hatchings have the pixels of the screen there, and so finer lines than the painter's.
TEST(PixelCanvas, IsAsFineAsTheScreen) {
    for (unsigned seed = 0; seed < 30; ++seed) {
        EXPECT_EQ(drawn(2, seed, false, false), drawn(2, seed, false, true)) << seed;
    }
}

TEST(PixelCanvas, HatchesInPixelsOfTheScreen) {
    const auto colors = [](const QImage& image) {
        int changes = 0;
        for (int x = 1; x < image.width(); ++x) {
            changes += image.pixel(x, 0) != image.pixel(x - 1, 0) ? 1 : 0;
        }
        return changes;
    };
    for (const double ratio : {1.0, 1.5, 2.0}) {
        QImage image(QSizeF(64 * ratio, 16 * ratio).toSize(), QImage::Format_RGB32);
        image.setDevicePixelRatio(ratio);
        QPainter painter(&image);
        const QRect whole(0, 0, 64, 16);
        PixelCanvas canvas(painter, whole, std::vector<QRgb>(64, QColor(Qt::white).rgb()));
        canvas.hatch_columns(0, 64, QColor(Qt::black).rgb(), Qt::FDiagPattern, 0);
        canvas.finish();
        // A line of one pixel in every eight, so two changes in every eight.
        EXPECT_NEAR(colors(image), 2 * image.width() / 8, 1) << ratio;
    }
}

}  // namespace pixel_canvas_test
}  // namespace pipetwin::gui
