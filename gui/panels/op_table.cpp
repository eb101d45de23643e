// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/op_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QTableView>
#include <QVBoxLayout>
#include <QtConcurrentRun>

#include "core/base/as_index.h"
#include "core/base/short_number.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/base/workers.h"
#include "gui/view/analysis/action_details.h"

namespace pipetwin::gui {

namespace {

constexpr int cell_padding = 20;  // with what a heading needs beside its text

/// A heading, and a text that is as wide as any in its column.
struct ColumnText {
    const char* heading;
    const char* widest;
};
constexpr std::array<ColumnText, op_column_count> column_texts{
    {{"Step", "Step"},
     {"Rank", "Rank"},
     {"Stage", "Stage"},
     {"Action", "88SEND_F888"},
     {"Micro-batch", "Micro-batch"},
     {"Start, predicted", ""},
     {"Start, measured", "Start, emulated"},
     {"Duration, predicted", ""},
     {"Duration, measured", "Duration, emulated"},
     {"Error", "+888.8 %"},
     {"Wait, predicted", ""},
     {"Wait, measured", "Wait, emulated"},
     {"Critical", "predicted"}}};

/// "measured" or "emulated", whatever those are of which there are none.
QString measured_name(const OpRows& rows) {
    const std::string name = rows.size() > 0 ? side_name(rows.run(), Side::Measured) : "";
    return name.empty() ? QObject::tr("measured") : QString::fromStdString(name);
}

QString critical_text(double sides, const OpRows& rows) {
    const std::array<QString, 4> texts{
        QString(), QObject::tr("predicted"), measured_name(rows), QObject::tr("both")};
    return texts[as_index(sides)];
}

QString text_of(const OpRows& rows, int row, OpColumn column) {
    if (column == OpColumn::Action) {
        return QString::fromStdString(to_string(rows.action(row)));
    }
    const double number = rows.number(row, column);
    if (std::isnan(number)) {
        return {};
    }
    switch (column) {
        case OpColumn::Step:
        case OpColumn::Rank:
        case OpColumn::Stage:
        case OpColumn::MicroBatch:
            return QString::number(static_cast<int>(number));
        case OpColumn::Error:
            return QString::fromStdString(percent_text(number));
        case OpColumn::Critical:
            return critical_text(number, rows);
        case OpColumn::PredictedBegin:
        case OpColumn::MeasuredBegin:
            return QString::fromStdString(time_within(Duration{static_cast<std::int64_t>(number)},
                                                      rows.run().twin.length(rows.ref(row).step)));
        default:
            return QString::fromStdString(short_time(Duration{static_cast<std::int64_t>(number)}));
    }
}

bool is_text(int column) {
    return column == static_cast<int>(OpColumn::Action) ||
           column == static_cast<int>(OpColumn::Critical);
}

}  // namespace

void OpTableModel::show(std::shared_ptr<const OpRows> rows) {
    beginResetModel();
    rows_ = std::move(rows);
    endResetModel();
}

void OpTableModel::show_critical(std::shared_ptr<const OpRows> rows) {
    rows_ = std::move(rows);
    if (rows_->size() > 0) {
        const int column = static_cast<int>(OpColumn::Critical);
        emit dataChanged(index(0, column), index(rows_->size() - 1, column), {Qt::DisplayRole});
    }
}

int OpTableModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : rows_->size();
}

int OpTableModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : op_column_count;
}

QVariant OpTableModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid()) {
        return {};
    }
    if (role == Qt::DisplayRole) {
        return text_of(*rows_, index.row(), static_cast<OpColumn>(index.column()));
    }
    if (role == Qt::TextAlignmentRole) {
        return QVariant::fromValue(Qt::AlignVCenter |
                                   (is_text(index.column()) ? Qt::AlignLeft : Qt::AlignRight));
    }
    return {};
}

QVariant OpTableModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation != Qt::Horizontal || section < 0 || section >= op_column_count) {
        return {};
    }
    if (role == Qt::TextAlignmentRole) {
        return QVariant::fromValue(Qt::AlignVCenter |
                                   (is_text(section) ? Qt::AlignLeft : Qt::AlignRight));
    }
    const auto column = static_cast<OpColumn>(section);
    if (role == Qt::ToolTipRole &&
        (column == OpColumn::PredictedBegin || column == OpColumn::MeasuredBegin)) {
        return tr("since the start of the step");
    }
    if (role != Qt::DisplayRole) {
        return {};
    }
    return tr(column_texts[as_index(section)].heading)
        .replace(tr("measured"), measured_name(*rows_));
}

