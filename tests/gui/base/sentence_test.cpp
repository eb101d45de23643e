// SPDX-License-Identifier: Apache-2.0
#include "gui/base/sentence.h"

#include <gtest/gtest.h>

namespace pipetwin::gui {
namespace sentence_test {

TEST(Sentence, NumbersStayWithTheirUnits) {
    QString text = unbroken(QStringLiteral("rank 3 (375.914 ms), 12 us. 4 % of 2.5 GiB, 7 B; 3 s"));
    EXPECT_EQ(text.count(QChar::Nbsp), 6);
    EXPECT_EQ(text.replace(QChar::Nbsp, QChar(' ')),
              "rank 3 (375.914 ms), 12 us. 4 % of 2.5 GiB, 7 B; 3 s");
}

TEST(Sentence, OtherWordsBehindNumbersAreNotUnits) {
    for (const char* const text : {"4 stages", "2 Bytes", "8 micro-batches", "step 2 starts"}) {
        EXPECT_EQ(unbroken(QString::fromLatin1(text)), text);
    }
}

}  // namespace sentence_test
}  // namespace pipetwin::gui
