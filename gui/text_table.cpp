#include "gui/text_table.h"

#include <utility>

#include <QFont>
#include <QHeaderView>
#include <QTreeView>

namespace pipetwin::gui {

namespace {

constexpr int cell_padding = 14;

}  // namespace

void TextTable::show(Content content) {
    beginResetModel();
    content_ = std::move(content);
    endResetModel();
}

std::optional<SpanRef> TextTable::target(int row) const {
    const bool leads = content_.target && row >= 0 && row < content_.rows;
    return leads ? content_.target(row) : std::nullopt;
}

int TextTable::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : content_.rows;
}

int TextTable::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(content_.headers.size());
}

QVariant TextTable::alignment(int column) const {
    return QVariant::fromValue(Qt::AlignVCenter |
                               (column < content_.left_columns ? Qt::AlignLeft : Qt::AlignRight));
}

QVariant TextTable::data(const QModelIndex& index, int role) const {
    if (!index.isValid()) {
        return {};
    }
    switch (role) {
        case Qt::DisplayRole:
            return content_.text(index.row(), index.column());
        case Qt::TextAlignmentRole:
            return alignment(index.column());
        case Qt::FontRole:
            if (content_.is_heading && content_.is_heading(index.row())) {
                QFont bold;
                bold.setBold(true);
                return bold;
            }
            return {};
        default:
            return {};
    }
}

QVariant TextTable::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation != Qt::Horizontal || section >= columnCount()) {
        return {};
    }
    if (role == Qt::TextAlignmentRole) {
        return alignment(section);
    }
    return role == Qt::DisplayRole ? content_.headers[section] : QVariant();
}

QTreeView* table_view(QAbstractItemModel* model, const QString& name, QWidget* parent) {
    auto* const view = new QTreeView(parent);
    view->setModel(model);
    view->setAccessibleName(name);
    view->setRootIsDecorated(false);
    view->setUniformRowHeights(true);
    view->setAlternatingRowColors(true);
    view->setFrameShape(QFrame::NoFrame);
    view->setAllColumnsShowFocus(true);
    view->header()->setStretchLastSection(false);
    return view;
}

void set_column_width(QTreeView* view, int column, const QString& like) {
    view->setColumnWidth(column, QFontMetrics(view->font()).horizontalAdvance(like) + cell_padding);
}

}  // namespace pipetwin::gui
