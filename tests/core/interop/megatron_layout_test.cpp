// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_layout.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
#include "tests/support/error_of.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace megatron_layout_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> stages_of(std::string_view text) {
    return parse_megatron_layout(text, "layout.txt").stages;
}

void expect_refused(std::string_view text, const std::string& place, const std::string& part) {
    const Error error = testing::error_of([&] { stages_of(text); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), place.empty() ? "layout.txt" : "layout.txt:1:" + place) << text;
    EXPECT_THAT(error.text(), HasSubstr(part));
    EXPECT_NE(error.hint(), "");
}

/// The error of `work`, which must be Infeasible.
template <class Work>
std::string infeasible(Work work) {
    const Error error = testing::error_of(work);
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_NE(error.hint(), "");
    return error.text();
}

/// DeepSeek-V3 on 16 ranks with two chunks, the example of Megatron's documentation.
TEST(MegatronLayout, ReadsTheDocumentedExample) {
    const std::vector<std::string> stages = stages_of("Et*3|(tt|)*29,m|L");
    ASSERT_EQ(stages.size(), 32U);
    EXPECT_EQ(stages.front(), "Ettt");
    EXPECT_TRUE(std::all_of(stages.begin() + 1, stages.begin() + 30, [](const std::string& stage) {
        return stage == "tt";
    }));
    EXPECT_EQ(stages[30], "m");
    EXPECT_EQ(stages[31], "L");
}

/// What the comments in Megatron's reader say about repetitions.
TEST(MegatronLayout, RepeatsLettersStageEndsAndGroups) {
    EXPECT_THAT(stages_of("Ett(tt|t|tt)*2,tL"), ElementsAre("Etttt", "t", "tttt", "t", "tttL"));
    EXPECT_THAT(stages_of("E(t|)*2L"), ElementsAre("Et", "t", "L"));
    EXPECT_THAT(stages_of("E(|t)*2,tL"), ElementsAre("E", "t", "ttL"));
    EXPECT_THAT(stages_of("E(t*2|)*3tL"), ElementsAre("Ett", "tt", "tt", "tL"));
    EXPECT_THAT(stages_of("Et|*3tL"), ElementsAre("Et", "", "", "tL"));
    EXPECT_THAT(stages_of("Et*0|t*12L"), ElementsAre("E", "ttttttttttttL"));
}

TEST(MegatronLayout, CommasMeanNothingAndALineEndMayFollow) {
    EXPECT_THAT(stages_of(",E,t,*3,|,t,L,"), ElementsAre("Ettt", "tL"));
    EXPECT_THAT(stages_of("Et|tL\r\n"), ElementsAre("Et", "tL"));
}

TEST(MegatronLayout, StagesMayBeEmpty) {
    EXPECT_THAT(stages_of("Et||tL|"), ElementsAre("Et", "", "tL", ""));
}

TEST(MegatronLayout, StrangeCharactersAreNamedWithTheirColumn) {
    expect_refused("Et|xL", "4", "'x' is not part of a layout: expected E, t, m, L, |");
    expect_refused("Et T|L", "3", "the byte 0x20");
    expect_refused("Et|tL\nEt", "6", "the byte 0x0a");
    expect_refused("Et|3tL", "4", "'3'");
    expect_refused("Et*1,2L", "6", "'2'");  // Megatron would read t*12
}

TEST(MegatronLayout, RepetitionsNeedSomethingToRepeatAndANumber) {
    expect_refused("*3Et|L", "1", "'*'");
    expect_refused("Et*|L", "4", "expected a number behind '*'");
    expect_refused("Et*-1|L", "4", "expected a number behind '*'");
    expect_refused("Et*2*3|L", "5", "a repetition is repeated");
}

TEST(MegatronLayout, GroupsAreClosedRepeatedAndNotNested) {
    expect_refused("E(tt|L", "2", "not closed");
    expect_refused("Ett)*3|L", "4", "closes no group");
    expect_refused("E(tt)|L", "6", "expected '*'");
    expect_refused("E(tt)", "6", "expected '*'");
    expect_refused("E()*3|L", "2", "the group is empty");
    expect_refused("E((t|)*2t)*3L", "3", "does not nest");
}

