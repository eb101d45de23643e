// SPDX-License-Identifier: Apache-2.0
#include "gui/window/main_window.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <set>
#include <thread>
#include <unordered_map>

#include <QAbstractButton>
#include <QAbstractItemModelTester>
#include <QAbstractItemView>
#include <QAbstractScrollArea>
#include <QApplication>
#include <QDropEvent>
#include <QFrame>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QMimeData>
#include <QScopeGuard>
#include <QScrollArea>
#include <QScrollBar>
#include <QSettings>
#include <QSignalSpy>
#include <QSpinBox>
#include <QStatusBar>
#include <QStyleOptionSpinBox>
#include <QTemporaryDir>
#include <QTest>
#include <QTextBrowser>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/artifacts/chrome_trace.h"
#include "core/base/short_number.h"
#include "gui/base/application_icon.h"
#include "gui/base/finder.h"
#include "gui/base/options.h"
#include "gui/panels/details_panel.h"
#include "gui/run/run_panel.h"
#include "gui/timeline/selection.h"
#include "gui/timeline/timeline_view.h"
#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace main_window_test {

const Action f1_of_0{.op = Op::Forward, .stage = 0, .micro_batch = 1};

/// All text of the labels that can be seen.
QString visible_text(const QWidget& widget) {
    QApplication::processEvents();  // labels added to a layout are shown by an event
    QStringList texts;
    for (const QLabel* const label : widget.findChildren<QLabel*>()) {
        if (label->isVisible()) {
            texts += label->text().replace(QChar::Nbsp, ' ');
        }
    }
    return texts.join('\n');
}

class MainWindowTest : public ::testing::Test {
  protected:
    MainWindowTest() : settings_(folder_.filePath("settings.ini"), QSettings::IniFormat) {
        window_.resize(1280, 720);
        window_.show();
        QApplication::setActiveWindow(&window_);
    }

    void show_canned() { window_.show_run(canned_run({.jitter = 0.1})); }

    void key(Qt::Key key, Qt::KeyboardModifiers with = Qt::NoModifier) {
        QTest::keyClick(&window_, key, with);
    }

    std::string selected() {
        const auto ref = window_.selection().span();
        return ref ? to_string(window_.run().twin.span(*ref)->action) : "";
    }

    std::filesystem::path file_with(const char* name, const char* content) {
        const std::filesystem::path path = folder_.filePath(name).toStdString();
        std::ofstream(path) << content;
        return path;
    }

    void open_and_wait(const std::filesystem::path& path) {
        QSignalSpy opened(&window_, &MainWindow::opened);
        window_.open(path);
        ASSERT_TRUE(opened.wait());
    }

    QTemporaryDir folder_;
    QSettings settings_;
    MainWindow window_{&settings_};
};

TEST_F(MainWindowTest, InvitesToOpenARun) {
    EXPECT_TRUE(visible_text(window_).contains("No run is open"));
    EXPECT_TRUE(window_.run().empty());
}

TEST_F(MainWindowTest, ShowsBothStepTimesAndTheErrorInTheStatusBar) {
    show_canned();
    const QString text = visible_text(*window_.statusBar());
    const RunData& run = window_.run();
    const auto contains = [&](const char* what, Duration step) {
        return text.contains(QString::fromStdString(what + short_time(step)));
    };
    EXPECT_TRUE(contains("predicted ", run.predicted->step)) << text.toStdString();
    EXPECT_TRUE(contains("measured ", run.measured->step)) << text.toStdString();
    EXPECT_TRUE(text.contains("error")) << text.toStdString();
}

/// Small and large, the icon is a picture and no single colour.
TEST_F(MainWindowTest, HasAnIconAmongItsResources) {
    const QIcon icon = application_icon();
    for (const int size : {16, 48, 128}) {
        const QImage image = icon.pixmap(size).toImage();
        ASSERT_EQ(image.size(), QSize(size, size));
        std::set<QRgb> colours;
        for (int x = 0; x < size; ++x) {
            for (int y = 0; y < size; ++y) {
                colours.insert(image.pixel(x, y));
            }
        }
        EXPECT_GE(colours.size(), 4U) << size;
    }
}

TEST_F(MainWindowTest, ExplainsItsWords) {
    key(Qt::Key_F1, Qt::ShiftModifier);
    const auto* const text = window_.findChild<QTextBrowser*>();
    ASSERT_NE(text, nullptr);
    EXPECT_TRUE(text->isVisible());
    EXPECT_TRUE(text->toPlainText().contains("imbalance"));
}

TEST_F(MainWindowTest, KeysZoomAndPan) {
    show_canned();
    const ViewTransform whole = window_.timeline().transform();
    key(Qt::Key_W);
    EXPECT_LT(window_.timeline().transform().ns_per_pixel, whole.ns_per_pixel);
    const ViewTransform zoomed = window_.timeline().transform();
    key(Qt::Key_D);
    EXPECT_GT(window_.timeline().transform().origin, zoomed.origin);
    key(Qt::Key_A);
    EXPECT_EQ(window_.timeline().transform().origin, zoomed.origin);
    key(Qt::Key_S);
    key(Qt::Key_Z);
    EXPECT_EQ(window_.timeline().transform(), whole);
}

