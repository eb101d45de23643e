// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/cli/support.h"

/// `plan` for several clusters, numbers of nodes and stacks: its table against `plan` for each row
/// alone, and what follows from a deadline.
namespace pipetwin::cli {
namespace plan_table_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A search of few plans.
const std::vector<std::string> few{"--batch-tokens",
                                   "64k",
                                   "--sequence",
                                   "1024",
                                   "--schedule",
                                   "1f1b",
                                   "--set",
                                   "pipeline.tensor_parallel=1",
                                   "--set",
                                   "pipeline.stages=2",
                                   "--tokens",
                                   "1T"};

std::vector<std::string> asked_of(const std::string& cluster,
                                  const std::vector<std::string>& more) {
    return joined(joined({"plan", "gpt2-124m", "--cluster", cluster}, few), more);
}

nlohmann::json table_of(const std::string& cluster, const std::vector<std::string>& more) {
    const Outcome outcome = pipetwin(asked_of(cluster, joined(more, {"--json"})));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
}

/// A text without its line ends and the blanks behind them.
std::string unwrapped(const std::string& text) {
    std::string line;
    for (const char c : text) {
        const bool is_blank = c == ' ' || c == '\n';
        if (!is_blank || !line.ends_with(' ')) {
            line += is_blank ? ' ' : c;
        }
    }
    return line;
}

using PlanTable = InFolder;

TEST_F(PlanTable, EachRowHasTheNumbersOfThePlanForItAlone) {
    const auto table =
        table_of("8x-rtx-4090,8x-h100-sxm", {"--nodes", "1,2", "--price", "0.5,2.5"});
    ASSERT_EQ(table["rows"].size(), 4U);
    for (const auto& row : table["rows"]) {
        const std::string cluster = row["cluster"];
        const Outcome alone = pipetwin(asked_of(cluster,
                                                {"--nodes",
                                                 std::to_string(row["nodes"].get<int>()),
                                                 "--price",
                                                 cluster == "8x-rtx-4090" ? "0.5" : "2.5",
                                                 "--json"}));
        ASSERT_EQ(alone.code, 0) << alone.err;
        auto answer = alone.json()["answer"];
        for (const char* const key : {"shapes", "front", "written"}) {
            answer.erase(key);
        }
        EXPECT_EQ(row["answer"], answer) << cluster;
        EXPECT_EQ(row["plan"], alone.json()["candidates"][0]) << cluster;
        EXPECT_EQ(row["interval"], alone.json()["best"]["interval"]) << cluster;
        EXPECT_EQ(row["evidence"], alone.json()["best"]["evidence"]) << cluster;
    }
}

TEST_F(PlanTable, CostOfOneHourIsTheFactorBetweenHoursAndCost) {
    for (const auto& row : table_of("8x-h100-sxm", {"--nodes", "1,2", "--price", "2"})["rows"]) {
        const auto& answer = row["answer"];
        EXPECT_NEAR(answer["cost"].get<double>(), 2 * answer["device_hours"].get<double>(), 1e-6);
        EXPECT_NEAR(answer["device_hours"].get<double>(),
                    24 * answer["days"].get<double>() * answer["devices"].get<int>(),
                    1e-6 * answer["device_hours"].get<double>());
        EXPECT_NEAR(answer["days"].get<double>(),
                    1e12 / answer["tokens_per_second"].get<double>() / 86400,
                    1e-9 * answer["days"].get<double>());
        // Failures: hours of all devices over the mean time between two failures of one.
        const auto& failures = row["failures"];
        EXPECT_NEAR(failures["failures"].get<double>(),
                    failures["device_hours"].get<double>() / 50'000,
                    1e-9);
        EXPECT_NEAR(failures["days"].get<double>(),
                    answer["days"].get<double>() / failures["share"].get<double>(),
                    1e-9 * failures["days"].get<double>());
    }
}

TEST_F(PlanTable, WithoutFailuresNothingIsAdded) {
    const auto row =
        table_of("8x-h100-sxm",
                 {"--mtbf-hours", "1e9", "--checkpoint-s", "0", "--restart-s", "0"})["rows"][0];
    EXPECT_NEAR(row["failures"]["share"].get<double>(), 1, 1e-6);
    EXPECT_NEAR(row["failures"]["more_days"].get<double>(), 0, 1e-3);
}

TEST_F(PlanTable, TheAnswerIsTheCheapestRowThatEndsInTime) {
    const std::vector<std::string> rows{"--nodes", "1,2,4", "--price", "2"};
    const auto open = table_of("8x-h100-sxm", rows);
    std::vector<double> days;
    std::vector<double> costs;
    for (const auto& row : open["rows"]) {
        days.push_back(row["failures"]["days"]);
        costs.push_back(row["failures"]["cost"]);
    }
    // A limit of the days that a row takes leaves the cheapest of those that take no longer.
    for (const double limit : days) {
        const auto table =
            table_of("8x-h100-sxm", joined(rows, {"--days", std::to_string(limit + 1e-3)}));
        int best = -1;
        for (int i = 0; i < 3; ++i) {
            const bool in_time = days[static_cast<std::size_t>(i)] <= limit + 1e-3;
            EXPECT_EQ(table["rows"][static_cast<std::size_t>(i)]["in_time"], in_time);
            if (in_time && (best < 0 || costs[static_cast<std::size_t>(i)] <
                                            costs[static_cast<std::size_t>(best)])) {
                best = i;
            }
        }
        EXPECT_EQ(table["best"], best);
    }
    const auto none = table_of("8x-h100-sxm", joined(rows, {"--days", "0.001"}));
    EXPECT_EQ(none["best"], nullptr);
    const Outcome words = pipetwin(asked_of("8x-h100-sxm", joined(rows, {"--days", "0.001"})));
    EXPECT_THAT(unwrapped(words.out), HasSubstr("No row ends within 0.001 days"));
}

TEST_F(PlanTable, DaysAreCountedFromOneDayToTheOther) {
    const auto deadline =
        table_of("8x-h100-sxm", {"--from", "2028-02-01", "--until", "2028-03-01"})["deadline"];
    EXPECT_EQ(deadline["days"], 29);  // 2028 is a leap year
    EXPECT_EQ(deadline["until"], "2028-03-01");
}

TEST_F(PlanTable, NoRowOfTheFrontIsBeaten) {
    const auto table =
        table_of("8x-rtx-4090,8x-h100-sxm", {"--nodes", "1,2,4", "--price", "0.3,2.5"});
    const auto& rows = table["rows"];
    const std::vector<std::size_t> front = table["front"];
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const double days = rows[i]["failures"]["days"];
        const double cost = rows[i]["failures"]["cost"];
        bool is_beaten = false;  // or is what an earlier row is: devices may be left alone
        for (std::size_t j = 0; j < rows.size(); ++j) {
            const double its_days = rows[j]["failures"]["days"];
            const double its_cost = rows[j]["failures"]["cost"];
            is_beaten = is_beaten || (its_days <= days && its_cost <= cost &&
                                      (its_days < days || its_cost < cost || j < i));
        }
        EXPECT_NE(std::ranges::count(front, i) > 0, is_beaten) << i;
    }
}