TEST(MegatronLayout, HugeRepetitionsAreRefusedNotAllocated) {
    expect_refused("Et*999999999|L", "2", "more than 262144 layers");
    expect_refused("Et*99999999999999999999999999|L", "2", "more than 262144 layers");
    expect_refused("E(t*1000|)*1000L", "2", "more than 262144 layers");
    expect_refused("E(t*200000)*2L", "2", "more than 262144 layers");
    EXPECT_EQ(stages_of("Et*262142L").front().size(), largest_layout);
    expect_refused("Et*262142|L", "11", "more than 262144 layers");
}

TEST(MegatronLayout, WhatMegatronWouldNotAcceptIsRefusedWithTheStage) {
    expect_refused("", "", "stage 0: the layout has no layers");
    expect_refused("||", "", "stage 2: the layout has no layers");
    expect_refused("t|EtL", "", "stage 0: the first layer is 't'");
    expect_refused("Et|EtL", "", "stage 1: the embedding E follows another layer");
    expect_refused("EtL|tL", "", "stage 1: 't' follows the loss L");
    expect_refused("Et|t", "", "stage 1: the last layer is not the loss L");
    expect_refused("Etm|tL", "", "stage 1: a decoder layer t follows an m");
    expect_refused("Etm|mL", "", "stage 1: stage 0 has an m already");
}

TEST(MegatronLayout, RunsAreWrittenAsRepetitions) {
    MegatronLayout layout{{"Ettt", "tt", "tt", "tt", "tt", "", "", "mL"}};
    EXPECT_EQ(print_megatron_layout(layout), "Et*3|(tt|)*4||mL");
    layout.stages = {"E", "tttt", "tttt", "tttt", "L"};
    EXPECT_EQ(print_megatron_layout(layout), "E|(t*4|)*3L");
    layout.stages = {"EtttL"};
    EXPECT_EQ(print_megatron_layout(layout), "Et*3L");
}

TEST(MegatronLayout, PrintingAndReadingIsTheIdentity) {
    const std::uint64_t seed = tests::seed();
    std::mt19937 random(seed);
    const auto below = [&random](int limit) {
        return std::uniform_int_distribution<int>(0, limit - 1)(random);
    };
    const int cases = tests::soaked(500);
    for (int i = 0; i < cases; ++i) {
        MegatronLayout layout;
        const int stages = 1 + below(12);
        for (int stage = 0; stage < stages; ++stage) {
            layout.stages.emplace_back(static_cast<std::size_t>(below(5)), 't');
        }
        layout.stages.front().insert(0, "E");
        layout.stages.back() += below(2) == 0 ? "mmL" : "L";
        const std::string text = print_megatron_layout(layout);
        EXPECT_EQ(parse_megatron_layout(text, "x"), layout) << text << ", seed " << seed;
    }
}

/// Whatever comes in: a layout that comes back from its own text, or an Error that says where.
TEST(MegatronLayout, DamagedStringsAreReadOrRefusedButNothingElse) {
    const std::uint64_t seed = tests::seed();
    constexpr std::string_view damage = "EtmL|*(),0123456789 x";
    const std::string good = "Et*3|(tt|)*29,m|L";
    std::mt19937 random(seed);
    const auto below = [&random](std::size_t limit) {
        return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
    };
    const int cases = tests::soaked(2000);
    for (int i = 0; i < cases; ++i) {
        std::string text = good;
        for (std::size_t k = 0; k < 1 + below(3); ++k) {
            text[below(text.size())] = damage[below(damage.size())];
        }
        try {
            const MegatronLayout layout = parse_megatron_layout(text, "x");
            EXPECT_EQ(parse_megatron_layout(print_megatron_layout(layout), "x"), layout)
                << text << ", seed " << seed;
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::BadInput) << text;
            EXPECT_THAT(error.place(), HasSubstr("x"));
        }
    }
}

// --- From and to partitions. ---

MegatronLayout of_gpt(std::vector<int> units, const ScheduleShape& shape, ScheduleKind kind) {
    int sum = 0;
    for (const int count : units) {
        sum += count;
    }
    return megatron_layout(Partition(std::move(units), sum), generate(kind, shape));
}

TEST(MegatronLayoutOfAPartition, HoldsWholeBlocksEmbeddingAndLoss) {
    const ScheduleShape three{.ranks = 3, .micro_batches = 3};
    EXPECT_THAT(of_gpt({5, 4, 3}, three, ScheduleKind::GPipe).stages,
                ElementsAre("Ett", "tt", "tL"));
    EXPECT_THAT(of_gpt({1, 4, 1}, three, ScheduleKind::GPipe).stages, ElementsAre("E", "tt", "L"));
    EXPECT_THAT(of_gpt({6}, {.ranks = 1}, ScheduleKind::GPipe).stages, ElementsAre("EttL"));
}

