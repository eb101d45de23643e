#include "gui/main_window.h"

#include <array>
#include <utility>

#include <QActionGroup>
#include <QApplication>
#include <QDragEnterEvent>
#include <QDropEvent>
#include <QFile>
#include <QFileDialog>
#include <QFrame>
#include <QHBoxLayout>
#include <QLabel>
#include <QMenuBar>
#include <QMessageBox>
#include <QMimeData>
#include <QSettings>
#include <QSplitter>
#include <QStatusBar>
#include <QToolButton>
#include <QtConcurrentRun>

#include "gui/action_details.h"
#include "gui/details_panel.h"
#include "gui/legend.h"
#include "gui/selection.h"
#include "gui/timeline_view.h"

namespace pipetwin::gui {

namespace {

namespace fs = std::filesystem;

constexpr double zoom_step = 1.5;
constexpr double pan_step = 0.15;
constexpr int max_recent = 8;
constexpr int margin = 14;
constexpr int max_title_width = 260;
const QString recent_key = QStringLiteral("recent");
const QString theme_key = QStringLiteral("theme");

fs::path to_path(const QString& text) {
    return {QFile::encodeName(text).toStdString()};
}

QString to_text(const fs::path& path) {
    return QFile::decodeName(QByteArray::fromStdString(path.string()));
}

/// What the user would call the run: the folder's or the file's name.
QString name_of(const fs::path& path) {
    const fs::path last = path.has_filename() ? path.filename() : path.parent_path().filename();
    return to_text(last);
}

/// The one local path of a drop, "" if it is something else.
QString dropped_path(const QMimeData& data) {
    const QList<QUrl> urls = data.urls();
    return urls.size() == 1 ? urls.front().toLocalFile() : QString();
}

bool system_is_dark() {
    return QApplication::palette().color(QPalette::Window).lightness() < 128;
}

}  // namespace

MainWindow::MainWindow(QSettings* settings, QWidget* parent)
    : QMainWindow(parent),
      settings_(settings),
      run_(std::make_shared<const RunData>()),
      selection_(new Selection(this)),
      timeline_(new TimelineView(selection_, this)),
      details_(new DetailsPanel(this)),
      legend_(new Legend(this)),
      step_(new QLabel(this)) {
    setAcceptDrops(true);
    setWindowTitle(tr("pipetwin"));
    build_file_menu();
    build_view_menu();
    build_go_menu();
    build_help_menu();

    auto* const splitter = new QSplitter(Qt::Horizontal, this);
    splitter->addWidget(timeline_);
    splitter->addWidget(details_);
    splitter->setStretchFactor(0, 1);
    splitter->setCollapsible(0, false);
    auto* const center = new QWidget(this);
    auto* const column = new QVBoxLayout(center);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(0);
    column->addWidget(build_banner());
    column->addWidget(build_header());
    column->addWidget(splitter, 1);
    setCentralWidget(center);
    statusBar()->addPermanentWidget(step_, 1);
    statusBar()->setSizeGripEnabled(false);
    step_->setContentsMargins(margin - 4, 2, margin, 4);
    details_->hide();  // until there is a run

    connect(selection_, &Selection::span_changed, this, [this] {
        details_->show_selection(*run_, selection_->span());
    });
    connect(&reading_, &QFutureWatcher<RunData>::finished, this, [this] {
        show_run(reading_.future().takeResult());
        emit opened();
    });
    const bool dark = settings_ != nullptr && settings_->contains(theme_key)
                          ? settings_->value(theme_key).toString() == QLatin1String("dark")
                          : system_is_dark();
    set_theme(dark ? Theme::Dark : Theme::Light);
    show_step();
    timeline_->setFocus();
}

void MainWindow::open(const fs::path& path) {
    step_->setText(tr("Reading %1 ...").arg(to_text(path)));
    reading_.setFuture(QtConcurrent::run([path] { return load_run(path); }));
}

void MainWindow::show_run(RunData run) {
    QStringList problems;
    for (const std::string& problem : run.problems) {
        problems += QString::fromStdString(problem);
    }
    show_banner(problems.join('\n'));
    if (!run.empty()) {
        remember(run.path);
        run_ = std::make_shared<const RunData>(std::move(run));
        timeline_->show_run(run_);
        details_->show_run(*run_);
        legend_->show_run(*run_);
        details_->show();
        const QString name = name_of(run_->path);
        title_->setText(title_->fontMetrics().elidedText(name, Qt::ElideMiddle, max_title_width));
        title_->setToolTip(to_text(run_->path));
        plan_->setText(QString::fromStdString(plan_line(*run_)));
        setWindowTitle(tr("%1 - pipetwin").arg(name_of(run_->path)));
    }
    show_step();
}

void MainWindow::set_theme(Theme theme) {
    theme_ = theme;
    const Palette palette = palette_of(theme);
    QApplication::setPalette(widget_palette(palette));
    timeline_->set_colors(palette);
    legend_->set_colors(palette);
    QPalette banner = widget_palette(palette);
    banner.setColor(QPalette::Window, palette.banner);
    banner.setColor(QPalette::WindowText, palette.banner_text);
    banner.setColor(QPalette::ButtonText, palette.banner_text);
    banner_->setPalette(banner);
}

void MainWindow::dragEnterEvent(QDragEnterEvent* event) {
    if (!dropped_path(*event->mimeData()).isEmpty()) {
        event->acceptProposedAction();
    }
}

void MainWindow::dropEvent(QDropEvent* event) {
    event->acceptProposedAction();
    open(to_path(dropped_path(*event->mimeData())));
}

QAction* MainWindow::add_action(QMenu* menu,
                                const char* name,
                                const QString& text,
                                const QList<QKeySequence>& keys,
                                const std::function<void()>& act) {
    auto* const action = menu->addAction(text);
    action->setObjectName(QString::fromLatin1(name));
    action->setShortcuts(keys);
    connect(action, &QAction::triggered, this, act);
    return action;
}

QAction* MainWindow::add_switch(QMenu* menu,
                                const char* name,
                                const QString& text,
                                const QList<QKeySequence>& keys,
                                bool on,
                                const std::function<void(bool)>& act) {
    QAction* const action = add_action(menu, name, text, keys, [] {});
    action->setCheckable(true);
    action->setChecked(on);
    connect(action, &QAction::toggled, this, act);
    return action;
}

void MainWindow::build_file_menu() {
    auto* const menu = menuBar()->addMenu(tr("&File"));
    add_action(menu, "open_folder", tr("&Open run folder..."), {Qt::CTRL | Qt::Key_O}, [this] {
        choose_folder();
    });
    add_action(
        menu, "open_file", tr("Open &trace file..."), {Qt::CTRL | Qt::SHIFT | Qt::Key_O}, [this] {
            choose_file();
        });
    recent_ = menu->addMenu(tr("Open &recent"));
    connect(recent_, &QMenu::aboutToShow, this, [this] { fill_recent_menu(); });
    fill_recent_menu();
    add_action(menu, "reload", tr("Re&load"), {Qt::Key_F5}, [this] {
        if (!run_->empty()) {
            open(run_->path);
        }
    });
    menu->addSeparator();
    add_action(menu, "quit", tr("&Quit"), {Qt::CTRL | Qt::Key_Q}, [this] { close(); });
}

void MainWindow::build_view_menu() {
    auto* const menu = menuBar()->addMenu(tr("&View"));
    build_zoom_entries(menu);
    menu->addSeparator();
    build_mode_menu(menu);
    build_alignment_menu(menu);
    add_switch(menu, "memory", tr("&Memory"), {Qt::Key_Y}, true, [this](bool on) {
        timeline_->set_memory(on);
    });
    add_switch(menu, "bubbles", tr("Idle time stands &out"), {Qt::Key_B}, false, [this](bool on) {
        timeline_->set_bubbles(on);
    });
    menu->addSeparator();
    add_action(menu, "pin", tr("&Pin rank"), {Qt::Key_P}, [this] { timeline_->toggle_pin(); });
    add_action(
        menu, "fold", tr("&Fold rank"), {Qt::Key_Space}, [this] { timeline_->toggle_fold(); });
    menu->addSeparator();
    add_action(menu, "theme", tr("&Light or dark"), {Qt::CTRL | Qt::Key_L}, [this] {
        set_theme(theme_ == Theme::Light ? Theme::Dark : Theme::Light);
        if (settings_ != nullptr) {
            settings_->setValue(theme_key, theme_ == Theme::Dark ? "dark" : "light");
        }
    });
}

void MainWindow::build_zoom_entries(QMenu* menu) {
    add_action(menu, "zoom_in", tr("Zoom &in"), {Qt::Key_W, Qt::Key_Plus}, [this] {
        timeline_->zoom(zoom_step);
    });
    add_action(menu, "zoom_out", tr("Zoom o&ut"), {Qt::Key_S, Qt::Key_Minus}, [this] {
        timeline_->zoom(1 / zoom_step);
    });
    add_action(menu, "earlier", tr("&Earlier"), {Qt::Key_A}, [this] { timeline_->pan(-pan_step); });
    add_action(menu, "later", tr("&Later"), {Qt::Key_D}, [this] { timeline_->pan(pan_step); });
    add_action(menu, "whole_run", tr("&Whole run"), {Qt::Key_Z, Qt::Key_0}, [this] {
        timeline_->show_whole_run();
    });
    add_action(
        menu, "first_step", tr("First step"), {Qt::Key_Home}, [this] { timeline_->show_step(0); });
    add_action(menu, "last_step", tr("Last step"), {Qt::Key_End}, [this] {
        timeline_->show_step(run_->twin.step_count() - 1);
    });
    add_action(menu, "fit", tr("&Centre selection, again: fit"), {Qt::Key_F}, [this] {
        timeline_->centre_or_fit_selection();
    });
    add_action(menu, "back", tr("What was seen &before"), {Qt::ALT | Qt::Key_Left}, [this] {
        timeline_->go_back();
    });
    add_action(menu, "forward", tr("What was seen &after"), {Qt::ALT | Qt::Key_Right}, [this] {
        timeline_->go_forward();
    });
}

void MainWindow::build_mode_menu(QMenu* view_menu) {
    auto* const menu = view_menu->addMenu(tr("&Rows"));
    auto* const group = new QActionGroup(this);
    struct Entry {
        Mode mode;
        const char* name;
        QString text;
    };
    const std::array<Entry, 5> entries{{{Mode::Both, "both", tr("&Both")},
                                        {Mode::Predicted, "predicted", tr("&Predicted")},
                                        {Mode::Measured, "measured", tr("&Measured")},
                                        {Mode::Error, "error", tr("&Error")},
                                        {Mode::Ghost, "ghost", tr("&Ghost of the prediction")}}};
    for (const Entry& entry : entries) {
        QAction* const action =
            add_action(menu, entry.name, entry.text, {}, [this, mode = entry.mode] {
                timeline_->set_mode(mode);
            });
        action->setCheckable(true);
        action->setChecked(entry.mode == timeline_->mode());
        group->addAction(action);
        connect(timeline_, &TimelineView::mode_changed, action, [this, action, mode = entry.mode] {
            action->setChecked(timeline_->mode() == mode);
        });
    }
    menu->addSeparator();
    add_action(menu, "next_mode", tr("&Next"), {Qt::Key_E}, [this] {
        timeline_->set_mode(next(timeline_->mode()));
    });
}

void MainWindow::build_alignment_menu(QMenu* view_menu) {
    auto* const menu = view_menu->addMenu(tr("&Alignment"));
    auto* const group = new QActionGroup(this);
    struct Entry {
        Alignment alignment;
        const char* name;
        QString text;
    };
    const std::array<Entry, 3> entries{
        {{Alignment::Start, "align_start", tr("Steps begin &together")},
         {Alignment::Selected, "align_selected", tr("The &selected action begins together")},
         {Alignment::Stretched, "align_stretched", tr("Steps are e&qually long")}}};
    for (const Entry& entry : entries) {
        QAction* const action =
            add_action(menu, entry.name, entry.text, {}, [this, alignment = entry.alignment] {
                timeline_->set_alignment(alignment);
            });
        action->setCheckable(true);
        action->setChecked(entry.alignment == timeline_->alignment());
        group->addAction(action);
    }
}

void MainWindow::build_go_menu() {
    auto* const menu = menuBar()->addMenu(tr("&Go"));
    add_action(menu, "next", tr("&Next action"), {Qt::Key_Right, Qt::Key_Period}, [this] {
        timeline_->select_next(+1);
    });
    add_action(menu, "previous", tr("&Previous action"), {Qt::Key_Left, Qt::Key_Comma}, [this] {
        timeline_->select_next(-1);
    });
    add_action(menu, "down", tr("Row &down"), {Qt::Key_Down}, [this] {
        timeline_->select_in_next_row(+1);
    });
    add_action(
        menu, "up", tr("Row &up"), {Qt::Key_Up}, [this] { timeline_->select_in_next_row(-1); });
    add_action(
        menu, "twin", tr("Other side (&twin)"), {Qt::Key_T}, [this] { timeline_->swap_to_twin(); });
    menu->addSeparator();
    build_marks(menu);
    add_action(
        menu, "clear", tr("&Clear selection"), {Qt::Key_Escape}, [this] { timeline_->clear(); });
}

void MainWindow::build_marks(QMenu* menu) {
    add_action(menu, "range", tr("Select the action's &range"), {Qt::Key_R}, [this] {
        timeline_->select_range_of_action();
    });
    add_action(menu, "mark", tr("&Mark"), {Qt::Key_M}, [this] { timeline_->add_mark(); });
    add_action(menu, "clear_marks", tr("Clear m&arks"), {Qt::SHIFT | Qt::Key_M}, [this] {
        timeline_->clear_marks();
    });
}

void MainWindow::build_help_menu() {
    auto* const menu = menuBar()->addMenu(tr("&Help"));
    add_action(menu, "keys", tr("&Keys"), {Qt::Key_F1, Qt::Key_Question}, [this] { show_keys(); });
}

QWidget* MainWindow::build_header() {
    auto* const header = new QWidget(this);
    title_ = new QLabel(header);
    title_->setTextFormat(Qt::PlainText);
    QFont font = title_->font();
    font.setBold(true);
    title_->setFont(font);
    plan_ = new QLabel(header);
    plan_->setTextFormat(Qt::PlainText);
    plan_->setForegroundRole(QPalette::PlaceholderText);
    auto* const row = new QHBoxLayout(header);
    row->setContentsMargins(margin, 6, margin, 6);
    row->setSpacing(margin);
    row->addWidget(title_);
    row->addWidget(plan_);
    row->addStretch(1);
    row->addWidget(legend_);
    return header;
}

QFrame* MainWindow::build_banner() {
    banner_ = new QFrame(this);
    banner_->setAutoFillBackground(true);
    banner_text_ = new QLabel(banner_);
    banner_text_->setTextFormat(Qt::PlainText);
    banner_text_->setWordWrap(true);
    banner_text_->setTextInteractionFlags(Qt::TextSelectableByMouse);
    auto* const dismiss = new QToolButton(banner_);
    dismiss->setText(QStringLiteral("\u00d7"));
    dismiss->setAutoRaise(true);
    dismiss->setAccessibleName(tr("Dismiss the message"));
    connect(dismiss, &QToolButton::clicked, banner_, &QWidget::hide);
    auto* const row = new QHBoxLayout(banner_);
    row->setContentsMargins(margin, 8, margin, 8);
    row->addWidget(banner_text_, 1);
    row->addWidget(dismiss, 0, Qt::AlignTop);
    banner_->hide();
    return banner_;
}

void MainWindow::choose_folder() {
    const QString chosen = QFileDialog::getExistingDirectory(this, tr("Open a run folder"));
    if (!chosen.isEmpty()) {
        open(to_path(chosen));
    }
}

void MainWindow::choose_file() {
    const QString chosen = QFileDialog::getOpenFileName(
        this, tr("Open a trace"), {}, tr("Traces (*.trace.json *.json);;All files (*)"));
    if (!chosen.isEmpty()) {
        open(to_path(chosen));
    }
}

void MainWindow::remember(const fs::path& path) {
    if (settings_ == nullptr) {
        return;
    }
    std::error_code failed;
    const fs::path whole = fs::absolute(path, failed);
    QStringList recent = settings_->value(recent_key).toStringList();
    recent.removeAll(to_text(whole));
    recent.prepend(to_text(whole));
    settings_->setValue(recent_key, recent.mid(0, max_recent));
}

void MainWindow::fill_recent_menu() {
    recent_->clear();
    const QStringList recent =
        settings_ == nullptr ? QStringList() : settings_->value(recent_key).toStringList();
    for (const QString& path : recent) {
        // A single '&' would underline the letter behind it.
        QString text = path;
        text.replace('&', QLatin1String("&&"));
        connect(recent_->addAction(text), &QAction::triggered, this, [this, path] {
            open(to_path(path));
        });
    }
    recent_->menuAction()->setEnabled(!recent.isEmpty());
}

void MainWindow::show_banner(const QString& text) {
    banner_text_->setText(text);
    banner_->setAccessibleName(text);
    banner_->setVisible(!text.isEmpty());
}

void MainWindow::show_step() {
    if (run_->empty()) {
        step_->setText(tr("No run is open"));
        return;
    }
    const DetailLine line = step_lines(*run_).front();
    QStringList parts{QString::fromStdString(line.name)};
    const auto add = [&](const std::string& what, const std::string& value) {
        if (!value.empty()) {
            parts += QString::fromStdString(what + " " + value);
        }
    };
    add(side_name(*run_, Side::Predicted), line.predicted);
    add(side_name(*run_, Side::Measured), line.measured);
    add("error", line.error);
    step_->setText(parts.join(QStringLiteral("   ")));
}

void MainWindow::show_keys() {
    auto* const box =
        new QMessageBox(QMessageBox::NoIcon, tr("Keys"), {}, QMessageBox::Close, this);
    box->setAttribute(Qt::WA_DeleteOnClose);
    box->setTextFormat(Qt::RichText);
    QString rows;
    for (const QAction* const action : findChildren<QAction*>()) {
        if (action->shortcut().isEmpty()) {
            continue;
        }
        const QString keys =
            QKeySequence::listToString(action->shortcuts(), QKeySequence::NativeText);
        QString text = action->text();
        text.remove('&');
        rows += QStringLiteral("<tr><td><b>%1</b>&nbsp;&nbsp;&nbsp;</td><td>%2</td></tr>")
                    .arg(keys.toHtmlEscaped(), text.toHtmlEscaped());
    }
    rows +=
        tr("<tr><td><b>wheel</b></td><td>scroll the ranks</td></tr>"
           "<tr><td><b>Ctrl+wheel</b></td><td>zoom at the mouse</td></tr>"
           "<tr><td><b>Shift+wheel, middle drag</b>&nbsp;&nbsp;</td><td>move in time</td></tr>"
           "<tr><td><b>drag</b></td><td>select a range of time</td></tr>"
           "<tr><td><b>Ctrl+drag</b></td><td>measure a distance</td></tr>");
    box->setText(QStringLiteral("<table>%1</table>").arg(rows));
    box->open();
}

}  // namespace pipetwin::gui
