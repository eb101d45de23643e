// SPDX-License-Identifier: Apache-2.0
#include "exec/training/held_out_translations.h"

#include <gtest/gtest.h>

namespace pipetwin::exec {
namespace held_out_translations_test {

TEST(HeldOutTranslations, HaveScoresForEachDirection) {
    const std::vector<HeldOutTranslation> translations{
        {"en-de", "a b c d", {"e f g h", "e f g h"}},
        {"de-en", "the same text here", {"nothing", "the same text here"}},
        {"en-de", "i j k l", {"m n o p", "m n o p"}}};
    const std::vector<DirectionScores> scores = scores_by_direction(translations);
    ASSERT_EQ(scores.size(), 2U);
    EXPECT_EQ(scores[0].direction, "en-de");
    EXPECT_EQ(scores[0].texts, 2U);
    EXPECT_DOUBLE_EQ(scores[0].bleu, 100);
    EXPECT_DOUBLE_EQ(scores[0].chrf, 100);
    EXPECT_EQ(scores[0].copied_bleu, 0);
    EXPECT_EQ(scores[0].copied_chrf, 0);
    EXPECT_EQ(scores[1].direction, "de-en");
    EXPECT_DOUBLE_EQ(scores[1].copied_bleu, 100);
    EXPECT_DOUBLE_EQ(scores[1].copied_chrf, 100);
    EXPECT_LT(scores[1].chrf, 30);
    EXPECT_TRUE(scores_by_direction({}).empty());
}

}  // namespace held_out_translations_test
}  // namespace pipetwin::exec
