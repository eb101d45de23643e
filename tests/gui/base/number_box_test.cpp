// SPDX-License-Identifier: Apache-2.0
#include "gui/base/number_box.h"

#include <QApplication>
#include <QLineEdit>
#include <QTest>
#include <gtest/gtest.h>

namespace pipetwin::gui {
namespace number_box_test {

/// Types a text over what is in a box, and ends it with Enter.
template <class Box>
void type(Box& box, const char* text) {
    box.show();
    QApplication::setActiveWindow(&box);
    box.setFocus();
    box.selectAll();
    QTest::keyClicks(&box, text);
    QTest::keyClick(&box, Qt::Key_Return);
}

/// Whether the box takes a shortcut for its line.
template <class Box>
bool takes(Box& box, Qt::Key key, Qt::KeyboardModifiers with) {
    QKeyEvent event(QEvent::ShortcutOverride, key, with);
    event.ignore();
    QApplication::sendEvent(&box, &event);
    return event.isAccepted();
}

/// The digit with which a number would leave the range was refused: 64 became 6.
TEST(NumberBox, ANumberBeyondTheRangeBecomesTheNearestOne) {
    NumberBox box;
    box.setRange(2, 32);
    box.setValue(4);
    type(box, "64");
    EXPECT_EQ(box.value(), 32);
    EXPECT_EQ(box.text(), "32");
    type(box, "5000000000000");
    EXPECT_EQ(box.value(), 32);
    type(box, "1");
    EXPECT_EQ(box.value(), 2);
    type(box, "7");
    EXPECT_EQ(box.value(), 7);
}

TEST(NumberBox, OfLettersTakesNone) {
    NumberBox box;
    box.setRange(1, 32);
    box.setValue(4);
    type(box, "1e9");
    EXPECT_EQ(box.value(), 19) << "the letter is refused";
}

TEST(NumberBox, ADecimalBeyondTheRangeBecomesTheNearestOne) {
    DecimalBox box;
    box.setRange(0, 1000);
    box.setDecimals(2);
    box.setSuffix(" ms");
    type(box, "2500.5");
    EXPECT_EQ(box.value(), 1000);
    EXPECT_EQ(box.text(), "1000.00 ms");
    type(box, "2.25");
    EXPECT_EQ(box.value(), 2.25);
}

/// Ctrl+Z did nothing while a number of a what-if had the focus: its line took the key, and had
/// nothing to undo.
TEST(NumberBox, UndoIsThatOfTheWindowUnlessANumberIsBeingTyped) {
    NumberBox box;
    box.setKeyboardTracking(false);
    box.setPrefix("stage ");
    type(box, "7");
    EXPECT_FALSE(takes(box, Qt::Key_Z, Qt::ControlModifier));
    EXPECT_FALSE(takes(box, Qt::Key_Z, Qt::ControlModifier | Qt::ShiftModifier));
    EXPECT_FALSE(takes(box, Qt::Key_Y, Qt::ControlModifier));
    box.selectAll();
    QTest::keyClicks(&box, "3");
    EXPECT_TRUE(takes(box, Qt::Key_Z, Qt::ControlModifier));
}

TEST(NumberBox, KeysOfLongTextsAreThoseOfTheWindow) {
    DecimalBox box;
    box.setSpecialValueText("as in the run");
    box.show();
    EXPECT_FALSE(takes(box, Qt::Key_Home, Qt::ControlModifier));
    EXPECT_FALSE(takes(box, Qt::Key_K, Qt::ControlModifier));
    EXPECT_FALSE(takes(box, Qt::Key_Z, Qt::ControlModifier));
    EXPECT_TRUE(takes(box, Qt::Key_A, Qt::ControlModifier)) << "selects the text";
    EXPECT_TRUE(takes(box, Qt::Key_7, Qt::NoModifier)) << "types";
}

}  // namespace number_box_test
}  // namespace pipetwin::gui
