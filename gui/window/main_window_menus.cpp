// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <system_error>

#include <QActionGroup>
#include <QDesktopServices>
#include <QDialog>
#include <QDialogButtonBox>
#include <QFile>
#include <QFormLayout>
#include <QKeySequenceEdit>
#include <QMenuBar>
#include <QPushButton>
#include <QScrollArea>
#include <QSettings>
#include <QTabBar>
#include <QTabWidget>
#include <QTextBrowser>
#include <QUndoStack>
#include <QUrl>
#include <QVBoxLayout>

#include "gui/base/finder.h"
#include "gui/panels/why_panel.h"
#include "gui/playground/playground_page.h"
#include "gui/run/run_list.h"
#include "gui/run/run_panel.h"
#include "gui/side_by_side/side_by_side_page.h"
#include "gui/start/recent_files.h"
#include "gui/timeline/timeline_view.h"
#include "gui/view/analysis/glossary.h"
#include "gui/what_if/what_if_panel.h"
#include "gui/window/main_window.h"

namespace pipetwin::gui {

namespace {

constexpr double zoom_step = 1.5;
constexpr double pan_step = 0.15;
const QString keys_group = QStringLiteral("keys/");
const char* const usual_keys = "usual_keys";  ///< of an action: what it has unless it is bound anew
/// Property: the name in lists of an action whose text changes with what it would do.
const char* const plain_name = "plain_name";
const QString table_row =
    QStringLiteral("<tr><td><b>%1</b>&nbsp;&nbsp;&nbsp;</td><td>%2</td></tr>");

}  // namespace

void MainWindow::build_menus() {
    build_file_menu();
    build_edit_menu();
    build_view_menu();
    build_go_menu();
    build_run_menu();
    build_help_menu();
    build_corner();
}

QAction* MainWindow::add_action(QMenu* menu,
                                const char* name,
                                const QString& text,
                                const QList<QKeySequence>& keys,
                                const std::function<void()>& act) {
    auto* const action = menu->addAction(text);
    action->setObjectName(QString::fromLatin1(name));
    give_keys(action, keys);
    connect(action, &QAction::triggered, this, act);
    return action;
}

/// The keys that the user has bound, else `keys`.
void MainWindow::give_keys(QAction* action, const QList<QKeySequence>& keys) {
    action->setProperty(usual_keys, QKeySequence::listToString(keys));
    const QString bound = keys_group + action->objectName();
    const bool rebound = settings_ != nullptr && settings_->contains(bound);
    action->setShortcuts(rebound ? QKeySequence::listFromString(settings_->value(bound).toString())
                                 : keys);
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

void MainWindow::only_in_timeline(QAction* action) {
    action->setShortcutContext(Qt::WidgetShortcut);
    timeline_->addAction(action);
}

TimelineView& MainWindow::seen_timeline() {
    return playground_ != nullptr && playground_->isVisible() ? playground_->timeline()
                                                              : *timeline_;
}

void MainWindow::build_run_menu() {
    auto* const menu = menuBar()->addMenu(tr("&Run"));
    add_action(menu, "train", tr("&Train..."), {Qt::CTRL | Qt::Key_T}, [this] { show_training(); });
    QAction* const stop =
        add_action(menu, "stop", tr("&Stop training"), {}, [this] { training_->stop_training(); });
    connect(menu, &QMenu::aboutToShow, stop, [this, stop] {
        stop->setEnabled(training_->is_training());
        enable_commands();  // a run may have written its report meanwhile
    });
    connect(menu, &QMenu::aboutToHide, stop, [stop] { stop->setEnabled(true); });  // for its key
    report_ = add_action(menu, "report", tr("Open &report"), {}, [this] {
        open_report(run_->path / "report.html");
    });
    add_action(menu,
               "add_to_comparison",
               tr("Add to &comparison"),
               {Qt::CTRL | Qt::SHIFT | Qt::Key_B},
               [this] { add_to_comparison(); });
    add_action(menu, "baseline", tr("Set as &baseline"), {Qt::CTRL | Qt::Key_B}, [this] {
        if (const std::shared_ptr<const RunData> run = shown_run()) {
            compare(run);
            side_by_side().make_first(*run);
        }
    });
    follow_ =
        add_switch(menu, "follow", tr("&Follow the latest step"), {Qt::Key_L}, true, [](bool) {});
}

void MainWindow::build_file_menu() {
    auto* const menu = menuBar()->addMenu(tr("&File"));
    add_action(menu, "open", tr("&Open..."), {Qt::CTRL | Qt::Key_O}, [this] { choose_files(); });
    add_action(
        menu, "open_folder", tr("Open &folder..."), {Qt::CTRL | Qt::SHIFT | Qt::Key_O}, [this] {
            choose_folder();
        });
    add_action(
        menu, "compare", tr("Open &side by side..."), {Qt::CTRL | Qt::SHIFT | Qt::Key_D}, [this] {
            choose_to_compare();
        });
    add_action(
        menu, "overlay", tr("&Overlay..."), {Qt::CTRL | Qt::Key_D}, [this] { choose_overlay(); });
    recent_ = menu->addMenu(tr("Open &recent"));
    connect(menu, &QMenu::aboutToShow, this, &MainWindow::fill_recent_menu);
    fill_recent_menu();
    reload_ = add_action(menu, "reload", tr("Re&load"), {Qt::Key_F5}, [this] {
        if (!paths_.empty()) {
            open_all(paths_, run_->replica);
        }
    });
    export_ = add_action(
        menu, "export", tr("&Export view..."), {Qt::CTRL | Qt::Key_E}, [this] { choose_export(); });
    menu->addSeparator();
    add_action(menu, "quit", tr("&Quit"), {Qt::CTRL | Qt::Key_Q}, [this] { close(); });
}

void MainWindow::build_edit_menu() {
    auto* const menu = menuBar()->addMenu(tr("&Edit"));
    const auto add_undo = [&](QAction* action, const char* name, const QList<QKeySequence>& keys) {
        action->setObjectName(QString::fromLatin1(name));
        action->setProperty(plain_name, action->text().trimmed());
        give_keys(action, keys);
        menu->addAction(action);
    };
    QUndoStack* const undo = what_if_->undo_stack();
    add_undo(undo->createUndoAction(this, tr("&Undo")), "undo", {Qt::CTRL | Qt::Key_Z});
    add_undo(undo->createRedoAction(this, tr("&Redo")),
             "redo",
             {Qt::CTRL | Qt::SHIFT | Qt::Key_Z, Qt::CTRL | Qt::Key_Y});
    add_action(
        menu, "reset", tr("Reset &what-if"), {Qt::CTRL | Qt::Key_R}, [this] { what_if_->reset(); });
    menu->addSeparator();
    add_action(menu, "search", tr("&Search..."), {Qt::Key_Slash, Qt::CTRL | Qt::Key_F}, [this] {
        search_->ask();
        search(search_->text());
    });
    add_action(menu, "next_found", tr("Next &found"), {Qt::Key_N, Qt::Key_F3}, [this] {
        go_to_found(+1);
    });
    add_action(menu,
               "previous_found",
               tr("Previous fo&und"),
               {Qt::SHIFT | Qt::Key_N, Qt::SHIFT | Qt::Key_F3},
               [this] { go_to_found(-1); });
    add_action(
        menu, "find_rank", tr("Find &rank..."), {Qt::CTRL | Qt::Key_P}, [this] { ask_for_rank(); });
    add_action(menu, "command", tr("&Command..."), {Qt::CTRL | Qt::SHIFT | Qt::Key_P}, [this] {
        ask_for_command();
    });
    menu->addSeparator();
    add_action(menu, "copy_link", tr("Copy &link"), {Qt::CTRL | Qt::SHIFT | Qt::Key_C}, [this] {
        copy_link();
    });
    add_action(menu, "rebind", tr("Change &keys..."), {}, [this] { rebind_keys(); });
}

void MainWindow::build_view_menu() {
    auto* const menu = menuBar()->addMenu(tr("&View"));
    build_page_entries(menu);
    menu->addSeparator();
    build_zoom_entries(menu);
    menu->addSeparator();
    build_mode_menu(menu);
    build_alignment_menu(menu);
    build_replica_menu(menu);
    add_switch(menu, "memory", tr("&Memory"), {Qt::Key_Y}, true, [this](bool on) {
        timeline_->set_memory(on);
    });
    add_switch(menu, "links", tr("Lin&ks"), {Qt::Key_K}, false, [this](bool on) {
        timeline_->set_links(on);
        what_if_->show_links(on);
    });
    skips_ = add_switch(menu,
                        "skips",
                        tr("Sk&ip messages"),
                        {Qt::SHIFT | Qt::Key_K},
                        timeline_->shows_skips(),
                        [this](bool on) { timeline_->set_skips(on); });
    skips_->setEnabled(false);
    add_switch(menu, "bubbles", tr("Hi&ghlight idle time"), {Qt::Key_B}, false, [this](bool on) {
        timeline_->set_bubbles(on);
    });
    add_switch(menu, "critical", tr("&Critical path"), {Qt::Key_C}, false, [this](bool on) {
        marks_critical_ = on;
        mark_critical();
    });
    menu->addSeparator();
    add_action(menu, "pin", tr("&Pin rank"), {Qt::Key_P}, [this] { timeline_->toggle_pin(); });
    only_in_timeline(add_action(
        menu, "fold", tr("&Fold rank"), {Qt::Key_Space}, [this] { timeline_->toggle_fold(); }));
    menu->addSeparator();
    build_panel_menu(menu);
    build_collapse_entries(menu);
    build_theme_menu(menu);
}

/// Each panel by its name, so that the commands lead there, too, with Alt and a digit in the order
/// of the tabs.
void MainWindow::build_panel_menu(QMenu* view_menu) {
    auto* const menu = view_menu->addMenu(tr("Pa&nel"));
    constexpr int digits = 10;
    int number = 0;
    for (QTabWidget* const tabs : {right_, below_}) {
        for (int i = 0; i < tabs->count(); ++i) {
            const QByteArray name =
                QByteArrayLiteral("panel_") + tabs->widget(i)->objectName().toLatin1();
            const QList<QKeySequence> keys =
                ++number <= digits
                    ? QList<QKeySequence>{Qt::ALT |
                                          static_cast<Qt::Key>(Qt::Key_0 + number % digits)}
                    : QList<QKeySequence>();
            add_action(menu, name.constData(), tabs->tabText(i), keys, [this, tabs, i] {
                open_panel(tabs, i);
            });
        }
    }
}

void MainWindow::build_collapse_entries(QMenu* view_menu) {
    right_shown_ = add_switch(view_menu,
                              "right_panels",
                              tr("Panels at the ri&ght"),
                              {Qt::CTRL | Qt::Key_K},
                              true,
                              [this](bool on) { show_panels(right_, on); });
    below_shown_ = add_switch(view_menu,
                              "panels_below",
                              tr("Panels belo&w"),
                              {Qt::CTRL | Qt::Key_J},
                              true,
                              [this](bool on) { show_panels(below_, on); });
    add_action(view_menu, "timeline_only", tr("Timeline onl&y"), {Qt::Key_F11}, [this] {
        const bool any = right_shown_->isChecked() || below_shown_->isChecked();
        right_shown_->setChecked(!any);
        below_shown_->setChecked(!any);
    });
}

void MainWindow::build_theme_menu(QMenu* view_menu) {
    auto* const menu = view_menu->addMenu(tr("&Theme"));
    const auto take = [this](Theme theme) {
        set_theme(theme);
        if (settings_ != nullptr) {
            settings_->setValue(QStringLiteral("theme"), pipetwin::gui::name_of(theme));
        }
    };
    const std::array<QString, themes.size()> texts{
        tr("&Light"), tr("&Dark"), tr("&High contrast"), tr("For &print")};
    auto* const group = new QActionGroup(this);
    for (std::size_t i = 0; i < themes.size(); ++i) {
        const QByteArray name =
            QByteArrayLiteral("theme_") + pipetwin::gui::name_of(themes[i]).toLatin1();
        QAction* const action = add_action(
            menu, name.constData(), texts[i], {}, [take, theme = themes[i]] { take(theme); });
        action->setCheckable(true);
        group->addAction(action);
        theme_entries_.push_back(action);
    }
    add_action(menu, "theme", tr("Switch light &or dark"), {Qt::CTRL | Qt::Key_L}, [this, take] {
        take(theme_ == Theme::Light ? Theme::Dark : Theme::Light);
    });
}

void MainWindow::build_zoom_entries(QMenu* menu) {
    add_action(menu, "zoom_in", tr("Zoom &in"), {Qt::Key_W, Qt::Key_Plus}, [this] {
        seen_timeline().zoom(zoom_step);
    });
    add_action(menu, "zoom_out", tr("Zoom o&ut"), {Qt::Key_S, Qt::Key_Minus}, [this] {
        seen_timeline().zoom(1 / zoom_step);
    });
    add_action(menu, "earlier", tr("Move &earlier"), {Qt::Key_A}, [this] {
        seen_timeline().pan(-pan_step);
    });
    add_action(
        menu, "later", tr("Move &later"), {Qt::Key_D}, [this] { seen_timeline().pan(pan_step); });
    add_action(menu, "whole_run", tr("&Whole run"), {Qt::Key_Z, Qt::Key_0}, [this] {
        seen_timeline().show_whole_run();
    });
    only_in_timeline(add_action(
        menu, "first_step", tr("First step"), {Qt::Key_Home}, [this] { timeline_->show_step(0); }));
    only_in_timeline(add_action(menu, "last_step", tr("Last step"), {Qt::Key_End}, [this] {
        timeline_->show_step(run_->twin.step_count() - 1);
    }));
    add_action(menu, "fit", tr("&Centre, then fit the selection"), {Qt::Key_F}, [this] {
        seen_timeline().centre_or_fit_selection();
    });
    add_action(
        menu, "back", tr("&Back"), {Qt::ALT | Qt::Key_Left}, [this] { seen_timeline().go_back(); });
    add_action(menu, "forward", tr("Forwar&d"), {Qt::ALT | Qt::Key_Right}, [this] {
        seen_timeline().go_forward();
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
                                        {Mode::Ghost, "ghost", tr("&Ghost outlines")}}};
    for (const Entry& entry : entries) {
        QAction* const action =
            add_action(menu, entry.name, entry.text, {}, [this, mode = entry.mode] {
                timeline_->set_mode(mode);
            });
        action->setCheckable(true);
        action->setChecked(entry.mode == timeline_->mode());
        group->addAction(action);
        if (entry.mode == Mode::Measured) {
            measured_mode_ = action;
        }
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
        {{Alignment::Start, "align_start", tr("Step &starts")},
         {Alignment::Selected, "align_selected", tr("Selected &action")},
         {Alignment::Stretched, "align_stretched", tr("Step starts and e&nds")}}};
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

void MainWindow::build_replica_menu(QMenu* view_menu) {
    replicas_ = view_menu->addMenu(tr("Rep&lica"));
    next_replica_ = add_action(view_menu, "next_replica", tr("Ne&xt replica"), {Qt::Key_X}, [this] {
        show_replica((run_->replica + 1) % run_->replicas);
    });
    fill_replica_menu();
}

/// Fills the menu of replicas; a run with one has nothing to choose.
void MainWindow::fill_replica_menu() {
    replicas_->clear();
    for (int replica = 0; replica < run_->replicas; ++replica) {
        QAction* const action = replicas_->addAction(tr("Replica %1").arg(replica));
        action->setCheckable(true);
        action->setChecked(replica == run_->replica);
        connect(action, &QAction::triggered, this, [this, replica] { show_replica(replica); });
    }
    replicas_->menuAction()->setEnabled(run_->replicas > 1);
    next_replica_->setEnabled(run_->replicas > 1);
}

void MainWindow::build_go_menu() {
    auto* const menu = menuBar()->addMenu(tr("&Go"));
    only_in_timeline(
        add_action(menu, "next", tr("&Next action"), {Qt::Key_Right, Qt::Key_Period}, [this] {
            seen_timeline().select_next(+1);
        }));
    only_in_timeline(
        add_action(menu, "previous", tr("&Previous action"), {Qt::Key_Left, Qt::Key_Comma}, [this] {
            seen_timeline().select_next(-1);
        }));
    only_in_timeline(add_action(menu, "down", tr("Row &down"), {Qt::Key_Down}, [this] {
        seen_timeline().select_in_next_row(+1);
    }));
    only_in_timeline(add_action(menu, "up", tr("Row &up"), {Qt::Key_Up}, [this] {
        seen_timeline().select_in_next_row(-1);
    }));
    add_action(menu, "twin", tr("Same action, &predicted or measured"), {Qt::Key_T}, [this] {
        timeline_->swap_to_twin();
    });
    menu->addSeparator();
    build_chain_entries(menu);
    menu->addSeparator();
    build_marks(menu);
    add_action(menu, "clear", tr("&Clear selection"), {Qt::Key_Escape}, [this] { step_back(); });
}

void MainWindow::build_chain_entries(QMenu* menu) {
    const QAction* const blocker =
        add_action(menu, "blocker", tr("Blocking &action"), {Qt::Key_BracketLeft}, [this] {
            why_->go_to_blocker();
        });
    add_action(menu, "unblocked", tr("Bl&ocked action"), {Qt::Key_BracketRight}, [this] {
        why_->go_to_unblocked();
    });
    // Enter is that of lists and buttons, too: a second way to the same only in the timeline.
    auto* const enter = new QAction(blocker->text(), this);
    enter->setObjectName(QStringLiteral("blocker_enter"));
    enter->setShortcuts({Qt::Key_Return, Qt::Key_Enter});
    connect(enter, &QAction::triggered, blocker, &QAction::trigger);
    only_in_timeline(enter);
}

void MainWindow::build_marks(QMenu* menu) {
    add_action(
        menu, "range", tr("Select the time of the action as the &range"), {Qt::Key_R}, [this] {
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
    add_action(menu, "words", tr("&Glossary"), {Qt::SHIFT | Qt::Key_F1}, [this] { show_words(); });
    build_examples_menu(menu);
    add_action(menu, "about", tr("&About, documentation"), {}, [this] { show_about(); });
}

/// Commands that have nothing to work on are disabled.
void MainWindow::enable_commands() {
    std::error_code failed;
    reload_->setEnabled(!paths_.empty());
    export_->setEnabled(
        pages_ != nullptr &&
        (shows_run() || (page() != QLatin1String("start") && page() != QLatin1String("timeline"))));
    report_->setEnabled(!run_->path.empty() &&
                        std::filesystem::exists(run_->path / "report.html", failed));
}

/// In the browser of the desktop.
void MainWindow::open_report(const std::filesystem::path& report) {
    const std::filesystem::path whole = std::filesystem::absolute(report);
    const QString file = QFile::decodeName(QByteArray::fromStdString(whole.string()));
    if (!QDesktopServices::openUrl(QUrl::fromLocalFile(file))) {
        show_banner(tr("No program was found that opens %1.").arg(file));
    }
}

void MainWindow::fill_recent_menu() {
    recent_->clear();
    const QStringList recent = RecentFiles(settings_).paths();
    for (const QString& path : recent) {
        // A single '&' would underline the letter behind it.
        QString text = path;
        text.replace('&', QLatin1String("&&"));
        const bool there = RecentFiles::is_there(path);
        QAction* const action = recent_->addAction(there ? text : tr("%1 (missing)").arg(text));
        action->setEnabled(there);
        connect(action, &QAction::triggered, this, [this, path] {
            open(QFile::encodeName(path).toStdString());
        });
    }
    recent_->addSeparator();
    connect(recent_->addAction(tr("Clear the list")), &QAction::triggered, this, [this] {
        clear_recent();
    });
    recent_->menuAction()->setEnabled(!recent.isEmpty());
}

void MainWindow::clear_recent() {
    RecentFiles(settings_).clear();
    fill_recent_menu();
    show_page(page() == QLatin1String("start") ? page() : QString());
}

/// Words at the left, what they mean at the right; longer than a low screen, and so scrolled.
void MainWindow::show_table(const QString& title, const QString& rows) {
    auto* const dialog = new QDialog(this);
    dialog->setAttribute(Qt::WA_DeleteOnClose);
    dialog->setWindowTitle(title);
    dialog->resize(640, 560);
    auto* const text = new QTextBrowser(dialog);
    text->setFrameShape(QFrame::NoFrame);
    text->setHtml(QStringLiteral("<table cellspacing='4'>%1</table>").arg(rows));
    text->setAccessibleName(title);
    auto* const buttons = new QDialogButtonBox(QDialogButtonBox::Close, dialog);
    connect(buttons, &QDialogButtonBox::rejected, dialog, &QDialog::close);
    auto* const column = new QVBoxLayout(dialog);
    column->addWidget(text);
    column->addWidget(buttons);
    dialog->open();
}

void MainWindow::show_keys() {
    QString rows;
    const auto add = [&](const QString& keys, const QString& text) {
        rows += table_row.arg(keys.toHtmlEscaped(), text.toHtmlEscaped());
    };
    for (const QAction* const action : findChildren<QAction*>()) {
        if (!action->shortcut().isEmpty()) {
            add(QKeySequence::listToString(action->shortcuts(), QKeySequence::NativeText),
                words_of(*action));
        }
    }
    add(tr("wheel"), tr("Scroll the ranks"));
    add(tr("Ctrl+wheel, pinch"), tr("Zoom at the pointer"));
    add(tr("Shift+wheel, middle drag"), tr("Move along the time axis"));
    add(tr("click"), tr("Select an action or idle time; on the name of a rank: fold the rank"));
    add(tr("drag"), tr("Select a range of time"));
    add(tr("Ctrl+drag"), tr("Measure a time"));
    show_table(tr("Keyboard and mouse"), rows);
}

void MainWindow::show_words() {
    const auto text_of = [](std::string_view text) {
        return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size())).toHtmlEscaped();
    };
    QString rows;
    for (const GlossaryEntry& entry : glossary()) {
        rows += table_row.arg(text_of(entry.word), text_of(entry.meaning));
    }
    show_table(tr("Glossary"), rows);
}

QString MainWindow::words_of(const QAction& action) {
    const QString name = action.property(plain_name).toString();
    QString text = name.isEmpty() ? action.text() : name;
    for (const QObject* const holder : action.associatedObjects()) {
        const auto* const menu = qobject_cast<const QMenu*>(holder);
        if (menu != nullptr && qobject_cast<const QMenu*>(menu->parent()) != nullptr) {
            text = menu->title() + QStringLiteral(": ") + text;
        }
    }
    return text.remove('&');
}

std::vector<QAction*> MainWindow::commands() const {
    std::vector<QAction*> commands;
    for (const QMenu* const menu : findChildren<QMenu*>()) {
        for (QAction* const action : menu->actions()) {
            if (!action->objectName().isEmpty() && action->menu() == nullptr) {
                commands.push_back(action);
            }
        }
    }
    return commands;
}

/// A line for every command; a key that another command has already is taken from that.
void MainWindow::rebind_keys() {
    auto* const dialog = new QDialog(this);
    dialog->setAttribute(Qt::WA_DeleteOnClose);
    dialog->setWindowTitle(tr("Change keys"));
    dialog->resize(480, 560);
    auto* const lines = new QWidget(dialog);
    auto* const form = new QFormLayout(lines);
    const auto show_keys = [lines, all = commands()] {
        const QList<QKeySequenceEdit*> shown = lines->findChildren<QKeySequenceEdit*>();
        for (std::size_t i = 0; i < all.size(); ++i) {
            shown[static_cast<qsizetype>(i)]->setKeySequence(all[i]->shortcut());
        }
    };
    for (QAction* const action : commands()) {
        auto* const line = new QKeySequenceEdit(action->shortcut(), lines);
        const QString text = words_of(*action);
        line->setAccessibleName(text);
        form->addRow(text, line);
        connect(line, &QKeySequenceEdit::editingFinished, this, [this, action, line, show_keys] {
            if (line->keySequence() != action->shortcut()) {  // else it would lose its other keys
                bind_key(action, line->keySequence());
                show_keys();
            }
        });
    }
    auto* const area = new QScrollArea(dialog);
    area->setWidget(lines);
    area->setWidgetResizable(true);
    area->setFrameShape(QFrame::NoFrame);
    auto* const buttons =
        new QDialogButtonBox(QDialogButtonBox::RestoreDefaults | QDialogButtonBox::Close, dialog);
    connect(buttons, &QDialogButtonBox::rejected, dialog, &QDialog::close);
    connect(buttons->button(QDialogButtonBox::RestoreDefaults),
            &QPushButton::clicked,
            this,
            [this, show_keys] {
                restore_keys();
                show_keys();
            });
    auto* const column = new QVBoxLayout(dialog);
    column->addWidget(area);
    column->addWidget(buttons);
    // A line takes every key, Esc too, so none has the focus at the start.
    buttons->button(QDialogButtonBox::Close)->setFocus();
    dialog->open();
}

void MainWindow::restore_keys() {
    for (QAction* const action : commands()) {
        action->setShortcuts(QKeySequence::listFromString(action->property(usual_keys).toString()));
        if (settings_ != nullptr) {
            settings_->remove(keys_group + action->objectName());
        }
    }
}

void MainWindow::bind_key(QAction* action, const QKeySequence& key) {
    const auto remember = [&](QAction* changed) {
        if (settings_ != nullptr) {
            settings_->setValue(keys_group + changed->objectName(),
                                QKeySequence::listToString(changed->shortcuts()));
        }
    };
    for (QAction* const other : commands()) {
        QList<QKeySequence> keys = other->shortcuts();
        if (other != action && !key.isEmpty() && keys.removeAll(key) > 0) {
            other->setShortcuts(keys);
            remember(other);
        }
    }
    action->setShortcuts(key.isEmpty() ? QList<QKeySequence>() : QList<QKeySequence>{key});
    remember(action);
}

}  // namespace pipetwin::gui
