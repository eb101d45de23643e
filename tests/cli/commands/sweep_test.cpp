// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cli/support.h"

/// `simulate` with lists of plans.
namespace pipetwin::cli {
namespace sweep_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Sweep : public InFolder {
  protected:
    static nlohmann::json plans(const std::vector<std::string>& more) {
        const Outcome outcome = pipetwin(joined(
            {"simulate", "--json", "--rank-forward-ms", "1", "--rank-backward-ms", "2"}, more));
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return nlohmann::json::parse(outcome.out)["plans"];
    }

    static Outcome table(const std::vector<std::string>& more) {
        return pipetwin(
            joined({"simulate", "--rank-forward-ms", "1", "--rank-backward-ms", "2"}, more));
    }
};

// gpipe and 1f1b: (M + K - 1)(F + B); zb-h1: M (F + B) + (K - 1)(F + B - 2 W); interleaved with V
// chunks: M (F + B) + (K - 1)(F + B) / V. Huang et al. 2019, Narayanan et al. 2021, Qi et al. 2023.
TEST_F(Sweep, HasTheStepsOfThePapers) {
    const auto found = plans({"--schedule",
                              "gpipe,1f1b,zb-h1,interleaved-1f1b",
                              "--stages",
                              "4,8",
                              "--micro-batches",
                              "8,16"});
    ASSERT_EQ(found.size(), 16U);
    for (const auto& plan : found) {
        const double k = plan["stages"];
        const double m = plan["micro_batches"];
        const std::string schedule = plan["schedule"];
        const double expected = schedule == "zb-h1"              ? 3 * m + (k - 1)
                                : schedule == "interleaved-1f1b" ? 3 * m + (k - 1) * 1.5
                                                                 : 3 * (m + k - 1);
        EXPECT_NEAR(plan["step_ms"].get<double>(), expected, 1e-6) << plan;
        EXPECT_NEAR(plan["bubble_total"].get<double>(), 1 - 3 * m / expected, 1e-6) << plan;
        if (schedule == "gpipe" || schedule == "1f1b") {
            EXPECT_EQ(plan["live_stashes"], schedule == "gpipe" ? m : std::min(m, k));
        }
    }
}

TEST_F(Sweep, DoesNotCallAScheduleWithoutBackwardsTheFastest) {
    const Outcome text =
        table({"--schedule", "gpipe,forward-only", "--stages", "2", "--micro-batches", "4"});
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_THAT(text.out, Not(HasSubstr("fastest")));
    EXPECT_THAT(text.out, HasSubstr("schedules without backwards do less work"));
}

TEST_F(Sweep, SaysWhyACombinationIsNoPlan) {
    const auto found =
        plans({"--schedule", "naive,gpipe", "--stages", "2", "--micro-batches", "4"});
    EXPECT_EQ(found[0]["step_ms"], nullptr);
    EXPECT_THAT(found[0]["why_not"], HasSubstr("one micro-batch"));
    EXPECT_EQ(found[1]["step_ms"], 15);
    const Outcome text =
        table({"--schedule", "naive,gpipe", "--stages", "2", "--micro-batches", "4"});
    EXPECT_THAT(text.out,
                AllOf(HasSubstr("fastest"),
                      HasSubstr("no plan: naive, 2 ranks"),
                      HasSubstr("set --micro-batches 1, or --schedule gpipe")));
}

/// --forward-ms is the time of one stage, alone and in a list; --rank-forward-ms that of all stages
/// of a rank. Each took its time once from where it stood: a list halved what a zb-v took alone.
TEST_F(Sweep, AStageTakesTheSameTimeAloneAndInAList) {
    const std::vector<std::string> shape{"--stages", "4", "--micro-batches", "8"};
    const auto both = [&shape](const std::string& forward, const std::string& backward) {
        const std::vector<std::string> times{forward, "1", backward, "2", "--json"};
        const auto alone =
            pipetwin(joined(joined({"simulate", "--schedule", "zb-v"}, shape), times)).json();
        const auto list =
            pipetwin(joined(joined({"simulate", "--schedule", "zb-v,1f1b"}, shape), times)).json();
        EXPECT_EQ(alone["step_ms"], list["plans"][0]["step_ms"]) << forward;
        return list["plans"];
    };
    const auto of_stages = both("--forward-ms", "--backward-ms");
    const auto of_ranks = both("--rank-forward-ms", "--rank-backward-ms");
    EXPECT_EQ(of_stages[0]["step_ms"].get<double>(), 2 * of_ranks[0]["step_ms"].get<double>());
    EXPECT_EQ(of_stages[1]["step_ms"], of_ranks[1]["step_ms"]);  // one stage on each rank
}

TEST_F(Sweep, SaysThatMoreStagesOnARankAreALargerModel) {
    const std::string said = "more stages on a rank are a larger model";
    const std::vector<std::string> shape{"--stages", "4", "--micro-batches", "8"};
    const auto told = [&shape](const std::string& schedules, const std::string& prefix) {
        return pipetwin(joined({"simulate",
                                "--schedule",
                                schedules,
                                prefix + "forward-ms",
                                "1",
                                prefix + "backward-ms",
                                "2"},
                               shape))
            .out;
    };
    EXPECT_THAT(told("zb-v,1f1b", "--"), AllOf(HasSubstr(said), Not(HasSubstr("fastest"))));
    EXPECT_THAT(told("zb-v,1f1b", "--rank-"), AllOf(Not(HasSubstr(said)), HasSubstr("fastest")));
    EXPECT_THAT(told("gpipe,1f1b", "--"), AllOf(Not(HasSubstr(said)), HasSubstr("fastest")));
}

TEST_F(Sweep, RefusesTimesOfRanksBesideTimesOfStages) {
    const Outcome mixed = pipetwin({"simulate",
                                    "--stages",
                                    "4",
                                    "--micro-batches",
                                    "8",
                                    "--rank-forward-ms",
                                    "1",
                                    "--backward-ms",
                                    "2"});
    EXPECT_EQ(mixed.code, 2);
    EXPECT_THAT(mixed.err, HasSubstr("hint: write --rank-backward-ms 2\n"));
}

TEST_F(Sweep, HasUnitCostsWhereNoneAreGiven) {
    const std::vector<std::string> shape{
        "--schedule", "gpipe,zb-v", "--stages", "4", "--micro-batches", "8", "--json"};
    const Outcome unit = pipetwin(joined({"simulate"}, shape));
    EXPECT_EQ(unit.code, 0) << unit.err;
    EXPECT_THAT(unit.err, HasSubstr("no times are given: a forward of each stage takes 1 ms"));
    EXPECT_EQ(unit.out,
              pipetwin(joined({"simulate", "--forward-ms", "1", "--backward-ms", "2"}, shape)).out);
}

// A step of 16 micro-batches takes longer than one of 8, and is not the slower plan for that.
TEST_F(Sweep, ComparesStepsOnlyWhereTheyDoTheSameWork) {
    const auto table = [](const std::vector<std::string>& shape) {
        return pipetwin(joined({"simulate", "--forward-ms", "1", "--backward-ms", "2"}, shape)).out;
    };
    EXPECT_THAT(table({"--schedule", "gpipe,zb-h1", "--stages", "4", "--micro-batches", "8"}),
                AllOf(HasSubstr(" slower "), HasSubstr(" fastest "), Not(HasSubstr("larger"))));
    // (M + K - 1)(F + B) = 33 ms and 105 ms for M micro-batches: 4.125 ms and 3.28125 ms for each.
    EXPECT_THAT(table({"--stages", "4", "--micro-batches", "8,32"}),
                AllOf(HasSubstr(" per micro-batch "),
                      HasSubstr(" 4.125 ms "),
                      HasSubstr(" 3.281 ms "),
                      HasSubstr("a larger batch"),
                      Not(HasSubstr("slower")),
                      Not(HasSubstr("fastest"))));
    EXPECT_THAT(table({"--stages", "2,4", "--micro-batches", "8"}),
                AllOf(HasSubstr("a larger model"),
                      Not(HasSubstr("slower")),
                      Not(HasSubstr("per micro-batch"))));
}

TEST_F(Sweep, WritesOnePictureAndATable) {
    const std::vector<std::string> args{"simulate",
                                        "--schedule",
                                        "gpipe,zb-v",
                                        "--stages",
                                        "4",
                                        "--micro-batches",
                                        "8",
                                        "--forward-ms",
                                        "1",
                                        "--backward-ms",
                                        "2",
                                        "--svg",
                                        path("all.svg"),
                                        "--csv",
                                        path("all.csv")};
    ASSERT_EQ(pipetwin(args).code, 0);
    EXPECT_THAT(content_of(path("all.svg")),
                AllOf(HasSubstr("gpipe, 4 ranks, 8 micro-batches: 33.000 ms, bubble 27.27 %"),
                      HasSubstr("zb-v x2, 4 ranks, 8 micro-batches: ")));
    EXPECT_THAT(content_of(path("all.csv")),
                HasSubstr("schedule,stages,chunks,micro_batches,step_ms,bubble_total,live_stashes\n"
                          "gpipe,4,1,8,33,"));
    EXPECT_EQ(pipetwin(args).code, 6);  // the files are there
}

/// 1F1B whose ranks run almost twice as many forwards ahead, as a file.
std::string eager_rows(int ranks, int micro_batches) {
    std::string text;
    for (int rank = 0; rank < ranks; ++rank) {
        const int ahead = std::min(micro_batches, 2 * (ranks - 1 - rank) + 1);
        for (int k = 0; k < ahead; ++k) {
            text += fmt::format("{}{}F{}", k == 0 ? "" : ",", rank, k);
        }
        for (int k = 0; k < micro_batches; ++k) {
            text += fmt::format(",{}B{}", rank, k);
            if (ahead + k < micro_batches) {
                text += fmt::format(",{}F{}", rank, ahead + k);
            }
        }
        text += "\n";
    }
    return text;
}

// Messages that take less time than the forwards ahead delay the first micro-batch's way to the
// last rank and the last one's way back, and nothing between.
TEST_F(Sweep, TakesScheduleFilesBesideNames) {
    const std::string eager = file("eager.csv", eager_rows(4, 8));
    const auto found = plans({"--schedule",
                              "1f1b," + eager,
                              "--stages",
                              "4",
                              "--micro-batches",
                              "8",
                              "--latency-ms",
                              "0.5"});
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[1]["schedule"], eager);
    EXPECT_EQ(found[1]["stages"], 4);
    EXPECT_EQ(found[1]["micro_batches"], 8);
    EXPECT_EQ(found[1]["live_stashes"], 7);
    EXPECT_NEAR(found[1]["step_ms"].get<double>(), 3 * (8 + 3) + 2 * 3 * 0.5, 1e-6);
    EXPECT_GT(found[0]["step_ms"], found[1]["step_ms"]);
}

