// SPDX-License-Identifier: Apache-2.0
#include "gui/start/start_page.h"

#include <algorithm>

#include <QAbstractButton>
#include <QApplication>
#include <QFile>
#include <QLabel>
#include <QSettings>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QTest>
#include <gtest/gtest.h>

#include "gui/start/examples.h"

namespace pipetwin::gui {
namespace start_page_test {

class StartPageTest : public ::testing::Test {
  protected:
    QAbstractButton* button(const QString& text) {
        QApplication::processEvents();
        for (QAbstractButton* const one : page_->findChildren<QAbstractButton*>()) {
            if (one->isVisible() &&
                (one->text().startsWith(text) || one->accessibleName() == text)) {
                return one;
            }
        }
        return nullptr;
    }

    void show() {
        page_ = std::make_unique<StartPage>(RecentFiles(&settings_));
        page_->resize(1280, 680);
        page_->show();
    }

    QTemporaryDir folder_;
    QSettings settings_{folder_.filePath("settings.ini"), QSettings::IniFormat};
    std::unique_ptr<StartPage> page_;
};

TEST_F(StartPageTest, EveryWayToBeginIsAButton) {
    show();
    for (const auto& [text, signal] : {std::pair("Open...", &StartPage::open_wanted),
                                       std::pair("Playground", &StartPage::playground_wanted),
                                       std::pair("Side by side...", &StartPage::compare_wanted)}) {
        QSignalSpy wanted(page_.get(), signal);
        ASSERT_NE(button(text), nullptr) << text;
        QTest::mouseClick(button(text), Qt::LeftButton);
        EXPECT_EQ(wanted.count(), 1) << text;
    }
}

TEST_F(StartPageTest, EachTaskIsOneClick) {
    show();
    for (const auto& [text, signal] :
         {std::pair("Plan a cluster", &StartPage::plan_wanted),
          std::pair("Compare schedules", &StartPage::comparison_wanted)}) {
        QSignalSpy wanted(page_.get(), signal);
        ASSERT_NE(button(text), nullptr) << text;
        QTest::mouseClick(button(text), Qt::LeftButton);
        EXPECT_EQ(wanted.count(), 1) << text;
    }
    std::filesystem::path wanted;
    QObject::connect(
        page_.get(), &StartPage::file_wanted, [&](const auto& file) { wanted = file; });
    QTest::mouseClick(button("Look at a run"), Qt::LeftButton);
    EXPECT_EQ(wanted.filename(), "gpt-text.toml");
}

TEST_F(StartPageTest, ARecentRunHasItsPicture) {
    RecentFiles recent(&settings_);
    recent.add("/runs/a");
    QImage picture(64, 24, QImage::Format_RGB32);
    picture.fill(Qt::red);
    recent.set_picture("/runs/a", picture);
    recent.set_picture("/runs/never-opened", picture);
    EXPECT_EQ(recent.picture("/runs/a").pixelColor(3, 3), QColor(Qt::red));
    EXPECT_TRUE(recent.picture("/runs/never-opened").isNull());
    show();
    const auto labels = page_->findChildren<QLabel*>();
    EXPECT_TRUE(std::ranges::any_of(
        labels, [](const QLabel* label) { return !label->pixmap(Qt::ReturnByValue).isNull(); }));
    recent.remove("/runs/a");
    EXPECT_TRUE(recent.picture("/runs/a").isNull());
}

TEST_F(StartPageTest, AClickOnAnExampleWantsItsFile) {
    show();
    std::filesystem::path wanted;
    QObject::connect(
        page_.get(), &StartPage::file_wanted, [&](const auto& file) { wanted = file; });
    ASSERT_NE(button("gpt-text"), nullptr);
    QTest::mouseClick(button("gpt-text"), Qt::LeftButton);
    EXPECT_EQ(wanted.filename(), "gpt-text.toml");
    EXPECT_TRUE(std::filesystem::exists(wanted));
}

TEST_F(StartPageTest, EveryShippedScenarioIsAnExampleWithASentence) {
    const std::vector<Example> all = examples();
    EXPECT_GE(all.size(), 10);
    for (const Example& example : all) {
        EXPECT_TRUE(std::filesystem::exists(example.file));
        EXPECT_GE(example.about.size(), 10) << example.name.toStdString();
        EXPECT_FALSE(example.about.startsWith('#')) << example.about.toStdString();
    }
}

TEST_F(StartPageTest, ARecentFileIsOpenedByAClick) {
    const QString there = folder_.filePath("mine.toml");
    QFile file(there);
    ASSERT_TRUE(file.open(QIODevice::WriteOnly));
    RecentFiles(&settings_).add(there.toStdString());
    show();
    std::filesystem::path wanted;
    QObject::connect(
        page_.get(), &StartPage::file_wanted, [&](const auto& path) { wanted = path; });
    ASSERT_NE(button("mine.toml"), nullptr);
    QTest::mouseClick(button("mine.toml"), Qt::LeftButton);
    EXPECT_EQ(wanted, there.toStdString());
}

TEST_F(StartPageTest, AMissingFileIsShownAsSuchAndCanBeRemoved) {
    RecentFiles(&settings_).add("/gone/run&1");
    show();
    QAbstractButton* const line = button("/gone/run&&1");
    ASSERT_NE(line, nullptr);
    EXPECT_TRUE(line->text().endsWith("missing"));
    EXPECT_FALSE(line->isEnabled());
    QTest::mouseClick(button("Remove run&1 from the list"), Qt::LeftButton);
    EXPECT_EQ(button("/gone/run&&1"), nullptr);
    EXPECT_TRUE(RecentFiles(&settings_).paths().isEmpty());
}

TEST_F(StartPageTest, SaysWhatTheProgramIs) {
    show();
    QStringList texts;
    for (const QLabel* const label : page_->findChildren<QLabel*>()) {
        texts += label->text();
    }
    EXPECT_TRUE(texts.join('\n').contains("pipeline-parallel training"));
}

}  // namespace start_page_test
}  // namespace pipetwin::gui
