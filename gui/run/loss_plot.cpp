// SPDX-License-Identifier: Apache-2.0
#include "gui/run/loss_plot.h"

#include <algorithm>
#include <cmath>

#include <QPainter>
#include <QPainterPath>

namespace pipetwin::gui {

namespace {

constexpr int margin = 8;

/// "step 12, loss 0.4213", and the share of right classes where it is known.
QString text_of(const StepMetrics& step) {
    const QString text = LossPlot::tr("step %1, loss %2").arg(step.step).arg(step.loss, 0, 'f', 4);
    return step.accuracy
               ? text + LossPlot::tr(", accuracy %1 %").arg(100 * *step.accuracy, 0, 'f', 1)
               : text;
}

}  // namespace

LossPlot::LossPlot(QWidget* parent) : QWidget(parent), palette_(palette_of(Theme::Light)) {
    setAccessibleName(tr("Loss by step"));
}

void LossPlot::clear() {
    steps_.clear();
    update();
}

void LossPlot::add(const std::vector<StepMetrics>& steps) {
    steps_.insert(steps_.end(), steps.begin(), steps.end());
    if (!steps_.empty()) {
        setAccessibleDescription(
            tr("step %1, loss %2").arg(steps_.back().step).arg(steps_.back().loss));
    }
    update();
}

void LossPlot::set_colors(const Palette& palette) {
    palette_ = palette;
    update();
}

QSize LossPlot::minimumSizeHint() const {
    return {240, 100};
}

void LossPlot::paintEvent(QPaintEvent* /*event*/) {
    QPainter painter(this);
    painter.fillRect(rect(), palette_.background);
    std::vector<StepMetrics> shown;
    std::ranges::copy_if(steps_, std::back_inserter(shown), [](const StepMetrics& step) {
        return std::isfinite(step.loss);
    });
    painter.setPen(palette_.faint_text);
    if (shown.empty()) {
        painter.drawText(rect(), Qt::AlignCenter, tr("The loss of each step appears here."));
        return;
    }
    const auto [least, most] = std::ranges::minmax(shown, {}, &StepMetrics::loss);
    const int line = fontMetrics().height();
    const int label =
        fontMetrics().horizontalAdvance(QString::number(most.loss, 'f', 3)) + 2 * margin;
    const QRect area = rect().adjusted(label, margin, -margin, -line - margin);
    const double high = most.loss;
    const double low = least.loss;
    const int last = std::max(shown.back().step, shown.front().step + 1);
    const auto point = [&](const StepMetrics& step) {
        const double x =
            static_cast<double>(step.step - shown.front().step) / (last - shown.front().step);
        const double y = high > low ? (high - step.loss) / (high - low) : 0.5;
        return QPointF(area.left() + x * area.width(), area.top() + y * area.height());
    };
    painter.fillRect(area.left(), area.bottom(), area.width(), 1, palette_.grid);
    painter.drawText(QRect(0, area.top() - line / 2, label - margin, line),
                     Qt::AlignRight | Qt::AlignVCenter,
                     QString::number(high, 'f', 3));
    painter.drawText(QRect(0, area.bottom() - line / 2, label - margin, line),
                     Qt::AlignRight | Qt::AlignVCenter,
                     QString::number(low, 'f', 3));
    painter.drawText(QRect(area.left(), area.bottom() + 4, area.width(), line),
                     Qt::AlignLeft,
                     tr("step %1").arg(shown.front().step));
    painter.drawText(QRect(area.left(), area.bottom() + 4, area.width(), line),
                     Qt::AlignRight,
                     text_of(shown.back()));
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setPen(QPen(palette_.faster, 2));
    QPainterPath path(point(shown.front()));
    for (const StepMetrics& step : shown) {
        path.lineTo(point(step));
    }
    painter.drawPath(path);
}

}  // namespace pipetwin::gui