// Two pieces on each rank take half of the rank's time each: GPipe's step of two stages.
TEST_F(Sweep, DividesTheTimesAmongThePiecesOfAFile) {
    const std::string loop = file("loop.csv",
                                  "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n"
                                  "1F0,1F1,3F0,3F1,3B0,3B1,1B0,1B1\n");
    const std::string flat = file("flat.csv", "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
    const auto found = plans({"--schedule", loop + "," + flat});
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0]["chunks"], 2);
    EXPECT_EQ(found[1]["step_ms"], 9);
    EXPECT_EQ(found[0]["step_ms"], 7.5);  // (M + 1/V)(F + B)
}

TEST_F(Sweep, OneScheduleFileIsThatOfItsOwnOption) {
    const std::string flat = file("flat.csv", "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
    const auto step = [&](const std::string& option) {
        const Outcome outcome = pipetwin(
            {"simulate", option, flat, "--forward-ms", "1", "--backward-ms", "2", "--json"});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.json()["step_ms"].get<double>();
    };
    EXPECT_EQ(step("--schedule"), 9);
    EXPECT_EQ(step("--schedule-file"), 9);
}

// A rank's time is shared out to its pieces, whatever the placement: with one micro-batch a step is
// all of the ranks' times, one after the other.
TEST_F(Sweep, RanksMayTakeDifferentTimes) {
    const Outcome outcome = pipetwin({"simulate",
                                      "--json",
                                      "--schedule",
                                      "gpipe,looped-bfs,hanayo",
                                      "--stages",
                                      "2",
                                      "--micro-batches",
                                      "1",
                                      "--rank-forward-ms",
                                      "1,3",
                                      "--rank-backward-ms",
                                      "2,4"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    for (const auto& plan : outcome.json()["plans"]) {
        EXPECT_EQ(plan["step_ms"], 10) << plan;
    }
}

// One rank that takes twice as long: with one micro-batch the step is longer by its time.
TEST_F(Sweep, AStragglerHasAColumn) {
    const std::vector<std::string> args{"simulate",
                                        "--schedule",
                                        "gpipe,1f1b",
                                        "--stages",
                                        "2",
                                        "--micro-batches",
                                        "1",
                                        "--forward-ms",
                                        "1",
                                        "--backward-ms",
                                        "2",
                                        "--straggler",
                                        "0:2"};
    for (const auto& plan : pipetwin(joined(args, {"--json"})).json()["plans"]) {
        EXPECT_EQ(plan["straggler"]["step_ms"], 9) << plan;
    }
    EXPECT_THAT(pipetwin(joined(args, {"--csv", path("all.csv")})).out,
                HasSubstr("straggler: step if rank 0 takes 2 times as long"));
    EXPECT_THAT(content_of(path("all.csv")),
                AllOf(HasSubstr("live_stashes,straggler_step_ms\n"), HasSubstr(",9\n")));
}

// What a script compares must not pass where a schedule of its own has no plan.
TEST_F(Sweep, AFileThatDeadlocksIsAnError) {
    const std::string dead = file("dead.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
    const Outcome outcome = pipetwin({"simulate",
                                      "--schedule",
                                      "1f1b," + dead,
                                      "--stages",
                                      "2",
                                      "--micro-batches",
                                      "2",
                                      "--forward-ms",
                                      "1",
                                      "--backward-ms",
                                      "2"});
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("fastest"), HasSubstr("no plan: " + dead)));
    EXPECT_THAT(outcome.err, HasSubstr("pipetwin check " + dead));
}

TEST_F(Sweep, RefusesWhatCannotBeCompared) {
    struct Case {
        std::vector<std::string> args;
        int code;
        std::string text;
    };
    const std::vector<std::string> numbers{
        "--stages", "4", "--micro-batches", "8", "--forward-ms", "1", "--backward-ms", "2"};
    const std::string scenario = file("s.toml", "[model]\nkind = \"mlp\"\nsizes = [4, 2]\n");
    for (const Case& one : std::vector<Case>{
             {joined({"simulate", "--schedule", "gpipe,1f1c"}, numbers), 2, "1f1b"},
             {joined({"simulate", "--schedule", "gpipe", "--csv", path("x.csv")}, numbers),
              2,
              "is for several plans"},
             {joined({"simulate", "--schedule", "gpipe,1f1b", "--out", path("x")}, numbers),
              2,
              "are not written to a folder"},
             {{"simulate", scenario, "--schedule", "gpipe,1f1b"}, 2, "pipetwin sweep"},
             {{"simulate", "--schedule", "gpipe,1f1b", "--stages", "4"}, 2, "micro-batches"},
             {joined({"simulate", "--schedule", "naive,chimera"}, numbers),
              4,
              "no plan of the list is possible"},
             {{"simulate",
               "--schedule",
               "gpipe,zb-v",
               "--stages",
               "2",
               "--micro-batches",
               "4",
               "--rank-forward-ms",
               "1,2,3",
               "--rank-backward-ms",
               "2"},
              2,
              "3 numbers for 2 ranks"}}) {
        const Outcome outcome = pipetwin(one.args);
        EXPECT_EQ(outcome.code, one.code) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(one.text));
    }
}

// What `sweep` says of a cell is what `simulate` says of the same scenario.
TEST_F(Sweep, OfAScenarioSaysWhatSimulateSays) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string costs = file("small.csv", small_profile);
    const Outcome swept = pipetwin({"sweep",
                                    scenario,
                                    "--profile",
                                    costs,
                                    "--schedule",
                                    "gpipe,1f1b",
                                    "--micro-batches",
                                    "4,8",
                                    "--json"});
    ASSERT_EQ(swept.code, 0) << swept.err;
    const auto plans = swept.json()["plans"];
    ASSERT_EQ(plans.size(), 4U);
    for (const auto& plan : plans) {
        const std::string schedule = plan["schedule"];
        const Outcome one = pipetwin(
            {"simulate",
             scenario,
             "--profile",
             costs,
             "--json",
             "--set",
             "pipeline.chunks=1",
             "--set",
             "pipeline.schedule=" + schedule,
             "--set",
             "pipeline.micro_batches=" + std::to_string(plan["micro_batches"].get<int>())});
        ASSERT_EQ(one.code, 0) << one.err;
        const auto simulated = one.json();
        for (const char* key : {"step_ms", "samples_per_second", "stages", "micro_batches"}) {
            EXPECT_EQ(plan[key], simulated[key]) << key;
        }
        EXPECT_EQ(plan["bubble_total"], simulated["bubble"]["total"]);
        std::int64_t peak = 0;
        for (const auto& device : simulated["devices"]) {
            peak = std::max(peak, device["peak_bytes"]["total"].get<std::int64_t>());
        }
        EXPECT_EQ(plan["peak_bytes"], peak);
        EXPECT_EQ(plan["scenario"], "small");
    }
}

