// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>

#include <QAbstractItemView>
#include <QAction>
#include <QApplication>
#include <QClipboard>
#include <QDialog>
#include <QDialogButtonBox>
#include <QFile>
#include <QFileDialog>
#include <QFileInfo>
#include <QKeySequenceEdit>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QRegularExpression>
#include <QSettings>
#include <QSignalSpy>
#include <QSpinBox>
#include <QSplitter>
#include <QTabWidget>
#include <QTableView>
#include <QTemporaryDir>
#include <QTest>
#include <QTextBrowser>
#include <QTimer>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/artifacts/chrome_trace.h"
#include "gui/base/finder.h"
#include "gui/base/options.h"
#include "gui/panels/op_table.h"
#include "gui/run/run_list.h"
#include "gui/side_by_side/side_by_side_page.h"
#include "gui/timeline/selection.h"
#include "gui/timeline/timeline_view.h"
#include "gui/view/timeline/place_in_run.h"
#include "gui/window/main_window.h"
#include "tests/gui/canned.h"
#include "tests/gui/planned.h"
#include "tests/gui/what_if_runs.h"
#include "tests/support/places.h"

/// Every key that docs/gui.md names, pressed in the window.
namespace pipetwin::gui {
namespace keys_test {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class KeysTest : public ::testing::Test {
  protected:
    KeysTest() : settings_(folder_.filePath("settings.ini"), QSettings::IniFormat) {
        window_.resize(1280, 720);
        window_.show();
        QApplication::setActiveWindow(&window_);
    }

    void show_canned() { window_.show_run(canned_run({.jitter = 0.1, .steps = 2})); }

    /// Two stages of unequal length, planned and measured: with causes and what-ifs.
    void show_planned() {
        window_.show_run(*run_of(weighted_profile({1, 1, 1, 1, 4, 4}),
                                 {"training.batch = 8",
                                  "pipeline.stages = 2",
                                  "pipeline.micro_batches = 4",
                                  "pipeline.recompute = \"none\""},
                                 1));
        window_.wait_for_workers();
    }

    void key(Qt::Key key, Qt::KeyboardModifiers with = Qt::NoModifier) {
        QApplication::setActiveWindow(&window_);  // again, after a dialog
        QTest::keyClick(&window_, key, with);
    }

    std::string selected() {
        const auto ref = window_.selection().span();
        return ref ? to_string(window_.run().twin.span(*ref)->action) : "";
    }

    /// Of the list of keys; null: it has no such command.
    QKeySequenceEdit* key_line(const QString& command) {
        const QList<QKeySequenceEdit*> lines = window_.findChildren<QKeySequenceEdit*>();
        const auto found = std::ranges::find(lines, command, &QKeySequenceEdit::accessibleName);
        return found == lines.end() ? nullptr : *found;
    }

    /// The next dialog for a file is answered with `path`; "" leaves it.
    void answer(const QString& path) {
        QTimer::singleShot(0, &window_, [path] {
            auto* const dialog = qobject_cast<QFileDialog*>(QApplication::activeModalWidget());
            ASSERT_NE(dialog, nullptr);
            if (path.isEmpty()) {
                dialog->reject();
                return;
            }
            dialog->findChild<QLineEdit*>("fileNameEdit")->setText(path);
            QMetaObject::invokeMethod(dialog, "accept");
        });
    }

    QString trace_file(const char* name, int milliseconds) const {
        Trace trace;
        trace.schedule.rank_of_stage = {0};
        trace.schedule.micro_batches = 1;
        const Action forward{.op = Op::Forward};
        trace.schedule.ranks = {{forward}};
        Timeline& step = trace.timelines.steps.emplace_back();
        step.origin = Origin::Measured;
        const Duration end = std::chrono::milliseconds(milliseconds);
        step.ranks = {{Span{.action = forward, .begin = {}, .ready = {}, .end = end}}};
        const QString path = folder_.filePath(name);
        std::ofstream(path.toStdString()) << print_chrome_trace(trace);
        return path;
    }

    void open(const QString& path) {
        expect_opened([&] { window_.open(path.toStdString()); });
    }

    template <class Act>
    void expect_opened(Act act) {
        QSignalSpy opened(&window_, &MainWindow::opened);
        act();
        ASSERT_TRUE(!opened.isEmpty() || opened.wait());
    }

