// SPDX-License-Identifier: Apache-2.0
#include <QAction>
#include <QDesktopServices>
#include <QDialogButtonBox>
#include <QFile>
#include <QHBoxLayout>
#include <QKeySequence>
#include <QLabel>
#include <QMenu>
#include <QMenuBar>
#include <QMessageBox>
#include <QPushButton>
#include <QSettings>
#include <QStackedWidget>
#include <QStatusBar>
#include <QTabWidget>
#include <QToolButton>
#include <QUrl>
#include <QVBoxLayout>
#include <fmt/format.h>

#include "core/base/version.h"
#include "gui/base/plain_text.h"
#include "gui/planning/planning_page.h"
#include "gui/playground/playground_controls.h"
#include "gui/playground/playground_page.h"
#include "gui/run/run_list.h"
#include "gui/run/run_panel.h"
#include "gui/side_by_side/side_by_side_page.h"
#include "gui/start/examples.h"
#include "gui/start/start_page.h"
#include "gui/timeline/timeline_view.h"
#include "gui/view/analysis/action_details.h"
#include "gui/window/main_window.h"

/// The pages of the window: the start, a run, the playground, and several runs side by side.
namespace pipetwin::gui {

namespace {

const QString start_page = QStringLiteral("start");
const QString run_page = QStringLiteral("timeline");
const QString playground_page = QStringLiteral("playground");
const QString plan_page = QStringLiteral("plan");
const QString side_by_side_page = QStringLiteral("side-by-side");

}  // namespace

/// The pages; `run` holds the timeline and its panels.
QWidget* MainWindow::build_pages(QWidget* run) {
    pages_ = new QStackedWidget(this);
    start_ = new StartPage(RecentFiles(settings_), this);
    start_->setObjectName(start_page);
    run->setObjectName(run_page);
    pages_->addWidget(start_);
    pages_->addWidget(run);
    connect(start_, &StartPage::open_wanted, this, &MainWindow::choose_files);
    connect(start_, &StartPage::plan_wanted, this, [this] { show_page(plan_page); });
    connect(start_, &StartPage::comparison_wanted, this, &MainWindow::begin_comparison);
    connect(start_, &StartPage::playground_wanted, this, [this] { show_page(playground_page); });
    connect(start_, &StartPage::compare_wanted, this, &MainWindow::choose_to_compare);
    connect(start_, &StartPage::file_wanted, this, &MainWindow::open);
    connect(start_, &StartPage::several_wanted, this, [this](const auto& files) {
        side_by_side().clear();
        compare(files);
    });
    return pages_;
}

/// The playground and the runs side by side are made when they are shown first: the first picture
/// of an empty start does not wait for them.
PlaygroundPage& MainWindow::playground() {
    if (playground_ == nullptr) {
        playground_ = new PlaygroundPage(this);
        playground_->setObjectName(playground_page);
        playground_->set_colors(palette_of(theme_));
        pages_->addWidget(playground_);
        for (const char* const name : {"next", "previous", "down", "up"}) {
            playground_->timeline().addAction(findChild<QAction*>(QString::fromLatin1(name)));
        }
        connect(playground_,
                &PlaygroundPage::run_wanted,
                this,
                [this](const std::shared_ptr<const RunData>& run) {
                    paths_.clear();
                    show_run(RunData(*run));
                });
        connect(
            playground_, &PlaygroundPage::comparison_wanted, this, &MainWindow::add_to_comparison);
    }
    return *playground_;
}

PlanningPage& MainWindow::planning() {
    if (planning_ == nullptr) {
        planning_ = new PlanningPage(this);
        planning_->setObjectName(plan_page);
        planning_->set_colors(palette_of(theme_));
        pages_->addWidget(planning_);
        connect(planning_,
                &PlanningPage::run_wanted,
                this,
                [this](const std::shared_ptr<const RunData>& run) {
                    paths_.clear();
                    show_run(RunData(*run));
                    show_view(QStringLiteral("what-if"));
                });
        connect(planning_,
                &PlanningPage::comparison_wanted,
                this,
                [this](const std::shared_ptr<const RunData>& run) { compare(run); });
    }
    return *planning_;
}

SideBySidePage& MainWindow::side_by_side() {
    if (side_by_side_ == nullptr) {
        side_by_side_ = new SideBySidePage(this);
        side_by_side_->setObjectName(side_by_side_page);
        side_by_side_->table().setObjectName(QStringLiteral("runs"));
        side_by_side_->set_colors(palette_of(theme_));
        pages_->addWidget(side_by_side_);
        connect(side_by_side_, &SideBySidePage::schedule_wanted, this, &MainWindow::add_schedule);
        connect(side_by_side_, &SideBySidePage::open_wanted, this, &MainWindow::choose_to_compare);
        connect(side_by_side_,
                &SideBySidePage::example_wanted,
                this,
                [this](const std::filesystem::path& file) { compare({file}); });
        connect(side_by_side_,
                &SideBySidePage::chosen,
                this,
                [this](const std::shared_ptr<const RunData>& run) {
                    paths_ = paths_of(*run);
                    show_run(RunData(*run));
                });
    }
    return *side_by_side_;
}

QString MainWindow::page() const {
    return pages_->currentWidget()->objectName();
}

/// Shows a page by its name; any other name leaves the page as it is.
void MainWindow::show_page(const QString& name) {
    if (name == playground_page) {
        pages_->setCurrentWidget(&playground());
    } else if (name == plan_page) {
        pages_->setCurrentWidget(&planning());
    } else if (name == side_by_side_page) {
        pages_->setCurrentWidget(&side_by_side());
    } else if (name == run_page) {
        pages_->setCurrentWidget(pages_->widget(1));
        timeline_->setFocus();
    } else if (name == start_page) {
        start_->show_recent();
        pages_->setCurrentWidget(start_);
    }
    // The banner and the status bar speak of the run, or of a file that could not be opened.
    const bool is_of_run = page() == run_page || (page() == start_page && run_->empty());
    banner_->setVisible(is_of_run && !banner_text_->text().isEmpty());
    statusBar()->setVisible(page() == start_page || page() == run_page);
    name_window();
    enable_commands();
    if (!reading_.isRunning()) {  // else the status bar names what is being read
        show_step();
        show_range();
    }
}

/// What the page shows; "" of the start page.
QString MainWindow::window_name() const {
    return page() == playground_page               ? tr("Playground")
           : page() == plan_page                   ? tr("Plan")
           : page() == side_by_side_page           ? tr("Comparison")
           : page() == start_page || run_->empty() ? QString()
                                                   : name_of_run();
}

void MainWindow::name_window() {
    const QString name = window_name();
    setWindowTitle(name.isEmpty() ? tr("pipetwin") : tr("%1 - pipetwin").arg(name));
}

bool MainWindow::shows_run() const {
    return page() != start_page && !run_->empty();
}

void MainWindow::compare(std::vector<std::filesystem::path> paths, int replica) {
    show_page(side_by_side_page);
    for (const std::filesystem::path& path : paths) {
        remember(path);
    }
    side_by_side().open(std::move(paths), replica);
}

void MainWindow::compare(std::shared_ptr<const RunData> run) {
    show_page(side_by_side_page);
    side_by_side().add(std::move(run));
}

/// What the page shows, under a name of its own; null where it shows no run.
std::shared_ptr<const RunData> MainWindow::shown_run() {
    if (page() == playground_page) {
        return playground().step() == nullptr ? nullptr : playground().step()->run;
    }
    if (page() == plan_page) {
        return planning().run();
    }
    if (run_->empty()) {
        return nullptr;
    }
    if (!run_->is_what_if || !run_->title.empty()) {
        return run_;
    }
    auto named = std::make_shared<RunData>(*run_);
    named->title = fmt::format("{}, {}", name_of_run().toStdString(), plan_line(*run_));
    return named;
}

void MainWindow::add_to_comparison() {
    if (const std::shared_ptr<const RunData> run = shown_run()) {
        compare(run);
    }
}

void MainWindow::add_schedule(const QString& schedule) {
    const PlaygroundStep step =
        play(with_schedule(playground().controls().settings(), schedule.toStdString()));
    if (step.run == nullptr) {
        show_banner(QString::fromStdString(step.problem));
        banner_->show();
        return;
    }
    compare(step.run);
}

/// Two schedules of the playground's pipeline, where nothing is compared yet.
void MainWindow::begin_comparison() {
    show_page(side_by_side_page);
    if (side_by_side().tiles().empty()) {
        for (const std::string_view name : compared_schedules) {
            add_schedule(QString::fromUtf8(name.data(), static_cast<int>(name.size())));
        }
    }
}

/// Buttons in the corner of the menu bar, where they take no room from the pictures.
void MainWindow::build_corner() {
    auto* const corner = new QWidget(menuBar());
    auto* const row = new QHBoxLayout(corner);
    row->setContentsMargins(0, 0, 4, 0);
    row->setSpacing(2);
    for (const char* const name :
         {"start_page", "open", "plan_page", "playground", "side_by_side"}) {
        auto* const action = findChild<QAction*>(QString::fromLatin1(name));
        auto* const button = new QToolButton(corner);
        button->setAutoRaise(true);
        button->setFocusPolicy(Qt::NoFocus);
        button->setText(action->text().remove('&'));
        set_tip(*button, action->shortcut().toString(QKeySequence::NativeText));
        connect(button, &QToolButton::clicked, action, &QAction::trigger);
        row->addWidget(button);
    }
    menuBar()->setCornerWidget(corner, Qt::TopRightCorner);
}

void MainWindow::build_page_entries(QMenu* menu) {
    add_action(menu, "start_page", tr("Start"), {Qt::CTRL | Qt::Key_Home}, [this] {
        show_page(start_page);
    });
    add_action(menu, "timeline_page", tr("Timeline"), {Qt::CTRL | Qt::Key_1}, [this] {
        show_page(run_page);
    });
    add_action(
        menu, "plan_page", tr("Plan"), {Qt::CTRL | Qt::Key_4}, [this] { show_page(plan_page); });
    add_action(menu, "playground", tr("Playground"), {Qt::CTRL | Qt::Key_2}, [this] {
        show_page(playground_page);
    });
    add_action(menu, "side_by_side", tr("Comparison"), {Qt::CTRL | Qt::Key_3}, [this] {
        show_page(side_by_side_page);
        if (side_by_side().tiles().empty() && !run_->empty()) {
            side_by_side().add(run_);  // to begin with
        }
    });
}

void MainWindow::build_examples_menu(QMenu* help_menu) {
    auto* const menu = help_menu->addMenu(tr("&Examples"));
    connect(menu, &QMenu::aboutToShow, this, [this, menu] {
        menu->clear();
        for (const Example& example : examples()) {
            connect(menu->addAction(example.name),
                    &QAction::triggered,
                    this,
                    [this, file = example.file] { open(file); });
        }
    });
}

void MainWindow::show_about() {
    auto* const dialog = new QMessageBox(this);
    dialog->setAttribute(Qt::WA_DeleteOnClose);
    dialog->setWindowTitle(tr("About pipetwin"));
    dialog->setTextFormat(Qt::PlainText);
    dialog->setText(tr("pipetwin %1").arg(QString::fromStdString(std::string(program_version()))));
    const QString docs = QFile::decodeName(documentation().c_str());
    dialog->setInformativeText(
        tr("Predicts, runs and explains pipeline-parallel training.\n\nDocumentation: %1")
            .arg(docs.isEmpty() ? tr("not installed beside the program") : docs));
    dialog->setStandardButtons(QMessageBox::Close);
    if (!docs.isEmpty()) {
        QPushButton* const show =
            dialog->addButton(tr("Open the documentation"), QMessageBox::ActionRole);
        connect(show, &QPushButton::clicked, this, [docs] {
            QDesktopServices::openUrl(QUrl::fromLocalFile(docs));
        });
    }
    dialog->open();
}

/// The form of the training, filled in with the scenario that is shown.
void MainWindow::show_training() {
    if (!run_->scenario.empty()) {
        training_->prepare(run_->scenario);
    }
    show_page(run_page);
    show_view(QStringLiteral("run"));
    below_->show();  // without a run, too
    training_->setFocus();
}

}  // namespace pipetwin::gui
