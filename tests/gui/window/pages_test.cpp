// SPDX-License-Identifier: Apache-2.0
#include <ctime>
#include <fstream>
#include <map>
#include <set>

#include <QApplication>
#include <QCheckBox>
#include <QDesktopServices>
#include <QDropEvent>
#include <QFileDialog>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QMenuBar>
#include <QMessageBox>
#include <QMimeData>
#include <QPushButton>
#include <QScopeGuard>
#include <QSettings>
#include <QSignalSpy>
#include <QStatusBar>
#include <QTemporaryDir>
#include <QTest>
#include <QTextBrowser>
#include <QTimer>
#include <QToolButton>
#include <QUrl>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gui/playground/playground_controls.h"
#include "gui/playground/playground_page.h"
#include "gui/run/run_panel.h"
#include "gui/side_by_side/run_tile.h"
#include "gui/side_by_side/side_by_side_page.h"
#include "gui/start/start_page.h"
#include "gui/timeline/timeline_view.h"
#include "gui/window/main_window.h"
#include "tests/gui/canned.h"
#include "tests/support/places.h"

/// The pages of the window: the start, the playground, and several runs side by side.
namespace pipetwin::gui {
namespace pages_test {

using ::testing::SizeIs;

QString shipped(const char* name) {
    return QString::fromStdString(places::source_folder() + "/scenarios/" + name);
}

class PagesTest : public ::testing::Test {
  protected:
    PagesTest() : settings_(folder_.filePath("settings.ini"), QSettings::IniFormat) {
        window_.resize(1280, 720);
        window_.show();
        QApplication::setActiveWindow(&window_);
    }

    QAction* action(const char* name) { return window_.findChild<QAction*>(name); }

    /// The next dialog for files is answered with these names.
    void answer(const QString& names) {
        QTimer::singleShot(0, &window_, [names] {
            auto* const dialog = qobject_cast<QFileDialog*>(QApplication::activeModalWidget());
            ASSERT_NE(dialog, nullptr);
            dialog->findChild<QLineEdit*>("fileNameEdit")->setText(names);
            QMetaObject::invokeMethod(dialog, "accept");
        });
    }

