// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <QFutureWatcher>
#include <QTimer>
#include <QWidget>

#include "gui/base/palette.h"
#include "gui/view/playground/playground.h"

class QLabel;
class QTableView;

namespace pipetwin::gui {

class Legend;
class PlaygroundControls;
class Selection;
class TextTable;
class TimelineView;

/// A pipeline of plain numbers to try schedules with: the settings, the step that follows from
/// them, its bubble beside the formula, and why each rank waits. The step follows a change after a
/// moment; it is simulated on a worker, and the latest settings win.
class PlaygroundPage : public QWidget {
    Q_OBJECT

  public:
    explicit PlaygroundPage(QWidget* parent = nullptr);

    void set_colors(const Palette& palette);

    PlaygroundControls& controls() { return *controls_; }
    TimelineView& timeline() { return *timeline_; }

    /// The step that is shown; null before the first.
    const std::shared_ptr<const PlaygroundStep>& step() const { return step_; }

    /// Simulates the settings now, on this thread: for the first picture and for tests.
    void play_now();

  signals:
    /// The step of the latest settings is shown.
    void settled();
    /// The step is to be compared with others.
    void comparison_wanted();
    /// The run is to be shown with all panels of the window.
    void run_wanted(std::shared_ptr<const pipetwin::gui::RunData> run);

  protected:
    void showEvent(QShowEvent* event) override;

  private:
    using StepPointer = std::shared_ptr<const PlaygroundStep>;

    QWidget* build_picture();
    QWidget* build_bubble();
    void start();
    void finish();
    void show_step(StepPointer step);
    void explain_cause();
    void show_bubble();
    void show_ranks();
    void say_why();

    Palette palette_;
    PlaygroundControls* controls_;
    Selection* selection_;
    TimelineView* timeline_;
    Legend* legend_;
    QLabel* headline_;
    QLabel* measured_;
    QLabel* formula_;
    QLabel* where_;
    QLabel* why_;
    TextTable* ranks_;
    QTableView* rank_view_;
    QTimer wait_;  ///< for further changes
    QFutureWatcher<StepPointer> worker_;
    StepPointer step_;
    bool again_ = false;  ///< settings have changed since the worker began
};

}  // namespace pipetwin::gui
