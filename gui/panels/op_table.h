// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include <QAbstractProxyModel>
#include <QAbstractTableModel>
#include <QFutureWatcher>
#include <QWidget>

#include "gui/base/palette.h"
#include "gui/timeline/selection.h"
#include "gui/view/analysis/op_rows.h"

class QLabel;
class QLineEdit;
class QTableView;

namespace pipetwin::gui {

/// The actions of all steps as a table. Rows are virtual: texts are made when they are shown.
class OpTableModel : public QAbstractTableModel {
    Q_OBJECT

  public:
    using QAbstractTableModel::QAbstractTableModel;

    void show(std::shared_ptr<const OpRows> rows);

    /// Replaces the rows by the same rows with their longest chains.
    void show_critical(std::shared_ptr<const OpRows> rows);

    const std::shared_ptr<const OpRows>& rows() const { return rows_; }

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

  private:
    std::shared_ptr<const OpRows> rows_ = std::make_shared<const OpRows>();
};

/// Some of the rows of an OpTableModel, in the order of a column. Filtering and sorting happen on a
/// worker; only the last request is answered, and until then the rows stay as they are. Of very
/// many there are only the first ones: a view counts all rows on the thread of the window.
class OpFilterProxy : public QAbstractProxyModel {
    Q_OBJECT

  public:
    explicit OpFilterProxy(OpTableModel* model, QObject* parent = nullptr);

    void set_filter(const OpFilter& filter);
    void set_most_rows(int rows);

    /// Number of rows that the filter leaves, whether they are all shown or not.
    int found() const;
    void sort(int column, Qt::SortOrder order) override;

    QModelIndex index(int row, int column, const QModelIndex& parent = {}) const override;
    QModelIndex parent(const QModelIndex& child) const override;
    QModelIndex mapToSource(const QModelIndex& proxy) const override;
    QModelIndex mapFromSource(const QModelIndex& source) const override;
    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

  signals:
    /// The rows are those that were asked for.
    void settled();

  private:
    struct Order {
        std::vector<int> rows;      ///< [row]: row of the model
        std::vector<int> place_of;  ///< [row of the model]: row, or -1
    };

    void clear();
    void rebuild();

    OpTableModel* model_;
    OpFilter filter_;
    OpColumn column_ = OpColumn::Step;
    bool descending_ = false;
    bool wanted_ = false;
    int most_rows_ = 500'000;
    QFutureWatcher<std::shared_ptr<const Order>> sorting_;
    std::shared_ptr<const Order> order_ = std::make_shared<const Order>();
};

/// All actions in a table, with a line to filter them by.
class OpTablePanel : public QWidget {
    Q_OBJECT

  public:
    explicit OpTablePanel(Selection* selection, QWidget* parent = nullptr);

    void show_run(std::shared_ptr<const RunData> run);
    void set_colors(const Palette& palette);
    /// Lists only what lies in the range; null: everything.
    void set_range(RangeFilterPointer range);

  signals:
    /// The selection has gone there.
    void go_to(const SpanRef& ref);

    void settled();

  private:
    void filter();
    void show_count();
    void show_selection();
    void take_current(const QModelIndex& current);

    Selection* selection_;
    QLineEdit* line_;
    QLabel* count_;
    OpTableModel* model_;
    OpFilterProxy* proxy_;
    QTableView* view_;
    QFutureWatcher<std::shared_ptr<const OpRows>> finding_critical_;
    RangeFilterPointer range_;
    bool following_ = false;  ///< the table follows the selection, not the other way
};

}  // namespace pipetwin::gui
