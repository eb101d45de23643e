// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cli/support.h"
#include "tests/support/places.h"

/// `compare` of a plan with the traces of PyTorch's profiler.
namespace pipetwin::cli {
namespace compare_profiled_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// An action of a trace, in milliseconds.
struct Ran {
    std::string_view name;
    double begin = 0;
    double length = 0;
};

/// A plan of two stages and two micro-batches, 1f1b, F 10 ms and B 16 ms: 10 + 10 + 16 ms on rank 1
/// until B0 of rank 0 may begin, then 16 + 10 and 16 ms more: 78 ms. The run was F 10 and B 20 ms.
class CompareProfiled : public InFolder {
  protected:
    std::string plan(const std::string& schedule = "1f1b", const std::string& micro_batches = "2") {
        const std::string folder = path("plan-" + schedule + micro_batches);
        const Outcome outcome = pipetwin({"simulate",
                                          "--schedule",
                                          schedule,
                                          "--stages",
                                          "2",
                                          "--micro-batches",
                                          micro_batches,
                                          "--forward-ms",
                                          "10",
                                          "--backward-ms",
                                          "16",
                                          "--force",
                                          "--out",
                                          folder});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return folder;
    }

    std::string trace(int rank, const std::vector<Ran>& actions, int number = 0) {
        std::string events;
        for (const Ran& ran : actions) {
            events += fmt::format(
                R"({}{{"ph": "X", "cat": "gpu_user_annotation", "name": "{}", "pid": 0, "tid": 7, )"
                R"("ts": {:.1f}, "dur": {:.1f}}})",
                events.empty() ? "" : ",\n",
                ran.name,
                1e6 + 1000 * ran.begin,
                1000 * ran.length);
        }
        return file(fmt::format("rank{}-{}.json", rank, number),
                    fmt::format(R"({{"distributedInfo": {{"rank": {}, "world_size": 2}}, )"
                                R"("traceEvents": [{}]}})",
                                rank,
                                events));
    }