/// Any key of the scenario, in every combination; `simulate` and `sweep` say the same, and of each
/// row what `simulate --set` says.
TEST_F(Sweep, OfAnyKeyHasARowForEveryCombination) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string costs = file("small.csv", small_profile);
    const auto with = [&](const std::string& command, const std::vector<std::string>& more) {
        return pipetwin(joined({command, scenario, "--profile", costs}, more));
    };
    const std::vector<std::string> swept{"--sweep",
                                         "pipeline.micro_batches=4, 8",
                                         "--sweep",
                                         "cluster.speeds=[1, 1],[1, 0.5],[1, 1, 1]"};
    const Outcome all = with("simulate", joined(swept, {"--json"}));
    ASSERT_EQ(all.code, 0) << all.err;
    EXPECT_EQ(with("sweep", joined(swept, {"--json"})).json()["plans"], all.json()["plans"]);
    const auto plans = all.json()["plans"];
    ASSERT_EQ(plans.size(), 6U);
    for (const auto& plan : plans) {
        const std::string micro_batches = plan["settings"]["pipeline.micro_batches"];
        const std::string speeds = plan["settings"]["cluster.speeds"];
        const Outcome one = with("simulate",
                                 {"--json",
                                  "--set",
                                  "pipeline.micro_batches=" + micro_batches,
                                  "--set",
                                  "cluster.speeds=" + speeds});
        if (speeds == "[1, 1, 1]") {  // of two ranks
            EXPECT_EQ(one.code, 3);
            EXPECT_EQ(plan["step_ms"], nullptr);
            EXPECT_THAT(plan["why_not"], HasSubstr("one for each rank"));
        } else {
            EXPECT_EQ(plan["step_ms"], one.json()["step_ms"]);
            EXPECT_EQ(plan["micro_batches"], std::stoi(micro_batches));
        }
    }
    const Outcome table = with("simulate", joined(swept, {"--csv", path("t.csv")}));
    EXPECT_THAT(table.out,
                AllOf(HasSubstr("pipeline.micro_batches"),
                      HasSubstr("[1, 0.5]"),
                      HasSubstr("no plan: small, pipeline.micro_batches = 4, cluster.speeds = [1, "
                                "1, 1]")));
    EXPECT_THAT(content_of(path("t.csv")),
                AllOf(::testing::StartsWith(
                          "scenario,pipeline.micro_batches,cluster.speeds,schedule,stages"),
                      HasSubstr("small,4,\"[1, 0.5]\",")));
}

