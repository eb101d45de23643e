// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include <QPushButton>

#include "gui/base/palette.h"

class QPainter;

namespace pipetwin::gui {

/// A task of the program as a picture with its name and a line about it; a click begins it.
class TaskButton : public QPushButton {
    Q_OBJECT

  public:
    /// Paints the picture of a task into a rectangle.
    using Picture = std::function<void(QPainter&, const QRect&, const Palette&)>;

    TaskButton(const QString& name, const QString& about, Picture picture, QWidget* parent);

    void set_colors(const Palette& palette);

    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    QFont name_font() const;
    int lines_height(int width) const;

    QString about_;
    Picture picture_;
    Palette palette_;
};

/// Plans as points, the larger the faster and the higher the more memory, and the line of those
/// that no other beats.
void paint_plans(QPainter& painter, const QRect& area, const Palette& palette);

/// The schedules that a comparison begins with, below each other on one time axis.
void paint_schedules(QPainter& painter, const QRect& area, const Palette& palette);

/// A step whose stages are uneven, with its idle time.
void paint_run(QPainter& painter, const QRect& area, const Palette& palette);

}  // namespace pipetwin::gui
