// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"

#include <string>

#include <gtest/gtest.h>

namespace pipetwin {
namespace error_test {

TEST(Error, WhatIsPlaceTextAndHintOnALineOfItsOwn) {
    const Error error(ErrorKind::BadInput, "a.toml:3:1", "unknown key 'x'", "did you mean 'y'?");
    EXPECT_STREQ(error.what(), "a.toml:3:1: unknown key 'x'\nhint: did you mean 'y'?");
}

TEST(Error, WhatLeavesOutEmptyParts) {
    EXPECT_STREQ(Error(ErrorKind::Other, "", "text").what(), "text");
    EXPECT_STREQ(Error(ErrorKind::Other, "here", "text").what(), "here: text");
    EXPECT_STREQ(Error(ErrorKind::Other, "", "text", "do this").what(), "text\nhint: do this");
}

TEST(Error, AtPutsAPlaceBeforeItsOwnAndKeepsTheRest) {
    const Error inner(ErrorKind::NotFinite, "layer 'head'", "loss is NaN", "lower the rate");
    const Error outer = inner.at("rank 1, 1F2");
    EXPECT_EQ(outer.kind(), ErrorKind::NotFinite);
    EXPECT_EQ(outer.place(), "rank 1, 1F2: layer 'head'");
    EXPECT_EQ(outer.text(), inner.text());
    EXPECT_EQ(outer.hint(), inner.hint());
    EXPECT_EQ(Error(ErrorKind::Other, "", "t").at("rank 0").place(), "rank 0");
}

TEST(Expect, ThrowsInternalErrorWithConditionTextAndLine) {
    const int stage = 3;
    try {
        PIPETWIN_EXPECT(stage < 2, "stage out of range");
        FAIL() << "nothing was thrown";
    } catch (const InternalError& error) {
        const std::string what = error.what();
        EXPECT_EQ(what.find("error_test.cpp:"), 0) << "the path of the build is shown: " << what;
        EXPECT_NE(what.find("stage out of range"), std::string::npos) << what;
        EXPECT_NE(what.find("stage < 2"), std::string::npos) << what;
    }
}

TEST(Expect, DoesNothingWhereTheConditionHolds) {
    EXPECT_NO_THROW(PIPETWIN_EXPECT(true, "fine"));
}

}  // namespace error_test
}  // namespace pipetwin