    std::string rank_0(int rank = 0) {
        return trace(
            rank, {{"PP:0F0", 0, 10}, {"PP:0F1", 10, 10}, {"PP:0B0", 40, 20}, {"PP:0B1", 70, 20}});
    }
    std::string rank_1(int rank = 1) {
        return trace(
            rank, {{"PP:1F0", 10, 10}, {"PP:1B0", 20, 20}, {"PP:1F1", 40, 10}, {"PP:1B1", 50, 20}});
    }
};

TEST_F(CompareProfiled, PredictedStandsBesideMeasured) {
    const std::string folder = plan();
    for (const std::string& predicted : {folder, folder + "/predicted.trace.json"}) {
        const Outcome outcome = pipetwin({"compare", predicted, rank_0(), rank_1(), "--json"});
        ASSERT_EQ(outcome.code, 0) << outcome.err;
        const auto result = outcome.json();
        EXPECT_DOUBLE_EQ(result["step_ms"]["predicted"].get<double>(), 78);
        EXPECT_DOUBLE_EQ(result["step_ms"]["measured"].get<double>(), 90);
        EXPECT_THAT(
            outcome.err,
            HasSubstr("left out on both sides, as the traces do not show it: SEND_F, RECV_F, "
                      "SEND_B and RECV_B"));
    }
    const Outcome turned = pipetwin({"compare", rank_1(), rank_0(), folder, "--json"});
    EXPECT_DOUBLE_EQ(turned.json()["step_ms"]["measured"].get<double>(), 90);
    EXPECT_THAT(pipetwin({"compare", folder, rank_0(), rank_1()}).out,
                AllOf(HasSubstr("78"), HasSubstr("90"), HasSubstr("-13.33 %")));
}

/// The step is predicted 13.33 % too short.
TEST_F(CompareProfiled, AGateFailsBeyondItsErrorAndWithoutAVerdict) {
    const std::vector<std::string> asked{"compare", plan(), rank_0(), rank_1()};
    const Outcome beyond = pipetwin(joined(asked, {"--gate", "13.3"}));
    EXPECT_EQ(beyond.code, 11);
    EXPECT_THAT(beyond.err, HasSubstr("the predicted step is off by -13.33 %, beyond --gate 13.3"));
    EXPECT_EQ(beyond.out, pipetwin(asked).out);
    EXPECT_EQ(pipetwin(joined(asked, {"--gate", "13.4"})).code, 0);
    for (const std::string_view bad : {"-1", "nan", "inf"}) {
        EXPECT_EQ(pipetwin(joined(asked, {"--gate", std::string(bad)})).code, 2) << bad;
    }

    // One step was quiet, and off by -82 %.
    const std::string run = places::source_folder() + "/tests/cli/data/run-of-0.1.0";
    const Outcome noisy = pipetwin({"compare", run, "--gate", "100"});
    EXPECT_EQ(noisy.code, 12);
    EXPECT_THAT(noisy.err, HasSubstr("no verdict of --gate 100"));
}

/// Ranks of a training count replicas; stages that ranges name say whose a trace is.
TEST_F(CompareProfiled, RanksAreThoseOfTheStages) {
    const Outcome outcome = pipetwin({"compare", plan(), rank_1(8), rank_0(4), "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_DOUBLE_EQ(outcome.json()["step_ms"]["measured"].get<double>(), 90);
    const Outcome twice = pipetwin({"compare", plan(), rank_0(0), rank_0(4)});
    EXPECT_EQ(twice.code, 3);
    EXPECT_THAT(twice.err, HasSubstr("two traces are of the plan's rank 0"));
}

TEST_F(CompareProfiled, TwoTracesOfOneRankAreRefused) {
    const std::vector<Ran> own{{"Forward 0", 0, 10},
                               {"Forward 1", 10, 10},
                               {"Backward 0", 40, 20},
                               {"Backward 1", 70, 20}};
    const std::string first = trace(0, own);
    for (const std::string& again : {first, trace(0, own, 1)}) {
        const Outcome twice = pipetwin({"compare", plan(), first, again});
        EXPECT_EQ(twice.code, 3);
        EXPECT_THAT(twice.err, HasSubstr("two traces are of rank 0, expected one of each"));
        EXPECT_THAT(twice.err, HasSubstr("give one trace for each rank of the pipeline"));
    }
    EXPECT_EQ(pipetwin({"compare", plan(), first, trace(5, own)}).code, 0);
}

/// Ranks 0 and 1 of the training are replicas of the pipeline's rank 0.
TEST_F(CompareProfiled, TwoReplicasOfARankAreRefused) {
    std::string lines;
    for (int rank = 0; rank < 2; ++rank) {
        std::string spans;
        for (int i = 0; i < 4; ++i) {
            spans +=
                fmt::format(R"({}{{"name": "megatron.microbatch.{}", "startTimeUnixNano": {}, )"
                            R"("endTimeUnixNano": {}}})",
                            i == 0 ? "" : ", ",
                            i < 2 ? "forward" : "backward",
                            1767225600000000000 + 20'000'000 * i,
                            1767225600010000000 + 20'000'000 * i);
        }
        lines +=
            fmt::format(R"({{"resourceSpans": [{{"resource": {{"attributes": [)"
                        R"({{"key": "dl.rank", "value": {{"intValue": {}}}}}, )"
                        R"({{"key": "dl.pipeline_parallel.rank", "value": {{"intValue": 0}}}}]}}, )"
                        R"("scopeSpans": [{{"spans": [{}]}}]}}]}})"
                        "\n",
                        rank,
                        spans);
    }
    const Outcome replicas = pipetwin({"compare", plan(), file("spans.jsonl", lines)});
    EXPECT_EQ(replicas.code, 3);
    EXPECT_THAT(replicas.err, HasSubstr("two traces are of the pipeline's rank 0, expected one"));
}

TEST_F(CompareProfiled, OneRankAloneIsComparedWithItsOwnRow) {
    const Outcome outcome = pipetwin({"compare", plan(), rank_1(), "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_DOUBLE_EQ(outcome.json()["step_ms"]["predicted"].get<double>(), 52);
    EXPECT_DOUBLE_EQ(outcome.json()["step_ms"]["measured"].get<double>(), 60);
}

/// The rows are simulated where a scenario is given.
TEST_F(CompareProfiled, AScenarioIsSimulatedFirst) {
    file("x.csv",
         "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n"
         "one,10,16,0,0,0\ntwo,10,16,0,0,0\n");
    const std::string scenario =
        file("x.toml",
             "[model]\nkind = \"profile\"\nfile = \"x.csv\"\n[training]\nbatch = 2\n"
             "[pipeline]\nstages = 2\nmicro_batches = 2\nschedule = \"1f1b\"\n"
             "recompute = \"none\"\n[cluster]\ncount = 2\nlink_gbps = 8000.0\n"
             "link_latency_us = 0.0\n");
    const Outcome outcome = pipetwin({"compare", scenario, rank_0(), rank_1(), "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NEAR(outcome.json()["step_ms"]["predicted"].get<double>(), 78, 0.1);
}

TEST_F(CompareProfiled, AnotherPlanIsRefusedWithWhatDiffers) {
    const Outcome more = pipetwin({"compare", plan("1f1b", "3"), rank_0(), rank_1()});
    EXPECT_EQ(more.code, 3);
    EXPECT_THAT(more.err, HasSubstr("rank 0: the plan contains 0F2, the trace does not"));
}

/// Here gpipe runs backwards in the order of a stack. F 10, B 16: both orders take 78 ms.
TEST_F(CompareProfiled, AnotherOrderIsComparedByNameAndTold) {
    const Outcome outcome = pipetwin({"compare", plan("gpipe"), rank_0(), rank_1(), "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("the run had another order than the plan"),
                      HasSubstr("rank 0 ran 0B0 before 0B1")));
    EXPECT_DOUBLE_EQ(outcome.json()["step_ms"]["predicted"].get<double>(), 78);
    EXPECT_DOUBLE_EQ(outcome.json()["step_ms"]["measured"].get<double>(), 90);
    EXPECT_DOUBLE_EQ(outcome.json()["by_action"]["B"]["predicted_ms"].get<double>(), 64);
    EXPECT_DOUBLE_EQ(outcome.json()["by_action"]["B"]["measured_ms"].get<double>(), 80);
}

TEST_F(CompareProfiled, OnePredictionIsNeeded) {
    const Outcome none = pipetwin({"compare", rank_0(), rank_1()});
    EXPECT_EQ(none.code, 2);
    EXPECT_THAT(none.err, HasSubstr("there is no prediction to compare them with"));
    EXPECT_THAT(none.err, HasSubstr("rank0-0.json"));
    const Outcome two = pipetwin({"compare", plan(), plan("gpipe"), rank_0()});
    EXPECT_EQ(two.code, 2);
    EXPECT_THAT(two.err, HasSubstr("2 predictions beside traces of a profiler, expected one"));
    const Outcome other = pipetwin({"compare", plan(), plan("gpipe"), plan()});
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.err, HasSubstr("it is for traces of a profiler, and no file is one"));
}

}  // namespace compare_profiled_test
}  // namespace pipetwin::cli
