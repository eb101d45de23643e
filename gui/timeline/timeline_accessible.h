// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include <QAccessibleWidget>
#include <QPointer>

#include "gui/timeline/timeline_view.h"

namespace pipetwin::gui {

/// The timeline for screen readers: a table with a row for each row on the screen and a cell for
/// each action that is seen, at most `most_cells` of a row.
class TimelineAccessible : public QAccessibleWidget, public QAccessibleTableInterface {
  public:
    explicit TimelineAccessible(TimelineView* view);
    ~TimelineAccessible() override;

    /// Makes timelines answer to screen readers from now on.
    static void install();

    static constexpr int most_cells = 500;

    TimelineView* timeline() const;

    /// The actions that are seen of a row, in the order of time.
    std::vector<SpanRef> seen_of(int row) const;

    /// The place of an action in the table; none where it is not seen.
    struct Place {
        int row = 0;
        int column = 0;
    };
    std::optional<Place> place_of(const SpanRef& ref) const;

    // QAccessibleInterface
    void* interface_cast(QAccessible::InterfaceType type) override;
    int childCount() const override;
    QAccessibleInterface* child(int index) const override;
    int indexOfChild(const QAccessibleInterface* child) const override;
    QAccessibleInterface* childAt(int x, int y) const override;
    QAccessibleInterface* focusChild() const override;

    // QAccessibleTableInterface
    QAccessibleInterface* caption() const override { return nullptr; }
    QAccessibleInterface* summary() const override { return nullptr; }
    QAccessibleInterface* cellAt(int row, int column) const override;
    int selectedCellCount() const override;
    QList<QAccessibleInterface*> selectedCells() const override;
    QString columnDescription(int column) const override;
    QString rowDescription(int row) const override;
    int selectedColumnCount() const override { return 0; }
    int selectedRowCount() const override { return 0; }
    int columnCount() const override;
    int rowCount() const override;
    QList<int> selectedColumns() const override { return {}; }
    QList<int> selectedRows() const override { return {}; }
    bool isColumnSelected(int /*column*/) const override { return false; }
    bool isRowSelected(int /*row*/) const override { return false; }
    bool selectRow(int /*row*/) override { return false; }
    bool selectColumn(int /*column*/) override { return false; }
    bool unselectRow(int /*row*/) override { return false; }
    bool unselectColumn(int /*column*/) override { return false; }
    void modelChange(QAccessibleTableModelChangeEvent* /*event*/) override {}

  private:
    QAccessibleInterface* cell_for(const SpanRef& ref) const;

    /// One interface for each action that was asked about: [side, step, rank, cell].
    mutable std::map<std::array<int, 4>, QAccessible::Id> cells_;
};

/// The cell of one action for screen readers.
class TimelineCell : public QAccessibleInterface, public QAccessibleTableCellInterface {
  public:
    TimelineCell(TimelineView* view, const SpanRef& ref) : view_(view), ref_(ref) {}

    const SpanRef& ref() const { return ref_; }

    bool isValid() const override;
    QObject* object() const override { return nullptr; }
    QAccessibleInterface* childAt(int /*x*/, int /*y*/) const override { return nullptr; }
    QAccessibleInterface* parent() const override;
    QAccessibleInterface* child(int /*index*/) const override { return nullptr; }
    int childCount() const override { return 0; }
    int indexOfChild(const QAccessibleInterface* /*child*/) const override { return -1; }
    QString text(QAccessible::Text type) const override;
    void setText(QAccessible::Text /*type*/, const QString& /*text*/) override {}
    QRect rect() const override;
    QAccessible::Role role() const override { return QAccessible::Cell; }
    QAccessible::State state() const override;
    void* interface_cast(QAccessible::InterfaceType type) override;

    bool isSelected() const override;
    QList<QAccessibleInterface*> columnHeaderCells() const override { return {}; }
    QList<QAccessibleInterface*> rowHeaderCells() const override { return {}; }
    int columnIndex() const override;
    int rowIndex() const override;
    int columnExtent() const override { return 1; }
    int rowExtent() const override { return 1; }
    QAccessibleInterface* table() const override { return parent(); }

  private:
    std::optional<TimelineAccessible::Place> place() const;

    QPointer<TimelineView> view_;
    SpanRef ref_;
};

}  // namespace pipetwin::gui
