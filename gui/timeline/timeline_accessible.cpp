// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/timeline_accessible.h"

#include <algorithm>
#include <array>

#include <QScrollBar>

#include "core/base/as_index.h"
#include "gui/view/analysis/action_details.h"

namespace pipetwin::gui {

namespace {

QAccessibleInterface* make_interface(const QString& /*name*/, QObject* object) {
    auto* const view = qobject_cast<TimelineView*>(object);
    return view == nullptr ? nullptr : new TimelineAccessible(view);
}

std::array<int, 4> key_of(const SpanRef& ref) {
    return {ref.side == Side::Predicted ? 0 : 1, ref.step, ref.rank, ref.cell};
}

}  // namespace

TimelineAccessible::TimelineAccessible(TimelineView* view)
    : QAccessibleWidget(view, QAccessible::Table) {}

TimelineAccessible::~TimelineAccessible() {
    for (const auto& [key, id] : cells_) {
        QAccessible::deleteAccessibleInterface(id);
    }
}

void TimelineAccessible::install() {
    static const bool installed = [] {
        QAccessible::installFactory(make_interface);
        return true;
    }();
    static_cast<void>(installed);
}

TimelineView* TimelineAccessible::timeline() const {
    return qobject_cast<TimelineView*>(object());
}

std::vector<SpanRef> TimelineAccessible::seen_of(int row) const {
    const TimelineScene& scene = timeline()->scene();
    std::vector<SpanRef> seen;
    if (!scene.has_run() || row < 0 || row >= rowCount()) {
        return seen;
    }
    const Row& place = scene.layout.rows[as_index(row)];
    const TimelineScene::Steps steps = scene.steps_in_sight();
    for (int step = steps.first; step <= steps.last; ++step) {
        const RowIndex* const spans = scene.run->twin.row(place.side, step, place.rank);
        if (spans == nullptr) {
            continue;
        }
        const ViewTransform view = scene.places.of(place.side, step).inside(scene.view);
        const Duration right = view.time_at(scene.time_width());
        for (int cell = spans->first_ending_after(view.time_at(0));
             cell < spans->size() && spans->begin(cell) < right;
             ++cell) {
            if (spans->takes_time(cell)) {
                seen.push_back(
                    {.side = place.side, .step = step, .rank = place.rank, .cell = cell});
            }
            if (static_cast<int>(seen.size()) == most_cells) {
                return seen;
            }
        }
    }
    return seen;
}

std::optional<TimelineAccessible::Place> TimelineAccessible::place_of(const SpanRef& ref) const {
    const std::vector<Row>& rows = timeline()->scene().layout.rows;
    for (int row = 0; row < rowCount(); ++row) {
        const Row& place = rows[as_index(row)];
        if (place.side != ref.side || place.rank != ref.rank) {
            continue;
        }
        const std::vector<SpanRef> seen = seen_of(row);
        const auto found = std::ranges::find(seen, ref);
        if (found != seen.end()) {
            return Place{.row = row, .column = static_cast<int>(found - seen.begin())};
        }
    }
    return std::nullopt;
}

void* TimelineAccessible::interface_cast(QAccessible::InterfaceType type) {
    return type == QAccessible::TableInterface ? static_cast<QAccessibleTableInterface*>(this)
                                               : QAccessibleWidget::interface_cast(type);
}

int TimelineAccessible::rowCount() const {
    return static_cast<int>(timeline()->scene().layout.rows.size());
}

int TimelineAccessible::columnCount() const {
    std::size_t most = 0;
    for (int row = 0; row < rowCount(); ++row) {
        most = std::max(most, seen_of(row).size());
    }
    return static_cast<int>(most);
}

int TimelineAccessible::childCount() const {
    std::size_t count = 0;
    for (int row = 0; row < rowCount(); ++row) {
        count += seen_of(row).size();
    }
    return static_cast<int>(count);
}

QAccessibleInterface* TimelineAccessible::child(int index) const {
    for (int row = 0; row < rowCount() && index >= 0; ++row) {
        const std::vector<SpanRef> seen = seen_of(row);
        if (as_index(index) < seen.size()) {
            return cell_for(seen[as_index(index)]);
        }
        index -= static_cast<int>(seen.size());
    }
    return nullptr;
}

int TimelineAccessible::indexOfChild(const QAccessibleInterface* child) const {
    const auto* const cell = dynamic_cast<const TimelineCell*>(child);
    const std::optional<Place> place = cell == nullptr ? std::nullopt : place_of(cell->ref());
    if (!place) {
        return -1;
    }
    int index = place->column;
    for (int row = 0; row < place->row; ++row) {
        index += static_cast<int>(seen_of(row).size());
    }
    return index;
}

QAccessibleInterface* TimelineAccessible::childAt(int x, int y) const {
    const QPoint at = timeline()->viewport()->mapFromGlobal(QPoint(x, y));
    const std::optional<SpanRef> ref = timeline()->span_at(at);
    return ref ? cell_for(*ref) : nullptr;
}

QAccessibleInterface* TimelineAccessible::focusChild() const {
    const std::optional<SpanRef>& selected = timeline()->scene().selection;
    return timeline()->hasFocus() && selected ? cell_for(*selected) : nullptr;
}

QAccessibleInterface* TimelineAccessible::cell_for(const SpanRef& ref) const {
    const auto known = cells_.find(key_of(ref));
    if (known != cells_.end()) {
        return QAccessible::accessibleInterface(known->second);
    }
    auto* const cell = new TimelineCell(timeline(), ref);  // Qt's registry owns it
    cells_.emplace(key_of(ref), QAccessible::registerAccessibleInterface(cell));
    return cell;
}

QAccessibleInterface* TimelineAccessible::cellAt(int row, int column) const {
    const std::vector<SpanRef> seen = seen_of(row);
    return column >= 0 && as_index(column) < seen.size() ? cell_for(seen[as_index(column)])
                                                         : nullptr;
}

int TimelineAccessible::selectedCellCount() const {
    return timeline()->scene().selection ? 1 : 0;
}

QList<QAccessibleInterface*> TimelineAccessible::selectedCells() const {
    const std::optional<SpanRef>& selected = timeline()->scene().selection;
    return selected ? QList<QAccessibleInterface*>{cell_for(*selected)}
                    : QList<QAccessibleInterface*>{};
}

QString TimelineAccessible::columnDescription(int column) const {
    return TimelineView::tr("visible action %1").arg(column + 1);
}

QString TimelineAccessible::rowDescription(int row) const {
    if (row < 0 || row >= rowCount()) {
        return {};
    }
    const TimelineScene& scene = timeline()->scene();
    const Row& place = scene.layout.rows[as_index(row)];
    return TimelineView::tr("rank %1, %2")
        .arg(place.rank)
        .arg(QString::fromStdString(side_name(*scene.run, place.side)));
}

bool TimelineCell::isValid() const {
    return view_ != nullptr && view_->scene().has_run() &&
           view_->scene().run->twin.span(ref_).has_value();
}

QAccessibleInterface* TimelineCell::parent() const {
    return view_ == nullptr ? nullptr : QAccessible::queryAccessibleInterface(view_);
}

QString TimelineCell::text(QAccessible::Text type) const {
    return type == QAccessible::Name && isValid()
               ? QString::fromStdString(sentence_of(*view_->scene().run, ref_))
               : QString();
}

QRect TimelineCell::rect() const {
    if (!isValid()) {
        return {};
    }
    const QRect place = view_->place_of(ref_);
    return {view_->viewport()->mapToGlobal(place.topLeft()), place.size()};
}

QAccessible::State TimelineCell::state() const {
    QAccessible::State state;
    state.selectable = true;
    state.focusable = true;
    state.selected = isSelected();
    state.focused = isSelected() && view_->hasFocus();
    state.invalid = !isValid();
    return state;
}

void* TimelineCell::interface_cast(QAccessible::InterfaceType type) {
    return type == QAccessible::TableCellInterface
               ? static_cast<QAccessibleTableCellInterface*>(this)
               : nullptr;
}

bool TimelineCell::isSelected() const {
    return view_ != nullptr && view_->scene().selection == ref_;
}

std::optional<TimelineAccessible::Place> TimelineCell::place() const {
    const auto* const table = dynamic_cast<const TimelineAccessible*>(parent());
    return table == nullptr || !isValid() ? std::nullopt : table->place_of(ref_);
}

int TimelineCell::columnIndex() const {
    return place().value_or(TimelineAccessible::Place{.row = -1, .column = -1}).column;
}

int TimelineCell::rowIndex() const {
    return place().value_or(TimelineAccessible::Place{.row = -1, .column = -1}).row;
}

}  // namespace pipetwin::gui
