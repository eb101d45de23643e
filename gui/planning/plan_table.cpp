// SPDX-License-Identifier: Apache-2.0
#include "gui/planning/plan_table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/as_index.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"

namespace pipetwin::gui {

void PlanTable::show(std::shared_ptr<const PlanningAnswer> answer) {
    beginResetModel();
    answer_ = std::move(answer);
    const bool is_empty = answer_ == nullptr || answer_->rows.empty();
    columns_ = is_empty ? std::vector<PlanColumn>() : plan_columns(*answer_);
    order_.resize(is_empty ? 0 : answer_->rows.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    endResetModel();
}

std::size_t PlanTable::plan_at(int row) const {
    return order_.at(as_index(row));
}

int PlanTable::text_columns() const {
    constexpr int devices_and_schedule = 2;
    return std::min(devices_and_schedule, columnCount());
}

int PlanTable::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(order_.size());
}

int PlanTable::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(columns_.size());
}

QVariant PlanTable::data(const QModelIndex& index, int role) const {
    if (!index.isValid()) {
        return {};
    }
    if (role == Qt::DisplayRole) {
        return text_of(
            columns_[as_index(index.column())].text(answer_->rows[plan_at(index.row())]));
    }
    if (role == Qt::TextAlignmentRole) {
        return headerData(index.column(), Qt::Horizontal, role);
    }
    return {};
}

QVariant PlanTable::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation != Qt::Horizontal || section < 0 || section >= columnCount()) {
        return {};
    }
    const PlanColumn& column = columns_[as_index(section)];
    if (role == Qt::TextAlignmentRole) {
        const bool is_number = column.key && section >= text_columns();
        return QVariant::fromValue(Qt::AlignVCenter | (is_number ? Qt::AlignRight : Qt::AlignLeft));
    }
    return heading_data(text_of(column.head), role, text_of(column.tip));
}

/// Rows that are equal stay in the order of the answer.
void PlanTable::sort(int column, Qt::SortOrder order) {
    if (column < 0 || column >= columnCount()) {
        return;
    }
    const PlanColumn& by = columns_[as_index(column)];
    const auto is_less = [&](std::size_t a, std::size_t b) {
        const PlanRow& left = answer_->rows[order == Qt::AscendingOrder ? a : b];
        const PlanRow& right = answer_->rows[order == Qt::AscendingOrder ? b : a];
        return by.key ? by.key(left) < by.key(right) : by.text(left) < by.text(right);
    };
    emit layoutAboutToBeChanged();
    const QModelIndexList before = persistentIndexList();
    std::vector<std::size_t> plans;
    for (const QModelIndex& index : before) {
        plans.push_back(plan_at(index.row()));
    }
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_, is_less);
    for (qsizetype i = 0; i < before.size(); ++i) {
        const auto place = std::ranges::find(order_, plans[static_cast<std::size_t>(i)]);
        changePersistentIndex(before[i],
                              index(static_cast<int>(place - order_.begin()), before[i].column()));
    }
    emit layoutChanged();
}

}  // namespace pipetwin::gui
