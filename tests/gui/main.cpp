#include <QApplication>
#include <QStyleFactory>
#include <gtest/gtest.h>

/// All tests of the desktop program share one application and need no display.
int main(int argc, char** argv) {
    qputenv("QT_QPA_PLATFORM", "offscreen");
    testing::InitGoogleTest(&argc, argv);
    QApplication::setStyle(QStyleFactory::create(QStringLiteral("Fusion")));
    QApplication const application(argc, argv);
    return RUN_ALL_TESTS();
}
