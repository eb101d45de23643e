// SPDX-License-Identifier: Apache-2.0
#include "gui/start/recent_files.h"

#include <QFile>
#include <QSettings>
#include <QTemporaryDir>
#include <gtest/gtest.h>

namespace pipetwin::gui {
namespace recent_files_test {

class RecentFilesTest : public ::testing::Test {
  protected:
    QTemporaryDir folder_;
    QSettings settings_{folder_.filePath("settings.ini"), QSettings::IniFormat};
    RecentFiles recent_{&settings_};
};

TEST_F(RecentFilesTest, TheLatestComesFirstAndOnce) {
    recent_.add("/a");
    recent_.add("/b");
    recent_.add("/a");
    EXPECT_EQ(recent_.paths(), (QStringList{"/a", "/b"}));
}

TEST_F(RecentFilesTest, KeepsEight) {
    for (int i = 0; i < 12; ++i) {
        recent_.add("/run" + std::to_string(i));
    }
    EXPECT_EQ(recent_.paths().size(), 8);
    EXPECT_EQ(recent_.paths().front(), "/run11");
}

TEST_F(RecentFilesTest, KeepsFullPathsAndNothingForNoPath) {
    recent_.add("a.toml");
    EXPECT_TRUE(recent_.paths().front().startsWith('/'));
    recent_.clear();
    recent_.add({});
    EXPECT_TRUE(recent_.paths().isEmpty());
}

TEST_F(RecentFilesTest, RemovesOneAndKnowsWhichAreThere) {
    const QString there = folder_.filePath("there.toml");
    QFile file(there);
    ASSERT_TRUE(file.open(QIODevice::WriteOnly));
    recent_.add(there.toStdString());
    recent_.add("/gone");
    EXPECT_TRUE(RecentFiles::is_there(there));
    EXPECT_FALSE(RecentFiles::is_there("/gone"));
    recent_.remove("/gone");
    EXPECT_EQ(recent_.paths(), QStringList{there});
}

TEST_F(RecentFilesTest, WithoutSettingsNothingIsKept) {
    RecentFiles none(nullptr);
    none.add("/a");
    none.remove("/a");
    none.clear();
    EXPECT_TRUE(none.paths().isEmpty());
}

}  // namespace recent_files_test
}  // namespace pipetwin::gui
