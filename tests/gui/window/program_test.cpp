#include <QImage>
#include <QProcess>
#include <QTemporaryDir>
#include <gtest/gtest.h>

#include "tests/support/places.h"

/// The program itself, started as a user would.
namespace program_test {

struct Ended {
    int exit_code = -1;
    QString out;
    QString err;
};

/// Without a display, whatever the machine has.
Ended run_gui(const QStringList& arguments) {
    QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
    for (const char* const name : {"DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"}) {
        environment.remove(name);
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
    EXPECT_TRUE(ended.err.contains("no display"));
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

TEST(Program, ScreenshotOfWhatCannotBeReadShowsTheBannerAndFails) {
    const QTemporaryDir folder;
    const QString file = folder.filePath("a.png");
    const Ended ended = run_gui({folder.filePath("not-there"), "--screenshot", file});
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_TRUE(ended.err.contains("not-there"));
    EXPECT_FALSE(QImage(file).isNull());
}

TEST(Program, ScreenshotThatCannotBeWrittenFails) {
    const QTemporaryDir folder;
    const QString file = folder.filePath("no/such/folder/a.png");
    const Ended ended = run_gui({"--screenshot", file});
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_TRUE(ended.err.contains("cannot write"));
}

}  // namespace program_test
