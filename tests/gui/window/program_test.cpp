// SPDX-License-Identifier: Apache-2.0
#include <QImage>
#include <QProcess>
#include <QTemporaryDir>
#include <gtest/gtest.h>

#include "core/artifacts/chrome_trace.h"
#include "core/text/json_text.h"
#include "sim/simulate/simulate.h"
#include "tests/support/builders.h"
#include "tests/support/locales.h"
#include "tests/support/places.h"

/// The program itself, started as a user would.
namespace program_test {

struct Ended {
    int exit_code = -1;
    QString out;
    QString err;
};

/// Without a display, whatever the machine has.
Ended run_gui(const QStringList& arguments, const QStringList& variables = {}) {
    QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
    for (const char* const name : {"DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"}) {
        environment.remove(name);
    }
    for (const QString& variable : variables) {
        environment.insert(variable.section('=', 0, 0), variable.section('=', 1));
    }
    QProcess process;
    process.setProcessEnvironment(environment);
    process.start(QString::fromStdString(pipetwin::places::program_folder() + "/pipetwin-gui"),
                  arguments);
    if (!process.waitForFinished() || process.exitStatus() != QProcess::NormalExit) {
        return {};
    }
    return {.exit_code = process.exitCode(),
            .out = process.readAllStandardOutput(),
            .err = process.readAllStandardError()};
}

TEST(Program, HelpNeedsNoDisplay) {
    const Ended ended = run_gui({"--help"});
    EXPECT_EQ(ended.exit_code, 0);
    EXPECT_TRUE(ended.out.contains("--screenshot"));
}

TEST(Program, WithoutADisplaySaysSoAndHowToDoWithout) {
    const Ended ended = run_gui({});
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_TRUE(ended.err.contains("error: no display"));
    EXPECT_TRUE(ended.err.contains("--screenshot"));
}

TEST(Program, WrongUsageIsExitCode2) {
    EXPECT_EQ(run_gui({"--size", "huge"}).exit_code, 2);
}

TEST(Program, ScreenshotHasTheSizeAndTheThemeAskedFor) {
    const QTemporaryDir folder;
    const QString file = folder.filePath("a.png");
    const Ended ended = run_gui({"--screenshot", file, "--size", "900x500", "--theme", "dark"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err.toStdString();
    const QImage image(file);
    EXPECT_EQ(image.size(), QSize(900, 500));
    EXPECT_LT(image.pixelColor(450, 100).lightness(), 60);
}

/// Qt takes the locale of the environment for the C library, too, where numbers have a comma then:
/// "1.0 is beyond 2^53" said the window of every trace, and ended.
TEST(Program, LooksTheSameUnderEveryLocale) {
    const pipetwin::tests::BuiltLocales locales;
    if (!locales.are_there()) {
        GTEST_SKIP() << "locales cannot be built here (localedef, Debian's package locales)";
    }
    const QTemporaryDir folder;
    const QString trace = folder.filePath("a.trace.json");
    const pipetwin::Plan plan = pipetwin::testing::uniform_plan({.ranks = 2, .micro_batches = 3});
    pipetwin::Trace predicted;
    predicted.plan_hash = plan.hash();
    predicted.schedule_name = "1f1b";
    predicted.schedule = plan->schedule;
    predicted.timelines.steps.push_back(pipetwin::sim::simulate(plan));
    pipetwin::write_file(trace.toStdString(), pipetwin::print_chrome_trace(predicted));
    const auto picture = [&](const QStringList& variables) {
        const QString file = folder.filePath("a.png");
        const Ended ended = run_gui({trace, "--screenshot", file}, variables);
        EXPECT_EQ(ended.exit_code, 0) << ended.err.toStdString();
        return QImage(file);
    };
    const QImage plain = picture({"LC_ALL=C"});
    ASSERT_FALSE(plain.isNull());
    const QString folder_of_locales = "LOCPATH=" + QString::fromStdString(locales.folder());
    for (const char* const locale :
         {"LC_ALL=de_DE.UTF-8", "LC_ALL=tr_TR.UTF-8", "LC_NUMERIC=de_DE.UTF-8"}) {
        EXPECT_EQ(picture({folder_of_locales, locale}), plain) << locale;
    }
}

TEST(Program, SeveralPredictionsAreShownSideBySide) {
    const QTemporaryDir folder;
    const auto picture = [&](const QStringList& options) {
        const QString file = folder.filePath("a.png");
        const QString scenarios =
            QString::fromStdString(pipetwin::places::source_folder() + "/scenarios/");
        const Ended ended = run_gui(
            QStringList{
                scenarios + "own-schedule.csv", scenarios + "gpt-text.toml", "--screenshot", file} +
            options);
        EXPECT_EQ(ended.exit_code, 0) << ended.err.toStdString();
        return QImage(file);
    };
    const QImage shown = picture({});
    ASSERT_FALSE(shown.isNull());
    EXPECT_EQ(shown, picture({"--view", "side-by-side"}));
}

TEST(Program, ScreenshotOfWhatCannotBeReadShowsTheBannerAndFails) {
    const QTemporaryDir folder;
    const QString file = folder.filePath("a.png");
    const Ended ended = run_gui({folder.filePath("not-there"), "--screenshot", file});
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_TRUE(ended.err.contains("error: " + folder.filePath("not-there").toUtf8()));
    const QImage with_banner(file);
    ASSERT_FALSE(with_banner.isNull());
    ASSERT_EQ(run_gui({"--screenshot", file}).exit_code, 0);
    EXPECT_NE(with_banner, QImage(file)) << "no banner over the start page";
}

TEST(Program, ScreenshotThatCannotBeWrittenFails) {
    const QTemporaryDir folder;
    const QString file = folder.filePath("no/such/folder/a.png");
    const Ended ended = run_gui({"--screenshot", file});
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_TRUE(ended.err.contains("error: "));
    EXPECT_TRUE(ended.err.contains("cannot write"));
}

// A write beyond the limit ended the window by SIGXFSZ, as only the command line took it as an
// error.
TEST(Program, ALimitOnTheSizeOfFilesIsAnErrorAndNoSignal) {
    const QTemporaryDir folder;
    QProcess process;
    process.start("sh",
                  {"-c",
                   "ulimit -f 1; exec \"$0\" --screenshot \"$1\" --size 1200x800",
                   QString::fromStdString(pipetwin::places::program_folder() + "/pipetwin-gui"),
                   folder.filePath("a.png")});
    ASSERT_TRUE(process.waitForFinished());
    EXPECT_EQ(process.exitStatus(), QProcess::NormalExit);
    EXPECT_EQ(process.exitCode(), 1);
    EXPECT_TRUE(process.readAllStandardError().contains("File too large"));
}

}  // namespace program_test
