// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include <QWidget>

#include "gui/base/palette.h"
#include "gui/view/what_if/what_if_settings.h"

namespace pipetwin::gui {

/// The layers of a model in a bar, each as wide as its time, and where it is cut into pieces. A cut
/// can be dragged; Up and Down choose one, Left and Right move it by a layer, which of a gpt is
/// half a block.
class PartitionEditor : public QWidget {
    Q_OBJECT

  public:
    explicit PartitionEditor(QWidget* parent = nullptr);

    void set_colors(const Palette& palette);

    /// `pieces` counts the layers of each piece; their sum is the number of layers.
    void show_partition(std::vector<LayerTime> layers, std::vector<int> pieces);

    const std::vector<int>& pieces() const { return pieces_; }
    bool is_dragging() const { return dragging_; }
    int cut_count() const { return std::max(0, static_cast<int>(pieces_.size()) - 1); }

    /// The x of a cut, in pixels.
    int place_of_cut(int cut) const;

    /// Text about the times of all stages: the least, the longest, and how far that is above the
    /// mean.
    QString summary() const;

    /// The times of the pieces in `unit`, with the number of decimals with which most of them fit
    /// below their pieces; empty texts for the others.
    std::vector<QString> time_labels() const;
    QString unit() const;

    QSize sizeHint() const override;

  signals:
    void drag_begun();
    /// The user has moved a cut; `dragging` while the button is down.
    void cuts_moved(const std::vector<int>& pieces, bool dragging);

  protected:
    void paintEvent(QPaintEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mouseReleaseEvent(QMouseEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;
    bool event(QEvent* event) override;

  private:
    Duration longest_piece() const;
    Duration time_before(int layer) const;
    int x_of_layer(int layer) const;
    int layer_before_cut(int cut) const;
    int cut_at(int x) const;
    Duration time_of_piece(std::size_t piece) const;
    void select(int cut);
    void move_to(int cut, int layer, bool dragging);
    void describe();

    Palette palette_;
    std::vector<LayerTime> layers_;
    std::vector<Duration> sums_;  ///< [layer]: of those before it, and of all
    std::vector<int> pieces_;
    int cut_ = 0;
    bool dragging_ = false;
};

}  // namespace pipetwin::gui