TEST(MegatronLayoutOfAPartition, ChunksFollowEachOtherRoundTheRanks) {
    const ScheduleShape shape{.ranks = 2, .chunks = 2, .micro_batches = 2};
    EXPECT_THAT(of_gpt({3, 2, 4, 3}, shape, ScheduleKind::Interleaved1F1B).stages,
                ElementsAre("Et", "t", "tt", "tL"));
}

TEST(MegatronLayoutOfAPartition, ACutThroughABlockIsRefusedWithItsStage) {
    EXPECT_EQ(infeasible([] {
                  of_gpt({5, 3, 4}, {.ranks = 3, .micro_batches = 3}, ScheduleKind::GPipe);
              }),
              "stage 2 begins with the second half of block 3, but a Megatron layout has whole "
              "blocks only");
}

TEST(MegatronLayoutOfAPartition, OtherPlacementsAreRefused) {
    const ScheduleShape v{.ranks = 2, .chunks = 2, .micro_batches = 4};
    EXPECT_EQ(infeasible([&] {
                  of_gpt({3, 2, 2, 3}, v, ScheduleKind::ZbV);
              }),
              "stage 2 is on rank 1, but Megatron puts it on rank 0");
    const ScheduleShape two{.ranks = 2, .micro_batches = 2};
    EXPECT_THAT(infeasible([&] {
                    of_gpt({3, 3}, two, ScheduleKind::Chimera);
                }),
                HasSubstr("stage 2 holds the weights of stage 0 once more"));
}

TEST(PartitionOfAMegatronLayout, CountsBlocksWhereEveryStageHasOne) {
    const LayoutPartition partition = layout_partition({{"Ett", "ttt", "tL"}});
    EXPECT_EQ(partition.unit, LayoutUnit::Blocks);
    EXPECT_THAT(partition.sizes, ElementsAre(2, 3, 1));
    EXPECT_EQ(partition.decoder_layers, 6);
}

/// The embedding alone, or the head: a stage without blocks.
TEST(PartitionOfAMegatronLayout, TheEndsMayHaveNoBlock) {
    const LayoutPartition partition = layout_partition({{"E", "tt", "tt", "L"}});
    EXPECT_EQ(partition.unit, LayoutUnit::Blocks);
    EXPECT_THAT(partition.sizes, ElementsAre(0, 2, 2, 0));
    EXPECT_EQ(partition.decoder_layers, 4);
}

TEST(PartitionOfAMegatronLayout, CountsLayersWhereNoGptHasThem) {
    const LayoutPartition partition = layout_partition({{"Ettt", "tt", "m", "L"}});
    EXPECT_EQ(partition.unit, LayoutUnit::AllLayers);
    EXPECT_THAT(partition.sizes, ElementsAre(4, 2, 1, 1));
    EXPECT_EQ(partition.prediction_layers, 1);
}

TEST(PartitionOfAMegatronLayout, EmptyStagesAreRefusedByNumber) {
    EXPECT_EQ(infeasible([] {
                  layout_partition({{"Et", "", "tL"}});
              }),
              "stage 1 is empty, which Megatron takes; a stage here holds at least one layer");
}

/// Megatron-Core's own words, a list for each stage.
TEST(MegatronLayout, ReadsListsOfWords) {
    const auto lists = [](std::string_view text) {
        return parse_megatron_layout_lists(text, "x").stages;
    };
    EXPECT_THAT(lists("[['embedding', 'decoder'], [\"decoder\", mtp, loss]]"),
                ElementsAre("Et", "tmL"));
    EXPECT_THAT(lists("[[E,t,t],[],[t,L]]"), ElementsAre("Ett", "", "tL"));
    EXPECT_THAT(lists("[embedding, decoder][decoder, loss]"), ElementsAre("Et", "tL"));
    for (const std::string_view wrong :
         {"[[embedding], [los]]", "[[embedding, loss]", "embedding", "", "[[loss]]"}) {
        EXPECT_EQ(testing::error_of([&] { lists(wrong); }).kind(), ErrorKind::BadInput) << wrong;
    }
}

}  // namespace megatron_layout_test
}  // namespace pipetwin
