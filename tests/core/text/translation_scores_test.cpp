// SPDX-License-Identifier: Apache-2.0
#include "core/text/translation_scores.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>

/// Expected numbers are from the tests of sacreBLEU 2.6.0 (github.com/mjpost/sacrebleu, test/), or
/// were computed with that version, BLEU() and CHRF(), where a comment says so.
namespace pipetwin {
namespace translation_scores_test {

using ::testing::ElementsAre;

constexpr double printed_digits = 1e-7;  // the expected numbers have 8 to 10 digits

double bleu_of(const std::vector<TranslatedText>& texts) {
    return bleu(texts);
}

double chrf_of(const std::vector<TranslatedText>& texts) {
    return chrf(texts);
}

// Computed with sacreBLEU 2.6.0: Tokenizer13a.
TEST(Bleu, SplitsWordsAsMtevalV13aDoes) {
    EXPECT_THAT(words_of("Hello, world! It costs $3.50 (10-20%), a.b,c ..."),
                ElementsAre("Hello",
                            ",",
                            "world",
                            "!",
                            "It",
                            "costs",
                            "$",
                            "3.50",
                            "(",
                            "10",
                            "-",
                            "20",
                            "%",
                            ")",
                            ",",
                            "a",
                            ".",
                            "b",
                            ",",
                            "c",
                            ".",
                            ".",
                            "."));
    EXPECT_THAT(words_of("x-\ny <skipped>z"), ElementsAre("xy", "z"));
    EXPECT_THAT(
        words_of("5-6 a-b 3.a a.3 \u00e9.\u00e8"),
        ElementsAre("5", "-", "6", "a-b", "3", ".", "a", "a", ".", "3", "\u00e9", ".", "\u00e8"));
    EXPECT_THAT(
        words_of("&quot;A&quot;&lt;b&gt; [x]{y}~ #%"),
        ElementsAre("\"", "A", "\"", "<", "b", ">", "[", "x", "]", "{", "y", "}", "~", "#", "%"));
    EXPECT_THAT(words_of(" \u00a0\t"), ::testing::IsEmpty());
}

TEST(Bleu, OfTheReferencesIsAHundred) {
    EXPECT_DOUBLE_EQ(bleu_of({{"this is a test", "this is a test"}}), 100);
}

// "the the the the the the the" (Papineni et al. 2002, section 2.1, example 2, first reference): a
// word counts as often as the reference has it, so the 1-gram precision is 2/7. No other order has
// a match: 1/2 of 1/6, 1/4 of 1/5 and 1/8 of 1/4.
TEST(Bleu, CountsAWordAsOftenAsTheReferenceHasIt) {
    const double precisions = 2.0 / 7 * (1.0 / 12) * (1.0 / 20) * (1.0 / 32);
    EXPECT_NEAR(bleu_of({{"the the the the the the the", "the cat is on the mat"}}),
                100 * std::pow(precisions, 0.25),
                1e-12);  // rounding
}

// Computed with sacreBLEU 2.6.0.
TEST(Bleu, SmoothsOrdersWithoutAMatch) {
    EXPECT_NEAR(bleu_of({{"this is a fest", "this is a test"}}), 59.4603557501, printed_digits);
    EXPECT_NEAR(bleu_of({{"The dog bit the man.", "The dog bit the man."},
                         {"It wasn't surprising.", "It was not unexpected."},
                         {"The man had just bitten him.", "The man bit him first."}}),
                45.0675063211,
                printed_digits);
}

// Computed with sacreBLEU 2.6.0.
TEST(Bleu, HasABrevityPenalty) {
    EXPECT_NEAR(
        bleu_of({{"Das Verh\u00e4ltnis zwischen Obama und Netanyahu ist nicht gerade "
                  "freundschaftlich.",
                  "Die Beziehung zwischen Obama und Netanjahu ist nicht gerade freundlich."}}),
        24.3841831934,
        printed_digits);
    EXPECT_NEAR(bleu_of({{"Datei nicht gefunden: 3,5 MB (ca. 10-20 %) &amp; mehr",
                          "Die Datei wurde nicht gefunden: 3.5 MB (ca. 10-20 %) & mehr"},
                         {"\u00d6ffnen\u00a0Sie die Datei \u00bbx.txt\u00ab \u2026",
                          "\u00d6ffnen Sie die Datei \u00abx.txt\u00bb..."},
                         {"abc", "abc d"}}),
                52.7118651336,
                printed_digits);
    EXPECT_NEAR(bleu_of({{"a b c d", "a b c d e f"}}), 100 * std::exp(1 - 6.0 / 4), 1e-12);
}

TEST(Bleu, IsZeroWithoutATextOfFourWords) {
    EXPECT_EQ(bleu_of({}), 0);
    EXPECT_EQ(bleu_of({{"", "b"}}), 0);
    EXPECT_EQ(bleu_of({{"a", ""}}), 0);
    EXPECT_EQ(bleu_of({{"short text here", "short text here"}}), 0);
}

TEST(Chrf, IsAHundredForTheReferenceAndZeroForNothing) {
    EXPECT_DOUBLE_EQ(chrf_of({{"a", "a"}}), 100);
    EXPECT_DOUBLE_EQ(chrf_of({{"a b c", "abc"}}), 100);
    EXPECT_EQ(chrf_of({}), 0);
    EXPECT_EQ(chrf_of({{"", "c"}}), 0);
    EXPECT_EQ(chrf_of({{"a", ""}}), 0);
    EXPECT_EQ(chrf_of({{"abcdefg", "hijklmnop"}}), 0);
}

// test_cases_effective_order of sacreBLEU's test/test_chrf.py.
TEST(Chrf, IsWhatSacrebleusTestsExpect) {
    EXPECT_DOUBLE_EQ(chrf_of({{"a", "a"}, {"b", "c"}}), 50);
    EXPECT_DOUBLE_EQ(chrf_of({{"aa", "ab"}}), 25);
}

// Computed with sacreBLEU 2.6.0, on texts of its test/test_chrf.py.
TEST(Chrf, IsWhatSacrebleuSaysOfSentences) {
    EXPECT_NEAR(
        chrf_of({{"Co n\u00e1s nejv\u00edc tr\u00e1p\u00ed, proto\u017ee l\u00e9ka\u0159i si "
                  "vyb\u00edraj\u00ed, kdo bude \u017e\u00edt a kdo zem\u0159e.",
                  "Nejv\u00edce smutn\u00ed jsme z toho, \u017ee mus\u00edme rozhodovat o tom, kdo "
                  "bude \u017e\u00edt a kdo zem\u0159e."}}),
        39.1408169032,
        printed_digits);
    EXPECT_NEAR(
        chrf_of({{"Lapali po dechu, jejich \u017eivoty skon\u010dily d\u0159\u00edv, ne\u017e "
                  "skute\u010dn\u011b za\u010daly.",
                  "Lapali po dechu a pak jejich \u017eivot skon\u010dil - d\u0159\u00edv, ne\u017e "
                  "skute\u010dn\u011b mohl za\u010d\u00edt, p\u0159ipomn\u011bli."}}),
        57.1574275128,
        printed_digits);
}

// Computed with sacreBLEU 2.6.0.
TEST(Chrf, CountsCharactersAndNotBytes) {
    EXPECT_NEAR(
        chrf_of({{"\u30d5\u30a1\u30a4\u30eb\u304c\u898b\u3064\u304b\u308a\u307e\u305b\u3093",
                  "\u30d5\u30a1\u30a4\u30eb\u304c\u898b\u3064\u304b\u308a\u307e\u305b\u3093\u3067"
                  "\u3057\u305f"},
                 {"\u0424\u0430\u0439\u043b \u043d\u0435 \u043d\u0430\u0439\u0434\u0435\u043d",
                  "\u0424\u0430\u0439\u043b \u043d\u0435 \u043d\u0430\u0439\u0434\u0435\u043d."}}),
        85.2427953258,
        printed_digits);
    EXPECT_NEAR(chrf_of({{"Datei nicht gefunden: 3,5 MB (ca. 10-20 %) &amp; mehr",
                          "Die Datei wurde nicht gefunden: 3.5 MB (ca. 10-20 %) & mehr"},
                         {"\u00d6ffnen\u00a0Sie die Datei \u00bbx.txt\u00ab \u2026",
                          "\u00d6ffnen Sie die Datei \u00abx.txt\u00bb..."},
                         {"abc", "abc d"}}),
                66.7270874035,
                printed_digits);
}

// Computed with sacreBLEU 2.6.0: a hypothesis beside an empty reference has no n-grams.
TEST(Chrf, LeavesOutOrdersThatATextIsTooShortFor) {
    EXPECT_NEAR(chrf_of({{"ab", ""}, {"abcdefg", "abcdefh"}}), 73.4523809524, printed_digits);
    EXPECT_NEAR(chrf_of({{"short text here", "a much longer reference text goes here today"}}),
                13.8202713510,
                printed_digits);
}

// A model of bytes can write what is no UTF-8.
TEST(Chrf, TakesBrokenCharactersByteByByte) {
    EXPECT_DOUBLE_EQ(chrf_of({{"\xff\xe3\x82", "\xff\xe3\x82"}}), 100);
    EXPECT_EQ(chrf_of({{"\xe3", "\xe3\x82\xa4"}}), 0);
}

}  // namespace translation_scores_test
}  // namespace pipetwin
