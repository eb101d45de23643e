// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <QWidget>

#include "gui/base/palette.h"
#include "gui/view/run/run_data.h"

namespace pipetwin::gui {

/// One line that explains colours, letters and hatchings: those of the run, not all there are.
class Legend : public QWidget {
    Q_OBJECT

  public:
    explicit Legend(QWidget* parent = nullptr);

    void set_colors(const Palette& palette);

    /// `run` is only read during the call.
    void show_run(const RunData& run);
    /// Explains the pictures of several runs, each of one side; they are only read during the call.
    void show_runs(const std::vector<const RunData*>& runs);

    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    /// Space that the entries take.
    struct Density;

    /// Lays out the entries and returns their width; paints them where there is a painter.
    int layout_entries(QPainter* painter, const Density& density) const;

    Palette palette_;
    std::vector<Op> ops_;
    bool has_errors_ = false;
    bool has_skips_ = false;
};

}  // namespace pipetwin::gui