/// `plan` searches once for each combination.
TEST_F(Sweep, OfPlansHasTheBestOfEveryCombination) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string costs = file("small.csv", small_profile);
    const std::vector<std::string> plan{"plan",
                                        scenario,
                                        "--profile",
                                        costs,
                                        "--json",
                                        "--set",
                                        "cluster.count=4",
                                        "--set",
                                        "pipeline.schedule=auto",
                                        "--set",
                                        "pipeline.micro_batches=auto"};
    const Outcome all = pipetwin(joined(plan, {"--sweep", "pipeline.stages=1,2,1000"}));
    ASSERT_EQ(all.code, 0) << all.err;
    const std::size_t told = all.err.find("costs: ");
    EXPECT_NE(told, std::string::npos);
    EXPECT_EQ(all.err.find("costs: ", told + 1), std::string::npos) << "once, not for each plan";
    const auto rows = all.json()["plans"];
    ASSERT_EQ(rows.size(), 3U);
    for (const auto& row : {rows[0], rows[1]}) {
        const std::string stages = row["settings"]["pipeline.stages"];
        const Outcome one = pipetwin(joined(plan, {"--set", "pipeline.stages=" + stages}));
        ASSERT_EQ(one.code, 0) << one.err;
        EXPECT_EQ(row["step_ms"], one.json()["best"]["step_ms"]) << one.json().dump(1);
        EXPECT_EQ(row["stages"], std::stoi(stages));
    }
    EXPECT_EQ(rows[2]["step_ms"], nullptr);
    EXPECT_NE(rows[2]["why_not"], nullptr);
}

