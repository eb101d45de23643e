// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gui/view/playground/playground.h"

namespace pipetwin::gui {
namespace difference_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::shared_ptr<const StepAnalysis> step_of(const PlaygroundSettings& settings) {
    return analysis_of(play(settings).run, Side::Predicted, 0);
}

PlaygroundSettings settings_of(const char* schedule) {
    return with_schedule({.factors = {}}, schedule);
}

/// On 4 ranks with F 1 and B 2 ms, 1F1B of 8 micro-batches takes (8 + 3) x 3 ms, of which 9 ms fill
/// and drain; with two chunks on each rank half of that is left.
TEST(Difference, NamesFillAndDrainWhereASecondChunkHalvesIt) {
    const std::string text = difference_sentence(
        *step_of(settings_of("interleaved-1f1b")), *step_of(settings_of("1f1b")), "1f1b");
    EXPECT_THAT(text, HasSubstr("4.50 ms (13.6 %) less than 1f1b: fill and drain 4.50 ms less."));
    EXPECT_THAT(text, HasSubstr("On average a rank waits"));
}

/// A message of 1 ms lengthens every forward and backward way through the pipeline.
TEST(Difference, NamesTheLinksWhereTheyAreSlower) {
    PlaygroundSettings slow = settings_of("1f1b");
    slow.latency_ms = 1;
    const std::string text =
        difference_sentence(*step_of(slow), *step_of(settings_of("1f1b")), "the first");
    EXPECT_THAT(text, HasSubstr("more than the first: communication wait"));
}

TEST(Difference, NamesImbalance) {
    PlaygroundSettings uneven = settings_of("1f1b");
    uneven.factors = {1, 1, 2, 1};
    const std::string text =
        difference_sentence(*step_of(uneven), *step_of(settings_of("1f1b")), "the first");
    EXPECT_THAT(text, HasSubstr("imbalance"));
}

/// GPipe and 1F1B of equal stages take the same time.
TEST(Difference, SaysThatNothingDiffers) {
    const std::string text =
        difference_sentence(*step_of(settings_of("gpipe")), *step_of(settings_of("1f1b")), "1f1b");
    EXPECT_THAT(text, HasSubstr("As long as 1f1b."));
}

TEST(Difference, ComparesSharesWhereStepsDoOtherWork) {
    PlaygroundSettings more = settings_of("1f1b");
    more.micro_batches = 32;
    const std::string text =
        difference_sentence(*step_of(more), *step_of(settings_of("1f1b")), "1f1b");
    // 9 of 105 ms, and 9 of 33 ms.
    EXPECT_THAT(text,
                AllOf(HasSubstr("Does other work in a step than 1f1b"),
                      HasSubstr("fill and drain is 8.57 % of the step, there 27.3 %"),
                      Not(HasSubstr("less than"))));
}

}  // namespace difference_test
}  // namespace pipetwin::gui
