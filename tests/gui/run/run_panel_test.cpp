// SPDX-License-Identifier: Apache-2.0
#include "gui/run/run_panel.h"

#include <algorithm>
#include <fstream>

#include <QFile>
#include <QPushButton>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QTest>
#include <gtest/gtest.h>

#include "gui/run/loss_plot.h"

namespace pipetwin::gui {
namespace run_panel_test {

constexpr int patience = 20'000;  // milliseconds

/// A program that stands for the command line: a script that gets "run SCENARIO --out FOLDER
/// --live".
class RunPanelTest : public ::testing::Test {
  protected:
    QString program(const QString& body) {
        const QString path = folder_.filePath("program");
        QFile file(path);
        EXPECT_TRUE(file.open(QIODevice::WriteOnly));
        file.write(("#!/bin/sh\nmkdir -p \"$4\"\n" + body).toUtf8());
        file.close();
        file.setPermissions(QFile::ReadOwner | QFile::ExeOwner | QFile::WriteOwner);
        return path;
    }

    void fill(RunPanel& panel) {
        panel.set_scenario("x.toml");
        panel.set_folder(folder_.filePath("run"));
    }

    QTemporaryDir folder_;
};

TEST_F(RunPanelTest, ShowsWhatATrainingSaysAndSaysWhenItIsOver) {
    RunPanel panel(
        program("echo training $2\n"
                "echo '{\"step\":0,\"loss\":5.5,\"step_ms\":1}' > \"$4/metrics.jsonl\"\n"
                "sleep 0.5\necho '{}' > \"$4/measured.trace.json\"\nsleep 0.5\n"));
    fill(panel);
    QSignalSpy finished(&panel, &RunPanel::finished);
    panel.start();
    EXPECT_TRUE(panel.is_training());
    EXPECT_TRUE(panel.is_watching());
    ASSERT_TRUE(finished.wait(patience));
    EXPECT_TRUE(panel.log().contains("training x.toml")) << panel.log().toStdString();
    EXPECT_FALSE(panel.is_watching());
}

TEST_F(RunPanelTest, ItsButtonsStartStopAndWatchAndItPlotsTheLoss) {
    RunPanel panel(
        program("trap 'echo saved; exit 143' TERM\n"
                "echo '{\"step\":0,\"loss\":5.5,\"step_ms\":1}' > \"$4/metrics.jsonl\"\n"
                "echo '{\"step\":1,\"loss\":4.5,\"step_ms\":2}' >> \"$4/metrics.jsonl\"\n"
                "while true; do sleep 0.05; done\n"));
    panel.resize(1000, 240);
    panel.show();
    fill(panel);
    const auto button = [&](const char* text) {
        for (QPushButton* const one : panel.findChildren<QPushButton*>()) {
            if (one->text() == QLatin1String(text)) {
                return one;
            }
        }
        ADD_FAILURE() << text;
        return panel.findChild<QPushButton*>();
    };
    auto* const plot = panel.findChild<LossPlot*>();
    const QImage empty = plot->grab().toImage();
    QTest::mouseClick(button("Start"), Qt::LeftButton);
    ASSERT_TRUE(panel.is_training());
    EXPECT_FALSE(button("Start")->isEnabled());
    ASSERT_TRUE(QTest::qWaitFor([&] { return plot->accessibleDescription() == "step 1, loss 4.5"; },
                                patience));
    const QImage curve = plot->grab().toImage();
    const QColor line = palette_of(Theme::Light).faster;
    const auto has_line = [&](const QImage& image) {
        for (int x = 0; x < image.width(); ++x) {
            for (int y = 0; y < image.height(); ++y) {
                if (image.pixelColor(x, y) == line) {
                    return true;
                }
            }
        }
        return false;
    };
    EXPECT_FALSE(has_line(empty));
    EXPECT_TRUE(has_line(curve));
    QTest::mouseClick(button("Stop"), Qt::LeftButton);
    ASSERT_TRUE(QTest::qWaitFor([&] { return !panel.is_training(); }, patience));
    if (panel.is_watching()) {
        QTest::mouseClick(button("Stop watching"), Qt::LeftButton);
    }
    EXPECT_FALSE(panel.is_watching());
    QTest::mouseClick(button("Watch"), Qt::LeftButton);
    EXPECT_TRUE(panel.is_watching());
    QTest::mouseClick(button("Stop watching"), Qt::LeftButton);
    EXPECT_FALSE(panel.is_watching());
}

TEST_F(RunPanelTest, AProcessThatFailsIsASentenceWithWhatItSaid) {
    RunPanel panel(program("echo 'error: x.toml: not found' >&2\nexit 3\n"));
    fill(panel);
    QSignalSpy failed(&panel, &RunPanel::failed);
    panel.start();
    ASSERT_TRUE(failed.wait(patience));
    const QString sentence = failed[0][0].toString();
    EXPECT_TRUE(sentence.contains("exit code 3")) << sentence.toStdString();
    EXPECT_TRUE(sentence.contains("x.toml: not found")) << sentence.toStdString();
    EXPECT_FALSE(panel.is_watching());
}

TEST_F(RunPanelTest, AProcessThatIsKilledIsASentence) {
    RunPanel panel(program("kill -9 $$\n"));
    fill(panel);
    QSignalSpy failed(&panel, &RunPanel::failed);
    panel.start();
    ASSERT_TRUE(failed.wait(patience));
    EXPECT_TRUE(failed[0][0].toString().contains("killed or crashed"));
    EXPECT_TRUE(panel.findChildren<QPushButton*>().size() >= 3);
}

TEST_F(RunPanelTest, StopIsASignalAfterWhichTheStepIsFinished) {
    RunPanel panel(
        program("trap 'echo saved; exit 143' TERM\necho ready\n"
                "while true; do sleep 0.05; done\n"));
    fill(panel);
    QSignalSpy failed(&panel, &RunPanel::failed);
    panel.start();
    ASSERT_TRUE(QTest::qWaitFor([&] { return panel.log().contains("ready"); }, patience));
    panel.stop_training();
    ASSERT_TRUE(QTest::qWaitFor([&] { return !panel.is_training(); }, patience));
    EXPECT_TRUE(panel.log().contains("saved"));
    EXPECT_EQ(failed.count(), 0) << "that was wanted";
}

TEST_F(RunPanelTest, AProgramThatIsNotThereIsASentence) {
    RunPanel panel(folder_.filePath("nothing"));
    fill(panel);
    QSignalSpy failed(&panel, &RunPanel::failed);
    panel.start();
    ASSERT_TRUE(failed.count() > 0 || failed.wait(patience));
    EXPECT_TRUE(failed[0][0].toString().contains("Cannot start"));
}

TEST_F(RunPanelTest, WithoutAScenarioNothingStarts) {
    RunPanel panel(program("exit 0\n"));
    QSignalSpy failed(&panel, &RunPanel::failed);
    panel.start();
    EXPECT_EQ(failed.count(), 1);
    panel.watch();
    EXPECT_EQ(failed.count(), 2);
    EXPECT_FALSE(panel.is_training() || panel.is_watching());
}

TEST_F(RunPanelTest, ClosingTheWindowEndsTheTraining) {
    const QString path = program(
        "trap 'touch \"$4/saved\"; exit 143' TERM\n"
        "touch \"$4/ready\"\nwhile true; do sleep 0.05; done\n");
    {
        RunPanel panel(path);
        fill(panel);
        panel.start();
        ASSERT_TRUE(QTest::qWaitFor([&] { return QFile::exists(folder_.filePath("run/ready")); },
                                    patience));
    }
    EXPECT_TRUE(QFile::exists(folder_.filePath("run/saved")));
}

/// A second start ended with exit code 6 and a hint on --out and --force, which the window has not.
TEST_F(RunPanelTest, ASecondTrainingHasANewFolder) {
    RunPanel panel(program("echo to $4\ntouch \"$4/report.html\"\n"));
    panel.set_scenario("x.toml");
    panel.set_folder(folder_.filePath("run-1"));
    const auto button = [&](const char* text) {
        const auto buttons = panel.findChildren<QPushButton*>();
        return *std::ranges::find(buttons, QLatin1String(text), &QPushButton::text);
    };
    QSignalSpy failed(&panel, &RunPanel::failed);
    QSignalSpy report(&panel, &RunPanel::report_wanted);
    EXPECT_FALSE(button("Open report")->isEnabled());
    for (const char* const name : {"run-1", "run-2"}) {
        panel.start();
        ASSERT_TRUE(QTest::qWaitFor([&] { return !panel.is_training(); }, patience));
        EXPECT_EQ(panel.log(), "to " + folder_.filePath(name));
        EXPECT_EQ(failed.count(), 0);
        QTest::mouseClick(button("Open report"), Qt::LeftButton);
        EXPECT_EQ(report.back()[0].value<std::filesystem::path>(),
                  folder_.filePath(QString(name) + "/report.html").toStdString());
    }
}

TEST_F(RunPanelTest, AFolderThatHoldsFilesIsNotOverwritten) {
    RunPanel panel(program("echo to $4\n"));
    panel.set_scenario("x.toml");
    panel.set_folder(folder_.path());  // holds the program
    QSignalSpy failed(&panel, &RunPanel::failed);
    panel.start();
    ASSERT_EQ(failed.count(), 1);
    EXPECT_FALSE(panel.is_training());
    EXPECT_TRUE(failed[0][0].toString().contains(
        QString("The run folder is now %1-2.").arg(folder_.path())))
        << failed[0][0].toString().toStdString();
}

TEST_F(RunPanelTest, TheErrorOfAnotherScenarioGoesAway) {
    RunPanel panel(program("echo 'error: x.toml: not found' >&2\nexit 3\n"));
    fill(panel);
    QSignalSpy failed(&panel, &RunPanel::failed);
    panel.start();
    ASSERT_TRUE(failed.wait(patience));
    panel.prepare("x.toml");
    EXPECT_TRUE(panel.log().contains("not found"));
    panel.prepare("y.toml");
    EXPECT_EQ(panel.log(), "");
}

}  // namespace run_panel_test
}  // namespace pipetwin::gui
