#include "gui/view/playground/rank_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gui/view/playground/playground.h"
#include "tests/support/spans.h"

namespace pipetwin::gui {
namespace rank_waits_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::milliseconds;

StepAnalysis analysis_of(const PlaygroundSettings& settings) {
    return {play(settings).run, Side::Predicted, 0};
}

/// GPipe with K 3, M 2, F 1 ms and B 2 ms by hand:
///
///     rank 0  F0 F1 -- -- -- -- -- -- B1 B1 B0 B0
///     rank 1  -- F0 F1 -- -- -- B1 B1 B0 B0 -- --
///     rank 2  -- -- F0 F1 B1 B1 B0 B0 -- -- -- --
TEST(RankWaits, OfAGPipeStepAreThoseThatOneCountsByHand) {
    const auto all = rank_waits(
        analysis_of({.schedule = "gpipe", .stages = 3, .micro_batches = 2, .factors = {}}));
    ASSERT_EQ(all.size(), 3);
    ASSERT_EQ(all[0].parts.size(), 1);
    EXPECT_EQ(all[0].wait, milliseconds(6));
    EXPECT_EQ(all[0].parts[0].what, WaitFor::Gradient);
    EXPECT_THAT(all[0].parts[0].ranks, ElementsAre(2, 1)) << "rank 2 for 4 ms, rank 1 for 2 ms";
    ASSERT_EQ(all[1].parts.size(), 3);
    EXPECT_EQ(all[1].wait, milliseconds(6));
    EXPECT_EQ(all[1].parts[0].what, WaitFor::Gradient);
    EXPECT_EQ(all[1].parts[0].wait, milliseconds(3));
    EXPECT_EQ(all[1].parts[1].what, WaitFor::End);
    EXPECT_EQ(all[1].parts[1].wait, milliseconds(2));
    EXPECT_EQ(all[1].parts[2].what, WaitFor::FirstInput);
    EXPECT_EQ(all[1].parts[2].wait, milliseconds(1));
    ASSERT_EQ(all[2].parts.size(), 2);
    EXPECT_EQ(all[2].parts[0].what, WaitFor::End);
    EXPECT_EQ(all[2].parts[0].wait, milliseconds(4));
    EXPECT_EQ(all[2].parts[1].what, WaitFor::FirstInput);
    EXPECT_EQ(all[2].parts[1].wait, milliseconds(2));
    EXPECT_THAT(all[2].parts[1].ranks, ElementsAre(0, 1));
}

TEST(RankWaits, AddUpToTheIdleTimeOfTheStepForEverySchedule) {
    for (const ScheduleName& known : known_schedules()) {
        const PlaygroundStep step =
            play(fitted({.schedule = std::string(known.name), .factors = {}, .latency_ms = 0.25}));
        ASSERT_NE(step.run, nullptr) << known.name << ": " << step.problem;
        const StepAnalysis analysis(step.run, Side::Predicted, 0);
        Duration sum{};
        for (const RankWaits& waits : rank_waits(analysis)) {
            Duration of_rank{};
            for (const RankWait& part : waits.parts) {
                EXPECT_LE(part.on_links, part.wait);
                of_rank += part.wait;
            }
            EXPECT_EQ(of_rank, waits.wait);
            sum += waits.wait;
        }
        EXPECT_EQ(sum, analysis.idle().wait) << known.name;
    }
}

TEST(RankSentence, NamesTheLargestCauseFirstAndWhoComputesMeanwhile) {
    const auto all = rank_waits(
        analysis_of({.schedule = "gpipe", .stages = 3, .micro_batches = 2, .factors = {}}));
    EXPECT_EQ(rank_sentence(all[0], milliseconds(12)),
              "Rank 0 waits 6 ms of 12 ms (50 %): 6 ms for gradients of later stages, while ranks "
              "1 and 2 compute.");
    EXPECT_EQ(rank_sentence(all[2], milliseconds(12)),
              "Rank 2 waits 6 ms of 12 ms (50 %): 4 ms at the end, with nothing left to do, while "
              "rank 0 computes; 2 ms before its first action, while ranks 0 and 1 compute.");
    EXPECT_EQ(rank_sentence({.rank = 5}, milliseconds(12)), "Rank 5 never waits.");
}

/// Where every message takes twenty forwards, most of every wait is messages.
TEST(RankSentence, SaysThatMessagesAreOnTheirWay) {
    const auto all = rank_waits(analysis_of({.factors = {}, .latency_ms = 20}));
    EXPECT_THAT(rank_sentence(all[0], milliseconds(1)),
                HasSubstr("while messages are on their way"));
    EXPECT_GT(all[0].parts[0].on_links, all[0].parts[0].wait / 2);
}

}  // namespace rank_waits_test
}  // namespace pipetwin::gui
