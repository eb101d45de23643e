// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/range_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace pipetwin {
namespace range_names_test {

using testing::error_of;
using ::testing::HasSubstr;

NamedAction found(std::string_view name, std::string pattern) {
    const RangeNames names({{.op = Op::Forward, .text = std::move(pattern)}});
    return names.find(name).value_or(NamedAction{.op = Op::Optimizer});
}

bool is_found(std::string_view name, std::string pattern) {
    return found(name, std::move(pattern)).op == Op::Forward;
}

TEST(RangeNames, OfPyTorch) {
    const RangeNames names;
    const NamedAction split = names.find("PP:12I345").value();
    EXPECT_EQ(split.op, Op::BackwardInput);
    EXPECT_EQ(split.stage, 12);
    EXPECT_EQ(split.micro_batch, 345);
    EXPECT_EQ(names.find("PP:2REDUCE_GRAD")->op, Op::ReduceGradient);
    EXPECT_TRUE(names.find("PP:(0F1;1B0)OVERLAP_F_B")->is_pair);
    EXPECT_TRUE(names.find("PP:1BW0")->is_whole_backward);
    EXPECT_EQ(names.find("Forward 3")->micro_batch, 3);
    EXPECT_EQ(names.find("Backward 3")->op, Op::Backward);
    EXPECT_FALSE(names.find("Forward 3")->stage);
    for (const std::string_view other :
         {"Forward Linear", "Forward", "Forward ", "Forward 3b", "forward 3", "aten::mm", ""}) {
        EXPECT_FALSE(names.find(other)) << other;
    }
}

TEST(RangeNames, PatternsHaveTextNumbersAndGaps) {
    EXPECT_TRUE(is_found("fwd", "fwd"));
    EXPECT_FALSE(is_found("fwd ", "fwd"));
    EXPECT_TRUE(is_found("a fwd b fwd", "*fwd"));
    EXPECT_TRUE(is_found("fwd", "*fwd*"));
    EXPECT_FALSE(is_found("bwd", "*fwd*"));
    const NamedAction both = found("stage 3 of 8, micro-batch 17: forward",
                                   "stage {stage} of *, micro-batch {micro_batch}: forward");
    EXPECT_EQ(both.stage, 3);
    EXPECT_EQ(both.micro_batch, 17);
    // The gap takes as little as it can: the whole number is the micro-batch.
    EXPECT_EQ(found("step 4 mb12", "*mb{micro_batch}").micro_batch, 12);
    EXPECT_FALSE(is_found("mb", "mb{micro_batch}"));
    EXPECT_FALSE(is_found("mb99999999999", "mb{micro_batch}"));
    EXPECT_FALSE(RangeNames({{.op = Op::Forward, .text = "x"}}).find("PP:0F0"));
}

/// A name of 4096 characters against twenty gaps: with a search that goes back to each of them this
/// would not end.
TEST(RangeNames, PatternsWithManyGapsTakeTheTimeOfTheirLength) {
    std::string pattern;
    for (int gap = 0; gap < 20; ++gap) {
        pattern += "*a";
    }
    EXPECT_TRUE(is_found(std::string(4096, 'a'), pattern));
    EXPECT_FALSE(is_found(std::string(4095, 'a') + "b", pattern));
    EXPECT_TRUE(is_found("xaya7", "*a*a{micro_batch}"));
    EXPECT_EQ(found("stage 1 of 12 forward 7 ", "*stage {stage}*forward {micro_batch}*").stage, 1);
    EXPECT_TRUE(is_found("a1a1b", "*a*{stage}b"));
    EXPECT_FALSE(is_found("a1a1c", "*a*{stage}b"));
}

TEST(RangeNames, RefusesPatternsThatMeanNothing) {
    const auto refusal = [](std::string text) {
        return error_of([&] { RangeNames({{.op = Op::Forward, .text = text}}); });
    };
    EXPECT_EQ(refusal("").kind(), ErrorKind::Usage);
    EXPECT_THAT(refusal("f{mb}").text(),
                HasSubstr("'{mb}' is not a field, expected {stage} or {micro_batch}"));
    EXPECT_THAT(refusal("f{stage").text(), HasSubstr("'{stage' is not a field"));
}

}  // namespace range_names_test
}  // namespace pipetwin
