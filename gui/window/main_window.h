// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include <QFutureWatcher>
#include <QMainWindow>

#include "gui/base/palette.h"
#include "gui/view/run/run_data.h"

class QFrame;
class QLabel;
class QMenu;
class QPushButton;
class QSettings;
class QSplitter;
class QStackedWidget;
class QTabWidget;

namespace pipetwin {

struct LinkedPlace;

}  // namespace pipetwin

namespace pipetwin::gui {

class CriticalPathPanel;
class DetailsPanel;
class ErrorPanel;
class Finder;
class GroupsPanel;
class HeatMapPanel;
class Legend;
class MinimapView;
class OpTablePanel;
class PlanningPage;
class PlaygroundPage;
class RunPanel;
class SearchLine;
class SideBySidePage;
class StartPage;
class WhatIfPanel;
class WhyPanel;
class Selection;
class TimelineView;
class TranslationsPanel;

/// The window: menus and keys, the timeline below its minimap, panels at the right and below, the
/// step's numbers at the foot. Reading happens on a worker; a file that cannot be read becomes a
/// banner, never the end of the window.
class MainWindow : public QMainWindow {
    Q_OBJECT

  public:
    /// Remembers recent runs, the theme and rebound keys in `settings`, which must outlive the
    /// window; null remembers nothing.
    explicit MainWindow(QSettings* settings, QWidget* parent = nullptr);
    ~MainWindow() override;

    /// Reads a run folder or a trace file on a worker and shows it; `opened` follows, whatever came
    /// of it. The last call wins.
    void open(const std::filesystem::path& path);

    /// Reads several runs on a worker and shows them laid over each other, or side by side where
    /// they would hide each other; `replica` as for `load_runs`. `opened` follows.
    void open_all(std::vector<std::filesystem::path> paths, int replica = 0);

    /// Reads the shown run again, for the rows of another replica; what is seen and selected stays.
    /// `opened` follows.
    void show_replica(int replica);

    /// Shows a run that was read. A run that holds no timeline leaves the one before it in place,
    /// below the banner.
    void show_run(RunData run);

    void set_theme(Theme theme);

    /// Shows the latest steps of a training run that is watched: what is seen stays, or follows the
    /// last step.
    void show_live(std::shared_ptr<const RunData> run);

    /// Brings a panel to the front, or shows a page: by its name in `view_names`.
    void show_view(const QString& name);

    /// Shows a place of the run that is shown; a banner says where there is none.
    void go_to(const LinkedPlace& place);
    /// The place to show when what is being read has come.
    void go_to_when_read(const LinkedPlace& place);
    /// The command that opens the shown run at the selected action, or at the step in sight; "" of
    /// what no file holds.
    QString link() const;

    /// Name of the page that is shown: "start", "timeline", "plan", "playground" or
    /// "side-by-side".
    QString page() const;

    /// Reads runs on a worker and shows them below each other on one time axis, beside those that
    /// are there already; `replica` as for `load_run`.
    void compare(std::vector<std::filesystem::path> paths, int replica = 0);
    /// Shows a run that was read beside the others.
    void compare(std::shared_ptr<const RunData> run);
    /// Shows what the page shows beside the others: the run or its what-if, the step of the
    /// playground, or the selected plan.
    void add_to_comparison();
    /// Compares the playground's pipeline by this schedule with the others.
    void add_schedule(const QString& schedule);

    PlaygroundPage& playground();
    PlanningPage& planning();
    SideBySidePage& side_by_side();

    /// Waits until nothing is computed any more that will be shown: for pictures and tests.
    void wait_for_workers();

    const RunData& run() const { return *run_; }
    TimelineView& timeline() { return *timeline_; }
    Selection& selection() { return *selection_; }

  signals:
    void opened();

  protected:
    void dragEnterEvent(QDragEnterEvent* event) override;
    void dropEvent(QDropEvent* event) override;
    bool eventFilter(QObject* object, QEvent* event) override;

  private:
    // Menus: main_window_menus.cpp.
    /// Adds an entry to a menu; `name` is the key under which a rebound shortcut is remembered.
    QAction* add_action(QMenu* menu,
                        const char* name,
                        const QString& text,
                        const QList<QKeySequence>& keys,
                        const std::function<void()>& act);
    QAction* add_switch(QMenu* menu,
                        const char* name,
                        const QString& text,
                        const QList<QKeySequence>& keys,
                        bool on,
                        const std::function<void(bool)>& act);
    void give_keys(QAction* action, const QList<QKeySequence>& keys);
    /// Makes an entry's keys work only where the timeline has the focus; elsewhere they are those
    /// of lists and sliders.
    void only_in_timeline(QAction* action);
    /// The timeline that keys move in: that of the run, or that of the playground while it is
    /// shown.
    TimelineView& seen_timeline();
    void build_menus();
    void build_run_menu();
    void build_file_menu();
    void build_edit_menu();
    void build_view_menu();
    void build_zoom_entries(QMenu* menu);
    void build_mode_menu(QMenu* view_menu);
    void build_alignment_menu(QMenu* view_menu);
    void build_replica_menu(QMenu* view_menu);
    void build_theme_menu(QMenu* view_menu);
    void build_panel_menu(QMenu* view_menu);
    void build_collapse_entries(QMenu* view_menu);
    /// Shows or hides the panels at the right or below; they are hidden while there is no run.
    void show_panels(QTabWidget* tabs, bool shown);
    void share_room_with(const QTabWidget* panels);
    void select_panel(QTabWidget* tabs, int number);
    void show_tab(QWidget* panel, bool is_shown);
    void open_panel(QTabWidget* tabs, int number);
    void build_chain_entries(QMenu* menu);
    void build_marks(QMenu* menu);
    void build_go_menu();
    void build_help_menu();
    void enable_commands();
    void open_report(const std::filesystem::path& report);
    void fill_recent_menu();
    void clear_recent();
    void fill_replica_menu();
    void show_table(const QString& title, const QString& rows);
    void show_keys();
    void show_words();
    void rebind_keys();
    void restore_keys();
    void bind_key(QAction* action, const QKeySequence& key);
    /// Name of an entry with its menu, "Rows: Ghost outlines", as an entry of a menu of a
    /// menu says too little by itself.
    static QString words_of(const QAction& action);
    std::vector<QAction*> commands() const;

