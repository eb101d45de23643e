// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/schedule_csv.h"

#include <random>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"
#include "tests/support/builders.h"
#include "tests/support/error_of.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace schedule_csv_test {

using ::testing::HasSubstr;
using testing::lowered;
using testing::row_text;
using testing::schedule_of;

Schedule parse(std::string_view text) {
    return parse_schedule_csv(text, "x.csv");
}

/// Expects a refusal at `place` ("line:column") whose text holds `part`.
void expect_refused(std::string_view text, const std::string& place, const std::string& part) {
    const Error error = testing::error_of([&] { parse(text); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), place.empty() ? "x.csv" : "x.csv:" + place) << text;
    EXPECT_THAT(error.text(), HasSubstr(part));
    EXPECT_NE(error.hint(), "");
}

TEST(ScheduleCsv, ReadsOneLinePerRank) {
    const Schedule schedule = parse("0F0,0F1,0B1,0B0\r\n1F0,1F1,1B1,1B0\r\n");
    EXPECT_EQ(schedule, generate(ScheduleKind::GPipe, {.ranks = 2, .micro_batches = 2}));
}

TEST(ScheduleCsv, WritesLinesThatEndAsPythonsCsvWriterEndsThem) {
    EXPECT_EQ(
        print_schedule_csv(generate(ScheduleKind::OneFOneB, {.ranks = 2, .micro_batches = 2})),
        "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n");
}

TEST(ScheduleCsv, ReadsUnixLinesAndAMissingLastLineEnd) {
    EXPECT_EQ(parse("0F0,0B0\n1F0,1B0"), parse("0F0,0B0\r\n1F0,1B0\r\n"));
}

TEST(ScheduleCsv, EveryActionSurvives) {
    const Schedule schedule = parse(
        "0UNSHARD,0F0,0SEND_F0,0R0,0RECV_B0,0I0,0W0,0RESHARD,0REDUCE_GRAD,0OPT\r\n"
        "1RECV_F0,1F0,1B0,1SEND_B0\r\n");
    EXPECT_EQ(row_text(schedule, 0),
              "0UNSHARD 0F0 0SEND_F0 0R0 0RECV_B0 0I0 0W0 0RESHARD 0REDUCE_GRAD 0OPT");
    EXPECT_EQ(parse(print_schedule_csv(schedule)), schedule);
}

// --- import(export(x)) for every generator. ---

/// Every recompute mode that the schedule can have.
std::vector<Recompute> recompute_modes(const Schedule& schedule) {
    return is_forward_only(schedule)
               ? std::vector{Recompute::None}
               : std::vector{Recompute::None, Recompute::Always, Recompute::ExceptLast};
}

Schedule without_recompute_and_optimizer(Schedule schedule) {
    for (auto& row : schedule.ranks) {
        std::erase_if(row, [](const Action& action) {
            return action.op == Op::Recompute || action.op == Op::Optimizer;
        });
    }
    return schedule;
}

/// Calls `look` with the compute rows of every schedule in several shapes, and with what each way
/// of lowering makes of them.
template <class Look>
void for_every_lowering(Look look) {
    for (const auto& shaped : testing::every_schedule({1, 2, 3, 4}, {1, 2, 3}, {1, 2, 4, 8, 12})) {
        SCOPED_TRACE(to_string(shaped));
        const Schedule compute = generate(shaped.kind, shaped.shape);
        for (const Recompute mode : recompute_modes(compute)) {
            for (const RecomputeTiming timing : {RecomputeTiming::Eager, RecomputeTiming::Lazy}) {
                look(compute, lowered(shaped.kind, shaped.shape, mode, timing));
            }
        }
    }
}

TEST(ScheduleCsvOfEverySchedule, InOurDialectComesBackAsItWas) {
    for_every_lowering([](const Schedule&, const Schedule& complete) {
        const Schedule read = parse(print_schedule_csv(complete));
        EXPECT_EQ(read, complete);
        EXPECT_TRUE(validate(read).empty());
    });
}

TEST(ScheduleCsvOfEverySchedule, InPyTorchsDialectComesBackWithoutRecomputeAndOptimizer) {
    for_every_lowering([](const Schedule&, const Schedule& complete) {
        const Schedule read = parse(print_schedule_csv(complete, CsvContent::ComputeComms));
        EXPECT_EQ(read, without_recompute_and_optimizer(complete));
        EXPECT_TRUE(validate(read).empty());
    });
}

