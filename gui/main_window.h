#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include <QFutureWatcher>
#include <QMainWindow>

#include "gui/palette.h"
#include "gui/run_data.h"

class QFrame;
class QLabel;
class QMenu;
class QSettings;
class QTabWidget;

namespace pipetwin::gui {

class DetailsPanel;
class Legend;
class Selection;
class TimelineView;

/// The window: menus and keys, the timeline, the details beside it and the step's numbers below.
/// Reading happens on a worker; a file that cannot be read becomes a banner, never the end of the
/// window.
class MainWindow : public QMainWindow {
    Q_OBJECT

  public:
    /// Remembers recent runs and the theme in `settings`, which must outlive the window; null
    /// remembers nothing.
    explicit MainWindow(QSettings* settings, QWidget* parent = nullptr);

    /// Reads a run folder or a trace file on a worker and shows it; `opened` follows, whatever came
    /// of it. The last call wins.
    void open(const std::filesystem::path& path);

    /// Shows what was read. A run that holds no timeline leaves the one before it in place, below
    /// the banner.
    void show_run(RunData run);

    void set_theme(Theme theme);

    const RunData& run() const { return *run_; }
    TimelineView& timeline() { return *timeline_; }
    Selection& selection() { return *selection_; }

  signals:
    void opened();

  protected:
    void dragEnterEvent(QDragEnterEvent* event) override;
    void dropEvent(QDropEvent* event) override;

  private:
    /// `name` is what a rebound key is remembered by.
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
    void build_file_menu();
    void build_view_menu();
    void build_zoom_entries(QMenu* menu);
    void build_mode_menu(QMenu* view_menu);
    void build_alignment_menu(QMenu* view_menu);
    void build_marks(QMenu* menu);
    void build_go_menu();
    void build_help_menu();
    QWidget* build_header();
    QFrame* build_banner();

    void choose_folder();
    void choose_file();
    void remember(const std::filesystem::path& path);
    void fill_recent_menu();
    void show_banner(const QString& text);
    void show_step();
    void show_keys();

    QSettings* settings_;
    Theme theme_ = Theme::Light;
    std::shared_ptr<const RunData> run_;
    QFutureWatcher<RunData> reading_;

    Selection* selection_;
    TimelineView* timeline_;
    DetailsPanel* details_;
    Legend* legend_;
    QLabel* title_ = nullptr;
    QLabel* plan_ = nullptr;
    QFrame* banner_ = nullptr;
    QLabel* banner_text_ = nullptr;
    QLabel* step_ = nullptr;
    QMenu* recent_ = nullptr;
};

}  // namespace pipetwin::gui