    void build_panels();
    void build_status_bar();
    void connect_panels();
    void connect_run();
    void add_panel(QTabWidget* tabs, QWidget* panel, const char* name, const QString& title);
    void build_search();
    QWidget* build_header();
    QFrame* build_banner();

    // Pages: main_window_pages.cpp.
    QWidget* build_pages(QWidget* run);
    void build_corner();
    void build_page_entries(QMenu* menu);
    void build_examples_menu(QMenu* help_menu);
    void show_page(const QString& name);
    void show_about();
    void show_training();
    std::shared_ptr<const RunData> shown_run();
    void begin_comparison();

    // Files: main_window_files.cpp.
    QString last_folder() const;
    void choose_files();
    void choose_to_compare();
    void choose_folder();
    void choose_overlay();
    void choose_export();
    void copy_link();
    QString banner_message() const;
    void show_read(RunData read);
    void remember(const std::filesystem::path& path);

    void show_banner(const QString& text);
    void tell_problems(const RunData& run);
    void take_run(std::shared_ptr<const RunData> run);
    void exchange_run(RunData run);
    void name_run();
    QString name_of_run() const;
    void name_window();
    QString window_name() const;
    /// False on the start page, too, where the run of before is still there.
    bool shows_run() const;
    void draw_what_if(const std::shared_ptr<const RunData>& run);
    void show_heat_map();
    void show_watching();
    void mark_critical();
    void show_step();
    void follow_step();
    void show_range();
    void filter_panels();
    void ask_for_command();
    void ask_for_rank();
    void go_to_rank(int rank);
    void search(const QString& text);
    void go_to_found(int direction);
    void step_back();

    QSettings* settings_;
    Theme theme_ = Theme::Light;
    std::shared_ptr<const RunData> run_;
    std::vector<std::filesystem::path> paths_;  ///< what it was read from
    QString folder_;  ///< of what was opened last; empty where nothing was
    QFutureWatcher<RunData> reading_;
    std::unique_ptr<LinkedPlace> wanted_place_;  ///< in what is being read; null: none
    bool view_stays_ = false;  ///< what is being read is another replica of what is shown

    Selection* selection_;
    TimelineView* timeline_;
    MinimapView* minimap_;
    QSplitter* across_ = nullptr;  ///< the timeline and the panels at its right
    QSplitter* down_ = nullptr;    ///< both, and the panels below
    QTabWidget* right_;
    QTabWidget* below_;
    DetailsPanel* details_;
    WhatIfPanel* what_if_;
    HeatMapPanel* heat_map_;
    WhyPanel* why_;
    OpTablePanel* actions_;
    ErrorPanel* errors_;
    CriticalPathPanel* critical_path_;
    TranslationsPanel* translations_;
    GroupsPanel* groups_;
    RunPanel* training_;
    Legend* legend_;
    Finder* finder_ = nullptr;
    SearchLine* search_ = nullptr;
    std::vector<SpanRef> found_;
    QStackedWidget* pages_ = nullptr;
    StartPage* start_ = nullptr;
    PlaygroundPage* playground_ = nullptr;    ///< null before it is shown first
    PlanningPage* planning_ = nullptr;        ///< null before it is shown first
    SideBySidePage* side_by_side_ = nullptr;  ///< null before it is shown first
    QPushButton* train_ = nullptr;            ///< of the scenario that is shown
    QLabel* title_ = nullptr;
    QLabel* plan_ = nullptr;
    QFrame* banner_ = nullptr;
    QLabel* banner_text_ = nullptr;
    QLabel* step_ = nullptr;
    QLabel* range_ = nullptr;
    QLabel* live_ = nullptr;
    QAction* follow_ = nullptr;
    QAction* right_shown_ = nullptr;  ///< whether the panels at the right are to be seen
    QAction* below_shown_ = nullptr;
    std::vector<SpanRef> critical_;  ///< of both sides of the step that is spoken of
    bool is_filtered_ = false;       ///< the panels list a part of the run
    bool marks_critical_ = false;
    int step_in_words_ = 0;
    QMenu* recent_ = nullptr;
    QMenu* replicas_ = nullptr;
    std::vector<QAction*> theme_entries_;  ///< of each of `themes`
    QAction* reload_ = nullptr;
    QAction* export_ = nullptr;
    QAction* report_ = nullptr;
    QAction* skips_ = nullptr;
    QAction* next_replica_ = nullptr;
    QAction* measured_mode_ = nullptr;  ///< or emulated, as the run is
};

}  // namespace pipetwin::gui