    int step_in_ms() {
        return static_cast<int>(window_.run().measured->step / std::chrono::milliseconds(1));
    }

    /// What the dialog says that is open now, which is closed.
    QString dialog_text() {
        for (QDialog* const dialog : window_.findChildren<QDialog*>()) {
            if (const auto* const text = dialog->findChild<QTextBrowser*>();
                dialog->isVisible() && text != nullptr) {
                dialog->close();
                return text->toPlainText();
            }
        }
        return {};
    }

    QAction* action(const char* name) { return window_.findChild<QAction*>(name); }

    QTemporaryDir folder_;
    QSettings settings_;
    MainWindow window_{&settings_};
};

/// Lists, sliders and lines must not take the keys of the timeline, nor it theirs; and a key that
/// two commands have reaches neither.
TEST_F(KeysTest, EveryKeyReachesItsCommand) {
    show_canned();
    QStringList off;
    for (QAction* const action : window_.findChildren<QAction*>()) {
        if (!action->isEnabled()) {
            off += action->shortcuts().isEmpty() ? QString() : action->objectName();
            continue;
        }
        for (const QKeySequence& keys : action->shortcuts()) {
            window_.show();
            QApplication::setActiveWindow(&window_);
            window_.show_view("timeline");  // the key before may have led to another page
            window_.timeline().setFocus();
            QSignalSpy triggered(action, &QAction::triggered);
            // Dialogs for files keep the key waiting until they are answered.
            QTimer::singleShot(0, &window_, [] {
                if (auto* const dialog =
                        qobject_cast<QDialog*>(QApplication::activeModalWidget())) {
                    dialog->reject();
                }
            });
            const QKeyCombination pressed = keys[0];
            key(pressed.key(), pressed.keyboardModifiers());
            QApplication::processEvents();
            EXPECT_EQ(triggered.count(), 1) << keys.toString().toStdString();
            for (QDialog* const dialog : window_.findChildren<QDialog*>()) {
                dialog->close();
            }
            for (QWidget* const line : window_.findChildren<QFrame*>()) {
                if (qobject_cast<Finder*>(line) || qobject_cast<SearchLine*>(line)) {
                    line->hide();
                }
            }
        }
    }
    off.removeAll(QString());
    off.sort();
    EXPECT_EQ(off.join(' ').toStdString(), "next_replica redo reload skips undo")
        << "have nothing to do here: the run was not read from a file";
}

/// The first column of the tables of docs/gui.md whose heading is "Input".
QString inputs_of_the_manual() {
    QFile file(QString::fromStdString(places::source_folder() + "/docs/gui.md"));
    EXPECT_TRUE(file.open(QIODevice::ReadOnly));
    QString inputs;
    bool inside = false;
    for (const QString& line : QString::fromUtf8(file.readAll()).split('\n')) {
        inside = line.startsWith("| Input") || (inside && line.startsWith('|'));
        inputs += inside ? line.section(" | ", 0, 0).mid(1) + " \n" : QString();
    }
    return inputs.remove('`');
}

TEST_F(KeysTest, EveryKeyIsInTheManual) {
    const QString inputs = inputs_of_the_manual();
    const auto named = [&](QString key) {
        key.replace("Return", "Enter").replace("PgDown", "Page Down");
        const QRegularExpression alone("(^|\\s)" + QRegularExpression::escape(key) + "([\\s,;]|$)");
        return inputs.contains(alone);
    };
    for (const QAction* const action : window_.findChildren<QAction*>()) {
        for (const QKeySequence& keys : action->shortcuts()) {
            EXPECT_TRUE(named(keys.toString(QKeySequence::PortableText)))
                << keys.toString().toStdString() << " of " << action->objectName().toStdString();
        }
    }
}

TEST_F(KeysTest, PlusMinusAndZeroZoom) {
    show_canned();
    window_.timeline().show_whole_run();
    const ViewTransform whole = window_.timeline().transform();
    key(Qt::Key_Plus);
    EXPECT_LT(window_.timeline().transform().ns_per_pixel, whole.ns_per_pixel);
    key(Qt::Key_Plus);
    key(Qt::Key_Minus);
    EXPECT_LT(window_.timeline().transform().ns_per_pixel, whole.ns_per_pixel);
    key(Qt::Key_0);
    EXPECT_EQ(window_.timeline().transform(), whole);
}

TEST_F(KeysTest, DotAndCommaWalkLikeTheArrows) {
    show_canned();
    key(Qt::Key_Period);
    key(Qt::Key_Period);
    EXPECT_EQ(selected(), "0F1");
    key(Qt::Key_Comma);
    EXPECT_EQ(selected(), "0F0");
}

TEST_F(KeysTest, EnterAndBracketsWalkAlongTheWaits) {
    show_planned();
    const Action last{.op = Op::Backward, .stage = 0, .micro_batch = 0};
    window_.timeline().go_to(find(window_.run(), Side::Predicted, last));
    const std::string waits = selected();
    window_.wait_for_workers();
    for (const Qt::Key to_blocker : {Qt::Key_BracketLeft, Qt::Key_Return, Qt::Key_Enter}) {
        key(to_blocker);
        window_.wait_for_workers();
        EXPECT_EQ(selected(), "1B0");
        key(Qt::Key_BracketRight);
        window_.wait_for_workers();
        EXPECT_EQ(selected(), waits);
    }
}

/// A click on a wait of the list is followed by the keys of the timeline.
TEST_F(KeysTest, AfterAClickInTheListOfWaitsTheTimelineHasTheKeys) {
    show_planned();
    auto* const panel = window_.findChild<QWidget*>("why");
    auto* const list = panel->findChild<QAbstractItemView*>();
    list->setFocus();
    QTest::mouseClick(list->viewport(),
                      Qt::LeftButton,
                      {},
                      list->visualRect(list->model()->index(0, 0)).center());
    EXPECT_EQ(QApplication::focusWidget(), &window_.timeline());
}

/// The end of a step is no action: what is said of it stays, and nothing is selected.
TEST_F(KeysTest, AClickOnTheEndOfTheStepSaysWhatItWaitsFor) {
    show_planned();
    auto* const panel = window_.findChild<QWidget*>("why");
    auto* const list = panel->findChild<QAbstractItemView*>();
    int row = 0;
    while (list->model()->index(row, 0).data().toString() != "end of the step") {
        ASSERT_LT(++row, list->model()->rowCount());
    }
    list->scrollTo(list->model()->index(row, 0));
    QTest::mouseClick(list->viewport(),
                      Qt::LeftButton,
                      {},
                      list->visualRect(list->model()->index(row, 0)).center());
    window_.wait_for_workers();
    EXPECT_EQ(selected(), "");
    QString said;
    for (const QLabel* const label : panel->findChildren<QLabel*>()) {
        said += label->text();
    }
    EXPECT_TRUE(said.contains("had no work left and waited")) << said.toStdString();
}

/// 1f1b on two ranks at unit costs; one column per millisecond:
///
///     rank 0  01.aa.bb.      rank 1  .0aa1bb..
TEST_F(KeysTest, AClickOnIdleTimeOfAScheduleFileSaysWhatItWaitsFor) {
    const QString path = folder_.filePath("two.csv");
    std::ofstream(path.toStdString()) << "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
    open(path);
    window_.wait_for_workers();
    const TimelineView& timeline = window_.timeline();
    const auto place = [&](const Action& action) {
        return timeline.place_of(find(window_.run(), Side::Predicted, action));
    };
    const auto said_after_click = [&](int x, int y) {
        QTest::mouseClick(timeline.viewport(), Qt::LeftButton, {}, QPoint(x, y));
        window_.wait_for_workers();
        QString said;
        for (const QLabel* const label :
             window_.findChild<QWidget*>("why")->findChildren<QLabel*>()) {
            said += label->text().replace(QChar::Nbsp, ' ');
        }
        return said.toStdString();
    };
    const QRect f1 = place({.op = Op::Forward, .micro_batch = 1});
    const QRect b0 = place({.op = Op::Backward});
    EXPECT_THAT(said_after_click((f1.right() + b0.left()) / 2, f1.center().y()),
                ::testing::HasSubstr("0B0 waited 2.00 ms: 2.00 ms for 1B0 on rank 1 (compute)"));
    const QRect last = place({.op = Op::Backward, .stage = 1, .micro_batch = 1});
    const int end = place({.op = Op::Backward, .micro_batch = 1}).right();
    EXPECT_THAT(said_after_click((last.right() + end) / 2, last.center().y()),
                ::testing::HasSubstr("Rank 1 had no work left and waited"));
    EXPECT_EQ(selected(), "");
}

TEST_F(KeysTest, CMarksTheCriticalPath) {
    show_planned();
    EXPECT_THAT(window_.timeline().scene().overlay.critical, IsEmpty());
    key(Qt::Key_C);
    EXPECT_FALSE(window_.timeline().scene().overlay.critical.empty());
    key(Qt::Key_C);
    EXPECT_THAT(window_.timeline().scene().overlay.critical, IsEmpty());
}

TEST_F(KeysTest, ShiftKShowsTheArcsOfARunThatHasSome) {
    show_canned();
    EXPECT_FALSE(action("skips")->isEnabled());
    window_.show_run(*run_with_skips());
    EXPECT_TRUE(action("skips")->isEnabled());
    const auto arcs = [this]() -> const auto& { return window_.timeline().scene().overlay.skips; };
    EXPECT_FALSE(arcs().empty());
    key(Qt::Key_K, Qt::ShiftModifier);
    EXPECT_THAT(arcs(), IsEmpty());
    EXPECT_FALSE(window_.timeline().shows_links()) << "that is K";
    key(Qt::Key_K, Qt::ShiftModifier);
    EXPECT_FALSE(arcs().empty());
    show_canned();
    EXPECT_FALSE(action("skips")->isEnabled());
    EXPECT_THAT(arcs(), IsEmpty());
}

TEST_F(KeysTest, LFollowsTheLastStep) {
    window_.show_live(std::make_shared<const RunData>(canned_run({.steps = 5})));
    const auto grow = [&](int steps) {
        window_.show_live(std::make_shared<const RunData>(canned_run({.steps = steps})));
        return window_.timeline().current_step();
    };
    EXPECT_EQ(grow(6), 5);
    key(Qt::Key_L);
    EXPECT_EQ(grow(7), 5);
    key(Qt::Key_L);
    EXPECT_EQ(grow(8), 7);
}

TEST_F(KeysTest, NAndF3GoThroughWhatWasFound) {
    show_canned();
    key(Qt::Key_F, Qt::ControlModifier);
    auto* const line = window_.findChild<SearchLine*>()->findChild<QLineEdit*>();
    EXPECT_EQ(QApplication::focusWidget(), line);
    QTest::keyClicks(line, "1B");
    window_.timeline().setFocus();
    for (const auto& [next, with, expected] : {std::tuple{Qt::Key_N, Qt::NoModifier, "1B2"},
                                               std::tuple{Qt::Key_F3, Qt::NoModifier, "1B1"},
                                               std::tuple{Qt::Key_N, Qt::ShiftModifier, "1B2"},
                                               std::tuple{Qt::Key_N, Qt::NoModifier, "1B1"},
                                               std::tuple{Qt::Key_F3, Qt::ShiftModifier, "1B2"}}) {
        key(next, with);
        EXPECT_EQ(selected(), expected);
    }
}

TEST_F(KeysTest, UndoRedoAndAsTheRunWas) {
    show_planned();
    QSpinBox* micro_batches = nullptr;
    for (QSpinBox* const box : window_.findChildren<QSpinBox*>()) {
        micro_batches = box->accessibleName() == "Micro-batches (M)" ? box : micro_batches;
    }
    ASSERT_NE(micro_batches, nullptr);
    ASSERT_EQ(micro_batches->value(), 4);
    micro_batches->setValue(8);
    window_.timeline().setFocus();
    const auto after = [&](Qt::Key pressed, Qt::KeyboardModifiers with) {
        key(pressed, with);
        window_.wait_for_workers();
        return micro_batches->value();
    };
    EXPECT_EQ(after(Qt::Key_Z, Qt::ControlModifier), 4);
    EXPECT_EQ(after(Qt::Key_Z, Qt::ControlModifier | Qt::ShiftModifier), 8);
    EXPECT_EQ(after(Qt::Key_R, Qt::ControlModifier), 4);
    EXPECT_EQ(after(Qt::Key_Z, Qt::ControlModifier), 8) << "that can be undone, too";
}

/// The line of the number took both keys and did nothing with them.
TEST_F(KeysTest, UndoAndTheStartPageWorkWhileANumberHasTheFocus) {
    show_planned();
    window_.show_view("what-if");
    QSpinBox* micro_batches = nullptr;
    for (QSpinBox* const box : window_.findChildren<QSpinBox*>()) {
        micro_batches = box->accessibleName() == "Micro-batches (M)" ? box : micro_batches;
    }
    ASSERT_NE(micro_batches, nullptr);
    micro_batches->setFocus();
    micro_batches->selectAll();
    QTest::keyClicks(micro_batches, "8");
    QTest::keyClick(micro_batches, Qt::Key_Return);
    window_.wait_for_workers();
    ASSERT_EQ(micro_batches->value(), 8);
    ASSERT_TRUE(micro_batches->hasFocus());
    QTest::keyClick(micro_batches, Qt::Key_Z, Qt::ControlModifier);
    window_.wait_for_workers();
    EXPECT_EQ(micro_batches->value(), 4);
    micro_batches->setFocus();
    QTest::keyClick(micro_batches, Qt::Key_Home, Qt::ControlModifier);
    EXPECT_EQ(window_.page(), "start");
}

/// The lists named what would be undone: "Undo Reset".
TEST_F(KeysTest, TheListsOfKeysCallUndoByItsName) {
    show_planned();
    key(Qt::Key_R, Qt::ControlModifier);
    for (QSpinBox* const box : window_.findChildren<QSpinBox*>()) {
        if (box->accessibleName() == "Micro-batches (M)") {
            box->setValue(8);
        }
    }
    window_.wait_for_workers();
    ASSERT_TRUE(action("undo")->isEnabled());
    key(Qt::Key_F1);
    EXPECT_FALSE(dialog_text().contains("Undo Micro"));
    action("rebind")->trigger();
    EXPECT_NE(key_line("Undo"), nullptr);
    window_.findChild<QKeySequenceEdit*>()->window()->close();
}

TEST_F(KeysTest, TheHeadOfTheWindowNamesTheWhatIf) {
    show_planned();
    const auto named = [&](const QString& text) {
        const auto labels = window_.findChildren<QLabel*>();
        return std::ranges::any_of(labels, [&](const QLabel* label) {
            return label->isVisible() && label->text() == text;
        });
    };
    EXPECT_TRUE(named("gpipe, 2 ranks, 4 micro-batches"));
    QSpinBox* stages = nullptr;
    for (QSpinBox* const box : window_.findChildren<QSpinBox*>()) {
        stages = box->accessibleName() == "Ranks (K)" ? box : stages;
    }
    ASSERT_NE(stages, nullptr);
    stages->setValue(3);
    window_.wait_for_workers();
    EXPECT_TRUE(named("What if: gpipe, 3 ranks, 4 micro-batches"));
    key(Qt::Key_Z, Qt::ControlModifier);
    window_.wait_for_workers();
    EXPECT_TRUE(named("gpipe, 2 ranks, 4 micro-batches"));
}

TEST_F(KeysTest, ControlBMakesTheShownRunTheBaseline) {
    for (const char* const path : {"/runs/a", "/runs/b"}) {
        RunData run = canned_run();
        run.path = path;
        window_.show_run(std::move(run));
        key(Qt::Key_B, Qt::ControlModifier | Qt::ShiftModifier);
    }
    const RunListModel& model = window_.side_by_side().table().model();
    EXPECT_EQ(model.baseline(), 0);
    window_.show_view("timeline");
    key(Qt::Key_B, Qt::ControlModifier);
    EXPECT_EQ(model.baseline(), 1);
    EXPECT_EQ(window_.side_by_side().tiles().front()->run()->path, "/runs/b");
}

TEST_F(KeysTest, ControlShiftCCopiesALinkThatLeadsBack) {
    RunData run = canned_run({.steps = 3});
    run.path = "/runs/it's";
    window_.show_run(std::move(run));
    const SpanRef action =
        find(window_.run(), Side::Measured, {.op = Op::Forward, .stage = 1, .micro_batch = 2});
    window_.selection().set_span(action);
    key(Qt::Key_C, Qt::ControlModifier | Qt::ShiftModifier);
    const QString link = QApplication::clipboard()->text();
    EXPECT_TRUE(link.startsWith("pipetwin view '/runs/it'\\''s' --at step=")) << link.toStdString();
    window_.selection().clear();
    window_.go_to(parse_place(link.section(' ', -1).toStdString(), "--at"));
    EXPECT_EQ(window_.selection().span(), action);
}

TEST_F(KeysTest, ASelectedRangeIsWhatThePanelsAreAbout) {
    show_canned();
    window_.wait_for_workers();
    auto* const panel = window_.findChild<OpTablePanel*>();
    auto* const list = panel->findChild<QTableView*>();
    const int all = list->model()->rowCount();
    // Rank 0 computes F1 in the second millisecond, rank 1 F0: each with its messages.
    window_.selection().set_range(TimeRange{.begin = std::chrono::microseconds(1200),
                                            .end = std::chrono::microseconds(1800)});
    window_.wait_for_workers();
    EXPECT_LT(list->model()->rowCount(), all);
    EXPECT_GE(list->model()->rowCount(), 2);
    window_.selection().set_range(std::nullopt);
    window_.wait_for_workers();
    EXPECT_EQ(list->model()->rowCount(), all);
}

TEST_F(KeysTest, ControlEWritesAPicture) {
    show_canned();
    const QString file = folder_.filePath("seen.svg");
    answer(file);
    key(Qt::Key_E, Qt::ControlModifier);
    EXPECT_TRUE(QFile::exists(file));
    const auto labels = window_.findChildren<QLabel*>();
    EXPECT_TRUE(std::ranges::any_of(labels, [&](const QLabel* label) {
        return label->isVisible() && label->text().contains(file);
    })) << "says where";
    for (const auto& [page, name] : {std::pair("playground", "played.pdf"),
                                     std::pair("side_by_side", "compared.svg"),
                                     std::pair("plan_page", "planned.png")}) {
        action(page)->trigger();
        answer(folder_.filePath(name));
        action("export")->trigger();
        EXPECT_GT(QFileInfo(folder_.filePath(name)).size(), 1000) << page;
    }
}

TEST_F(KeysTest, OpensFoldersAndFilesLaysOverAndReadsAgain) {
    const QString first = trace_file("measured.trace.json", 3);
    expect_opened([&] {
        answer(folder_.path());
        key(Qt::Key_O, Qt::ControlModifier);
    });
    EXPECT_EQ(step_in_ms(), 3);
    trace_file("measured.trace.json", 5);
    expect_opened([&] { key(Qt::Key_F5); });
    EXPECT_EQ(step_in_ms(), 5);
    const QString other = trace_file("other.json", 7);
    expect_opened([&] {
        answer(other);
        key(Qt::Key_O, Qt::ControlModifier);
    });
    EXPECT_EQ(step_in_ms(), 7);
    expect_opened([&] {
        answer(first);
        key(Qt::Key_D, Qt::ControlModifier);
    });
    EXPECT_EQ(window_.page(), "side-by-side") << "one measurement would hide the other";
    EXPECT_EQ(step_in_ms(), 7);
    expect_opened([&] {
        answer(QString::fromStdString(places::source_folder() + "/scenarios/own-schedule.csv"));
        key(Qt::Key_D, Qt::ControlModifier);
    });
    EXPECT_EQ(window_.page(), "timeline");
    EXPECT_TRUE(window_.run().predicted && window_.run().measured);
    EXPECT_EQ(step_in_ms(), 7);
    answer({});
    key(Qt::Key_O, Qt::ControlModifier);
    EXPECT_EQ(step_in_ms(), 7) << "nothing was chosen";
}

TEST_F(KeysTest, F1AndTheQuestionMarkShowAllKeys) {
    for (const Qt::Key asked : {Qt::Key_F1, Qt::Key_Question}) {
        key(asked);
        const QString text = dialog_text();
        EXPECT_TRUE(text.contains("Zoom in"));
        EXPECT_TRUE(text.contains("Rows: Next"));
        EXPECT_TRUE(text.contains("Ctrl+Shift+P"));
        EXPECT_TRUE(text.contains("middle drag"));
    }
}

/// The keys that hide and show the panels, and the ones that lead to each of them.
TEST_F(KeysTest, PanelsCollapseByKeyAndComeBack) {
    show_planned();
    const auto seen = [&](const char* name) {
        const auto* const panel = window_.findChild<QWidget*>(QString::fromLatin1(name));
        const QWidget* tabs = panel;
        while (qobject_cast<const QTabWidget*>(tabs) == nullptr) {
            tabs = tabs->parentWidget();
        }
        return tabs->isVisible();
    };
    QTest::qWait(100);  // until the run's panels have their sizes
    const int width = window_.timeline().width();
    const int height = window_.timeline().height();
    key(Qt::Key_K, Qt::ControlModifier);
    QApplication::processEvents();
    EXPECT_FALSE(seen("step"));
    EXPECT_TRUE(seen("why"));
    EXPECT_TRUE(QTest::qWaitFor([&] { return window_.timeline().width() > width + 50; }));
    key(Qt::Key_J, Qt::ControlModifier);
    QApplication::processEvents();
    EXPECT_FALSE(seen("why"));
    EXPECT_TRUE(QTest::qWaitFor([&] { return window_.timeline().height() > height + 50; }));
    key(Qt::Key_Right);
    EXPECT_FALSE(selected().empty()) << "the timeline has the keys";
    key(Qt::Key_K, Qt::ControlModifier);
    key(Qt::Key_J, Qt::ControlModifier);
    QApplication::processEvents();
    EXPECT_TRUE(seen("step") && seen("why"));
    EXPECT_TRUE(QTest::qWaitFor([&] { return window_.timeline().size() == QSize(width, height); }));
    key(Qt::Key_F11);
    EXPECT_FALSE(seen("step") || seen("why"));
    key(Qt::Key_F11);
    EXPECT_TRUE(seen("step") && seen("why"));
}

TEST_F(KeysTest, EveryPanelIsReachedByAKeyAndShownWhereItWasHidden) {
    show_planned();
    int number = 0;
    for (const std::string& name : view_names()) {
        auto* const panel = window_.findChild<QWidget*>(QString::fromStdString(name));
        if (panel == nullptr ||
            qobject_cast<QTabWidget*>(panel->parentWidget()->parentWidget()) == nullptr) {
            continue;  // a page
        }
        window_.timeline().setFocus();
        action("right_panels")->setChecked(false);
        action("panels_below")->setChecked(false);
        EXPECT_FALSE(panel->isVisible()) << name;
        ++number;
        if (number > 9) {  // this run hides the last ones, of which the very last has no digit
            action(("panel_" + name).c_str())->trigger();
            EXPECT_TRUE(name == "translations" || name == "groups") << "tabs that this run hides";
            EXPECT_TRUE(window_.findChild<QWidget*>("why")->isVisible());
            continue;
        }
        key(static_cast<Qt::Key>(Qt::Key_0 + number % 10), Qt::AltModifier);
        EXPECT_TRUE(panel->isVisible()) << name;
        EXPECT_NE(QApplication::focusWidget(), &window_.timeline()) << name;
    }
    EXPECT_EQ(number, 11);
}

/// A handle that was dragged to the edge hides its panels, too.
TEST_F(KeysTest, PanelsThatWereDraggedToTheEdgeComeBackByTheirKey) {
    show_planned();
    auto* const panel = window_.findChild<QWidget*>("why");
    for (QSplitter* const splitter : window_.findChildren<QSplitter*>()) {
        splitter->setSizes({splitter->width() + splitter->height(), 0});
    }
    EXPECT_TRUE(panel->visibleRegion().isEmpty());
    key(Qt::Key_4, Qt::AltModifier);
    EXPECT_FALSE(panel->visibleRegion().isEmpty());
}

TEST_F(KeysTest, ControlTGoesToTheTraining) {
    show_canned();
    key(Qt::Key_T, Qt::ControlModifier);
    EXPECT_TRUE(window_.findChild<QWidget*>("run")->isVisible());
}

TEST_F(KeysTest, EscLeadsBackToTheTimeline) {
    show_canned();
    key(Qt::Key_Right);
    auto* const panel = window_.findChild<QWidget*>("actions");
    window_.show_view("actions");
    panel->findChild<QAbstractItemView*>()->setFocus();
    key(Qt::Key_Escape);
    EXPECT_EQ(selected(), "");
    EXPECT_EQ(QApplication::focusWidget(), &window_.timeline());
}

/// Whatever ends a finder, the keys of the timeline work again.
TEST_F(KeysTest, AfterAFinderTheTimelineHasTheKeys) {
    show_canned();
    auto* const finder = window_.findChild<Finder*>();
    auto* const line = finder->findChild<QLineEdit*>();
    for (const Qt::Key leaves : {Qt::Key_Escape, Qt::Key_Return}) {
        window_.timeline().setFocus();
        key(Qt::Key_P, Qt::ControlModifier | Qt::ShiftModifier);
        ASSERT_EQ(QApplication::focusWidget(), line);
        QTest::keyClicks(line, "idle time");
        QTest::keyClick(line, leaves);
        EXPECT_EQ(QApplication::focusWidget(), &window_.timeline());
        key(Qt::Key_Right);
        EXPECT_FALSE(selected().empty());
        key(Qt::Key_Escape);
    }
    key(Qt::Key_P, Qt::ControlModifier);
    QTest::keyClicks(line, "1");
    QTest::keyClick(line, Qt::Key_Return);
    EXPECT_EQ(QApplication::focusWidget(), &window_.timeline());
}

// The first line had the focus, and Esc became the key of its command.
TEST_F(KeysTest, EscLeavesTheListOfKeysAsItIs) {
    action("rebind")->trigger();
    auto* const dialog = window_.findChild<QKeySequenceEdit*>()->window();
    QApplication::setActiveWindow(dialog);
    ASSERT_NE(QApplication::focusWidget(), nullptr);
    QTest::keyClick(QApplication::focusWidget(), Qt::Key_Escape);
    EXPECT_FALSE(dialog->isVisible());
    EXPECT_EQ(action("open")->shortcut(), QKeySequence(Qt::CTRL | Qt::Key_O));
    EXPECT_EQ(action("clear")->shortcut(), QKeySequence(Qt::Key_Escape));
}

TEST_F(KeysTest, ChangeKeysBindsAnewAndTakesTheKeyFromWhoHadIt) {
    show_canned();
    action("rebind")->trigger();
    QKeySequenceEdit* const zoom = key_line("Zoom in");
    QKeySequenceEdit* const earlier = key_line("Move earlier");
    ASSERT_TRUE(zoom != nullptr && earlier != nullptr);
    emit zoom->editingFinished();  // as it is
    EXPECT_THAT(action("zoom_in")->shortcuts(),
                UnorderedElementsAre(QKeySequence(Qt::Key_W), QKeySequence(Qt::Key_Plus)));
    QTest::keyClick(earlier, Qt::Key_W);
    QSignalSpy finished(earlier, &QKeySequenceEdit::editingFinished);
    ASSERT_TRUE(finished.wait());
    window_.findChild<QKeySequenceEdit*>()->window()->close();
    window_.timeline().setFocus();
    window_.timeline().zoom(4);
    const ViewTransform before = window_.timeline().transform();
    key(Qt::Key_W);
    EXPECT_LT(window_.timeline().transform().origin, before.origin);
    EXPECT_EQ(window_.timeline().transform().ns_per_pixel, before.ns_per_pixel);
    EXPECT_EQ(settings_.value("keys/earlier").toString(), "W");
    EXPECT_EQ(settings_.value("keys/zoom_in").toString(), "+");
}

TEST_F(KeysTest, ChangeKeysShowsWhoLostAKeyAndGivesAllBack) {
    show_canned();
    action("rebind")->trigger();
    QKeySequenceEdit* const zoom = key_line("Zoom in");
    QKeySequenceEdit* const earlier = key_line("Move earlier");
    ASSERT_TRUE(zoom != nullptr && earlier != nullptr);
    QTest::keyClick(earlier, Qt::Key_W);
    QSignalSpy finished(earlier, &QKeySequenceEdit::editingFinished);
    ASSERT_TRUE(finished.wait());
    EXPECT_EQ(zoom->keySequence(), QKeySequence(Qt::Key_Plus));
    auto* const buttons = earlier->window()->findChild<QDialogButtonBox*>();
    buttons->button(QDialogButtonBox::RestoreDefaults)->click();
    EXPECT_EQ(zoom->keySequence(), QKeySequence(Qt::Key_W));
    EXPECT_EQ(earlier->keySequence(), QKeySequence(Qt::Key_A));
    EXPECT_THAT(action("zoom_in")->shortcuts(),
                UnorderedElementsAre(QKeySequence(Qt::Key_W), QKeySequence(Qt::Key_Plus)));
    EXPECT_FALSE(settings_.contains("keys/earlier"));
    EXPECT_FALSE(settings_.contains("keys/zoom_in"));
    EXPECT_EQ(action("undo")->shortcut(), QKeySequence(Qt::CTRL | Qt::Key_Z))
        << "undo and redo lost their keys";
}

}  // namespace keys_test
}  // namespace pipetwin::gui