TEST_F(Sweep, OfKeysRefusesWhatIsNoListOfOne) {
    const std::string scenario = file("small.toml", small_scenario);
    const auto refused = [&](const std::vector<std::string>& more) {
        const Outcome outcome = pipetwin(joined({"simulate", scenario}, more));
        EXPECT_EQ(outcome.code, 2) << outcome.err;
        return outcome.err;
    };
    EXPECT_THAT(refused({"--sweep", "pipeline.stagse=1,2"}),
                AllOf(HasSubstr("'pipeline.stagse' is no key of a scenario"),
                      HasSubstr("did you mean 'pipeline.stages'?")));
    EXPECT_THAT(refused({"--sweep", "pipeline.stages"}), HasSubstr("not of the form key=value"));
    EXPECT_THAT(refused({"--sweep", "pipeline.stages=1,,2"}), HasSubstr("an empty entry"));
    EXPECT_THAT(refused({"--sweep", "pipeline.stages=1,2", "--sweep", "pipeline.stages=4"}),
                HasSubstr("swept twice"));
    EXPECT_THAT(refused({"--sweep", "pipeline.stages=1,2", "--set", "pipeline.stages=4"}),
                HasSubstr("one value by another option"));
    EXPECT_THAT(refused({"--sweep", "pipeline.stages=1,2", "--out", "x"}), HasSubstr("--out"));
    const Outcome numbers = pipetwin({"simulate", "--forward-ms", "1", "--sweep", "x.y=1"});
    EXPECT_EQ(numbers.code, 2);
    EXPECT_THAT(pipetwin({"plan", scenario, "--csv", path("u.csv")}).err, HasSubstr("--sweep"));
}