TEST(ScheduleCsvOfEverySchedule, ComputeOnlyComesBackAsTheComputeRows) {
    for_every_lowering([](const Schedule& compute, const Schedule& complete) {
        const Schedule read = parse(print_schedule_csv(complete, CsvContent::ComputeOnly));
        EXPECT_EQ(read, compute);
        EXPECT_TRUE(validate(read).empty());
    });
}

TEST(ScheduleCsv, AFileByPyTorchComesBackByteForByte) {
    const std::string file =
        "0UNSHARD,0F0,0SEND_F0,(0F1;1B0)OVERLAP_F_B,0SEND_F1,0RECV_B0,0I0,0W0,0REDUCE_GRAD\r\n"
        "2RECV_F0,2F0,2B0,2SEND_B0\r\n";
    EXPECT_EQ(print_schedule_csv(parse(file), CsvContent::ComputeComms), file);
}

TEST(ScheduleCsv, AnOverlappedPairIsTwoActionsTheFirstMarked) {
    const Schedule schedule = parse("(0F7;7B3)OVERLAP_F_B");
    ASSERT_EQ(schedule.ranks[0].size(), 2U);
    EXPECT_EQ(schedule.ranks[0][0], (Action{Op::Forward, 0, 7, true}));
    EXPECT_EQ(schedule.ranks[0][1], (Action{Op::Backward, 7, 3, false}));
}

TEST(ScheduleCsv, IdleSlotsOfAComputeOnlyFileAreLeftOut) {
    const Schedule schedule = parse("0F0,0F1,,,0B0,0B1\n,1F0,1B0,1F1,1B1,\n");
    EXPECT_EQ(row_text(schedule, 0), "0F0 0F1 0B0 0B1");
    EXPECT_EQ(row_text(schedule, 1), "1F0 1B0 1F1 1B1");
}

TEST(ScheduleCsv, IdleSlotsBesideCommunicationAreRefused) {
    expect_refused("0F0,,0SEND_F0,0B0\n", "1:5", "an empty cell (idle slot)");
    expect_refused("0F0,,0B0,0OPT\n", "1:5", "this one has 0OPT in line 1");
}

TEST(ScheduleCsv, TheOldDialectIsKnownByItsFullBackward) {
    const Schedule schedule = parse("0F0,0F1,0B0,0BW1,0W0\n");
    EXPECT_EQ(row_text(schedule, 0), "0F0 0F1 0I0 0B1 0W0");
    EXPECT_TRUE(validate(schedule).empty());
}

TEST(ScheduleCsv, TheOldDialectIsKnownByBackwardAndWeightGradientOfOneMicroBatch) {
    EXPECT_EQ(row_text(parse("0F0,0F1,0B0,0W0,0B1,0W1\n"), 0), "0F0 0F1 0I0 0W0 0I1 0W1");
}

TEST(ScheduleCsv, TheCurrentDialectMayMixFullAndSplitBackwards) {
    EXPECT_EQ(row_text(parse("0F0,0F1,0B0,0I1,0W1\n"), 0), "0F0 0F1 0B0 0I1 0W1");
}

TEST(ScheduleCsv, WordsOfBothDialectsInOneFileAreRefused) {
    expect_refused("0F0,0F1,0I0,0BW1\n", "1:13", "the old word for a full backward");
}

TEST(ScheduleCsv, AStageOnTwoRanksIsReadForValidateToReport) {
    const Schedule schedule = parse("0F0,0B0\n1F0,1B0,0F1,0B1\n");
    EXPECT_EQ(schedule.rank_of_stage, (std::vector{0, 1}));
    EXPECT_EQ(row_text(schedule, 1), "1F0 1B0 0F1 0B1");
    EXPECT_FALSE(validate(schedule).empty());
}

TEST(ScheduleCsv, AStageThatStandsNowhereIsReadForValidateToReport) {
    EXPECT_EQ(parse("0F0,0B0\n2F0,2B0\n").rank_of_stage, (std::vector{0, -1, 1}));
}

TEST(ScheduleCsv, GarbageBehindAnActionIsRefused) {
    expect_refused("0F0,0F1x\n", "1:8", "'0F1x': unexpected 'x'");
    expect_refused("0F0,0B0\n1F0,1OPT3\n", "2:9", "unexpected '3'");
    expect_refused("0F0, 0F1 x,0B0\n", "1:9", "'0F1 x': unexpected ' x'");
}