OpFilterProxy::OpFilterProxy(OpTableModel* model, QObject* parent)
    : QAbstractProxyModel(parent), model_(model) {
    setSourceModel(model);
    connect(model, &OpTableModel::modelAboutToBeReset, this, &OpFilterProxy::clear);
    connect(model, &OpTableModel::modelReset, this, &OpFilterProxy::rebuild);
    connect(model, &OpTableModel::dataChanged, this, [this] {
        if (filter_.critical || column_ == OpColumn::Critical) {
            rebuild();
        } else if (rowCount() > 0) {
            const int column = static_cast<int>(OpColumn::Critical);
            emit dataChanged(index(0, column), index(rowCount() - 1, column));
        }
    });
    connect(&sorting_, &QFutureWatcher<std::shared_ptr<const Order>>::finished, this, [this] {
        if (!std::exchange(wanted_, false)) {
            return;
        }
        beginResetModel();
        order_ = sorting_.result();
        endResetModel();
        emit settled();
    });
}

void OpFilterProxy::set_most_rows(int rows) {
    beginResetModel();
    most_rows_ = rows;
    endResetModel();
    emit settled();
}

int OpFilterProxy::found() const {
    return static_cast<int>(order_->rows.size());
}

void OpFilterProxy::set_filter(const OpFilter& filter) {
    filter_ = filter;
    rebuild();
}

void OpFilterProxy::sort(int column, Qt::SortOrder order) {
    if (column < 0 || column >= op_column_count) {
        return;
    }
    column_ = static_cast<OpColumn>(column);
    descending_ = order == Qt::DescendingOrder;
    rebuild();
}

void OpFilterProxy::clear() {
    beginResetModel();
    order_ = std::make_shared<const Order>();
    endResetModel();
    wanted_ = false;
}

void OpFilterProxy::rebuild() {
    wanted_ = true;
    sorting_.setFuture(QtConcurrent::run(
        workers(),
        [rows = model_->rows(), filter = filter_, column = column_, descending = descending_] {
            auto order = std::make_shared<Order>();
            order->rows = ordered_rows(*rows, filter, column, descending);
            order->place_of.assign(as_index(rows->size()), -1);
            for (std::size_t row = 0; row < order->rows.size(); ++row) {
                order->place_of[as_index(order->rows[row])] = static_cast<int>(row);
            }
            return std::shared_ptr<const Order>(std::move(order));
        }));
}

QModelIndex OpFilterProxy::index(int row, int column, const QModelIndex& parent) const {
    return hasIndex(row, column, parent) ? createIndex(row, column) : QModelIndex();
}

QModelIndex OpFilterProxy::parent(const QModelIndex& /*child*/) const {
    return {};
}

QModelIndex OpFilterProxy::mapToSource(const QModelIndex& proxy) const {
    return proxy.isValid() && proxy.row() < rowCount()
               ? model_->index(order_->rows[as_index(proxy.row())], proxy.column())
               : QModelIndex();
}

QModelIndex OpFilterProxy::mapFromSource(const QModelIndex& source) const {
    if (!source.isValid() || std::cmp_greater_equal(source.row(), order_->place_of.size())) {
        return {};
    }
    const int row = order_->place_of[as_index(source.row())];
    return row < 0 || row >= rowCount() ? QModelIndex() : createIndex(row, source.column());
}

int OpFilterProxy::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : std::min(most_rows_, found());
}

int OpFilterProxy::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : op_column_count;
}

QVariant OpFilterProxy::headerData(int section, Qt::Orientation orientation, int role) const {
    return model_->headerData(section, orientation, role);
}

OpTablePanel::OpTablePanel(Selection* selection, QWidget* parent)
    : QWidget(parent),
      selection_(selection),
      line_(new QLineEdit(this)),
      count_(plain_label(this)),
      model_(new OpTableModel(this)),
      proxy_(new OpFilterProxy(model_, this)),
      view_(new QTableView(this)) {
    setAccessibleName(tr("Actions"));
    line_->setPlaceholderText(tr("F, 1B2, rank 1, step 3, error > 5, wait > 0.2, critical"));
    line_->setAccessibleName(tr("Filter of the actions"));
    line_->setClearButtonEnabled(true);
    view_->setModel(proxy_);
    view_->setAccessibleName(tr("All actions"));
    view_->setFrameShape(QFrame::NoFrame);
    view_->setShowGrid(false);
    view_->setAlternatingRowColors(true);
    view_->setWordWrap(false);
    view_->setTabKeyNavigation(false);
    view_->setSelectionBehavior(QAbstractItemView::SelectRows);
    view_->setSelectionMode(QAbstractItemView::SingleSelection);
    view_->verticalHeader()->hide();
    view_->verticalHeader()->setSectionResizeMode(QHeaderView::Fixed);
    view_->verticalHeader()->setDefaultSectionSize(fontMetrics().height() + 4);
    view_->horizontalHeader()->setHighlightSections(false);
    view_->horizontalHeader()->setStretchLastSection(true);
    view_->horizontalHeader()->setSortIndicator(0, Qt::AscendingOrder);
    view_->setSortingEnabled(true);
    for (int column = 0; column < op_column_count; ++column) {
        const ColumnText& text = column_texts[as_index(column)];
        const QString heading = tr(text.heading);
        view_->setColumnWidth(
            column,
            cell_padding + std::max(fontMetrics().horizontalAdvance(heading),
                                    fontMetrics().horizontalAdvance(text.widest)));
    }
    auto* const top = new QHBoxLayout;
    top->setContentsMargins(panel_margin, panel_margin / 2, panel_margin, 0);
    top->setSpacing(panel_margin);
    top->addWidget(line_, 1);
    top->addWidget(count_);
    auto* const column = new QVBoxLayout(this);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(panel_margin / 2);
    column->addLayout(top);
    column->addWidget(view_, 1);

    connect(line_, &QLineEdit::textChanged, this, &OpTablePanel::filter);
    connect(line_, &QLineEdit::returnPressed, view_, [this] { view_->setFocus(); });
    connect(selection_, &Selection::span_changed, this, &OpTablePanel::show_selection);
    connect(proxy_, &OpFilterProxy::settled, this, [this] {
        show_count();
        show_selection();
        emit settled();
    });
    connect(view_->selectionModel(),
            &QItemSelectionModel::currentRowChanged,
            this,
            &OpTablePanel::take_current);
    const auto go = [this] {
        if (selection_->span()) {
            emit go_to(*selection_->span());
        }
    };
    connect(view_, &QTableView::clicked, this, go);
    connect(view_, &QTableView::activated, this, go);
    connect(
        &finding_critical_, &QFutureWatcher<std::shared_ptr<const OpRows>>::finished, this, [this] {
            const auto rows = finding_critical_.result();
            if (model_->rows()->size() == rows->size() && rows->size() > 0 &&
                &model_->rows()->run() == &rows->run()) {
                model_->show_critical(rows);
            }
        });
    show_count();
}