TEST_F(MainWindowTest, ArrowsWalkThroughActionsAndRows) {
    show_canned();
    key(Qt::Key_Right);
    EXPECT_EQ(selected(), "0F0");
    key(Qt::Key_Right);
    EXPECT_EQ(selected(), "0F1");
    key(Qt::Key_Left);
    EXPECT_EQ(selected(), "0F0");
    key(Qt::Key_Down);
    EXPECT_EQ(window_.selection().span()->side, Side::Measured);
    key(Qt::Key_Up);
    EXPECT_EQ(window_.selection().span()->side, Side::Predicted);
    key(Qt::Key_Escape);
    EXPECT_EQ(selected(), "");
}

TEST_F(MainWindowTest, TSwapsToTheTwinAndECyclesTheModes) {
    show_canned();
    key(Qt::Key_Right);
    key(Qt::Key_T);
    EXPECT_EQ(window_.selection().span()->side, Side::Measured);
    EXPECT_EQ(selected(), "0F0");
    for (const Mode mode :
         {Mode::Predicted, Mode::Measured, Mode::Error, Mode::Ghost, Mode::Both}) {
        key(Qt::Key_E);
        EXPECT_EQ(window_.timeline().mode(), mode);
    }
}

TEST_F(MainWindowTest, FCentresTheSelectionAndThenFitsIt) {
    show_canned();
    key(Qt::Key_Right);
    key(Qt::Key_F);
    key(Qt::Key_F);
    const QRect place = window_.timeline().place_of(*window_.selection().span());
    EXPECT_GT(place.width(), window_.timeline().width() / 2);
}

TEST_F(MainWindowTest, SelectingFillsTheDetails) {
    show_canned();
    window_.timeline().go_to(find(window_.run(), Side::Measured, f1_of_0));
    const QString text = visible_text(window_);
    EXPECT_TRUE(text.contains("Action 0F1"));
    EXPECT_TRUE(text.contains("rank 0, stage 0, micro-batch 1"));
    EXPECT_TRUE(text.contains("duration"));
}

TEST_F(MainWindowTest, WhatWasClickedOnIsSeenInALowWindow) {
    show_canned();
    window_.timeline().go_to(find(window_.run(), Side::Measured, f1_of_0));
    QApplication::processEvents();
    for (const QLabel* const label : window_.findChild<DetailsPanel*>()->findChildren<QLabel*>()) {
        if (label->text() == "duration") {
            EXPECT_EQ(label->visibleRegion(), QRegion(label->rect()));
            return;
        }
    }
    FAIL() << "no line of the action";
}

TEST_F(MainWindowTest, ADifferenceOfTimesIsNotCalledAnError) {
    RunData run = canned_run();
    run.comparison->predicted_breakdown = Breakdown{.forward = std::chrono::milliseconds(3)};
    run.comparison->measured_breakdown = Breakdown{.forward = std::chrono::milliseconds(4)};
    window_.show_run(std::move(run));
    EXPECT_TRUE(visible_text(*window_.findChild<DetailsPanel*>()).contains("difference"));
}

// Qt shows a text that looks like HTML as such, pictures and all, where it is not told not to.
TEST_F(MainWindowTest, NamesThatLookLikeHtmlAreShownAsTheyAre) {
    const std::string name = "<b>x</b><img src='y.png'>";
    RunData run = canned_run({.jitter = 0.1});
    run.path = folder_.filePath("").toStdString() + name;
    run.over = {run.path};
    run.schedule_name = name;
    run.problems = {name + ": cannot be read"};
    window_.show_run(std::move(run));
    window_.show_view("why");
    window_.wait_for_workers();
    open_and_wait(file_with("<b>x<img src=y>.json", "{\"traceEvents\": [oops"));
    EXPECT_TRUE(visible_text(window_).contains("<b>x<img src=y>.json"));
    int labels = 0;
    int tips = 0;
    for (const QWidget* const widget : window_.findChildren<QWidget*>()) {
        EXPECT_FALSE(widget->toolTip().contains("<img")) << widget->toolTip().toStdString();
        EXPECT_FALSE(widget->toolTip().contains("<b>")) << widget->toolTip().toStdString();
        tips += widget->toolTip().contains("&lt;img") ? 1 : 0;
        if (const auto* const label = qobject_cast<const QLabel*>(widget)) {
            EXPECT_EQ(label->textFormat(), Qt::PlainText) << label->text().toStdString();
            ++labels;
        }
    }
    EXPECT_GT(labels, 10);
    EXPECT_GT(tips, 0);
    for (const QAbstractItemView* const view : window_.findChildren<QAbstractItemView*>()) {
        const QAbstractItemModel* const model = view->model();
        for (int row = 0; model != nullptr && row < model->rowCount(); ++row) {
            for (int column = 0; column < model->columnCount(); ++column) {
                const QString tip = model->index(row, column).data(Qt::ToolTipRole).toString();
                EXPECT_FALSE(tip.contains("<img")) << tip.toStdString();
            }
        }
    }
}

TEST_F(MainWindowTest, ABrokenFileBecomesABannerAndTheWindowLives) {
    show_canned();
    open_and_wait(file_with("broken.json", "{\"traceEvents\": [oops"));
    EXPECT_TRUE(visible_text(window_).contains("broken.json"));
    EXPECT_FALSE(window_.run().empty()) << "the run before it stays";
    key(Qt::Key_Right);
    EXPECT_EQ(selected(), "0F0");
}