TEST_F(Sweep, OfSeveralScenariosIsOneTableAndOnePicture) {
    const std::string one = file("one.toml", small_scenario);
    const std::string two = file("two, and.toml", small_scenario);
    const std::string costs = file("small.csv", small_profile);
    const Outcome swept = pipetwin({"sweep",
                                    one,
                                    two,
                                    "--profile",
                                    costs,
                                    "--svg",
                                    path("all.svg"),
                                    "--csv",
                                    path("all.csv")});
    ASSERT_EQ(swept.code, 0) << swept.err;
    EXPECT_THAT(swept.out, AllOf(HasSubstr("scenario"), HasSubstr("one"), HasSubstr("two, and")));
    EXPECT_THAT(content_of(path("all.svg")), AllOf(HasSubstr("one: "), HasSubstr("two, and: ")));
    EXPECT_THAT(content_of(path("all.csv")),
                AllOf(HasSubstr("scenario,schedule,stages,"), HasSubstr("\n\"two, and\",")));
}

/// Scenarios of run folders have one name; the rows of a table have not.
TEST_F(Sweep, OfRunFoldersNamesTheFolders) {
    const std::string small = file("small.toml", small_scenario);
    const std::string costs = file("small.csv", small_profile);
    for (const char* schedule : {"gpipe", "1f1b"}) {
        ASSERT_EQ(pipetwin({"simulate",
                            small,
                            "--profile",
                            costs,
                            "--set",
                            fmt::format("pipeline.schedule={}", schedule),
                            "--out",
                            path(fmt::format("of-{}", schedule))})
                      .code,
                  0);
    }
    const std::string one = path("of-gpipe/scenario.toml");
    const std::string two = path("of-1f1b/scenario.toml");
    const auto rows = pipetwin({"sweep", one, two, "--json"}).json()["plans"];
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0]["scenario"], "of-gpipe");
    EXPECT_EQ(rows[1]["scenario"], "of-1f1b");
    // Who asks 'simulate' or 'compare' for two plans learns of this command.
    EXPECT_THAT(pipetwin({"simulate", one, two}).err,
                HasSubstr(fmt::format("'pipetwin sweep {} {}'", one, two)));
    EXPECT_THAT(pipetwin({"simulate", path("of-gpipe"), path("of-1f1b")}).err,
                HasSubstr(fmt::format("'pipetwin sweep {} {}'", one, two)));
    EXPECT_THAT(pipetwin({"compare", path("of-gpipe"), path("of-1f1b")}).err,
                HasSubstr(fmt::format("'pipetwin sweep {} {}'", one, two)));
}

