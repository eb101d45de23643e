// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <vector>

#include <QFutureWatcher>
#include <QWidget>

#include "gui/base/palette.h"
#include "gui/base/text_table.h"
#include "gui/timeline/selection.h"
#include "gui/view/analysis/path_shares.h"
#include "gui/view/timeline/range_filter.h"

class QLabel;
class QSplitter;
class QTreeView;

namespace pipetwin::gui {

/// The longest chain of a step, predicted and measured side by side: its composition, what would be
/// gained by making a part of it faster, and its actions in turn.
class CriticalPathPanel : public QWidget {
    Q_OBJECT

  public:
    explicit CriticalPathPanel(Selection* selection, QWidget* parent = nullptr);

    void show_run(std::shared_ptr<const RunData> run);
    void set_colors(const Palette& palette);
    /// Lists only the parts that touch the range; null: all. The shares stay those of the step.
    void set_range(RangeFilterPointer range);

  signals:
    /// The longest chains of both sides of the step that is shown, for the timeline to mark.
    void critical_changed(const std::vector<SpanRef>& critical);

    /// The selection has gone there.
    void go_to(const SpanRef& ref);

    void settled();

  private:
    struct PathOfSide {
        std::shared_ptr<const StepAnalysis> analysis;  ///< null without the side
        PathShares shares;
    };
    using Both = std::array<PathOfSide, 2>;  ///< [side]

    static Both both_of(const std::shared_ptr<const RunData>& run, int step);
    void want();
    void show_paths();
    void show_shares();
    void show_actions(Side side);
    QString sentence() const;

    Selection* selection_;
    std::shared_ptr<const RunData> run_;
    RangeFilterPointer range_;
    int step_ = -1;
    QFutureWatcher<Both> working_;
    Both paths_;
    QLabel* sentence_;
    QSplitter* splitter_;
    TextTable* shares_;
    QTreeView* shares_view_;
    std::array<TextTable*, 2> actions_{};
    std::array<QTreeView*, 2> actions_views_{};
};

}  // namespace pipetwin::gui
