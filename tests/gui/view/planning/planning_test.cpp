// SPDX-License-Identifier: Apache-2.0
#include "gui/view/planning/planning.h"

#include <QProcess>
#include <QTemporaryDir>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gui/view/planning/planning_words.h"
#include "tests/support/places.h"

namespace pipetwin::gui {
namespace planning_test {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// What the command prints for a question, as JSON.
nlohmann::json of_the_command(const QStringList& arguments) {
    const QTemporaryDir folder;
    QProcess process;
    process.setWorkingDirectory(folder.path());
    process.start(QString::fromStdString(places::program_folder() + "/pipetwin"),
                  QStringList{"plan"} + arguments + QStringList{"--json", "--quiet"});
    constexpr int milliseconds = 120'000;
    EXPECT_TRUE(process.waitForFinished(milliseconds));
    return nlohmann::json::parse(process.readAllStandardOutput().toStdString());
}

PlanningQuestion small_question() {
    return {.model = "llama-3-8b",
            .cluster = "8x-h100-sxm",
            .sequence = 8192,
            .batch_tokens = 32e3,
            .tokens = 1e9,
            .price = 2.5};
}

/// Its answer, which several tests look at.
const PlanningAnswer& small_answer() {
    static const PlanningAnswer answer = answer_of(small_question());
    return answer;
}

/// The whole point of the page: it gives the answer of the command.
TEST(Planning, TheTableIsThatOfTheCommand) {
    const PlanningAnswer& answer = small_answer();
    ASSERT_EQ(answer.problem, "");
    const nlohmann::json command = of_the_command({"llama-3-8b",
                                                   "--cluster",
                                                   "8x-h100-sxm",
                                                   "--sequence",
                                                   "8192",
                                                   "--batch-tokens",
                                                   "32k",
                                                   "--tokens",
                                                   "1G",
                                                   "--price",
                                                   "2.5"});
    const nlohmann::json& shapes = command["answer"]["shapes"];
    ASSERT_EQ(answer.rows.size(), shapes.size());
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        const PlanRow& row = answer.rows[i];
        EXPECT_EQ(row.plan.candidate.choice.schedule, shapes[i]["schedule"]);
        EXPECT_EQ(row.plan.candidate.shape.stages, shapes[i]["stages"]);
        EXPECT_EQ(row.plan.candidate.shape.micro_batches, shapes[i]["micro_batches"]);
        EXPECT_EQ(to_milliseconds(row.plan.step), shapes[i]["step_ms"]);
        EXPECT_EQ(row.plan.peak.count, shapes[i]["peak_bytes"]);
    }
    const sim::Answer& best = answer.rows.front().answer;
    EXPECT_EQ(best.tokens_per_second, command["answer"]["tokens_per_second"]);
    EXPECT_EQ(*best.days, command["answer"]["days"]);
    EXPECT_EQ(*best.cost, command["answer"]["cost"]);
    EXPECT_EQ(*best.headroom(), command["answer"]["headroom"]);
}

TEST(Planning, EveryRowIsARunWithMemoryAndAWhatIf) {
    const PlanningAnswer& answer = small_answer();
    ASSERT_FALSE(answer.rows.empty());
    for (const std::size_t row : {std::size_t{0}, answer.rows.size() - 1}) {
        const PlanInSight seen = plan_in_sight(answer, row);
        ASSERT_NE(seen.run, nullptr) << seen.problem;
        EXPECT_EQ(seen.run->predicted->step, answer.rows[row].plan.step) << "the row's own step";
        Bytes peak{};
        for (const MemoryRow& memory : seen.run->predicted->memory) {
            peak = std::max(peak, memory.peak());
        }
        EXPECT_EQ(peak, answer.rows[row].plan.peak);
        EXPECT_NE(seen.run->planned, nullptr) << "what-ifs begin with it";
        EXPECT_THAT(seen.run->title, HasSubstr("llama-3-8b on 8x-h100-sxm"));
    }
}

TEST(Planning, NamesThePublishedRunsThatTheEstimateIsJudgedBy) {
    const PlanningAnswer& answer = small_answer();
    const PlanInSight seen = plan_in_sight(answer, 0);
    const TextRows evidence = evidence_rows(seen.outlook);
    ASSERT_FALSE(evidence.rows.empty());
    EXPECT_THAT(evidence.headers, Contains("Source"));
    EXPECT_THAT(nearest_sentence(seen.outlook), HasSubstr(evidence.rows.front().front()));
    EXPECT_THAT(range_sentence(answer.rows.front(), seen.outlook), HasSubstr("90 % of the"));
}

TEST(Planning, AMixtureOfExpertsShowsWhatItsExpertsSend) {
    PlanningQuestion question{
        .model = "qwen3-30b-a3b", .cluster = "8x-h100-sxm", .sequence = 4096, .batch_tokens = 16e3};
    const PlanningAnswer answer = answer_of(question);
    ASSERT_EQ(answer.problem, "");
    const auto divided = std::ranges::find_if(answer.rows, [](const PlanRow& row) {
        return row.plan.candidate.shape.expert_parallel > 1;
    });
    ASSERT_NE(divided, answer.rows.end());
    const PlanInSight seen =
        plan_in_sight(answer, static_cast<std::size_t>(divided - answer.rows.begin()));
    ASSERT_NE(seen.run, nullptr) << seen.problem;
    EXPECT_FALSE(seen.run->groups.groups.rows.empty());
    EXPECT_FALSE(seen.run->groups.load.empty());
}

TEST(Planning, CancellingKeepsWhatWasFound) {
    int calls = 0;
    const PlanningAnswer answer = answer_of(small_question(), [&](const PlanningProgress& now) {
        ++calls;
        return !now.best;  // until there is a plan
    });
    EXPECT_GT(calls, 0);
    EXPECT_TRUE(answer.ended_early);
    ASSERT_FALSE(answer.rows.empty());
    const PlanningAnswer none = answer_of(small_question(), [](const auto&) { return false; });
    EXPECT_TRUE(none.ended_early);
}

TEST(Planning, WhatCannotBeSaysWhyAndHowManyNodesAreEnough) {
    PlanningQuestion question = small_question();
    question.model = "llama-3-70b";
    question.sequence = 4096;
    question.batch_tokens = 64e3;
    const PlanningAnswer answer = answer_of(question);
    EXPECT_THAT(answer.rows, IsEmpty());
    EXPECT_THAT(answer.problem, HasSubstr("None of"));
    EXPECT_THAT(answer.hint, HasSubstr("node"));
    question.model = "no-such-model";
    EXPECT_THAT(answer_of(question).problem, HasSubstr("no-such-model"));
}

TEST(Planning, AScenarioIsPlannedWithItsOwnCosts) {
    const PlanningAnswer answer =
        answer_of({.model = places::source_folder() + "/scenarios/own-schedule.toml"});
    EXPECT_TRUE(!answer.rows.empty() || !answer.hint.empty()) << answer.problem;
}

TEST(WrittenNumber, ReadsUnitsAsTheCommandLineDoes) {
    EXPECT_EQ(written_number("4M"), 4e6);
    EXPECT_EQ(written_number("1.5T"), 1.5e12);
    EXPECT_EQ(written_number("32k"), 32e3);
    EXPECT_EQ(written_number("8192"), 8192);
    EXPECT_EQ(written_sequence("8k"), 8192);
    for (const char* const wrong : {"", "M", "4X", "-1", "0", "1e400", "4 M M"}) {
        EXPECT_EQ(written_number(wrong), std::nullopt) << wrong;
    }
    EXPECT_EQ(written_sequence("1.3"), std::nullopt);
}

}  // namespace planning_test
}  // namespace pipetwin::gui