void OpTablePanel::show_run(std::shared_ptr<const RunData> run) {
    const bool any = run != nullptr && !run->empty();
    auto rows =
        any ? std::make_shared<const OpRows>(std::move(run)) : std::make_shared<const OpRows>();
    model_->show(rows);
    if (any) {
        const RunData& shown = rows->run();
        for (const OpColumn column :
             {OpColumn::PredictedBegin, OpColumn::PredictedDuration, OpColumn::PredictedWait}) {
            view_->setColumnHidden(static_cast<int>(column), !shown.predicted);
        }
        for (const OpColumn column :
             {OpColumn::MeasuredBegin, OpColumn::MeasuredDuration, OpColumn::MeasuredWait}) {
            view_->setColumnHidden(static_cast<int>(column), !shown.measured);
        }
        view_->setColumnHidden(static_cast<int>(OpColumn::Error),
                               !shown.predicted || !shown.measured);
        finding_critical_.setFuture(QtConcurrent::run(workers(), [rows] {
            auto with_critical = std::make_shared<OpRows>(*rows);
            with_critical->set_critical(
                std::make_shared<const OpRows::CriticalCells>(rows->find_critical()));
            return std::shared_ptr<const OpRows>(std::move(with_critical));
        }));
    }
}

void OpTablePanel::set_colors(const Palette& palette) {
    setPalette(widget_palette(palette));
}

void OpTablePanel::set_range(RangeFilterPointer range) {
    range_ = std::move(range);
    filter();
}

void OpTablePanel::filter() {
    if (auto filter = parse_filter(line_->text().toStdString())) {
        filter->range = range_;
        count_->setText(tr("..."));
        proxy_->set_filter(*filter);
    } else {
        count_->setText(tr("unknown filter; try 1F2 or wait > 0.2"));
    }
}

void OpTablePanel::show_count() {
    const int all = model_->rowCount();
    const int found = proxy_->found();
    QString text = all == 0       ? tr("No run is open.")
                   : found == all ? tr("%L1 actions").arg(all)
                                  : tr("%L1 of %L2 actions").arg(found).arg(all);
    if (range_ != nullptr) {
        text += range_->has_range() ? tr(", in the selected range") : tr(", of the shown ranks");
    }
    if (proxy_->rowCount() < found) {
        text += tr(", the first %L1 listed").arg(proxy_->rowCount());
    }
    count_->setText(text);
}

/// The table goes where the selection is.
void OpTablePanel::show_selection() {
    const auto& ref = selection_->span();
    const auto row = ref ? model_->rows()->row_of(*ref) : std::nullopt;
    const QModelIndex index = row ? proxy_->mapFromSource(model_->index(*row, 0)) : QModelIndex();
    if (index.row() == view_->currentIndex().row()) {
        return;
    }
    following_ = true;
    view_->setCurrentIndex(index);
    following_ = false;
}

void OpTablePanel::take_current(const QModelIndex& current) {
    const QModelIndex source = proxy_->mapToSource(current);
    if (following_ || !source.isValid()) {
        return;
    }
    SpanRef ref = model_->rows()->ref(source.row());
    const auto& selected = selection_->span();
    if (selected) {
        SpanRef there = ref;
        there.side = selected->side;
        ref = model_->rows()->run().twin.span(there) ? there : ref;
    }
    selection_->set_span(ref);
}

}  // namespace pipetwin::gui
