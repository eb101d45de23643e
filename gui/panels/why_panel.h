// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include <QAbstractTableModel>
#include <QWidget>

#include "gui/base/palette.h"
#include "gui/panels/analysis_loader.h"
#include "gui/timeline/selection.h"
#include "gui/view/timeline/range_filter.h"

class QLabel;
class QPushButton;
class QTreeView;

namespace pipetwin::gui {

/// A table of what an action waited for, the latest first and then back to the start of the step,
/// or of the waits of a whole step, the longest first.
class WaitModel : public QAbstractTableModel {
    Q_OBJECT

  public:
    using QAbstractTableModel::QAbstractTableModel;

    enum Column {
        ActionColumn,
        RankColumn,
        TimeColumn,
        OfWaitColumn,  ///< of a chain alone
        BeginColumn,
        WhyColumn,
        column_count
    };

    void clear();
    void show_chain(const std::shared_ptr<const StepAnalysis>& analysis, const SpanRef& of);
    /// `range` leaves out waits that do not touch it; null: none.
    void show_longest(const std::shared_ptr<const StepAnalysis>& analysis,
                      int step,
                      const RangeFilter* range);

    bool is_chain() const { return is_chain_; }

    /// The action that a row leads to; for the time after the last action of a rank that action.
    std::optional<SpanRef> target(int row) const;
    /// The place of a row that is the time after the last action of a rank, which has no action;
    /// none for other rows.
    std::optional<SpanRef> end_of_step(int row) const;

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

  private:
    QString heading(int column) const;
    QString text(const QModelIndex& index) const;
    QString chain_text(std::size_t row, int column) const;
    QString idle_text(const IdleTime& idle, int column) const;

    std::shared_ptr<const StepAnalysis> analysis_;
    bool is_chain_ = false;
    std::vector<WaitPiece> chain_;   ///< the latest first
    std::vector<Duration> in_wait_;  ///< of the first pieces of the chain: the part in the wait
    std::vector<IdleTime> longest_;
};

/// Why the selected action waited, or where the step's idle time is.
class WhyPanel : public QWidget {
    Q_OBJECT

  public:
    explicit WhyPanel(Selection* selection, QWidget* parent = nullptr);

    void show_run(std::shared_ptr<const RunData> run);
    void set_colors(const Palette& palette);
    /// Lists only waits that touch the range; null: all.
    void set_range(RangeFilterPointer range);

  public slots:
    /// Goes to the action that the selected one waited for; does nothing without a selection or
    /// without such an action.
    void go_to_blocker();
    void go_to_unblocked();
    /// Explains what a rank waits for after its last action; `end.cell` is the length of its row.
    /// Nothing is selected then.
    void explain_end(const SpanRef& end);

  signals:
    /// Announces what the selected action waited for, and what led to what.
    void chain_changed(const std::vector<SpanRef>& chain, const std::vector<Arrow>& arrows);

    /// The panel explains the time after the last action of a rank, or no longer does.
    void end_changed(const std::optional<pipetwin::gui::SpanRef>& end);

    /// The selection has gone there; views may have to scroll.
    void go_to(const SpanRef& ref);

    /// The panel shows the time after this action, which is not selected.
    void look_at(const SpanRef& ref);

    /// The panel shows the selection.
    void settled();

  private:
    enum class Step { None, Blocker, Unblocked };

    std::optional<SpanRef> explained() const;
    void want();
    void show_analysis();
    void show_selected(const SpanRef& selected);
    void open_row(int row);
    void show_all();
    void show_step();
    void walk(Step step);
    void go(const std::optional<SpanRef>& ref);
    void say(const QString& sentence, const QString& note);

    Selection* selection_;
    AnalysisLoader loader_;
    std::shared_ptr<const RunData> run_;
    std::optional<SpanRef> end_;  ///< end of a row that is explained while nothing is selected
    RangeFilterPointer range_;
    Step pending_ = Step::None;  ///< to be done when the analysis is there
    QLabel* sentence_;
    QLabel* note_;
    QPushButton* all_;  ///< back to the waits of the step
    WaitModel* model_;
    QTreeView* view_;
};

}  // namespace pipetwin::gui
