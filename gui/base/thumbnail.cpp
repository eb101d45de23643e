// SPDX-License-Identifier: Apache-2.0
#include "gui/base/thumbnail.h"

#include <algorithm>

#include <QPainter>

#include "core/base/as_index.h"

namespace pipetwin::gui {

void paint_rows(QPainter& painter, const QRect& area, const RunData& run, const Palette& palette) {
    painter.fillRect(area, palette.idle_fill);
    const Side side = run.measured ? Side::Measured : Side::Predicted;
    const StepRows* const step = run.twin.step(side, run.main_step());
    if (step == nullptr || step->ranks.empty() || step->length <= Duration{}) {
        return;
    }
    constexpr int least_height = 2;
    const int ranks =
        std::min(static_cast<int>(step->ranks.size()), std::max(1, area.height() / least_height));
    for (int rank = 0; rank < ranks; ++rank) {
        const RowIndex& row = step->ranks[as_index(rank)];
        const int top = area.top() + rank * area.height() / ranks;
        const int bottom = area.top() + (rank + 1) * area.height() / ranks;
        const int height = std::max(1, bottom - top - (bottom - top > least_height ? 1 : 0));
        int cell = 0;
        for (int x = 0; x < area.width(); ++x) {
            const Duration time = scaled(step->length, (x + 0.5) / area.width());
            cell = row.first_ending_after(time, cell);
            if (cell < row.size() && row.ready(cell) <= time) {
                painter.fillRect(area.left() + x, top, 1, height, palette.style(row.op(cell)).fill);
            }
        }
    }
}

QImage thumbnail_of(const RunData& run, const QSize& size, const Palette& palette) {
    QImage image(size, QImage::Format_RGB32);
    QPainter painter(&image);
    paint_rows(painter, image.rect(), run, palette);
    return image;
}

}  // namespace pipetwin::gui
