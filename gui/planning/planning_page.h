// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include <QFutureWatcher>
#include <QTimer>
#include <QWidget>

#include "gui/base/palette.h"

class QLabel;
class QProgressBar;
class QPushButton;
class QStackedWidget;
class QTabWidget;
class QTreeView;

namespace pipetwin::gui {

class Legend;
class PlanningForm;
class PlanTable;
class Selection;
class TextTable;
class TimelineView;
struct PlanInSight;
struct PlanningAnswer;
struct RunData;

/// Plans a model on a cluster as `pipetwin plan` does: the question at the left; the plans in a
/// table; below it the selected plan over time with its memory, the published runs that its
/// estimate is judged by, and what its devices send.
class PlanningPage : public QWidget {
    Q_OBJECT

  public:
    explicit PlanningPage(QWidget* parent = nullptr);
    ~PlanningPage() override;

    void set_colors(const Palette& palette);

    PlanningForm& form() { return *form_; }
    PlanTable& table() { return *table_; }
    TimelineView& timeline() { return *timeline_; }

    /// Asks what the form says, on a worker; `settled` follows. The question before is cancelled.
    void ask();
    /// Ends the question: what was found by then is shown.
    void cancel();
    bool is_busy() const { return worker_.isRunning(); }

    /// What is shown; null before the first answer.
    const std::shared_ptr<const PlanningAnswer>& answer() const { return answer_; }
    /// The plan of the selected row; null before it is simulated.
    const std::shared_ptr<const PlanInSight>& seen() const { return seen_; }
    /// The run of that plan; null where there is none.
    std::shared_ptr<const RunData> run() const;

    /// The answer, or what can be asked before the first.
    QWidget& answer_widget();

    /// Shows a panel below the table: "timeline", "evidence" or "sends".
    void show_panel(const QString& name);

  signals:
    /// An answer is shown.
    void settled();
    /// The selected plan is shown.
    void plan_shown();
    /// The plan is to be shown with all panels of the window, the what-if in front.
    void run_wanted(std::shared_ptr<const pipetwin::gui::RunData> run);
    void comparison_wanted(std::shared_ptr<const pipetwin::gui::RunData> run);

  private:
    using AnswerPointer = std::shared_ptr<const PlanningAnswer>;
    using SeenPointer = std::shared_ptr<const PlanInSight>;

    struct Talk;  ///< what the worker and the window say to each other

    QWidget* build_left();
    QWidget* build_known();
    QWidget* build_answer();
    QTabWidget* build_panels();
    void show_progress();
    void finish();
    void show_answer(AnswerPointer answer);
    void show_problem();
    void select_row();
    void finish_row();
    void show_seen();

    PlanningForm* form_;
    QProgressBar* progress_;
    QLabel* stage_;  ///< what is being computed
    QLabel* notes_;
    QStackedWidget* right_;
    QWidget* known_;
    QWidget* results_ = nullptr;
    QLabel* headline_;
    QLabel* range_;
    QLabel* nearest_;
    PlanTable* table_;
    QTreeView* view_;
    QTabWidget* panels_ = nullptr;
    Selection* selection_;
    TimelineView* timeline_;
    Legend* legend_;
    TextTable* evidence_;
    QTreeView* evidence_view_;
    TextTable* sends_;
    QTreeView* sends_view_;
    QLabel* load_;
    QPushButton* open_ = nullptr;
    QPushButton* add_ = nullptr;

    std::shared_ptr<Talk> talk_;
    QFutureWatcher<AnswerPointer> worker_;
    QFutureWatcher<SeenPointer> row_worker_;
    QTimer ticks_;
    AnswerPointer answer_;
    SeenPointer seen_;
    std::size_t row_ = 0;      ///< of the answer: the selected one
    bool row_again_ = false;   ///< another was selected since the worker began
    bool asks_again_ = false;  ///< another question waits for the end of the one before
};

}  // namespace pipetwin::gui
