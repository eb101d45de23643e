// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QWidget>

#include "gui/base/palette.h"
#include "gui/base/text_table.h"

class QLabel;
class QSplitter;
class QTreeView;

namespace pipetwin::gui {

/// A sentence above two tables, side by side: the first is shown whole, the second gets the room
/// that is left.
class TwoTables : public QWidget {
    Q_OBJECT

  public:
    /// The names of the panel and of its tables, for screen readers.
    struct Names {
        QString panel;
        QString first;
        QString second;
    };
    explicit TwoTables(const Names& names, QWidget* parent = nullptr);

    void set_colors(const Palette& palette);

  signals:
    void settled();

  protected:
    /// What is shown.
    struct Shown {
        QString sentence;
        TextTable::Content first;
        TextTable::Content second;
        bool has_tables = false;
        bool has_second = false;
        int text_columns = 1;  ///< of the second table: they share what room is left
    };
    void show_content(Shown shown);
    void resizeEvent(QResizeEvent* event) override;

  private:
    void share_room_of_tables();

    int room_of_first_ = 0;          ///< pixels
    bool second_has_texts_ = false;  ///< in several columns: it is no narrower than the first
    QLabel* sentence_;
    QSplitter* splitter_;
    TextTable* first_;
    QTreeView* first_view_;
    TextTable* second_;
    QTreeView* second_view_;
};

}  // namespace pipetwin::gui