TEST_F(MainWindowTest, AMissingFileAndAnEmptyFolderBecomeBanners) {
    open_and_wait(folder_.filePath("not-there").toStdString());
    EXPECT_TRUE(visible_text(window_).contains("not-there"));
    open_and_wait(folder_.path().toStdString());
    EXPECT_TRUE(visible_text(window_).contains("neither predicted.trace.json"));
    EXPECT_TRUE(window_.run().empty());
}

/// A measured trace of two ranks.
std::string trace_of_steps(int steps) {
    Trace trace;
    trace.schedule.rank_of_stage = {0, 1};
    trace.schedule.micro_batches = 3;
    for (int step = 0; step < steps; ++step) {
        trace.timelines.steps.push_back(canned_timeline(Origin::Measured, {}, step));
    }
    for (const std::vector<Span>& row : trace.timelines.steps.front().ranks) {
        std::vector<Action>& actions = trace.schedule.ranks.emplace_back();
        for (const Span& span : row) {
            actions.push_back(span.action);
        }
    }
    return print_chrome_trace(trace);
}

TEST_F(MainWindowTest, ATraceCutAnywhereShowsWhatIsWholeBelowABannerThatNamesTheByte) {
    const std::string whole = trace_of_steps(4);
    int shown = 0;
    for (int cut = 1; cut < 24; ++cut) {
        const std::string part = whole.substr(0, whole.size() * static_cast<std::size_t>(cut) / 24);
        open_and_wait(file_with("cut.json", part.c_str()));
        const QString text = visible_text(window_);
        EXPECT_TRUE(text.contains("cut.json")) << cut;
        if (!window_.run().empty()) {
            EXPECT_TRUE(text.contains("at byte")) << cut << ": " << text.toStdString();
            EXPECT_GE(window_.run().measured->steps, shown) << "the longer, the more";
            shown = window_.run().measured->steps;
        }
        key(Qt::Key_Z);
        EXPECT_FALSE(window_.grab().isNull());
    }
    EXPECT_GE(shown, 2);
    open_and_wait(file_with("cut.json", whole.c_str()));
    EXPECT_FALSE(visible_text(window_).contains("at byte"));
    EXPECT_EQ(window_.run().measured->steps, 4);
}

TEST_F(MainWindowTest, AFileThatChangesWhileItIsReadIsShownOrNamed) {
    const std::string small = trace_of_steps(2);
    const std::string large = trace_of_steps(60);
    const std::filesystem::path path = file_with("changes.json", small.c_str());
    std::atomic<bool> stop = false;
    std::thread writer([&] {
        for (std::size_t i = 0; !stop; ++i) {
            const std::string& text = i % 2 == 0 ? large : small;
            std::ofstream(path) << text.substr(0, text.size() * (1 + i % 7) / 7);
        }
    });
    for (int i = 0; i < 20; ++i) {
        open_and_wait(path);
        EXPECT_TRUE(!window_.run().empty() || visible_text(window_).contains("changes.json"));
        EXPECT_FALSE(window_.grab().isNull());
    }
    stop = true;
    writer.join();
    open_and_wait(file_with("changes.json", small.c_str()));
    EXPECT_EQ(window_.run().measured->steps, 2);
    EXPECT_FALSE(visible_text(window_).contains("changes.json:"));
}

TEST_F(MainWindowTest, WhatCannotBeReadIsABannerWhateverItIs) {
    const std::filesystem::path loop = folder_.filePath("loop.json").toStdString();
    std::filesystem::create_symlink(loop, loop);
    const std::filesystem::path odd = folder_.filePath("odd").toStdString();
    std::filesystem::create_directories(odd / "predicted.trace.json");
    for (const std::filesystem::path& path :
         {loop, odd, std::filesystem::path("/dev/zero"), file_with("empty.json", "")}) {
        open_and_wait(path);
        EXPECT_TRUE(visible_text(window_).contains(path.filename().string().c_str())) << path;
        EXPECT_TRUE(window_.run().empty());
    }
    show_canned();
    key(Qt::Key_Right);
    EXPECT_EQ(selected(), "0F0");
}

TEST_F(MainWindowTest, SidesOfDifferentPlansAreShownBelowABanner) {
    const auto trace = [](Origin origin, int micro_batches) {
        Trace result;
        result.timelines.steps = {canned_timeline(origin, {.micro_batches = micro_batches})};
        result.schedule.rank_of_stage = {0, 1};
        result.schedule.micro_batches = micro_batches;
        for (const std::vector<Span>& row : result.timelines.steps.front().ranks) {
            std::vector<Action>& actions = result.schedule.ranks.emplace_back();
            for (const Span& span : row) {
                actions.push_back(span.action);
            }
        }
        return print_chrome_trace(result);
    };
    file_with("predicted.trace.json", trace(Origin::Predicted, 3).c_str());
    file_with("measured.trace.json", trace(Origin::Measured, 4).c_str());
    open_and_wait(folder_.path().toStdString());
    const QString text = visible_text(window_);
    EXPECT_TRUE(text.contains("cannot be compared")) << text.toStdString();
    EXPECT_TRUE(text.contains("4 compute actions on one side only")) << text.toStdString();
    EXPECT_TRUE(window_.run().predicted && window_.run().measured);
    window_.wait_for_workers();
    for (const std::string& name : view_names()) {
        window_.show_view(QString::fromStdString(name));
        EXPECT_FALSE(window_.grab().isNull()) << name;
    }
}

