// SPDX-License-Identifier: Apache-2.0
#include "gui/base/text_table.h"

#include <algorithm>
#include <utility>

#include <QFont>
#include <QHeaderView>
#include <QHelpEvent>
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
    return heading_data(content_.headers[section], role, content_.tips.value(section));
}

namespace {

constexpr const char* text_widths = "text_widths";  ///< of the columns of texts, as a property

/// Gives the columns of texts equal parts of the room that is left. With less room than their texts
/// need they show the beginnings of them.
void share_among_texts(QTreeView* view) {
    constexpr int least_width = 80;  // pixels
    const QVariantList widths = view->property(text_widths).toList();
    QHeaderView* const header = view->header();
    const int columns = std::min(static_cast<int>(widths.size()), header->count());
    int room = view->viewport()->width();
    for (int column = columns; column < header->count(); ++column) {
        room -= header->sectionSize(column);
    }
    for (int column = 0; column < columns; ++column) {
        const int least = std::min(widths[column].toInt(), least_width);
        const int width = std::max(least, room / (columns - column));
        header->resizeSection(column, width);
        room -= width;
    }
}

class TableView : public QTreeView {
  public:
    using QTreeView::QTreeView;

  protected:
    void resizeEvent(QResizeEvent* event) override {
        QTreeView::resizeEvent(event);
        share_among_texts(this);
    }

    bool viewportEvent(QEvent* event) override {
        if (event->type() == QEvent::ToolTip) {
            const auto* const help =
                static_cast<QHelpEvent*>(event);  // NOLINT: Qt says so by type()
            const QModelIndex index = indexAt(help->pos());
            const bool is_cut = index.isValid() && sizeHintForIndex(index).width() >
                                                       header()->sectionSize(index.column());
            if (is_cut) {
                show_tip(help->globalPos(), index.data().toString(), viewport());
                return true;
            }
        }
        return QTreeView::viewportEvent(event);
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
    view->header()->setTextElideMode(Qt::ElideRight);
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

int fit_columns(QTreeView* view, int text_columns) {
    const QAbstractItemView* const items = view;
    QHeaderView* const header = view->header();
    int all = view->verticalScrollBar()->sizeHint().width();
    QVariantList widths;
    for (int column = 0; column < header->count(); ++column) {
        header->setSectionResizeMode(column, QHeaderView::Interactive);
        const int width =
            std::max(items->sizeHintForColumn(column), heading_width(*header, column));
        header->resizeSection(column, width);
        if (column < text_columns) {
            widths += width;
        }
        all += width;
    }
    view->setProperty(text_widths, widths);
    share_among_texts(view);
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
