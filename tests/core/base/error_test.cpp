// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"

#include <string>
#include <vector>

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

TEST(Error, AboutAKeyHasItAsPlaceAndAsValue) {
    const Error error(
        ErrorKind::BadInput, KeyValue{"pipeline.recompute", "\"block\""}, "no blocks");
    EXPECT_EQ(error.place(), "pipeline.recompute = \"block\"");
    EXPECT_EQ(error.key(), "pipeline.recompute");
    EXPECT_FALSE(error.is_placed());
    const Error placed = error.placed("x.toml:9:13");
    EXPECT_STREQ(placed.what(), "x.toml:9:13: no blocks");
    EXPECT_EQ(placed.key(), error.key());
    EXPECT_TRUE(placed.is_placed());
}

TEST(Error, CopiesKeepReasonKeyAndTheValuesOfTheHint) {
    const Error error =
        Error(ErrorKind::Infeasible, "chimera", "odd", {"set {}", {{"pipeline.stages", "4"}}})
            .about("pipeline.schedule")
            .because(ErrorReason::ScheduleRule);
    for (const Error& copy : {error.at("outer"),
                              error.with_text("other"),
                              error.with_kind(ErrorKind::BadInput),
                              error.placed("here")}) {
        EXPECT_EQ(copy.reason(), ErrorReason::ScheduleRule);
        EXPECT_EQ(copy.key(), "pipeline.schedule");
        EXPECT_EQ(copy.advice().settings, (std::vector<KeyValue>{{"pipeline.stages", "4"}}));
        EXPECT_EQ(copy.hint(), "set stages = 4");
    }
    EXPECT_EQ(error.with_hint("other").hint(), "other");
}

TEST(Hint, SpellsItsSettingsAsTheReaderWritesThem) {
    const Hint hint("set {}, or {}; not {}", {{"pipeline.chunks", "2"}, {"pipeline.stages", "4"}});
    EXPECT_EQ(hint.text(), "set chunks = 2, or stages = 4; not {}");
    EXPECT_EQ(hint.text([](const KeyValue& one) { return "--set " + with_its_table(one); }),
              "set --set pipeline.chunks = 2, or --set pipeline.stages = 4; not {}");
    EXPECT_EQ(did_you_mean("gpipe").text(), "did you mean 'gpipe'?");
    EXPECT_EQ(did_you_mean("gpipe").meant, "gpipe");
}

TEST(Hint, SaysLastHowToResume) {
    Hint hint("look at that host");
    hint.resume = "--resume continues";
    EXPECT_EQ(hint.text(), "look at that host; --resume continues");
    hint.form.clear();
    EXPECT_EQ(hint.text(), "--resume continues");
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
