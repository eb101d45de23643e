// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include <QImage>
#include <QWidget>

#include "gui/timeline/timeline_view.h"

namespace pipetwin::gui {

/// The whole run in a strip: the utilisation of the ranks, measured as an area and predicted as a
/// line, the borders of the steps, the critical path, and the window that the timeline shows.
/// Dragging the window or clicking beside it moves the timeline, dragging one of its edges zooms.
class MinimapView : public QWidget {
    Q_OBJECT

  public:
    /// `timeline` must outlive this.
    explicit MinimapView(TimelineView* timeline, QWidget* parent = nullptr);

    void set_colors(const Palette& palette);

    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

  protected:
    void paintEvent(QPaintEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mouseReleaseEvent(QMouseEvent* event) override;
    void wheelEvent(QWheelEvent* event) override;

  private:
    enum class Grip { Window, Left, Right };

    const TimelineScene& scene() const { return timeline_->scene(); }
    QRect area() const;
    double x_of(Duration time) const;
    Duration time_at(double x) const;
    QRect window_rect() const;
    std::optional<Grip> grip_at(QPoint position) const;
    void forget_picture();
    void draw_picture();

    TimelineView* timeline_;
    Palette palette_;
    QImage picture_;  ///< all but the window; null when it has to be drawn anew
    QRect drawn_;     ///< the area when the picture was drawn
    std::optional<Grip> grip_;
    Duration held_at_{};  ///< of the axis: where the window was taken
    TimeRange held_{};    ///< what the window showed then
};

}  // namespace pipetwin::gui