TEST_F(PlanTable, ACombinationThatCannotBeIsARowWithItsReason) {
    // 405 billion parameters: weights, gradients and optimizer state take 20 nodes of 8 x 80 GB.
    const Outcome outcome = pipetwin({"plan",
                                      "llama-3.1-405b",
                                      "--cluster",
                                      "8x-h100-sxm,8x-rtx-4090",
                                      "--schedule",
                                      "1f1b",
                                      "--set",
                                      "pipeline.tensor_parallel=8",
                                      "--json"});
    EXPECT_EQ(outcome.code, 4);
    const auto rows = outcome.json()["rows"];
    ASSERT_EQ(rows.size(), 2U);
    for (const auto& row : rows) {
        EXPECT_EQ(row["plan"], nullptr);
        EXPECT_THAT(row["why_not"].get<std::string>(),
                    HasSubstr("more memory than the ranks have"));
    }
    // A stack that knows one of two devices.
    const auto table = table_of("8x-h100-sxm,8x-rtx-4090", {"--stack", "megatron-bridge-2026"});
    EXPECT_NE(table["rows"][0]["plan"], nullptr);
    EXPECT_EQ(table["rows"][1]["plan"], nullptr);
    EXPECT_THAT(table["rows"][1]["why_not"].get<std::string>(), HasSubstr("rtx-4090"));
}

