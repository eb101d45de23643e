// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <QFutureWatcher>
#include <QWidget>

#include "gui/base/palette.h"
#include "gui/base/text_table.h"
#include "gui/timeline/selection.h"
#include "gui/view/analysis/error_summary.h"

class QLabel;
class QSplitter;
class QTreeView;

namespace pipetwin::gui {

/// Bars over the error in percent: right of 0 the action was faster than predicted, left slower.
class HistogramView : public QWidget {
    Q_OBJECT

  public:
    explicit HistogramView(QWidget* parent = nullptr);

    void show_errors(const QString& title, const ErrorHistogram& histogram);
    void set_colors(const Palette& palette);

    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

    /// The texts below the ends of the axis, without words where these leave no room for the 0 in
    /// its middle. Only the right one says that larger errors exist: none is below -100 %.
    std::pair<QString, QString> end_labels() const;

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    QRect axis() const;

    Palette palette_;
    QString title_;
    ErrorHistogram histogram_;
};

/// Shows which cost is profiled wrongly: errors by kind and stage over all steps, how they are
/// spread, and the actions that were furthest off.
class ErrorPanel : public QWidget {
    Q_OBJECT

  public:
    explicit ErrorPanel(Selection* selection, QWidget* parent = nullptr);

    void show_run(std::shared_ptr<const RunData> run);
    void set_colors(const Palette& palette);
    /// Sums up only the actions that touch the range; null: all.
    void set_range(RangeFilterPointer range);

  signals:
    /// The selection has gone there.
    void go_to(const SpanRef& ref);

    void settled();

  private:
    using Result = std::shared_ptr<const ErrorSummary>;

    void want();
    void show_summary(const Result& summary);
    void show_histogram(int row);
    void go(const std::optional<SpanRef>& ref);

    Selection* selection_;
    std::shared_ptr<const RunData> run_;
    RangeFilterPointer range_;
    QFutureWatcher<Result> working_;
    Result summary_;
    QLabel* sentence_;
    QSplitter* splitter_;
    TextTable* costs_;
    QTreeView* costs_view_;
    HistogramView* histogram_;
    TextTable* worst_;
    QTreeView* worst_view_;
};

}  // namespace pipetwin::gui
