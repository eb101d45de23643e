// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QAbstractTableModel>
#include <QWidget>

#include "gui/timeline/timeline_view.h"

class QTableView;

namespace pipetwin::gui {

/// The ranks as a list: shown or not, pinned, folded, and in which order.
class TrackModel : public QAbstractTableModel {
    Q_OBJECT

  public:
    enum Column { Rank, Utilisation, Pinned, Folded, column_count };

    /// `timeline` must outlive the model.
    explicit TrackModel(TimelineView* timeline, QObject* parent = nullptr);

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;
    bool setData(const QModelIndex& index, const QVariant& value, int role) override;
    Qt::ItemFlags flags(const QModelIndex& index) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

    /// Moves a track one place up (-1) or down (+1); returns where it is then.
    int move(int row, int direction);

  private:
    void follow();
    static QVariant alignment(int column);
    bool is_there(const QModelIndex& index) const;
    double utilisation(int rank) const;

    TimelineView* timeline_;
    int rows_ = 0;
};

/// The list with buttons to move a rank, and to show or fold all.
class TrackPanel : public QWidget {
    Q_OBJECT

  public:
    explicit TrackPanel(TimelineView* timeline, QWidget* parent = nullptr);

  private:
    void move_current(int direction);
    template <class Change>
    void change_all(Change change);

    TimelineView* timeline_;
    TrackModel* model_;
    QTableView* table_;
};

}  // namespace pipetwin::gui
