// SPDX-License-Identifier: Apache-2.0
#include "gui/base/plain_text.h"

#include <QTextDocument>
#include <QTextDocumentFragment>
#include <gtest/gtest.h>

namespace pipetwin::gui {
namespace plain_text_test {

const QString hostile = QStringLiteral("<b>x</b><img src='/tmp/x.png'> & \"y\"");

TEST(PlainText, OfALabelIsShownAsItIs) {
    QLabel* const label = plain_label(nullptr, hostile);
    EXPECT_EQ(label->textFormat(), Qt::PlainText);
    EXPECT_EQ(label->text(), hostile);
    delete label;
}

TEST(PlainText, OfATooltipIsShownAsItIs) {
    ASSERT_TRUE(Qt::mightBeRichText(hostile));  // so Qt would obey it
    const QString tip = plain_tip(hostile);
    EXPECT_FALSE(tip.contains(QLatin1String("<img")));
    EXPECT_FALSE(tip.contains(QLatin1String("<b>")));
    EXPECT_EQ(QTextDocumentFragment::fromHtml(tip).toPlainText(), hostile);
    QWidget widget;
    set_tip(widget, hostile);
    EXPECT_EQ(widget.toolTip(), tip);
}

TEST(PlainText, OfATooltipKeepsItsLinesAndBlanks) {
    const QString lines = QStringLiteral("/a/<i>b</i>\n/a/c  d");
    const QString shown = QTextDocumentFragment::fromHtml(plain_tip(lines)).toPlainText();
    EXPECT_EQ(shown, lines);
}

TEST(PlainText, ThatIsNoHtmlStaysInATooltip) {
    for (const char* const text : {"", "0F3", "a < b", "1 & 2", "/runs/x\n/runs/y"}) {
        EXPECT_EQ(plain_tip(text), QString(text));
    }
}

TEST(MeaningTip, IsThatOfTheGlossaryWithACapitalLetterOrWithout) {
    for (const char* const word : {"Bubble", "bubble"}) {
        EXPECT_TRUE(meaning_tip(word).startsWith("bubble: the share of rank time")) << word;
    }
    EXPECT_TRUE(meaning_tip("MAPE").startsWith("MAPE: mean absolute percentage error"));
    EXPECT_EQ(meaning_tip("Why it waits"), "");
}

}  // namespace plain_text_test
}  // namespace pipetwin::gui