TEST(ScheduleCsv, WhatIsMissingIsNamed) {
    expect_refused("F0\n", "1:1", "expected a stage");
    expect_refused("0F\n", "1:3", "expected a micro-batch");
    expect_refused("0\n", "1:2", "expected a type (F, B,");
    expect_refused("0F0,-1F0\n", "1:5", "expected a stage");
    expect_refused("0F0,\"B0\"\n", "1:6", "'B0': expected a stage");
}

TEST(ScheduleCsv, UnknownTypesAreRefusedWithTheKnown) {
    expect_refused("0FORWARD0\n", "1:2", "'FORWARD' is not a type: expected F, B, I, W");
    expect_refused("0f0\n", "1:2", "expected a type");
}

TEST(ScheduleCsv, NumbersAreStrict) {
    expect_refused("00F0\n", "1:1", "'00' has a leading zero");
    expect_refused("0F01\n", "1:3", "'01' has a leading zero");
    expect_refused("0F65536\n", "1:3", "too large for a micro-batch: at most 65535");
    expect_refused("99999999999999999999F0\n", "1:1", "too large for a stage");
    // "did you mean 0F65536?", of that very cell.
    for (const char* const text : {"0F65536\n", "0F01\n", "00F0\n"}) {
        EXPECT_THAT(testing::error_of([&] { parse(text); }).hint(),
                    ::testing::Not(HasSubstr("did you mean")))
            << text;
    }
}

TEST(ScheduleCsv, PairsComeInOneFormOnly) {
    expect_refused("(0F1;1B0)\n", "1:1", "expected (<cell>;<cell>)OVERLAP_F_B");
    expect_refused("(0F1,1B0)OVERLAP_F_B\n", "1:1", "expected (<cell>;<cell>)OVERLAP_F_B");
    expect_refused("(0F1;1B0;1W0)OVERLAP_F_B\n", "1:9", "unexpected ';1W0'");
    expect_refused("(0F1;1SEND_B0)OVERLAP_F_B\n", "1:2", "only F, B, I and W can overlap");
    expect_refused("(0F1;)OVERLAP_F_B\n", "1:6", "expected a stage");
}

TEST(ScheduleCsv, EmptyFilesAndLinesAreRefused) {
    expect_refused("", "1:1", "the file holds no action");
    expect_refused(",,\n,,\n", "1:1", "the file holds no action");
    expect_refused("0F0,0B0\n\n1F0,1B0\n", "2:1", "the line is empty");
    expect_refused("\n \n", "1:1", "the file holds no action");
    expect_refused("0F0;0B0\n \n1F0;1B0\n", "2:1", "the line is empty");
}

// --- What spreadsheets and other programs make of a schedule. ---

/// Python's csv module takes the quotes away, and PyTorch strips each cell.
TEST(ScheduleCsvOfASpreadsheet, BlanksAndQuotesAroundACellMeanNothing) {
    const Schedule plain = parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    EXPECT_EQ(parse("0F0, 0F1, 0B0, 0B1\n1F0 ,1B0\t,1F1 ,1B1 \n"), plain);
    EXPECT_EQ(parse("\"0F0\",\"0F1\",\"0B0\",\"0B1\"\n\"1F0\", \" 1B0 \",1F1,\"1B1\"\r\n"), plain);
    EXPECT_EQ(parse("0F0,\"\",0F1,\" \",0B0,0B1\n1F0,1B0,1F1,1B1\n"), plain);
    EXPECT_EQ(parse("\"(0F1;1B0)OVERLAP_F_B\"\n"), parse("(0F1;1B0)OVERLAP_F_B\n"));
    EXPECT_EQ(parse("( 0F1 ; 1B0 )OVERLAP_F_B\n"), parse("(0F1;1B0)OVERLAP_F_B\n"));
    expect_refused("0F0,\"0B0\n", "1:5", "the quote is not closed");
    expect_refused("0F0,\"0B0\"x\n", "1:5", "the quote is not closed, or text follows it");
}

TEST(ScheduleCsvOfASpreadsheet, AByteOrderMarkIsNoPartOfTheFirstCell) {
    EXPECT_EQ(parse("\xEF\xBB\xBF"
                    "0F0,0B0\n"),
              parse("0F0,0B0\n"));
    expect_refused(std::string_view("\xFF\xFE"
                                    "0\0F\0",
                                    6),
                   "1:1",
                   "a text in UTF-16, expected a schedule as CSV");
    expect_refused("\x1f\x8b\x08", "1:1", "a file packed by gzip, expected a schedule as CSV");
    expect_refused(std::string_view("0F0,0B0\n1F0\0", 12), "2:4", "a byte of value 0");
}

