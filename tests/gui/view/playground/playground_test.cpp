// SPDX-License-Identifier: Apache-2.0
#include "gui/view/playground/playground.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/spans.h"

namespace pipetwin::gui {
namespace playground_test {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Playground, EveryScheduleCanBePlayedWithFromTheFirstSettings) {
    for (const ScheduleName& known : known_schedules()) {
        const PlaygroundSettings settings =
            fitted({.schedule = std::string(known.name), .factors = {}});
        const PlaygroundStep step = play(settings);
        ASSERT_NE(step.run, nullptr) << known.name << ": " << step.problem;
        EXPECT_EQ(step.ranks.size(), 4) << known.name;
        EXPECT_FALSE(step.headline.empty()) << known.name;
        EXPECT_EQ(step.run->schedule_name, known.name);
    }
}

/// 1f1b with K 4, M 8: a bubble of 3 / 11; rank r keeps 4 - r micro-batches.
TEST(Playground, ShowsTheBubbleOfTheFormulaAndTheStashesOf1F1B) {
    const PlaygroundStep step = play({.factors = {}});
    EXPECT_DOUBLE_EQ(step.bubble, 3.0 / 11);
    EXPECT_DOUBLE_EQ(step.form.bubble(), 3.0 / 11);
    EXPECT_EQ(step.step, milliseconds(33));
    std::vector<int> stashed;
    for (const PlaygroundRank& rank : step.ranks) {
        stashed.push_back(rank.stashed);
        EXPECT_EQ(rank.busy, milliseconds(24));
        EXPECT_EQ(rank.idle, milliseconds(9));
    }
    EXPECT_THAT(stashed, ElementsAre(4, 3, 2, 1));
    EXPECT_THAT(step.headline, HasSubstr("idle 27.3 % of the time"));
    EXPECT_THAT(step.headline, HasSubstr("The only cause is fill and drain: "));
    // (4 - 1) / (16 + 4 - 1)
    EXPECT_THAT(step.headline, HasSubstr("With 16 micro-batches the bubble would be 15.8 %"));
}

TEST(Playground, ChunksCutTheSameWorkInMorePieces) {
    const PlaygroundStep whole = play({.factors = {}});
    const PlaygroundStep cut =
        play(fitted({.schedule = "interleaved-1f1b", .chunks = 2, .factors = {}}));
    EXPECT_EQ(cut.ranks[0].busy, whole.ranks[0].busy);
    EXPECT_DOUBLE_EQ(cut.bubble, 3.0 / 19);
}

/// The fields had 1.00 ms, and the formula below them the half of it without a word: M v (F + I +
/// W) seemed to be 48 ms.
TEST(Playground, TheFormulaSaysThatItsTimesAreThoseOfAChunk) {
    const PlaygroundStep step = play(fitted({.schedule = "interleaved-zb",
                                             .chunks = 2,
                                             .forward_ms = 1,
                                             .backward_input_ms = 1,
                                             .backward_weight_ms = 2,
                                             .factors = {}}));
    EXPECT_EQ(step.form.work, milliseconds(8 * 4));  // M (F + I + W) of the fields
    EXPECT_THAT(step.form.where,
                HasSubstr("F = 500 us, I = 500 us, W = 1.00 ms and B = I + W are those of one "
                          "chunk"));
}

TEST(Playground, PipeDreamIsNot1F1B) {
    for (const char* const schedule : {"pipedream", "pipedream-2bw"}) {
        const PlaygroundStep step = play(fitted({.schedule = schedule, .factors = {}}));
        EXPECT_THAT(step.headline, HasSubstr("drains the pipeline once in a whole training run"));
        EXPECT_THAT(step.headline, HasSubstr("its gradients are stale"));
        EXPECT_EQ(step.form.why_not, "No formula: the pipeline does not drain between steps.");
    }
}

TEST(Playground, NamesTheSlowStageAsTheLargestCause) {
    const PlaygroundStep step = play({.micro_batches = 64, .factors = {1, 1, 2, 1}});
    EXPECT_THAT(step.headline, HasSubstr("imbalance: rank 2 computes for 384 ms"));
    // (3 x 192 + 384) / 4
    EXPECT_THAT(step.headline, HasSubstr("the average rank for 240 ms"));
    EXPECT_EQ(step.form.why_not, "No formula: the stages are uneven.");
}

TEST(Playground, FactorsThatAreAllAlikeAreEvenStages) {
    EXPECT_TRUE(play({.factors = {2, 2, 2, 2}}).form.known());
}

TEST(Playground, NamesMessagesAsTheLargestCause) {
    const PlaygroundStep step = play({.factors = {}, .latency_ms = 5, .transfer_ms = 1});
    EXPECT_THAT(step.headline,
                HasSubstr("communication: a message takes 6.00 ms from rank to rank"));
    // Without them it is the step of 1f1b: 11 x 3 ms.
    EXPECT_THAT(step.headline, HasSubstr("the step would take 33.0 ms"));
}

/// "At the start of a step and at its end" was said of every schedule. In gpipe rank 0 waits
/// between its forwards and its backwards, and the last rank before and after its work. In 1f1b
/// ranks wait between backwards, too.
TEST(Playground, SaysWhereInTheTimelineRanksWait) {
    EXPECT_THAT(play({.schedule = "gpipe", .factors = {}}).headline,
                HasSubstr("fill and drain: ranks wait for their first micro-batch, between their "
                          "forwards and backwards and after their last action, even with"));
    EXPECT_THAT(play({.schedule = "1f1b", .factors = {}}).headline,
                HasSubstr("ranks wait for their first micro-batch, between their actions and "
                          "after their last action, even with"));
    EXPECT_THAT(play({.schedule = "forward-only", .factors = {}}).headline,
                HasSubstr("ranks wait for their first micro-batch and after their last action, "
                          "even with"));
}

/// The weight gradients of zb-h1 fill the end of each rank: with F = I = W every rank ends as late
/// as the last one.
TEST(Playground, SaysNothingOfAnEndInWhichNoRankWaits) {
    const PlaygroundStep step = play({.schedule = "zb-h1", .factors = {}});
    for (const PlaygroundRank& rank : step.ranks) {
        EXPECT_EQ(rank.why.find("after its last action"), std::string::npos) << rank.why;
    }
    EXPECT_EQ(step.headline.find("after their last action"), std::string::npos) << step.headline;
}

TEST(Playground, OneRankIsNeverIdle) {
    const PlaygroundStep step = play({.stages = 1, .factors = {}});
    EXPECT_EQ(step.headline, "No rank is ever idle.");
    EXPECT_EQ(step.ranks[0].why, "Rank 0 does not wait.");
}

TEST(Playground, FindsTheNearestShapeThatTheScheduleTakes) {
    EXPECT_EQ(fitted({.schedule = "naive", .factors = {}}).micro_batches, 1);
    EXPECT_EQ(fitted({.schedule = "hanayo", .factors = {}}).micro_batches, 4);
    EXPECT_EQ(fitted({.schedule = "hanayo", .factors = {}}).chunks, 2);
    EXPECT_EQ(fitted({.schedule = "dualpipe-v", .micro_batches = 3, .factors = {}}).micro_batches,
              8);
    EXPECT_EQ(fitted({.schedule = "1f1b", .chunks = 3, .factors = {}}).chunks, 1);
    EXPECT_THAT(
        fitted({.schedule = "1f1b", .chunks = 3, .factors = std::vector<double>(12, 1.0)}).factors,
        IsEmpty())
        << "factors of twelve stages, and there are four";
}

TEST(Playground, WhatCannotBePlannedIsAProblemInWords) {
    const PlaygroundStep odd = play({.schedule = "chimera", .stages = 3, .factors = {}});
    EXPECT_EQ(odd.run, nullptr);
    EXPECT_THAT(odd.problem, HasSubstr("chimera"));
    const PlaygroundStep factors = play({.factors = {1, 2}});
    EXPECT_EQ(factors.problem, "2 stage factors for 4 stages");
}

}  // namespace playground_test
}  // namespace pipetwin::gui
