// SPDX-License-Identifier: Apache-2.0
#include "exec/decoding/translator.h"

#include <gtest/gtest.h>

namespace pipetwin::exec {
namespace translator_test {

// A model of bytes may end a text within a character, or write bytes that begin none.
TEST(Translator, WritesWholeCharacters) {
    EXPECT_EQ(with_whole_characters(""), "");
    EXPECT_EQ(with_whole_characters("a\u00e4\u20ac\U0001f600z"), "a\u00e4\u20ac\U0001f600z");
    EXPECT_EQ(with_whole_characters("a\xc3"), "a\ufffd");
    EXPECT_EQ(with_whole_characters("\xe2\x82z"), "\ufffd\ufffdz");
    EXPECT_EQ(with_whole_characters("\xff\x80"), "\ufffd\ufffd");
    EXPECT_EQ(with_whole_characters("\xc3\xc3\xa4"), "\ufffd\u00e4");
}

}  // namespace translator_test
}  // namespace pipetwin::exec