TEST(ScheduleCsvOfASpreadsheet, SemicolonsAndTabsSeparateWhereTheFileHasNoComma) {
    const Schedule plain = parse("0F0,0F1,,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    EXPECT_EQ(parse("0F0;0F1;;0B0;0B1\r\n1F0;1B0;1F1;1B1\r\n"), plain);
    EXPECT_EQ(parse("0F0\t0F1\t\t0B0\t0B1\n1F0\t1B0\t1F1\t1B1\n"), plain);
    // The one inside a pair separates its two actions.
    EXPECT_EQ(parse("0F0;(0F1;0B0)OVERLAP_F_B;0B1\n"), parse("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n"));
    EXPECT_EQ(row_text(parse("(0F1;0B0)OVERLAP_F_B\n"), 0), "0F1 0B0");
    expect_refused("0F0,0F1;0B0\n", "1:8", "unexpected ';0B0'");
    EXPECT_EQ(testing::error_of([] { parse("0F0,0F1;0B0\n"); }).hint(),
              "the first line separates its cells otherwise: use one separator throughout");
}

TEST(ScheduleCsvOfASpreadsheet, EmptyLinesAtTheEndAndCellsThatFillALineUpAreLeftOut) {
    EXPECT_EQ(parse("0F0,0B0\n1F0,1B0\n\n \r\n"), parse("0F0,0B0\n1F0,1B0\n"));
    EXPECT_EQ(parse("0F0,0SEND_F0,0RECV_B0,0B0,0OPT\n1RECV_F0,1F0,1B0,1SEND_B0,\n"),
              parse("0F0,0SEND_F0,0RECV_B0,0B0,0OPT\n1RECV_F0,1F0,1B0,1SEND_B0\n"));
}

TEST(ScheduleCsvOfASpreadsheet, AnyLineEndIsReadWhereAllLinesHaveIt) {
    const Schedule plain = parse("0F0,0B0\n1F0,1B0\n");
    EXPECT_EQ(parse("0F0,0B0\r1F0,1B0\r"), plain);  // spreadsheets' "CSV (Macintosh)"
    EXPECT_EQ(parse("0F0,0B0\r1F0,1B0"), plain);
    EXPECT_EQ(parse("0F0,0B0\r\r\n1F0,1B0\r\r\n"),
              plain);  // CR and LF written as a text on Windows
    expect_refused("0F0,0B0\r1F0,1B0\n2F0,2B0\n", "1:8", "a carriage return inside of the line");
    expect_refused("0F0,0B0\r1F0,1C0\r", "2:6", "'C' is not a type");
}

/// They were read as a rank without actions.
TEST(ScheduleCsvOfASpreadsheet, LinesOfEmptyCellsAtTheEndAreLeftOut) {
    const Schedule plain = parse("0F0,0B0\n1F0,1B0\n");
    EXPECT_EQ(parse("0F0,0B0\n1F0,1B0\n,\n"), plain);
    EXPECT_EQ(parse("0F0;0B0\r\n1F0;1B0\r\n;;;\r\n;;;\r\n"), plain);
    EXPECT_EQ(parse("0F0,0B0\r1F0,1B0\r\"\",\"\"\r"), plain);
    expect_refused("0F0,0B0\n,,\n1F0,1B0\n", "2:1", "the line has empty cells alone");
}

TEST(ScheduleCsvOfASpreadsheet, AFirstLineMaySayTheSeparator) {
    const Schedule plain = parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    EXPECT_EQ(parse("sep=;\r\n0F0;0F1;0B0;0B1\r\n1F0;1B0;1F1;1B1\r\n"), plain);
    EXPECT_EQ(parse("\xEF\xBB\xBFsep=,\n0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"), plain);
    EXPECT_EQ(parse("\"sep=\t\"\n0F0\t0F1\t0B0\t0B1\n1F0\t1B0\t1F1\t1B1\n"), plain);
    EXPECT_EQ(parse("sep=;\n(0F0;0B0)OVERLAP_F_B;0F1;0B1\n"),
              parse("(0F0;0B0)OVERLAP_F_B,0F1,0B1\n"));
    expect_refused("sep=|\n0F0|0B0\n", "1:1", "sep= names '|', expected a comma");
    expect_refused("sep=\n0F0,0B0\n", "1:1", "sep= names ''");
    expect_refused("sep=;\n0F0;0C0\n", "2:6", "'C' is not a type");
    expect_refused("sep=;\n", "1:1", "the file holds no action");
}

/// The error said that the first line separates its cells otherwise.
TEST(ScheduleCsvOfASpreadsheet, QuotesAroundAWholeLineMeanNothing) {
    const Schedule plain = parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    EXPECT_EQ(parse("\"0F0,0F1,0B0,0B1\"\r\n\"1F0,1B0,1F1,1B1\"\r\n"), plain);
    EXPECT_EQ(parse("\"0F0;0F1;0B0;0B1\"\n1F0;1B0;1F1;1B1\n"), plain);
    EXPECT_EQ(parse("\"(0F1;0B0)OVERLAP_F_B,0B1\"\n"), parse("(0F1;0B0)OVERLAP_F_B,0B1\n"));
    expect_refused("\"0F0,0C0\"\n", "1:7", "'C' is not a type");
    expect_refused(
        "\"0F0,0F1\",0B0,0B1\n", "1:2", "there is more than one cell between the quotes");
    expect_refused("0F0,\"0B0;0F1\"\n", "1:6", "there is more than one cell between the quotes");
}

/// Nothing is kept of a file that has a thousand million columns.
TEST(ScheduleCsv, TooManyCellsAreRefusedWithLineAndColumnWhileTheyAreCounted) {
    const std::string part(std::size_t{1} << 20, ',');
    CellCounter counter("x.csv");
    counter.count("0F0,0B0\n");
    std::size_t parts = 0;
    try {
        for (; parts < 1000; ++parts) {
            counter.count(part);
        }
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(error.place(), "x.csv:2:64000000");
        EXPECT_THAT(error.text(), HasSubstr("more than 64000000 cells"));
        EXPECT_NE(error.hint(), "");
    }
    EXPECT_EQ(parts, 64'000'000 / part.size());
}

TEST(ScheduleCsv, EveryLineEndEndsOneCell) {
    const std::string all_but_one(63'999'999, ',');
    for (const std::string_view end : {"\n", "\r\n", "\r"}) {
        CellCounter counter("x.csv");
        counter.count(all_but_one);
        EXPECT_NO_THROW(counter.count(end));
        EXPECT_EQ(testing::error_of([&] { counter.count(end); }).place(), "x.csv:3:1");
    }
}

/// Two cells must not make the program allocate for the billions that lie between them.
TEST(ScheduleCsv, HugeGapsAreRefusedBeforeAnythingIsAllocated) {
    expect_refused("262143F0,0F65535\n", "", "stage 262143 and micro-batch 65535");
}

/// Whatever comes in: a schedule that can be validated, walked and printed, or an Error that says
/// where.
TEST(ScheduleCsv, DamagedFilesAreReadOrRefusedButNothingElse) {
    const std::uint64_t seed = tests::seed();
    constexpr std::string_view damage = "0123456789FBIWR_();,\r\n xSEND";
    const std::string good =
        "0F0,0SEND_F0,(0F1;0B0)OVERLAP_F_B,0RECV_B1,0I1,0W1\r\n" +
        print_schedule_csv(lowered(ScheduleKind::OneFOneB, {.ranks = 2, .micro_batches = 2}));
    std::mt19937 random(seed);
    const auto below = [&random](std::size_t limit) {
        return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
    };
    int read = 0;
    const int cases = tests::soaked(1000);
    for (int i = 0; i < cases; ++i) {
        std::string text = good;
        for (std::size_t k = 0; k < 1 + below(3); ++k) {
            text[below(text.size())] = damage[below(damage.size())];
        }
        try {
            const Schedule schedule = parse(text);
            static_cast<void>(validate(schedule));
            static_cast<void>(find_deadlock(schedule, 1));
            EXPECT_EQ(parse(print_schedule_csv(schedule)), schedule)
                << "seed " << seed << ", case " << i;
            ++read;
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::BadInput) << text;
            EXPECT_THAT(error.place(), HasSubstr("x.csv"));
        }
    }
    EXPECT_GT(read, 0);
}

TEST(ScheduleCsv, LongCellsAreCutInErrors) {
    const std::string many(100'000, 'X');
    for (const std::string& text :
         {many, "0" + many, "0F0" + many, "1" + std::string(100'000, '0') + "F0"}) {
        try {
            parse(text);
            ADD_FAILURE() << "accepted";
        } catch (const Error& error) {
            EXPECT_LT(error.text().size(), 300U);
        }
    }
}

}  // namespace schedule_csv_test
}  // namespace pipetwin
