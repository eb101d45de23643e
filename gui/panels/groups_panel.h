// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <QWidget>

#include "gui/base/palette.h"
#include "gui/base/text_table.h"
#include "gui/view/run/run_data.h"

class QLabel;
class QSplitter;
class QTreeView;

namespace pipetwin::gui {

/// Shows what the groups of devices of a plan send in a step, and what routed experts take of each
/// rank's memory.
class GroupsPanel : public QWidget {
    Q_OBJECT

  public:
    explicit GroupsPanel(QWidget* parent = nullptr);

    void show_run(std::shared_ptr<const RunData> run);
    void set_colors(const Palette& palette);

  signals:
    void settled();

  protected:
    void resizeEvent(QResizeEvent* event) override;

  private:
    void share_room_of_lists();

    int room_of_groups_ = 0;  ///< pixels
    QLabel* sentence_;
    QSplitter* splitter_;
    TextTable* groups_;
    QTreeView* groups_view_;
    TextTable* experts_;
    QTreeView* experts_view_;
};

}  // namespace pipetwin::gui
