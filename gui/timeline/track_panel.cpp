// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/track_panel.h"

#include <algorithm>
#include <array>
#include <utility>

#include <QHBoxLayout>
#include <QHeaderView>
#include <QPushButton>
#include <QTableView>
#include <QVBoxLayout>

#include "core/base/as_index.h"
#include "core/base/short_number.h"

namespace pipetwin::gui {

TrackModel::TrackModel(TimelineView* timeline, QObject* parent)
    : QAbstractTableModel(parent), timeline_(timeline) {
    connect(timeline_, &TimelineView::tracks_changed, this, &TrackModel::follow);
    follow();
}

void TrackModel::follow() {
    const int rows = static_cast<int>(timeline_->tracks().size());
    if (rows != rows_) {
        beginResetModel();
        rows_ = rows;
        endResetModel();
    } else if (rows > 0) {
        emit dataChanged(index(0, 0), index(rows - 1, column_count - 1));
    }
}

int TrackModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : rows_;
}

int TrackModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : column_count;
}

bool TrackModel::is_there(const QModelIndex& index) const {
    return index.isValid() && as_index(index.row()) < timeline_->tracks().size();
}

double TrackModel::utilisation(int rank) const {
    const RunData* const run = timeline_->scene().run;
    for (const Side side : {Side::Measured, Side::Predicted}) {
        const SideData* const data =
            run != nullptr && run->side(side) ? &*run->side(side) : nullptr;
        if (data != nullptr && as_index(rank) < data->ranks.size()) {
            return data->ranks[as_index(rank)].utilisation;
        }
    }
    return 0;
}

QVariant TrackModel::alignment(int column) {
    return QVariant::fromValue(Qt::AlignVCenter |
                               (column == Utilisation ? Qt::AlignRight : Qt::AlignLeft));
}

QVariant TrackModel::data(const QModelIndex& index, int role) const {
    if (!is_there(index)) {
        return {};
    }
    const Track& track = timeline_->tracks()[as_index(index.row())];
    const auto checked = [](bool on) { return QVariant(on ? Qt::Checked : Qt::Unchecked); };
    switch (index.column()) {
        case Rank:
            if (role == Qt::CheckStateRole) {
                return checked(!track.hidden);
            }
            return role == Qt::DisplayRole ? tr("rank %1").arg(track.rank) : QVariant();
        case Utilisation:
            if (role == Qt::TextAlignmentRole) {
                return alignment(Utilisation);
            }
            return role == Qt::DisplayRole
                       ? QString::fromStdString(short_percent(utilisation(track.rank)))
                       : QVariant();
        case Pinned:
            return role == Qt::CheckStateRole ? checked(track.pinned) : QVariant();
        case Folded:
            return role == Qt::CheckStateRole ? checked(track.folded) : QVariant();
        default:
            return {};
    }
}

bool TrackModel::setData(const QModelIndex& index, const QVariant& value, int role) {
    if (!is_there(index) || role != Qt::CheckStateRole) {
        return false;
    }
    const bool on = value.toInt() == Qt::Checked;
    Tracks tracks = timeline_->tracks();
    Track& track = tracks[as_index(index.row())];
    switch (index.column()) {
        case Rank:
            track.hidden = !on;
            break;
        case Pinned:
            track.pinned = on;
            break;
        case Folded:
            track.folded = on;
            break;
        default:
            return false;
    }
    timeline_->set_tracks(std::move(tracks));
    return true;
}

Qt::ItemFlags TrackModel::flags(const QModelIndex& index) const {
    if (!index.isValid()) {
        return Qt::NoItemFlags;
    }
    const Qt::ItemFlags plain = Qt::ItemIsEnabled | Qt::ItemIsSelectable;
    const bool can_be_checked = index.column() != Utilisation;
    return can_be_checked ? plain | Qt::ItemIsUserCheckable : plain;
}

QVariant TrackModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation != Qt::Horizontal || section < 0 || section >= column_count) {
        return {};
    }
    if (role == Qt::TextAlignmentRole) {
        return alignment(section);
    }
    if (role != Qt::DisplayRole) {
        return {};
    }
    const std::array<QString, column_count> names{
        tr("Shown"), tr("Utilisation"), tr("Pinned"), tr("Folded")};
    return names[as_index(section)];
}

int TrackModel::move(int row, int direction) {
    Tracks tracks = timeline_->tracks();
    const int target = row + direction;
    const int count = static_cast<int>(tracks.size());
    if (row < 0 || row >= count || target < 0 || target >= count) {
        return row;
    }
    std::swap(tracks[as_index(row)], tracks[as_index(target)]);
    timeline_->set_tracks(std::move(tracks));
    return target;
}

TrackPanel::TrackPanel(TimelineView* timeline, QWidget* parent)
    : QWidget(parent),
      timeline_(timeline),
      model_(new TrackModel(timeline, this)),
      table_(new QTableView(this)) {
    table_->setModel(model_);
    table_->setAccessibleName(tr("Ranks"));
    table_->setSelectionBehavior(QAbstractItemView::SelectRows);
    table_->setSelectionMode(QAbstractItemView::SingleSelection);
    table_->verticalHeader()->hide();
    table_->verticalHeader()->setDefaultSectionSize(fontMetrics().height() + 4);
    table_->setShowGrid(false);
    table_->setFrameShape(QFrame::NoFrame);
    table_->horizontalHeader()->setHighlightSections(false);
    table_->horizontalHeader()->setSectionResizeMode(QHeaderView::ResizeToContents);
    table_->horizontalHeader()->setStretchLastSection(true);
    auto* const buttons = new QHBoxLayout;
    const auto add = [&](const QString& text, auto act) {
        auto* const button = new QPushButton(text, this);
        connect(button, &QPushButton::clicked, this, act);
        buttons->addWidget(button);
    };
    add(tr("Up"), [this] { move_current(-1); });
    add(tr("Down"), [this] { move_current(+1); });
    add(tr("Show all"), [this] { change_all([](Track& track) { track.hidden = false; }); });
    add(tr("Fold all"), [this] { change_all([](Track& track) { track.folded = true; }); });
    add(tr("Unfold all"), [this] { change_all([](Track& track) { track.folded = false; }); });
    buttons->addStretch(1);
    auto* const column = new QVBoxLayout(this);
    column->addWidget(table_, 1);
    column->addLayout(buttons);
}

void TrackPanel::move_current(int direction) {
    const QModelIndex current = table_->currentIndex();
    if (current.isValid()) {
        table_->setCurrentIndex(
            model_->index(model_->move(current.row(), direction), current.column()));
    }
}

template <class Change>
void TrackPanel::change_all(Change change) {
    Tracks tracks = timeline_->tracks();
    std::ranges::for_each(tracks, change);
    timeline_->set_tracks(std::move(tracks));
}

}  // namespace pipetwin::gui
