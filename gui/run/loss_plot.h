// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <QWidget>

#include "gui/base/palette.h"
#include "gui/view/run/live_follower.h"

namespace pipetwin::gui {

/// The loss of every step, as a curve.
class LossPlot : public QWidget {
    Q_OBJECT

  public:
    explicit LossPlot(QWidget* parent = nullptr);

    void clear();
    void add(const std::vector<StepMetrics>& steps);
    void set_colors(const Palette& palette);

    QSize minimumSizeHint() const override;

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    Palette palette_;
    std::vector<StepMetrics> steps_;
};

}  // namespace pipetwin::gui