TEST_F(PlanTable, MarkdownCsvAndPictureHaveEveryRow) {
    const Outcome outcome = pipetwin(asked_of("8x-rtx-4090,8x-h100-sxm",
                                              {"--nodes",
                                               "1,2",
                                               "--price",
                                               "0.5,2.5",
                                               "--markdown",
                                               "--csv",
                                               path("t.csv"),
                                               "--svg",
                                               path("t.svg")}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    std::istringstream markdown(outcome.out);
    std::vector<std::size_t> bars;
    for (std::string line; std::getline(markdown, line);) {
        if (line.starts_with("|")) {
            bars.push_back(static_cast<std::size_t>(std::ranges::count(line, '|')));
        }
    }
    ASSERT_EQ(bars.size(), 6U);  // the head, the line below it, four rows
    EXPECT_EQ(std::ranges::count(bars, bars.front()), 6);
    std::istringstream csv(content_of(path("t.csv")));
    int lines = 0;
    for (std::string line; std::getline(csv, line); ++lines) {
    }
    EXPECT_EQ(lines, 5);
    EXPECT_THAT(content_of(path("t.svg")),
                AllOf(HasSubstr("cost, with failures"),
                      HasSubstr("8x-rtx-4090"),
                      HasSubstr("8x-h100-sxm"),
                      HasSubstr("2 nodes")));
}

TEST_F(PlanTable, EveryNumberHasItsSource) {
    const Outcome brief = pipetwin(asked_of("8x-h100-sxm", {"--nodes", "8,16"}));
    EXPECT_THAT(unwrapped(brief.out),
                AllOf(HasSubstr("nearest: "),
                      HasSubstr("90 % of the published runs"),
                      HasSubstr("loss by scale: assumed is"),
                      HasSubstr("The Llama 3 Herd of Models"),
                      HasSubstr("--evidence adds the source of each number")));
    const Outcome full = pipetwin(asked_of("8x-h100-sxm", {"--nodes", "8,16", "--evidence"}));
    EXPECT_THAT(unwrapped(full.out),
                AllOf(HasSubstr("profiles/stacks/"),
                      HasSubstr("published: "),
                      HasSubstr("loss by scale: stas00/ml-engineering")));
}

TEST_F(PlanTable, ThePlanAloneWritesWhatStartsIt) {
    const Outcome outcome = pipetwin({"plan",
                                      "gpt2-1.5b",
                                      "--cluster",
                                      "8x-h100-sxm",
                                      "--batch-tokens",
                                      "64k",
                                      "--sequence",
                                      "1024",
                                      "--schedule",
                                      "1f1b",
                                      "--whole-blocks",
                                      "--set",
                                      "pipeline.stages=4",
                                      "--out",
                                      path("plan")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(
        content_of(path("plan/job.sbatch")),
        AllOf(HasSubstr("#SBATCH --nodes=1"), HasSubstr("--pipeline-model-parallel-size 4")));
    EXPECT_THAT(content_of(path("plan/launch.sh")),
                AllOf(HasSubstr("torchrun --nnodes 1 --nproc-per-node 8"),
                      HasSubstr("--pipeline-model-parallel-size 4")));
    EXPECT_THAT(content_of(path("plan/load_schedule.py")), HasSubstr("_load_csv"));
    EXPECT_THAT(content_of(path("plan/commands.sh")),
                AllOf(HasSubstr("pipetwin simulate scenario.toml"),
                      HasSubstr("torchrun --nproc-per-node 4 load_schedule.py torch-schedule.csv"),
                      HasSubstr("sbatch job.sbatch")));
    // The schedule for PyTorch is that of the plan.
    const std::string rows = content_of(path("plan/torch-schedule.csv"));
    EXPECT_EQ(std::ranges::count(rows, '\n'), 4);
    EXPECT_EQ(pipetwin({"check", path("plan/torch-schedule.csv")}).code, 0);
    for (const char* const script : {"plan/launch.sh", "plan/job.sbatch", "plan/commands.sh"}) {
        EXPECT_EQ(std::system(("bash -n " + path(script)).c_str()), 0) << script;
    }
}

}  // namespace plan_table_test
}  // namespace pipetwin::cli
