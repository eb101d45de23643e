#include "gui/base/text_table.h"

#include <algorithm>
#include <utility>

#include <QFont>
#include <QHeaderView>
#include <QScrollBar>
#include <QSplitter>
#include <QStyle>
#include <QTreeView>

#include "gui/base/plain_text.h"

namespace pipetwin::gui {

namespace {

constexpr const char* border_moved = "border_moved";  // property of a splitter

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
    return heading_data(content_.headers[section], role);
}

namespace {

constexpr const char* first_column_width = "first_column_width";  ///< in pixels, as a property

/// Gives the first column what room is left, and what is in it at least.
void stretch_first_column(QTreeView* view) {
    const int least = view->property(first_column_width).toInt();
    if (least > 0) {
        QHeaderView* const header = view->header();
        const int others = header->length() - header->sectionSize(0);
        header->resizeSection(0, std::max(least, view->viewport()->width() - others));
    }
}

class TableView : public QTreeView {
  public:
    using QTreeView::QTreeView;

  protected:
    void resizeEvent(QResizeEvent* event) override {
        QTreeView::resizeEvent(event);
        stretch_first_column(this);
    }
};

}  // namespace

QTreeView* table_view(QAbstractItemModel* model, const QString& name, QWidget* parent) {
    auto* const view = new TableView(parent);
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

int heading_width(const QHeaderView& header, int column) {
    const QString text = header.model()->headerData(column, Qt::Horizontal).toString();
    QFont bold = header.font();
    bold.setBold(true);
    const int margin = header.style()->pixelMetric(QStyle::PM_HeaderMargin, nullptr, &header);
    return header.sectionSizeHint(column) - QFontMetrics(bold).horizontalAdvance(text) +
           header.fontMetrics().horizontalAdvance(text) + margin;
}

int fit_columns(QTreeView* view) {
    const QAbstractItemView* const items = view;
    QHeaderView* const header = view->header();
    int all = view->verticalScrollBar()->sizeHint().width();
    for (int column = 0; column < header->count(); ++column) {
        header->setSectionResizeMode(column, QHeaderView::Interactive);
        const int width =
            std::max(items->sizeHintForColumn(column), heading_width(*header, column));
        header->resizeSection(column, width);
        all += width;
    }
    if (header->count() > 0) {
        view->setProperty(first_column_width, header->sectionSize(0));
        stretch_first_column(view);
    }
    return all;
}

QSplitter* splitter_of_lists(QWidget* parent) {
    auto* const splitter = new QSplitter(parent);
    splitter->setChildrenCollapsible(false);
    QObject::connect(splitter, &QSplitter::splitterMoved, splitter, [splitter] {
        splitter->setProperty(border_moved, true);
    });
    return splitter;
}

void share_room(QSplitter* splitter, const QList<int>& widths) {
    if (!splitter->property(border_moved).toBool()) {
        splitter->setSizes(widths);
    }
}

}  // namespace pipetwin::gui
