// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <QWidget>

#include "gui/base/palette.h"
#include "gui/timeline/timeline_scene.h"
#include "gui/view/run/run_data.h"

class QLabel;
class QPushButton;

namespace pipetwin::gui {

/// The rows of a run in a widget, without mouse and keys of their own. Times are counted from the
/// begin of the step that is shown first, so that several of them have one axis.
class RunPicture : public QWidget {
    Q_OBJECT

  public:
    explicit RunPicture(std::shared_ptr<const RunData> run, QWidget* parent = nullptr);

    void set_colors(const Palette& palette);

    /// Shows this part of the step. The picture becomes as high as its rows need.
    struct Look {
        TimeRange part{};
        int label_width = 0;     ///< pixels for the names of the ranks
        bool has_ruler = false;  ///< the times stand above the rows
        int row_height = 0;      ///< pixels
    };
    void show_as(const Look& look);

    /// Width in pixels that the names of the ranks need.
    int needed_label_width() const;
    /// Height in pixels that a row needs for its text.
    int least_row_height() const;
    /// Height in pixels of the times above the rows.
    int ruler_height() const;

    const TimelineScene& scene() const { return scene_; }

  signals:
    void clicked();
    /// The wheel turned with Ctrl at a share of the width of the time area: zoom there.
    void zoom_wanted(double factor, double share);
    /// The wheel turned with Shift: move by a share of what is seen; above 0 to later times.
    void pan_wanted(double share);

  protected:
    void paintEvent(QPaintEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void mouseReleaseEvent(QMouseEvent* event) override;
    void wheelEvent(QWheelEvent* event) override;

  private:
    void lay_out();

    std::shared_ptr<const RunData> run_;  ///< with the step that is shown alone
    TimelineScene scene_;
    Look look_;
};

/// One run of several: a line with its name and figures, and below it the rows, or why there are
/// none.
class RunTile : public QWidget {
    Q_OBJECT

  public:
    explicit RunTile(std::shared_ptr<const RunData> run, QWidget* parent = nullptr);

    void set_colors(const Palette& palette);

    /// Says the figures again, with the step beside that of the first run; null: there is none.
    void compare_with(const RunTile* first);

    /// Says why the step differs from that of the baseline, in a line below the figures where there
    /// is room for it, else as the tooltip; "" says nothing.
    void explain(const QString& why, bool has_room);
    /// What was said of it.
    const QString& explanation() const { return explained_; }

    const std::shared_ptr<const RunData>& run() const { return run_; }
    /// The rows; null where the run has none.
    RunPicture* picture() const { return picture_; }

    /// Length of the step that is shown; zero where there is none.
    Duration step() const;

    /// Height in pixels of the text above the rows, in a tile of that width.
    int head_height(int width) const;

  signals:
    /// The run was clicked: it becomes the main one.
    void chosen();
    void remove_wanted();

  private:
    QWidget* build_head();

    std::shared_ptr<const RunData> run_;
    QWidget* head_ = nullptr;
    QPushButton* name_ = nullptr;
    QLabel* figures_ = nullptr;
    QLabel* why_ = nullptr;
    QString explained_;
    RunPicture* picture_ = nullptr;
};

/// Pixels between two rows of a picture, and above the first and below the last.
inline constexpr int picture_gap = 3;

/// The side of a run that is shown beside other runs: the measured one, else the predicted one.
Side shown_side(const RunData& run);

}  // namespace pipetwin::gui