TEST_F(MainWindowTest, TheBannerShowsTextAsItIs) {
    RunData run = canned_run();
    run.problems = {"<b>x</b> & y"};
    window_.show_run(std::move(run));
    EXPECT_TRUE(visible_text(window_).contains("<b>x</b> & y"));
    show_canned();
    EXPECT_FALSE(visible_text(window_).contains("<b>"));
}

TEST_F(MainWindowTest, RemembersRunsThatCouldBeOpened) {
    RunData run = canned_run();
    run.path = "/somewhere/a&b";
    window_.show_run(std::move(run));
    open_and_wait(folder_.filePath("not-there").toStdString());
    EXPECT_EQ(settings_.value("recent").toStringList(), QStringList{"/somewhere/a&b"});
}

TEST_F(MainWindowTest, AcceptsADroppedFolder) {
    QMimeData data;
    data.setUrls({QUrl::fromLocalFile(folder_.path())});
    QSignalSpy opened(&window_, &MainWindow::opened);
    QDragEnterEvent enter({100, 100}, Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
    QApplication::sendEvent(&window_, &enter);
    ASSERT_TRUE(enter.isAccepted());
    QDropEvent drop({100, 100}, Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
    QApplication::sendEvent(&window_, &drop);
    ASSERT_TRUE(opened.wait());
    EXPECT_TRUE(visible_text(window_).contains("neither predicted.trace.json"));
}

/// Of two ranks and two replicas; actions of the second take twice as long.
Trace trace_of_replicas() {
    Trace trace;
    Timeline step = canned_timeline(Origin::Measured, {});
    trace.schedule.rank_of_stage = {0, 1};
    trace.schedule.micro_batches = 3;
    std::vector<std::vector<Span>> other = step.ranks;
    for (std::vector<Span>& row : other) {
        std::vector<Action>& actions = trace.schedule.ranks.emplace_back();
        for (Span& span : row) {
            actions.push_back(span.action);
            span = {span.action, 2 * span.begin, 2 * span.ready, 2 * span.end};
        }
    }
    step.replicas = {other};
    trace.timelines.steps = {step};
    return trace;
}

TEST_F(MainWindowTest, XShowsTheNextReplicaAndLeavesTheView) {
    open_and_wait(file_with("x.json", print_chrome_trace(trace_of_replicas()).c_str()));
    const Duration first = window_.run().measured->step;
    EXPECT_TRUE(visible_text(window_).contains("2 replicas, showing replica 0"));
    key(Qt::Key_Right);
    key(Qt::Key_W);
    const std::string action = selected();
    const ViewTransform seen = window_.timeline().transform();
    for (const int replica : {1, 0}) {
        QSignalSpy opened(&window_, &MainWindow::opened);
        key(Qt::Key_X);
        ASSERT_TRUE(opened.wait());
        EXPECT_EQ(window_.run().replica, replica);
        EXPECT_EQ(window_.run().measured->step, (1 + replica) * first);
        EXPECT_TRUE(
            visible_text(window_).contains(QString("2 replicas, showing replica %1").arg(replica)));
        EXPECT_EQ(selected(), action);
        EXPECT_EQ(window_.timeline().transform(), seen);
    }
    QSignalSpy opened(&window_, &MainWindow::opened);
    key(Qt::Key_X);
    ASSERT_TRUE(opened.wait());
    open_and_wait(file_with("y.json", print_chrome_trace(trace_of_replicas()).c_str()));
    EXPECT_EQ(window_.run().replica, 0) << "another file begins with its first";
}

TEST_F(MainWindowTest, BMYAndKChangeWhatIsShown) {
    show_canned();
    key(Qt::Key_B);
    EXPECT_TRUE(window_.timeline().shows_bubbles());
    key(Qt::Key_B);
    EXPECT_FALSE(window_.timeline().shows_bubbles());
    key(Qt::Key_Y);
    EXPECT_FALSE(window_.timeline().shows_memory());
    key(Qt::Key_K);
    EXPECT_TRUE(window_.timeline().shows_links());
    key(Qt::Key_M);
    EXPECT_EQ(window_.timeline().scene().overlay.marks.size(), 1U);
    QTest::keyClick(&window_, Qt::Key_M, Qt::ShiftModifier);
    EXPECT_TRUE(window_.timeline().scene().overlay.marks.empty());
}

TEST_F(MainWindowTest, PPinsAndSpaceFoldsTheRankOfTheSelection) {
    show_canned();
    key(Qt::Key_Right);
    key(Qt::Key_P);
    EXPECT_TRUE(window_.timeline().tracks()[0].pinned);
    key(Qt::Key_Space);
    EXPECT_TRUE(window_.timeline().tracks()[0].folded);
    EXPECT_FALSE(window_.timeline().tracks()[1].pinned);
}

TEST_F(MainWindowTest, RSelectsTheRangeOfTheActionAndItsUseIsShown) {
    show_canned();
    key(Qt::Key_Right);
    key(Qt::Key_R);
    ASSERT_TRUE(window_.selection().range());
    const TimeRange range = *window_.selection().range();
    EXPECT_EQ(range.end - range.begin, std::chrono::milliseconds(1));
    const QString text = visible_text(*window_.statusBar());
    EXPECT_TRUE(text.contains("selected 1.00 ms")) << text.toStdString();
    EXPECT_TRUE(text.contains("predicted: busy 50.0 %")) << text.toStdString();
    key(Qt::Key_Escape);
    EXPECT_FALSE(visible_text(*window_.statusBar()).contains("selected"));
}

TEST_F(MainWindowTest, HomeAndEndGoToTheFirstAndTheLastStepAndAltLeftBack) {
    window_.show_run(canned_run({.steps = 5}));
    key(Qt::Key_End);
    EXPECT_EQ(window_.timeline().current_step(), 4);
    key(Qt::Key_Home);
    EXPECT_EQ(window_.timeline().current_step(), 0);
    QTest::keyClick(&window_, Qt::Key_Left, Qt::AltModifier);
    EXPECT_EQ(window_.timeline().current_step(), 4);
    QTest::keyClick(&window_, Qt::Key_Right, Qt::AltModifier);
    EXPECT_EQ(window_.timeline().current_step(), 0);
}

TEST_F(MainWindowTest, SlashSearchesAndEnterGoesThroughWhatWasFound) {
    show_canned();
    key(Qt::Key_Slash);
    auto* const search = window_.findChild<SearchLine*>();
    auto* const line = search->findChild<QLineEdit*>();
    const auto place_of = [this](const QWidget& widget) {
        return QRect(widget.mapTo(&window_, QPoint(0, 0)), widget.size());
    };
    EXPECT_FALSE(place_of(*search).intersects(place_of(window_.timeline())));
    QTest::keyClicks(line, "1B");
    EXPECT_EQ(window_.timeline().scene().overlay.found.size(), 3U);
    QTest::keyClick(line, Qt::Key_Return);
    EXPECT_EQ(selected(), "1B2");
    QTest::keyClick(line, Qt::Key_Return);
    EXPECT_EQ(selected(), "1B1");
    QTest::keyClick(line, Qt::Key_Return, Qt::ShiftModifier);
    EXPECT_EQ(selected(), "1B2");
    QTest::keyClick(line, Qt::Key_Escape);
    EXPECT_TRUE(window_.timeline().scene().overlay.found.empty());
    EXPECT_FALSE(search->isVisible());
}

TEST_F(MainWindowTest, EscLeavesTheSearchFirstAndThenTheSelection) {
    show_canned();
    key(Qt::Key_Right);
    key(Qt::Key_Slash);
    auto* const search = window_.findChild<SearchLine*>();
    window_.timeline().setFocus();
    key(Qt::Key_Escape);
    EXPECT_FALSE(search->isVisible());
    EXPECT_FALSE(selected().empty());
    key(Qt::Key_Escape);
    EXPECT_TRUE(selected().empty());
}

/// What the tables of the Step panel say, line by line.
QString step_panel(MainWindow& window) {
    return visible_text(*window.findChild<DetailsPanel*>());
}

/// `pipetwin run` says it of such a run, and the window showed the error without a word.
TEST_F(MainWindowTest, SaysThatTheErrorOfANoisyRunSaysNothing) {
    RunData run = canned_run({.jitter = 0.1, .steps = 3});
    run.measured->noise = {.dropped_steps = 37, .steps = 3};
    run.comparison->noise = run.measured->noise;
    window_.show_run(std::move(run));
    EXPECT_TRUE(visible_text(*window_.statusBar()).contains("(unreliable)"));
    EXPECT_TRUE(step_panel(window_).contains("Quiet steps"));
    EXPECT_TRUE(step_panel(window_).contains("medians of the 3 quiet steps of a run of 40"));
}

TEST_F(MainWindowTest, TheStepInNumbersIsTheOneThatIsLookedAt) {
    window_.show_run(canned_run({.jitter = 0.1, .steps = 4}));
    const Twin& twin = window_.run().twin;
    const auto says = [&](int step) {
        const QString length =
            QString::fromStdString(short_time(twin.step(Side::Measured, step)->length));
        const QString text = step_panel(window_);
        return text.contains(QString("Step %1").arg(step)) && text.contains(length);
    };
    const int main = window_.run().main_step();
    EXPECT_TRUE(says(main));
    EXPECT_TRUE(step_panel(window_).contains("nearest the median"));
    EXPECT_TRUE(step_panel(window_).contains("medians of 4 steps"));
    window_.timeline().show_step(3);
    EXPECT_TRUE(says(3));
    window_.selection().set_span(SpanRef{.side = Side::Measured, .step = 0});
    EXPECT_TRUE(says(0)) << "the selection counts first";
    window_.selection().clear();
    EXPECT_TRUE(says(3));
    window_.timeline().show_whole_run();
    EXPECT_TRUE(says(main));
}

TEST_F(MainWindowTest, TheHeadNamesAllThatIsLaidOverEachOther) {
    RunData run = canned_run();
    run.path = "/runs/a";
    run.over = {"/runs/b/"};
    window_.show_run(std::move(run));
    EXPECT_TRUE(visible_text(window_).contains("a + b"));
    EXPECT_EQ(window_.windowTitle(), "a + b - pipetwin");
}

TEST_F(MainWindowTest, CallsASideEmulatedThatIs) {
    const auto* const mode = window_.findChild<QAction*>("measured");
    show_canned();
    EXPECT_EQ(mode->text(), "&Measured");
    RunData run = canned_run();
    run.measured->origin = Origin::Emulated;
    window_.show_run(std::move(run));
    EXPECT_EQ(mode->text(), "E&mulated");
}

TEST_F(MainWindowTest, TheCommandFinderDoesWhatItIsTold) {
    show_canned();
    QTest::keyClick(&window_, Qt::Key_P, Qt::ControlModifier | Qt::ShiftModifier);
    auto* const finder = window_.findChild<Finder*>();
    ASSERT_TRUE(finder->isVisible());
    auto* const line = finder->findChild<QLineEdit*>();
    QTest::keyClicks(line, "idle time");
    QTest::keyClick(line, Qt::Key_Return);
    EXPECT_TRUE(window_.timeline().shows_bubbles());
}

TEST_F(MainWindowTest, TheCommandFinderLeadsToEveryPanel) {
    show_canned();
    for (const auto& [name, typed] : {std::pair{"heat-map", "heat"},
                                      std::pair{"ranks", "panel: ranks"},
                                      std::pair{"run", "panel: train"}}) {
        QTest::keyClick(&window_, Qt::Key_P, Qt::ControlModifier | Qt::ShiftModifier);
        auto* const line = window_.findChild<Finder*>()->findChild<QLineEdit*>();
        QTest::keyClicks(line, typed);
        QTest::keyClick(line, Qt::Key_Return);
        EXPECT_TRUE(window_.findChild<QWidget*>(name)->isVisible()) << name;
        key(Qt::Key_Escape);
        EXPECT_TRUE(window_.timeline().hasFocus());
    }
}

TEST_F(MainWindowTest, TheRankFinderGoesToARankAndShowsItWhereItWasHidden) {
    show_canned();
    Tracks tracks = window_.timeline().tracks();
    tracks[1].hidden = true;
    window_.timeline().set_tracks(tracks);
    QTest::keyClick(&window_, Qt::Key_P, Qt::ControlModifier);
    auto* const line = window_.findChild<Finder*>()->findChild<QLineEdit*>();
    QTest::keyClicks(line, "1");
    QTest::keyClick(line, Qt::Key_Return);
    ASSERT_TRUE(window_.selection().span());
    EXPECT_EQ(window_.selection().span()->rank, 1);
    EXPECT_FALSE(window_.timeline().tracks()[1].hidden);
}

TEST_F(MainWindowTest, AReboundKeyIsRemembered) {
    settings_.setValue("keys/zoom_in", "Ctrl+Alt+I");
    MainWindow other(&settings_);
    other.show_run(canned_run());
    other.show();
    QApplication::setActiveWindow(&other);
    const double before = other.timeline().transform().ns_per_pixel;
    QTest::keyClick(&other, Qt::Key_W);
    EXPECT_EQ(other.timeline().transform().ns_per_pixel, before);
    QTest::keyClick(&other, Qt::Key_I, Qt::ControlModifier | Qt::AltModifier);
    EXPECT_LT(other.timeline().transform().ns_per_pixel, before);
}

TEST_F(MainWindowTest, RemembersTheTheme) {
    window_.set_theme(Theme::Light);
    QTest::keyClick(&window_, Qt::Key_L, Qt::ControlModifier);
    EXPECT_EQ(settings_.value("theme").toString(), "dark");
    const MainWindow next(&settings_);
    EXPECT_LT(QApplication::palette().color(QPalette::Window).lightness(), 80);
}

TEST_F(MainWindowTest, EveryControlHasAName) {
    show_canned();
    for (const QMenu* const menu : window_.findChildren<QMenu*>()) {
        for (const QAction* const action : menu->actions()) {
            EXPECT_FALSE(action->text().isEmpty() && !action->isSeparator())
                << menu->title().toStdString();
        }
    }
    EXPECT_FALSE(window_.timeline().accessibleName().isEmpty());
    for (const QAbstractButton* const button : window_.findChildren<QAbstractButton*>()) {
        const QWidget* const parent = button->parentWidget();
        const bool qts_own = button->objectName().startsWith("qt_") ||
                             qobject_cast<const QTabBar*>(parent) != nullptr ||
                             qobject_cast<const QAbstractItemView*>(parent) != nullptr ||
                             qobject_cast<const QLineEdit*>(parent) != nullptr;
        EXPECT_TRUE(qts_own || !button->text().isEmpty() || !button->accessibleName().isEmpty());
    }
}

/// All models that there are, whatever happens to the window that holds them.
TEST_F(MainWindowTest, EveryModelKeepsTheRulesOfModels) {
    std::set<std::string> ours;
    for (QAbstractItemModel* const model : window_.findChildren<QAbstractItemModel*>()) {
        const std::string name = model->metaObject()->className();
        if (name.starts_with("pipetwin::gui::")) {
            ours.insert(name.substr(name.rfind(':') + 1));
            new QAbstractItemModelTester(
                model, QAbstractItemModelTester::FailureReportingMode::Fatal, model);
        }
    }
    EXPECT_THAT(ours,
                ::testing::UnorderedElementsAre(
                    "OpFilterProxy", "OpTableModel", "TextTable", "TrackModel", "WaitModel"));
    for (const int ranks : {2, 5, 2}) {
        window_.show_run(canned_run({.ranks = ranks, .jitter = 0.1, .steps = 2}));
        window_.wait_for_workers();
        key(Qt::Key_Right);
        window_.wait_for_workers();
    }
    window_.show_live(std::make_shared<const RunData>(canned_run({.steps = 3})));
    window_.wait_for_workers();
    window_.show_live(std::make_shared<const RunData>(canned_run({.steps = 4})));
    window_.wait_for_workers();
    open_and_wait(file_with("x.json", print_chrome_trace(trace_of_replicas()).c_str()));
    window_.show_replica(1);
    window_.wait_for_workers();
}

TEST_F(MainWindowTest, NoTwoActionsShareAKey) {
    QList<QKeySequence> seen;
    for (const QAction* const action : window_.findChildren<QAction*>()) {
        for (const QKeySequence& keys : action->shortcuts()) {
            EXPECT_FALSE(seen.contains(keys)) << keys.toString().toStdString();
            seen += keys;
        }
    }
    EXPECT_GE(seen.size(), 20);
}

class MainWindowInEveryTheme : public MainWindowTest,
                               public ::testing::WithParamInterface<Theme> {};

INSTANTIATE_TEST_SUITE_P(Theme,
                         MainWindowInEveryTheme,
                         ::testing::ValuesIn(themes),
                         [](const auto& theme) {
                             return name_of(theme.param).remove('-').toStdString();
                         });

TEST_P(MainWindowInEveryTheme, PaintsActionsGroundsAndTextInItsColours) {
    show_canned();
    window_.set_theme(GetParam());
    const Palette palette = palette_of(GetParam());
    TimelineView& timeline = window_.timeline();
    const QImage image = timeline.viewport()->grab().toImage();
    const QRect place = timeline.place_of(find(window_.run(), Side::Predicted, f1_of_0));
    const OpStyle style = palette.style(Op::Forward);
    EXPECT_EQ(image.pixelColor(place.topLeft() + QPoint(3, 3)), style.fill);
    bool has_text = false;
    for (int x = place.left(); x <= place.right(); ++x) {
        for (int y = place.top(); y <= place.bottom(); ++y) {
            has_text = has_text || image.pixelColor(x, y) == style.text;
        }
    }
    EXPECT_TRUE(has_text) << "the letter of the action, in a real font";
    EXPECT_EQ(image.pixelColor(2, image.height() - 2), palette.window) << "below the names";
}

/// How many pixels have each colour.
std::unordered_map<QRgb, int> colours_of(const QImage& image) {
    std::unordered_map<QRgb, int> counts;
    for (int y = 0; y < image.height(); ++y) {
        const auto* const line = reinterpret_cast<const QRgb*>(image.constScanLine(y));
        for (int x = 0; x < image.width(); ++x) {
            ++counts[line[x]];
        }
    }
    return counts;
}

QColor ground_of(const std::unordered_map<QRgb, int>& colours) {
    return std::ranges::max_element(colours, {}, [](const auto& entry) { return entry.second; })
        ->first;
}

/// How much the pixel that stands out most does so.
double contrast_within(const std::unordered_map<QRgb, int>& colours) {
    const QColor ground = ground_of(colours);
    double best = 1;
    for (const auto& [colour, count] : colours) {
        best = std::max(best, contrast_ratio(colour, ground));
    }
    return best;
}

TEST_P(MainWindowInEveryTheme, EveryPanelHasItsGroundAndTextThatCanBeReadInItsPixels) {
    show_canned();
    window_.set_theme(GetParam());
    const Palette palette = palette_of(GetParam());
    for (const std::string& name : view_names()) {
        window_.show_view(QString::fromStdString(name));
        window_.wait_for_workers();
        const QImage window = window_.grab().toImage().convertToFormat(QImage::Format_RGB32);
        const auto part = [&](const QWidget& widget) {
            const QRect seen = widget.visibleRegion().boundingRect();
            return window.copy(QRect(widget.mapTo(&window_, seen.topLeft()), seen.size()));
        };
        const QWidget* const panel =
            name == "timeline" ? &window_.timeline()
                               : window_.findChild<QWidget*>(QString::fromStdString(name));
        ASSERT_NE(panel, nullptr) << name;
        const auto* const scrolled = qobject_cast<const QAbstractScrollArea*>(panel);
        const auto* const page = name == "start" ? panel->findChild<QScrollArea*>() : nullptr;
        const QWidget& shown = page != nullptr       ? *page->widget()
                               : scrolled != nullptr ? *scrolled->viewport()
                                                     : *panel;
        const QColor ground = ground_of(colours_of(part(shown)));
        EXPECT_TRUE(ground == palette.window || ground == palette.background ||
                    ground == palette.row || ground == palette.idle_fill)
            << name << ": " << ground.name().toStdString();
        for (const QLabel* const label : window_.findChildren<QLabel*>()) {
            const bool counts =
                label->isVisible() && label->isEnabled() && !label->text().isEmpty();
            const QImage image = counts ? part(*label) : QImage();
            if (image.height() >= label->fontMetrics().height()) {  // not scrolled out of sight
                EXPECT_GE(contrast_within(colours_of(image)), 4.5)
                    << name << ": " << label->text().toStdString();
            }
        }
    }
}

TEST_P(MainWindowInEveryTheme, TheBannerIsReadableAfterEveryChangeOfTheme) {
    RunData run = canned_run();
    run.problems = {"something is wrong with this file"};
    window_.show_run(std::move(run));
    for (const Theme before : themes) {
        window_.set_theme(before);
        window_.grab();
        window_.set_theme(GetParam());
        const Palette palette = palette_of(GetParam());
        auto* const banner = window_.findChild<QFrame*>("Banner");
        const auto colours =
            colours_of(banner->grab().toImage().convertToFormat(QImage::Format_RGB32));
        EXPECT_EQ(ground_of(colours), palette.banner) << name_of(before).toStdString();
        EXPECT_TRUE(colours.contains(palette.banner_text.rgb())) << name_of(before).toStdString();
    }
}

TEST_P(MainWindowInEveryTheme, WhatStandsLastAtTheFootKeepsFromTheEdge) {
    window_.set_theme(GetParam());
    auto* const training = window_.findChild<RunPanel*>();
    training->set_folder(folder_.path());
    training->watch();
    ASSERT_TRUE(visible_text(*window_.statusBar()).contains("LIVE"));
    const QImage foot = window_.statusBar()->grab().toImage().convertToFormat(QImage::Format_RGB32);
    EXPECT_EQ(colours_of(foot.copy(foot.width() - 8, 4, 8, foot.height() - 8)).size(), 1U);
}

/// The largest contrast of a pixel with the ground around it.
double contrast_in(const QImage& image, const QColor& ground) {
    double largest = 1;
    for (int y = 0; y < image.height(); ++y) {
        for (int x = 0; x < image.width(); ++x) {
            largest = std::max(largest, contrast_ratio(image.pixelColor(x, y), ground));
        }
    }
    return largest;
}

// In the light theme the groove of a scroll bar was taken for its handle; in high contrast boxes
// had no arrows.
TEST_P(MainWindowInEveryTheme, HandlesAndArrowsStandOut) {
    constexpr double seen = 3;  // WCAG 2.1, 1.4.11
    window_.set_theme(GetParam());
    const QColor ground = palette_of(GetParam()).window;
    QScrollBar bar(Qt::Vertical, &window_);
    bar.setRange(0, 100);
    bar.setPageStep(50);
    bar.resize(bar.sizeHint().width(), 200);
    const QImage image = bar.grab().toImage();
    const int middle = image.width() / 2;
    EXPECT_GE(contrast_ratio(image.pixelColor(middle, image.height() / 4), ground), seen);
    EXPECT_LT(contrast_ratio(image.pixelColor(middle, image.height() - 4), ground), 1.5);

    QSpinBox box(&window_);
    box.setRange(0, 9);
    box.setValue(5);
    box.resize(box.sizeHint());
    QStyleOptionSpinBox option;
    option.initFrom(&box);
    option.subControls = QStyle::SC_All;
    for (const auto button : {QStyle::SC_SpinBoxUp, QStyle::SC_SpinBoxDown}) {
        const QRect place = box.style()->subControlRect(QStyle::CC_SpinBox, &option, button, &box);
        const QRect inside = place.adjusted(3, 2, -3, -2);  // without the edge
        EXPECT_GE(contrast_in(box.grab(inside).toImage(), ground), seen);
    }
}

/// Labels of one line are as wide as their text.
void expect_no_clipped_label(const QWidget& window, const std::string& view) {
    for (const QLabel* const label : window.findChildren<QLabel*>()) {
        if (!label->isVisible() || label->wordWrap() || label->text().isEmpty()) {
            continue;
        }
        QString text = label->text();
        text = label->buddy() != nullptr ? text.remove('&') : text;
        EXPECT_GE(label->width() + 1, label->fontMetrics().horizontalAdvance(text))
            << view << ": " << text.toStdString();
    }
}

/// With 15 points, panels as wide as their longest lines left the timeline 200 pixels, and made the
/// window higher than it was asked to be.
TEST_F(MainWindowTest, LargeFontsLeaveTheTimelineAThirdOfASmallWindow) {
    const QFont usual = QApplication::font();
    const auto restore = qScopeGuard([&usual] { QApplication::setFont(usual); });
    for (const int points : {9, 11, 15}) {
        QFont font = usual;
        font.setPointSize(points);
        QApplication::setFont(font);
        MainWindow window(nullptr);
        window.resize(1280, 720);
        RunData run = canned_run({.jitter = 0.1});
        run.problems = {"A line above the timeline."};
        window.show_run(std::move(run));
        window.show();
        for (const char* const name : {"step", "what-if", "ranks", "heat-map", "errors", "run"}) {
            const std::string where = name + std::string(" at ") + std::to_string(points);
            window.show_view(QString::fromLatin1(name));
            window.wait_for_workers();
            EXPECT_EQ(window.size(), QSize(1280, 720)) << where;
            EXPECT_GE(window.timeline().scene().time_width(), 1280 / 3) << where;
            const QWidget& panel = *window.findChild<QWidget*>(QString::fromLatin1(name));
            EXPECT_GE(panel.width(), panel.minimumSizeHint().width()) << where;
            expect_no_clipped_label(window, where);
        }
    }
}

TEST_P(MainWindowInEveryTheme, ShowsEveryPanelAndClipsNoText) {
    show_canned();
    window_.set_theme(GetParam());
    for (const QSize& size : {QSize(1280, 720), QSize(1920, 1080)}) {
        window_.resize(size);
        for (const std::string& name : view_names()) {
            window_.show_view(QString::fromStdString(name));
            window_.wait_for_workers();
            const bool is_hidden = name == "translations" || name == "groups";  // its tab
            const std::string shown = is_hidden ? "why" : name;
            const QWidget* const panel =
                name == "timeline" ? &window_.timeline()
                                   : window_.findChild<QWidget*>(QString::fromStdString(shown));
            ASSERT_NE(panel, nullptr) << name;
            EXPECT_TRUE(panel->isVisible()) << name;
            EXPECT_FALSE(window_.grab().isNull());
            expect_no_clipped_label(window_, name);
        }
    }
}

}  // namespace main_window_test
}  // namespace pipetwin::gui