    template <class Act>
    void expect_opened(Act act) {
        QSignalSpy opened(&window_, &MainWindow::opened);
        act();
        ASSERT_TRUE(!opened.isEmpty() || opened.wait(20'000));
    }

    QPushButton* button(const QWidget& of, const char* text) {
        for (QPushButton* const one : of.findChildren<QPushButton*>()) {
            if (one->text() == QLatin1String(text)) {
                return one;
            }
        }
        return nullptr;
    }

    QTemporaryDir folder_;
    QSettings settings_;
    MainWindow window_{&settings_};
};

TEST_F(PagesTest, AnEmptyWindowShowsTheStartPage) {
    EXPECT_EQ(window_.page(), "start");
    EXPECT_TRUE(window_.findChild<StartPage*>()->isVisible());
}

TEST_F(PagesTest, ARunTakesThePlaceOfTheStartPageAndTheMenuLeadsBack) {
    window_.show_run(canned_run());
    EXPECT_EQ(window_.page(), "timeline");
    action("start_page")->trigger();
    EXPECT_EQ(window_.page(), "start");
    action("timeline_page")->trigger();
    EXPECT_EQ(window_.page(), "timeline");
}

TEST_F(PagesTest, AClickOnAnExampleSimulatesIt) {
    expect_opened([&] {
        QTest::mouseClick(button(*window_.findChild<StartPage*>(), "gpt-text"), Qt::LeftButton);
    });
    EXPECT_EQ(window_.page(), "timeline");
    EXPECT_EQ(window_.run().scenario.filename(), "gpt-text.toml");
    EXPECT_EQ(window_.run().twin.rank_count(), 2);
}

TEST_F(PagesTest, OneDialogOpensWhateverTheFileIs) {
    for (const char* const name : {"mlp-synthetic.toml", "own-schedule.csv"}) {
        expect_opened([&] {
            answer(shipped(name));
            action("open")->trigger();
        });
        EXPECT_EQ(window_.run().path.filename(), name);
    }
}

TEST_F(PagesTest, SeveralFilesOfOneDialogAreShownSideBySide) {
    answer(QString("\"%1\" \"%2\"").arg(shipped("gpt-text.toml"), shipped("own-schedule.csv")));
    action("open")->trigger();
    EXPECT_EQ(window_.page(), "side-by-side");
    SideBySidePage& page = window_.side_by_side();
    if (page.tiles().size() < 2) {
        QSignalSpy settled(&page, &SideBySidePage::settled);
        ASSERT_TRUE(settled.wait(20'000));
    }
    EXPECT_THAT(page.tiles(), SizeIs(2));
    QTest::mouseClick(page.tiles()[0]->picture(), Qt::LeftButton);
    EXPECT_EQ(window_.page(), "timeline");
    EXPECT_EQ(window_.run().path.filename(), "gpt-text.toml");
}

TEST_F(PagesTest, TheToolButtonsLeadToThePages) {
    const auto press = [&](const char* text) {
        for (QToolButton* const one : window_.findChildren<QToolButton*>()) {
            if (one->text() == QLatin1String(text)) {
                QTest::mouseClick(one, Qt::LeftButton);
                return;
            }
        }
        ADD_FAILURE() << text;
    };
    press("Playground");
    EXPECT_EQ(window_.page(), "playground");
    press("Plan");
    EXPECT_EQ(window_.page(), "plan");
    press("Comparison");
    EXPECT_EQ(window_.page(), "side-by-side");
    press("Start");
    EXPECT_EQ(window_.page(), "start");
}

TEST_F(PagesTest, SideBySideBeginsWithTheRunThatIsShown) {
    window_.show_run(canned_run());
    action("side_by_side")->trigger();
    EXPECT_THAT(window_.side_by_side().tiles(), SizeIs(1));
    action("side_by_side")->trigger();
    EXPECT_THAT(window_.side_by_side().tiles(), SizeIs(1));
}

TEST_F(PagesTest, SeveralScenariosThatAreDroppedAreShownSideBySide) {
    QMimeData data;
    data.setUrls({QUrl::fromLocalFile(shipped("mlp-synthetic.toml")),
                  QUrl::fromLocalFile(shipped("own-schedule.csv"))});
    QDragEnterEvent enter({100, 100}, Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
    QApplication::sendEvent(&window_, &enter);
    QDropEvent drop({100, 100}, Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
    QSignalSpy settled(&window_.side_by_side(), &SideBySidePage::settled);
    expect_opened([&] { QApplication::sendEvent(&window_, &drop); });
    EXPECT_EQ(window_.page(), "side-by-side");
    EXPECT_TRUE(!settled.isEmpty() || settled.wait(20'000));
    EXPECT_THAT(window_.side_by_side().tiles(), SizeIs(2));
}

/// The shown run and what F5 reads again stay as they were.
TEST_F(PagesTest, APredictionOverAnotherOneIsShownBesideIt) {
    const std::filesystem::path schedule = shipped("own-schedule.csv").toStdString();
    expect_opened([&] { window_.open(schedule); });
    QSignalSpy settled(&window_.side_by_side(), &SideBySidePage::settled);
    expect_opened([&] {
        window_.open_all({schedule, shipped("mlp-synthetic.toml").toStdString()});
    });
    EXPECT_EQ(window_.page(), "side-by-side");
    EXPECT_TRUE(!settled.isEmpty() || settled.wait(20'000));
    EXPECT_THAT(window_.side_by_side().tiles(), SizeIs(2));
    EXPECT_EQ(window_.run().path, schedule);
    expect_opened([&] { action("reload")->trigger(); });
    EXPECT_EQ(window_.page(), "timeline");
    EXPECT_EQ(window_.run().path, schedule);
}

TEST_F(PagesTest, TickedExamplesAreShownSideBySide) {
    auto* const start = window_.findChild<StartPage*>();
    QPushButton* const together = button(*start, "Open ticked side by side");
    ASSERT_NE(together, nullptr);
    EXPECT_FALSE(together->isEnabled());
    for (QCheckBox* const tick : start->findChildren<QCheckBox*>()) {
        if (tick->accessibleName() == "Tick mlp-synthetic" ||
            tick->accessibleName() == "Tick gpt-text") {
            QTest::keyClick(tick, Qt::Key_Space);
        }
    }
    EXPECT_EQ(together->text(), "Open 2 side by side");
    // An older run stayed, and three were shown.
    window_.side_by_side().add(std::make_shared<const RunData>(canned_run()));
    window_.side_by_side().open({shipped("own-schedule.csv").toStdString()});
    QSignalSpy settled(&window_.side_by_side(), &SideBySidePage::settled);
    QTest::keyClick(together, Qt::Key_Space);
    EXPECT_EQ(window_.page(), "side-by-side");
    ASSERT_TRUE(settled.wait(20'000));
    std::set<std::string> shown;
    for (const RunTile* const tile : window_.side_by_side().tiles()) {
        shown.insert(tile->run()->path.filename().string());
    }
    EXPECT_EQ(shown, (std::set<std::string>{"gpt-text.toml", "mlp-synthetic.toml"}));
}

TEST_F(PagesTest, AnExampleIsAddedToTheOthers) {
    window_.show_run(canned_run());
    action("side_by_side")->trigger();
    SideBySidePage& page = window_.side_by_side();
    const QPushButton* const add = button(page, "Add example");
    ASSERT_NE(add, nullptr);
    ASSERT_NE(add->menu(), nullptr);
    ASSERT_FALSE(add->menu()->actions().isEmpty());
    QSignalSpy settled(&page, &SideBySidePage::settled);
    add->menu()->actions().front()->trigger();
    ASSERT_TRUE(settled.wait(20'000));
    EXPECT_THAT(page.tiles(), SizeIs(2));
}

/// A student's bar was three clicks; it is one.
TEST_F(PagesTest, TwoSchedulesAndTheCauseOfTheirDifferenceAreOneClickAway) {
    QPushButton* const compare = button(*window_.findChild<StartPage*>(), "Compare schedules");
    ASSERT_NE(compare, nullptr);
    QTest::mouseClick(compare, Qt::LeftButton);
    EXPECT_EQ(window_.page(), "side-by-side");
    SideBySidePage& page = window_.side_by_side();
    QSignalSpy explained(&page, &SideBySidePage::explained);
    ASSERT_TRUE(explained.wait(20'000));
    ASSERT_THAT(page.tiles(), SizeIs(2));
    window_.wait_for_workers();
    EXPECT_TRUE(page.tiles()[0]->explanation().isEmpty()) << "the others are compared with it";
    EXPECT_TRUE(page.tiles()[1]->explanation().contains("fill and drain"))
        << page.tiles()[1]->explanation().toStdString();
    // Another schedule is two clicks more: a menu and its entry.
    const QPushButton* const add = button(page, "Add schedule");
    ASSERT_NE(add, nullptr);
    add->menu()->actions().front()->trigger();
    EXPECT_THAT(page.tiles(), SizeIs(3));
}

TEST_F(PagesTest, WhatIsShownIsAddedToTheComparison) {
    action("playground")->trigger();
    QTest::mouseClick(button(window_.playground(), "Add to comparison"), Qt::LeftButton);
    EXPECT_EQ(window_.page(), "side-by-side");
    EXPECT_THAT(window_.side_by_side().tiles(), SizeIs(1));
    action("playground")->trigger();
    window_.playground().controls().set_settings(
        with_schedule(window_.playground().controls().settings(), "gpipe"));
    window_.playground().play_now();
    action("add_to_comparison")->trigger();
    EXPECT_THAT(window_.side_by_side().tiles(), SizeIs(2));
    RunData run = canned_run();
    run.path = "runs/seven";
    window_.show_run(std::move(run));
    action("add_to_comparison")->trigger();
    EXPECT_THAT(window_.side_by_side().tiles(), SizeIs(3));
    action("baseline")->trigger();
    EXPECT_EQ(window_.side_by_side().tiles().front()->run()->path, "runs/seven");
}

/// Also in the next session.
TEST_F(PagesTest, ADialogBeginsInTheFolderOfWhatWasOpenedLast) {
    QString folder;
    const auto look = [&](MainWindow& window) {
        QTimer::singleShot(0, &window, [&folder] {
            auto* const dialog = qobject_cast<QFileDialog*>(QApplication::activeModalWidget());
            ASSERT_NE(dialog, nullptr);
            folder = dialog->directory().path();
            dialog->reject();
        });
        window.findChild<QAction*>("compare")->trigger();
    };
    expect_opened([&] { window_.open(shipped("gpt-text.toml").toStdString()); });
    look(window_);
    EXPECT_EQ(folder, QFileInfo(shipped("gpt-text.toml")).path());
    const QString copy = folder_.filePath("copy.csv");
    ASSERT_TRUE(QFile::copy(shipped("own-schedule.csv"), copy));
    QSignalSpy settled(&window_.side_by_side(), &SideBySidePage::settled);
    window_.compare({copy.toStdString()});
    ASSERT_TRUE(settled.wait(20'000));
    look(window_);
    EXPECT_EQ(folder, folder_.path());
    MainWindow next(&settings_);
    look(next);
    EXPECT_EQ(folder, folder_.path());
}

/// Alt and a letter leads to one thing only: of all that is on a page with the menu bar above it.
TEST_F(PagesTest, AltAndALetterIsOneThing) {
    window_.show_run(canned_run());
    for (const char* const page : {"what-if", "plan", "playground", "side-by-side", "start"}) {
        window_.show_view(page);
        QApplication::processEvents();
        std::map<QChar, QStringList> texts;
        const auto add = [&](const QString& text) {
            const QString marked = QString(text).remove("&&");
            if (const auto at = marked.indexOf('&'); at >= 0 && at + 1 < marked.size()) {
                texts[marked[at + 1].toLower()] += text;
            }
        };
        for (const QAction* const menu : window_.menuBar()->actions()) {
            add(menu->text());
        }
        for (const QLabel* const label : window_.findChildren<QLabel*>()) {
            if (label->isVisible() && label->buddy() != nullptr) {
                add(label->text());
            }
        }
        for (const QAbstractButton* const one : window_.findChildren<QAbstractButton*>()) {
            if (one->isVisible()) {
                add(one->text());
            }
        }
        for (const auto& [letter, all] : texts) {
            EXPECT_EQ(all.size(), 1) << page << ": " << all.join(" and ").toStdString();
        }
    }
}

TEST_F(PagesTest, TheMenuTicksTheThemeThatIsShown) {
    const auto ticked = [&] {
        QStringList names;
        for (const Theme theme : themes) {
            const QAction* const entry =
                window_.findChild<QAction*>(QStringLiteral("theme_") + name_of(theme));
            names += entry->isChecked() ? name_of(theme) : QString();
        }
        names.removeAll(QString());
        return names;
    };
    window_.set_theme(Theme::Dark);
    EXPECT_EQ(ticked(), QStringList{"dark"});
    action("theme_print")->trigger();
    EXPECT_EQ(ticked(), QStringList{"print"});
}

TEST_F(PagesTest, TheArrowKeysWalkThroughTheStepOfThePlayground) {
    window_.show_run(canned_run());
    action("playground")->trigger();
    TimelineView& timeline = window_.playground().timeline();
    timeline.setFocus();
    QTest::keyClick(&timeline, Qt::Key_Right);
    QTest::keyClick(&timeline, Qt::Key_Right);
    ASSERT_TRUE(timeline.scene().selection);
    EXPECT_EQ(timeline.scene().selection->rank, 0);
    QTest::keyClick(&timeline, Qt::Key_Down);
    EXPECT_EQ(timeline.scene().selection->rank, 1);
    EXPECT_FALSE(window_.selection().span()) << "the run behind it stays as it is";
    const ViewTransform before = timeline.scene().view;
    QTest::keyClick(&timeline, Qt::Key_W);
    EXPECT_LT(timeline.scene().view.ns_per_pixel, before.ns_per_pixel);
}

TEST_F(PagesTest, AStepOfThePlaygroundIsShownWithAllPanels) {
    action("playground")->trigger();
    QTest::mouseClick(button(window_.playground(), "Show all panels"), Qt::LeftButton);
    window_.wait_for_workers();
    EXPECT_EQ(window_.page(), "timeline");
    EXPECT_EQ(window_.run().schedule_name, "1f1b");
    ASSERT_NE(window_.run().plan(), nullptr);
    EXPECT_TRUE(settings_.value("recent").toStringList().isEmpty()) << "it is no file";
}

/// Open, Train, Start.
TEST_F(PagesTest, AScenarioIsTrainedInThreeClicks) {
    QPushButton* const train = button(window_, "Train...");
    ASSERT_NE(train, nullptr);
    EXPECT_FALSE(train->isVisible()) << "nothing to train yet";
    expect_opened([&] {
        answer(shipped("mlp-synthetic.toml"));
        action("open")->trigger();
    });
    EXPECT_TRUE(train->isVisible());
    QTest::mouseClick(train, Qt::LeftButton);
    auto* const panel = window_.findChild<RunPanel*>();
    ASSERT_TRUE(panel->isVisible());
    QStringList filled;
    for (const QLineEdit* const line : panel->findChildren<QLineEdit*>()) {
        filled += line->text();
    }
    EXPECT_TRUE(filled.at(0).endsWith("scenarios/mlp-synthetic.toml"));
    EXPECT_TRUE(filled.at(1).contains("runs/mlp-synthetic-"));
    EXPECT_FALSE(QFileInfo::exists(filled.at(1))) << "a folder of its own";
    QPushButton* const start = button(*panel, "Start");
    EXPECT_TRUE(start->isVisible() && start->isEnabled());
    window_.show_run(canned_run());
    EXPECT_FALSE(train->isVisible()) << "a run that was trained already";
}

TEST_F(PagesTest, RecentFilesThatAreMissingAreNamedAsSuch) {
    RunData run = canned_run();
    run.path = "/gone/run";
    window_.show_run(std::move(run));
    for (QMenu* const menu : window_.findChildren<QMenu*>()) {
        if (menu->title() == "Open &recent") {
            emit menu->aboutToShow();
            ASSERT_GE(menu->actions().size(), 1);
            EXPECT_EQ(menu->actions().front()->text(), "/gone/run (missing)");
            EXPECT_FALSE(menu->actions().front()->isEnabled());
            menu->actions().back()->trigger();
            EXPECT_TRUE(settings_.value("recent").toStringList().isEmpty());
            return;
        }
    }
    FAIL() << "no such menu";
}

TEST_F(PagesTest, AboutHasTheVersionAndTheDocumentation) {
    action("about")->trigger();
    const auto* const dialog = window_.findChild<QMessageBox*>();
    ASSERT_NE(dialog, nullptr);
    EXPECT_TRUE(dialog->text().startsWith("pipetwin ")) << dialog->text().toStdString();
    EXPECT_TRUE(dialog->text().contains('.'));
    EXPECT_TRUE(dialog->informativeText().contains("Documentation: /"));
}

/// The whole of it: the window is made, shown and painted. Time of the processor, as the machine
/// may be busy with other things.
TEST_F(PagesTest, TheFirstPictureOfAnEmptyStartIsThereWithinThreeTenthsOfASecond) {
    const std::clock_t begin = std::clock();
    MainWindow window(nullptr);
    window.resize(1920, 1080);
    window.show();
    QApplication::processEvents();
    const QImage picture = window.grab().toImage();
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_FALSE(picture.isNull());
    EXPECT_LT(seconds, 0.3);
}

/// The title and the status bar went on to speak of the run.
TEST_F(PagesTest, TheTitleAndTheStatusBarAreThoseOfThePage) {
    RunData run = canned_run();
    run.path = "runs/seven";
    window_.show_run(std::move(run));
    const auto status = [&] {
        QString text;
        for (const QLabel* const label : window_.statusBar()->findChildren<QLabel*>()) {
            text += label->isVisible() ? label->text() : QString();
        }
        return text;
    };
    EXPECT_EQ(window_.windowTitle(), "seven - pipetwin");
    EXPECT_TRUE(status().contains("predicted"));
    for (const auto& [page, title] : {std::pair{"start_page", "pipetwin"},
                                      std::pair{"playground", "Playground - pipetwin"},
                                      std::pair{"plan_page", "Plan - pipetwin"},
                                      std::pair{"side_by_side", "Comparison - pipetwin"}}) {
        action(page)->trigger();
        EXPECT_EQ(window_.windowTitle(), title);
        EXPECT_EQ(status(), "") << page;
    }
    action("timeline_page")->trigger();
    EXPECT_EQ(window_.windowTitle(), "seven - pipetwin");
    EXPECT_TRUE(status().contains("predicted"));
}

/// The menu stayed grey until the next start.
TEST_F(PagesTest, RecentFilesAreInTheMenuAtOnce) {
    const auto recent = [&] {
        for (QAction* const entry : window_.findChildren<QAction*>()) {
            if (entry->text() == "Open &recent") {
                return entry;
            }
        }
        return static_cast<QAction*>(nullptr);
    };
    ASSERT_NE(recent(), nullptr);
    EXPECT_FALSE(recent()->isEnabled());
    expect_opened([&] { window_.open(shipped("mlp-synthetic.toml").toStdString()); });
    EXPECT_TRUE(recent()->isEnabled());
    EXPECT_TRUE(recent()->menu()->actions().front()->text().endsWith("mlp-synthetic.toml"));
}

TEST_F(PagesTest, CommandsThatHaveNothingToWorkOnAreDisabled) {
    for (const char* const name : {"reload", "export", "report"}) {
        EXPECT_FALSE(action(name)->isEnabled()) << name;
    }
    expect_opened([&] { window_.open(shipped("mlp-synthetic.toml").toStdString()); });
    EXPECT_TRUE(action("reload")->isEnabled());
    EXPECT_TRUE(action("export")->isEnabled());
    EXPECT_FALSE(action("report")->isEnabled()) << "a scenario has none";
}

TEST_F(PagesTest, TheReportOfARunIsOpenedInTheBrowser) {
    QTextBrowser browser;  // in place of the desktop's
    QDesktopServices::setUrlHandler("file", &browser, "setSource");
    const auto restore = qScopeGuard([] { QDesktopServices::unsetUrlHandler("file"); });
    const QString report = folder_.filePath("report.html");
    std::ofstream(report.toStdString()) << "<html></html>";
    RunData run = canned_run();
    run.path = folder_.path().toStdString();
    window_.show_run(std::move(run));
    ASSERT_TRUE(action("report")->isEnabled());
    action("report")->trigger();
    EXPECT_EQ(browser.source(), QUrl::fromLocalFile(report));
}

}  // namespace pages_test
}  // namespace pipetwin::gui
