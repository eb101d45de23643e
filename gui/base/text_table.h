// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include <QAbstractTableModel>
#include <QStringList>

#include "gui/view/run/twin.h"

class QHeaderView;
class QSplitter;
class QTreeView;

namespace pipetwin::gui {

/// A table whose texts are made when they are shown.
class TextTable : public QAbstractTableModel {
    Q_OBJECT

  public:
    using QAbstractTableModel::QAbstractTableModel;

    struct Content {
        QStringList headers;
        QStringList tips{};  ///< of the headers; where it has none, the meaning in the glossary
        int rows = 0;
        int left_columns = 1;  ///< aligned left; the others hold numbers
        std::function<QString(int row, int column)> text;
        std::function<std::optional<SpanRef>(int row)> target = nullptr;  ///< where it leads
        std::function<bool(int row)> is_heading = nullptr;
    };

    void show(Content content);
    std::optional<SpanRef> target(int row) const;

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

  private:
    QVariant alignment(int column) const;

    Content content_;
};

/// A list that shows a table, row by row. The tooltip of a text that is cut off is the whole text.
QTreeView* table_view(QAbstractItemModel* model, const QString& name, QWidget* parent);

/// The width in pixels that a heading needs: its text and the margins that the style draws. Qt's
/// own number is for bold letters, which highlighted headings have: there are none in these lists.
int heading_width(const QHeaderView& header, int column);

/// Makes columns as wide as what is in them, headings too; the first `text_columns` share what room
/// is left. Where there is too little room these columns become narrower, and the numbers of the
/// others stay whole. Returns the width in pixels that the list needs to show all of it.
int fit_columns(QTreeView* view, int text_columns = 1);

/// Lists beside each other.
QSplitter* splitter_of_lists(QWidget* parent);

/// Shares the room by the widths that are needed, unless the user has moved a border.
void share_room(QSplitter* splitter, const QList<int>& widths);

}  // namespace pipetwin::gui