TEST_F(Sweep, SaysWhatAPublishedScheduleHasInItsPlace) {
    const Outcome outcome = pipetwin({"simulate",
                                      "--schedule",
                                      "dualpipe",
                                      "--stages",
                                      "4",
                                      "--micro-batches",
                                      "8",
                                      "--forward-ms",
                                      "1",
                                      "--backward-ms",
                                      "2"});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("'dualpipe' is not a known schedule"),
                      HasSubstr("take 'dualpipe-v'"),
                      HasSubstr("DualPipe itself, in which two ranks hold each stage, is not "
                                "generated")));
}

TEST_F(Sweep, OfScenariosWithDifferentBatchesComparesSamplesPerSecond) {
    const std::string small = file("small.toml", small_scenario);
    const std::string costs = file("small.csv", small_profile);
    const std::vector<std::string> lists{
        "--profile", costs, "--schedule", "gpipe,1f1b", "--micro-batches", "4"};
    EXPECT_THAT(pipetwin(joined({"sweep", small}, lists)).out,
                AllOf(HasSubstr(" slower "), Not(HasSubstr("compare samples/s"))));
    std::string smaller_batch(small_scenario);
    const std::string batch = "batch = 8";
    smaller_batch.replace(smaller_batch.find(batch), batch.size(), "batch = 4");
    const std::string other = file("other.toml", smaller_batch);
    EXPECT_THAT(pipetwin(joined({"sweep", small, other}, lists)).out,
                AllOf(HasSubstr("different numbers of samples per step: compare samples/s"),
                      HasSubstr(" samples/s "),
                      Not(HasSubstr("slower"))));
}

TEST_F(Sweep, OfPlainNumbersIsThatOfSimulate) {
    const std::vector<std::string> numbers{"--schedule",
                                           "gpipe,1f1b",
                                           "--stages",
                                           "4",
                                           "--micro-batches",
                                           "8",
                                           "--forward-ms",
                                           "1",
                                           "--backward-ms",
                                           "2"};
    EXPECT_EQ(pipetwin(joined({"sweep"}, numbers)).out,
              pipetwin(joined({"simulate"}, numbers)).out);
}

TEST_F(Sweep, OfScenariosRefusesWhatIsNoComparison) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string costs = file("small.csv", small_profile);
    struct Case {
        std::vector<std::string> args;
        int code;
        std::string text;
    };
    for (const Case& one : std::vector<Case>{
             {{"sweep"}, 2, "nothing to compare"},
             {{"sweep", scenario, "--forward-ms", "1"}, 2, "leave the option out"},
             {{"sweep", scenario, "--recompute", "always"}, 2, "--set pipeline.recompute=always"},
             {{"sweep", scenario, "--out", path("x")}, 2, "--csv FILE.csv"},
             {{"sweep", path("none.toml")}, 6, "none.toml"},
             {{"sweep", scenario}, 3, "pipetwin profile"},
             {{"sweep", scenario, "--profile", costs, "--schedule", "1fb1"}, 2, "'1f1b'"},
             {{"sweep", scenario, "--profile", costs, "--stages", "100"},
              4,
              "no plan of the list is possible"}}) {
        const Outcome outcome = pipetwin(one.args);
        EXPECT_EQ(outcome.code, one.code) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(one.text));
    }
}

}  // namespace sweep_test
}  // namespace pipetwin::cli
