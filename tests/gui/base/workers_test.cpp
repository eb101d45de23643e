// SPDX-License-Identifier: Apache-2.0
#include "gui/base/workers.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <QImage>
#include <QPainter>
#include <QSemaphore>
#include <QThreadPool>
#include <gtest/gtest.h>

#include "tests/support/places.h"

namespace pipetwin::gui {
namespace workers_test {

/// Large areas are what Qt's painter shares out.
TEST(Workers, MayBeBusyWhileTheWindowIsPainted) {
    QSemaphore may_end;
    const int busy = 2 * workers()->maxThreadCount();
    for (int job = 0; job < busy; ++job) {
        workers()->start([&may_end] { may_end.acquire(); });
    }
    QImage image(4000, 4000, QImage::Format_ARGB32_Premultiplied);
    image.fill(Qt::white);
    QPainter painter(&image);
    painter.fillRect(QRectF(0.5, 0.5, 3999, 3999), QColor(0, 0, 0, 128));
    painter.end();
    EXPECT_NE(image.pixelColor(2000, 2000), QColor(Qt::white));
    may_end.release(busy);
    EXPECT_TRUE(workers()->waitForDone(20'000));
}

TEST(Workers, AreWhereEverythingIsComputed) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(places::source_folder() + "/gui")) {
        if (!entry.is_regular_file()) {
            continue;
        }
        std::ifstream stream(entry.path());
        std::string text{std::istreambuf_iterator<char>(stream), {}};
        std::erase_if(text, [](char letter) { return letter == ' ' || letter == '\n'; });
        for (std::size_t at = text.find("QtConcurrent::run("); at != std::string::npos;
             at = text.find("QtConcurrent::run(", at + 1)) {
            EXPECT_EQ(text.substr(at, 28), "QtConcurrent::run(workers(),") << entry.path();
        }
    }
}

}  // namespace workers_test
}  // namespace pipetwin::gui
