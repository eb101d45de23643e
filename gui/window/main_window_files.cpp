// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <QDragEnterEvent>
#include <QDropEvent>
#include <QFile>
#include <QFileDialog>
#include <QFileInfo>
#include <QLabel>
#include <QMimeData>
#include <QPainter>
#include <QRegularExpression>
#include <QUrl>
#include <QtConcurrentRun>

#include "gui/base/workers.h"
#include "gui/planning/planning_page.h"
#include "gui/run/run_list.h"
#include "gui/side_by_side/side_by_side_page.h"
#include "gui/start/open_dialog.h"
#include "gui/start/recent_files.h"
#include "gui/timeline/export_view.h"
#include "gui/timeline/timeline_view.h"
#include "gui/view/timeline/place_in_run.h"
#include "gui/window/main_window.h"

/// Files of the window: which ones a user chooses or drops, and how they are opened.
namespace pipetwin::gui {

namespace {

namespace fs = std::filesystem;

fs::path to_path(const QString& text) {
    return {QFile::encodeName(text).toStdString()};
}

QString to_text(const fs::path& path) {
    return QFile::decodeName(QByteArray::fromStdString(path.string()));
}

/// The local files of a drop; none if there is anything else among them.
std::vector<fs::path> dropped_paths(const QMimeData& data) {
    std::vector<fs::path> paths;
    for (const QUrl& url : data.urls()) {
        if (!url.isLocalFile()) {
            return {};
        }
        paths.push_back(to_path(url.toLocalFile()));
    }
    return paths;
}

QString file_kinds() {
    return MainWindow::tr("Traces and schedules (*.json *.json.gz *.csv);;All files (*)");
}

}  // namespace

void MainWindow::open(const fs::path& path) {
    open_all({path});
}

void MainWindow::open_all(std::vector<fs::path> paths, int replica) {
    step_->setText(tr("Reading %1 ...").arg(to_text(paths.back())));
    paths_ = std::move(paths);
    view_stays_ = false;
    enable_commands();
    reading_.setFuture(QtConcurrent::run(
        workers(), [paths = paths_, replica] { return load_runs(paths, replica); }));
}

/// Shows what `open_all` read.
void MainWindow::show_read(RunData read) {
    if (read.hide_each_other) {
        paths_ = run_->path.empty() ? std::vector<fs::path>() : paths_of(*run_);
        show_step();
        compare(paths_of(read), read.replica);
    } else if (view_stays_ && !read.empty()) {
        exchange_run(std::move(read));
    } else {
        show_run(std::move(read));
    }
    enable_commands();
    if (const auto place = std::exchange(wanted_place_, nullptr)) {
        go_to(*place);
    }
    emit opened();
}

void MainWindow::show_replica(int replica) {
    if (!paths_.empty()) {
        open_all(paths_, replica);
        view_stays_ = true;
    }
}

void MainWindow::dragEnterEvent(QDragEnterEvent* event) {
    if (!dropped_paths(*event->mimeData()).empty()) {
        event->acceptProposedAction();
    }
}

void MainWindow::dropEvent(QDropEvent* event) {
    event->acceptProposedAction();
    open_all(dropped_paths(*event->mimeData()));
}

/// One file is opened; of several each becomes a picture beside the others.
void MainWindow::choose_files() {
    std::vector<fs::path> chosen =
        OpenDialog(
            tr("Open a scenario, schedule, trace, profile or run folder"), last_folder(), this)
            .ask();
    if (chosen.size() == 1) {
        open(chosen.front());
    } else if (!chosen.empty()) {
        compare(std::move(chosen));
    }
}

void MainWindow::choose_to_compare() {
    std::vector<fs::path> chosen =
        OpenDialog(tr("Open several runs side by side"), last_folder(), this).ask();
    if (!chosen.empty()) {
        compare(std::move(chosen));
    }
}

/// The folder that dialogs begin in: that of what was opened last, now or before this start.
QString MainWindow::last_folder() const {
    return folder_.isEmpty() ? QFileInfo(RecentFiles(settings_).paths().value(0)).path() : folder_;
}

void MainWindow::choose_folder() {
    const QString chosen =
        QFileDialog::getExistingDirectory(this, tr("Open a folder"), last_folder());
    if (!chosen.isEmpty()) {
        open(to_path(chosen));
    }
}

void MainWindow::choose_overlay() {
    const QStringList chosen =
        QFileDialog::getOpenFileNames(this, tr("Overlay files"), last_folder(), file_kinds());
    std::vector<fs::path> paths = paths_;
    for (const QString& file : chosen) {
        paths.push_back(to_path(file));
    }
    if (!chosen.isEmpty()) {
        open_all(std::move(paths));
    }
}

void MainWindow::remember(const fs::path& path) {
    RecentFiles(settings_).add(path);
    fill_recent_menu();
    if (!path.empty()) {
        folder_ = to_text(fs::absolute(path).parent_path());
    }
}

/// Exports what is seen: the timeline of a run or of the playground, the pictures of a comparison,
/// an answer of the page that plans.
void MainWindow::choose_export() {
    const TimelineView* view = nullptr;
    QWidget* widget = nullptr;
    QString name = window_name();
    if (page() == QLatin1String("side-by-side")) {
        widget = &side_by_side().pictures();
    } else if (page() == QLatin1String("plan")) {
        widget = &planning().answer_widget();
    } else {
        view = &seen_timeline();
    }
    QString chosen = QFileDialog::getSaveFileName(
        this,
        tr("Export what is seen"),
        name.replace(QRegularExpression(QStringLiteral("[^A-Za-z0-9._+-]+")), QStringLiteral("-")) +
            QStringLiteral(".svg"),
        tr("Pictures (*.png *.svg *.pdf)"));
    if (chosen.isEmpty()) {
        return;
    }
    if (QFileInfo(chosen).suffix().isEmpty()) {
        chosen += QStringLiteral(".svg");
    }
    const fs::path file = to_path(chosen);
    const std::string failed =
        view != nullptr
            ? export_scene(view->scene(), view->font(), file)
            : export_painting(
                  widget->size(), [widget](QPainter& painter) { widget->render(&painter); }, file);
    show_banner(
        failed.empty()
            ? tr("Exported what is seen to %1").arg(to_text(fs::absolute(file).lexically_normal()))
            : QString::fromStdString(failed));
}

}  // namespace pipetwin::gui
