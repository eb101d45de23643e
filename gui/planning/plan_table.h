// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <QAbstractTableModel>

#include "gui/view/planning/planning_words.h"

namespace pipetwin::gui {

/// The plans of an answer, sorted by any column.
class PlanTable : public QAbstractTableModel {
    Q_OBJECT

  public:
    using QAbstractTableModel::QAbstractTableModel;

    /// Shows the plans of an answer, the fastest first; null shows none.
    void show(std::shared_ptr<const PlanningAnswer> answer);

    /// The row of the answer that stands in a row of the table.
    std::size_t plan_at(int row) const;
    /// The columns that are texts stand first.
    int text_columns() const;

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;
    void sort(int column, Qt::SortOrder order) override;

  private:
    std::shared_ptr<const PlanningAnswer> answer_;
    std::vector<PlanColumn> columns_;
    std::vector<std::size_t> order_;  ///< [row] in the answer
};

}  // namespace pipetwin::gui
