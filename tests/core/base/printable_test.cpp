// SPDX-License-Identifier: Apache-2.0
#include "core/base/printable.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/text/json_text.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace printable_test {

using std::string_view;

TEST(Printable, LeavesTextOfAnyScriptAsItIs) {
    for (const string_view text :
         {"", "block0.attention", "Größe", "模型", "модель", "🙂", "a\\b"}) {
        EXPECT_EQ(printable(text), text);
        EXPECT_TRUE(is_printable(text));
    }
}

TEST(Printable, EscapesControlCharacters) {
    EXPECT_EQ(printable("\x1b[2J"), "\\u001b[2J");
    EXPECT_EQ(printable("a\nb\rc\td"), "a\\nb\\rc\\td");
    EXPECT_EQ(printable(string_view("a\0b", 3)), "a\\u0000b");
    EXPECT_EQ(printable("\x7f"), "\\u007f");
    EXPECT_EQ(printable("\xc2\x9b"
                        "31m"),
              "\\u009b31m");  // CSI of C1, in UTF-8
}

TEST(Printable, EscapesWhatTurnsTheDirectionOfWritingAndEndsLines) {
    EXPECT_EQ(printable("a\xe2\x80\xae"
                        "b"),
              "a\\u202eb");
    EXPECT_EQ(printable("\xe2\x80\xa8"), "\\u2028");
    EXPECT_EQ(printable("\xe2\x81\xa6"), "\\u2066");
}

/// RFC 3629: no overlong form, no surrogate, nothing beyond U+10FFFF, no lead without its rest.
TEST(Printable, EscapesBytesThatAreNoUtf8) {
    EXPECT_EQ(printable("\xff"), "\\xff");
    EXPECT_EQ(printable("a\xc3"), "a\\xc3");
    EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");
    EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
    EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
    EXPECT_EQ(printable("\x80"), "\\x80");
}

TEST(Printable, KeepsLinesAndColoursOnlyWhereItIsToldTo) {
    EXPECT_EQ(printable_lines("a\n\tb\r\nc"), "a\n\tb\r\nc");
    EXPECT_EQ(printable_lines("a\rb"), "a\\rb");
    EXPECT_EQ(printable_lines("\x1b[1;31mred\x1b[0m"), "\\u001b[1;31mred\\u001b[0m");
    EXPECT_EQ(printable_lines("\x1b[1;31mred\x1b[0m", Colours::Kept), "\x1b[1;31mred\x1b[0m");
    EXPECT_EQ(printable_lines("\x1b[2J\x1b]0;title\x07", Colours::Kept),
              "\\u001b[2J\\u001b]0;title\\u0007");
}

TEST(Printable, GivesUtf8WithoutControlCharactersOfAnyBytes) {
    std::mt19937_64 random(tests::seed());
    for (int i = 0; i < tests::soaked(2000); ++i) {
        std::string bytes;
        for (std::size_t size = random() % 24; size > 0; --size) {
            bytes += static_cast<char>(random());
        }
        const std::string shown = printable(bytes);
        EXPECT_TRUE(is_utf8(shown));
        EXPECT_TRUE(is_printable(shown));
        EXPECT_EQ(printable(shown), shown);
        for (const char c : shown) {
            EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == '\x7f');
        }
    }
}

TEST(Printable, NoPartOfAnErrorReachesATerminalAsMoreThanText) {
    const Error error(ErrorKind::BadInput, "a\nb\x1b[2J", "two\nlines\x1b[2J", "do\nthis\x9b");
    EXPECT_EQ(error.place(), "a\\nb\\u001b[2J");
    EXPECT_EQ(error.text(), "two\nlines\\u001b[2J");
    EXPECT_EQ(error.hint(), "do\\nthis\\x9b");
    EXPECT_EQ(error.at("c\x1b").place(), "c\\u001b: a\\nb\\u001b[2J");
}

}  // namespace printable_test
}  // namespace pipetwin
