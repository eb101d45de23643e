// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/units.h"
#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace simulate_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> simulated(const std::vector<std::string>& more) {
    return joined({"simulate", "--json"}, more);
}

/// A plan of equal stages from plain numbers.
struct Equal {
    std::string schedule;
    int stages;
    int micro_batches;
    std::string forward = "1";
    std::string backward = "2";
    std::vector<std::string> more{};

    nlohmann::json simulate() const {
        const Outcome outcome =
            pipetwin(simulate_args({stages, micro_batches, forward, backward},
                                   joined({"--json", "--schedule", schedule}, more)));
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.json();
    }
};

TEST(Simulate, BubbleOfGPipeWithFourStagesAndSixteenMicroBatchesIsThreeNineteenths) {
    const auto result = Equal{.schedule = "gpipe", .stages = 4, .micro_batches = 16}.simulate();
    EXPECT_DOUBLE_EQ(result["bubble"]["total"].get<double>(), 3.0 / 19.0);
    EXPECT_DOUBLE_EQ(result["bubble"]["ideal"].get<double>(), 3.0 / 16.0);
    EXPECT_EQ(result["makespan_ms"], 57.0);
}

TEST(Simulate, GoldenTimesOfEveryRecomputeMode) {
    const auto time = [](std::vector<std::string> more) {
        return Equal{.schedule = "gpipe", .stages = 4, .micro_batches = 8, .more = std::move(more)}
            .simulate()["makespan_ms"]
            .get<double>();
    };
    EXPECT_EQ(time({}), 33);
    EXPECT_EQ(time({"--recompute", "none"}), 33);
    EXPECT_EQ(time({"--recompute", "always"}), 41);
    EXPECT_EQ(time({"--recompute", "always", "--recompute-timing", "eager"}), 41);
    EXPECT_EQ(time({"--recompute", "always", "--recompute-timing", "lazy"}), 44);
    EXPECT_EQ(time({"--recompute", "except-last"}), 40);
    EXPECT_EQ(time({"--recompute", "always", "--recompute-ms", "1,1,1,1"}), 41);
    // Only the last stage cannot hide its first recompute, and needs all of the time.
    EXPECT_EQ(time({"--recompute", "none,none,none,always"}), 41);
    EXPECT_EQ(time({"--recompute", "always,none,none,none"}), 40);
}

TEST(Simulate, JsonSaysWhatEachStageRecomputesWhereTheyDiffer) {
    const auto of = [](const std::string& modes) {
        return Equal{
            .schedule = "1f1b", .stages = 2, .micro_batches = 4, .more = {"--recompute", modes}}
            .simulate()["recompute"];
    };
    EXPECT_EQ(of("always"), "always");
    EXPECT_EQ(of("always,always"), "always");
    EXPECT_EQ(of("always,none"), (std::vector{"always", "none"}));
}

TEST(Simulate, RefusesAListOfRecomputeThatFitsNoPieces) {
    const auto refusal = [](const std::string& modes) {
        return pipetwin(simulate_args({2, 4, "1", "2"}, {"--recompute", modes}));
    };
    EXPECT_EQ(refusal("always,none,none").code, 2);
    EXPECT_THAT(refusal("always,none,none").err, HasSubstr("3 entries for 2 stages"));
    EXPECT_THAT(refusal("always,often").err, HasSubstr("'often' is not one of its values"));
}

TEST(Simulate, RefusesTheValueOfAKeyByItsOption) {
    const auto refusal = [](const std::vector<std::string>& more) {
        const Outcome outcome = pipetwin(simulate_args({2, 4, "1", "2"}, more));
        EXPECT_EQ(outcome.code, 2);
        return outcome.err;
    };
    EXPECT_THAT(refusal({"--chunks", "0"}),
                AllOf(HasSubstr("--chunks: 0, expected a whole number from 1 to 64"),
                      HasSubstr("write --chunks 1")));
    EXPECT_THAT(refusal({"--message-order", "lower-rank-frist"}),
                AllOf(HasSubstr("--message-order: \"lower-rank-frist\""),
                      HasSubstr("did you mean 'lower-rank-first'?")));
    EXPECT_THAT(refusal({"--recompute", "always", "--recompute-timing", "auto"}),
                AllOf(HasSubstr("--recompute-timing: \"auto\""), HasSubstr("eager, lazy")));
    EXPECT_THAT(refusal({"--recompute", "selective"}), HasSubstr("'selective'"));
}

TEST(Simulate, GoldenTimesOfTheOtherSchedules) {
    const auto time = [](const Equal& plan) {
        return plan.simulate()["makespan_ms"].get<double>();
    };
    EXPECT_EQ(time({.schedule = "naive", .stages = 4, .micro_batches = 1}), 12);
    EXPECT_EQ(time({.schedule = "1f1b", .stages = 4, .micro_batches = 8}), 33);
    EXPECT_EQ(time({.schedule = "1f1b", .stages = 4, .micro_batches = 2}), 15);
    const std::vector<std::string> latency{"--latency-ms", "0.1"};
    EXPECT_EQ(time({.schedule = "1f1b", .stages = 4, .micro_batches = 8, .more = latency}), 34.6);
    EXPECT_EQ(time({.schedule = "1f1b", .stages = 8, .micro_batches = 24, .more = latency}), 98.4);
    EXPECT_EQ(time({.schedule = "1F1B", .stages = 4, .micro_batches = 8}),
              33);  // PyTorch's spelling
}

TEST(Simulate, SlowerStageGivesTheGoldenTimes) {
    const auto time =
        [](const std::string& schedule, const std::string& forward, const std::string& backward) {
            return Equal{schedule, 4, 8, forward, backward}.simulate()["makespan_ms"].get<double>();
        };
    EXPECT_EQ(time("1f1b", "1,1,1,1.5", "2,2,2,3"), 45);
    EXPECT_EQ(time("1f1b", "1.5,1,1,1", "3,2,2,2"), 40.5);
    EXPECT_EQ(time("gpipe", "1,1,1,1.5", "2,2,2,3"), 45);
    EXPECT_EQ(time("gpipe", "1.5,1,1,1", "3,2,2,2"), 45);
}

/// A row of the zero-bubble paper's table of bubble rates, for 1F1B.
struct Published {
    int stages;
    int micro_batches;
    std::string forward;
    std::string input;
    std::string weight;
    std::string latency;
    double rate;

    friend void PrintTo(const Published& row, std::ostream* stream) {
        *stream << row.stages << " stages, " << row.micro_batches << " micro-batches";
    }
};

class PublishedBubbleRates : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedBubbleRates, Of1F1BFollowToFourDecimals) {
    const Published& row = GetParam();
    const Outcome outcome = pipetwin(simulated({"--schedule",
                                                "1f1b",
                                                "--stages",
                                                std::to_string(row.stages),
                                                "--micro-batches",
                                                std::to_string(row.micro_batches),
                                                "--forward-ms",
                                                row.forward,
                                                "--backward-input-ms",
                                                row.input,
                                                "--backward-weight-ms",
                                                row.weight,
                                                "--latency-ms",
                                                row.latency}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const double span = outcome.json()["bubble"]["span"].get<double>();
    EXPECT_DOUBLE_EQ(std::round(span * 1e4), std::round(row.rate * 1e4)) << span;
}

INSTANTIATE_TEST_SUITE_P(
    ZeroBubblePaper,
    PublishedBubbleRates,
    ::testing::Values(Published{8, 24, "18.522", "18.086", "9.337", "0.601", 0.2431},
                      Published{8, 32, "18.513", "18.086", "9.331", "0.626", 0.1985},
                      Published{16, 48, "11.347", "11.248", "8.132", "0.377", 0.2552},
                      Published{16, 64, "11.307", "11.254", "8.101", "0.379", 0.2082}));

TEST(Simulate, JsonHasEveryKeyAndNullWhereThereIsNoMeaning) {
    const auto result = Equal{.schedule = "gpipe", .stages = 2, .micro_batches = 2}.simulate();
    for (const char* const key : {"schema_version",
                                  "tool_version",
                                  "schedule",
                                  "stages",
                                  "chunks",
                                  "micro_batches",
                                  "makespan_ms",
                                  "step_ms",
                                  "samples_per_second",
                                  "bubble",
                                  "breakdown_ms",
                                  "idle_ms",
                                  "devices",
                                  "offload",
                                  "critical_path"}) {
        EXPECT_TRUE(result.contains(key)) << key;
    }
    EXPECT_EQ(result["schema_version"], 1);
    EXPECT_EQ(result["stages"], 2);
    EXPECT_EQ(result["chunks"], 1);
    EXPECT_TRUE(result["samples_per_second"].is_null());
    EXPECT_TRUE(result["offload"].is_null());
    const auto& device = result["devices"].at(1);
    EXPECT_EQ(device["rank"], 1);
    EXPECT_TRUE(device["layers"].is_null());
    EXPECT_EQ(device["busy_ms"], 6.0);
    EXPECT_EQ(device["idle_ms"], 3.0);
    EXPECT_EQ(device["peak_live_activations"], 2);
    for (const char* const kind : {"total",
                                   "weights",
                                   "gradients",
                                   "optimizer",
                                   "stash",
                                   "boundary",
                                   "workspace",
                                   "context"}) {
        ASSERT_TRUE(device["peak_bytes"].contains(kind)) << kind;
        EXPECT_TRUE(device["peak_bytes"][kind].is_null());
    }
    EXPECT_EQ(device["peak_at"], (nlohmann::json{{"ms", nullptr}, {"action", nullptr}}));
    for (const char* const key : {"warm_up", "steady", "drain", "back_pressure"}) {
        EXPECT_TRUE(result["idle_ms"].contains(key)) << key;
    }
    ASSERT_FALSE(result["critical_path"].empty());
    for (const char* const key : {"action", "rank", "start_ms", "end_ms", "host_copy"}) {
        EXPECT_TRUE(result["critical_path"][0].contains(key)) << key;
    }
}

TEST(Simulate, BreakdownSumsToTheStepTime) {
    const auto result = Equal{.schedule = "gpipe",
                              .stages = 3,
                              .micro_batches = 5,
                              .forward = "1,2,1.5",
                              .backward = "2,3,4",
                              .more = {"--recompute", "always", "--latency-ms", "0.3"}}
                            .simulate();
    double sum = 0;
    for (const char* const part : {"forward",
                                   "backward",
                                   "backward_input",
                                   "backward_weight",
                                   "recompute",
                                   "communication_wait",
                                   "imbalance",
                                   "fill_and_drain",
                                   "reduction",
                                   "optimizer",
                                   "overhead"}) {
        ASSERT_TRUE(result["breakdown_ms"].contains(part)) << part;
        sum += result["breakdown_ms"][part].get<double>();
    }
    EXPECT_NEAR(sum, result["step_ms"].get<double>(), 1e-6);
}

TEST(Simulate, BandwidthIsInGigabitPerSecond) {
    const auto result = Equal{.schedule = "naive",
                              .stages = 2,
                              .micro_batches = 1,
                              .more = {"--bandwidth-gbps", "8", "--boundary-bytes", "1000000"}}
                            .simulate();
    EXPECT_EQ(result["makespan_ms"], 8.0);  // 6 ms of work, and 1 MB at 1 GB/s each way
}

TEST(Simulate, TextShowsTheTimelineAndEveryBubble) {
    const Outcome outcome =
        pipetwin(simulate_args({.stages = 4, .micro_batches = 4, .backward = "1"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    for (const char* const text : {"gpipe, 4 stages, 4 micro-batches",
                                   "rank 3",
                                   "42.86 %",
                                   "GPipe",
                                   "Megatron",
                                   "zero bubble",
                                   "14.000 ms"}) {
        EXPECT_THAT(outcome.out, HasSubstr(text));
    }
}

struct WrongNumbers {
    std::vector<std::string> args;
    int code;
    std::string says;

    friend void PrintTo(const WrongNumbers& wrong, std::ostream* stream) { *stream << wrong.says; }
};

class PlainNumbers : public ::testing::TestWithParam<WrongNumbers> {};

TEST_P(PlainNumbers, AreRefusedNamingTheOption) {
    const Outcome outcome = pipetwin(simulated(GetParam().args));
    EXPECT_EQ(outcome.code, GetParam().code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(GetParam().says));
}

WrongNumbers wrong(const std::vector<std::string>& more, std::string says, int code = 2) {
    return {joined({"--stages", "4", "--micro-batches", "8"}, more), code, std::move(says)};
}

INSTANTIATE_TEST_SUITE_P(
    All,
    PlainNumbers,
    ::testing::Values(
        wrong({"--forward-ms", "1"}, "--backward-ms is missing"),
        wrong({"--forward-ms", "1", "--backward-input-ms", "1"},
              "--backward-input-ms: needs --backward-weight-ms, which is missing"),
        wrong({"--forward-ms",
               "1",
               "--backward-ms",
               "1",
               "--backward-input-ms",
               "1",
               "--backward-weight-ms",
               "1"},
              "--backward-input-ms: cannot be used together with --backward-ms"),
        wrong({"--forward-ms", "1,2", "--backward-ms", "1"},
              "--forward-ms: 2 numbers for 4 stages"),
        wrong({"--forward-ms", "1,2,3,", "--backward-ms", "1"},
              "--forward-ms: the list '1,2,3,' has an empty entry"),
        wrong({"--forward-ms", "-1", "--backward-ms", "1"},
              "--forward-ms: '-1' is not a number of zero or more"),
        wrong({"--forward-ms", "nan", "--backward-ms", "1"}, "'nan' is not a number"),
        wrong({"--forward-ms", "1e400", "--backward-ms", "1"}, "'1e400' is not a number"),
        wrong({"--forward-ms", "1e300", "--backward-ms", "1"}, "is not a duration"),
        wrong({"--forward-ms", "1ms", "--backward-ms", "1"}, "'1ms' is not a number"),
        wrong({"--forward-ms", "1", "--backward-ms", "1", "--schedule", "gpip"},
              "did you mean 'gpipe'?"),
        wrong({"--forward-ms", "1", "--backward-ms", "1", "--recompute", "alwys"},
              "did you mean 'always'?"),
        wrong({"--forward-ms", "1", "--backward-ms", "1", "--recompute-timing", "later"},
              "\"later\", expected one of eager, lazy"),
        wrong({"--forward-ms", "1", "--backward-ms", "1", "--boundary-bytes", "1 MX"},
              "--boundary-bytes"),
        wrong({"--forward-ms", "1", "--backward-ms", "1", "--latency-ms", "x"}, "--latency-ms"),
        wrong({"--forward-ms", "1", "--backward-ms", "1", "--schedule", "naive"}, "naive", 4),
        wrong({"--forward-ms", "1", "--backward-ms", "1", "--recompute-ms", "1"},
              "nothing is recomputed"),
        wrong({"--forward-ms", "1", "--backward-ms", "1", "--recompute-timing", "lazy"},
              "nothing is recomputed"),
        wrong({"--forward-ms", "1", "--backward-ms", "1", "--group-size", "2"},
              "has no groups of micro-batches"),
        wrong({"--forward-ms", "1", "--backward-ms", "1", "--boundary-bytes", "8"},
              "add --bandwidth-gbps X"),
        wrong({"--forward-ms", "1", "--backward-ms", "1", "--bandwidth-gbps", "8"},
              "add --boundary-bytes N"),
        WrongNumbers{{"--stages", "4", "--forward-ms", "1"}, 2, "--micro-batches is missing"},
        WrongNumbers{
            {"--stages", "0", "--micro-batches", "1", "--forward-ms", "1", "--backward-ms", "1"},
            2,
            "0"},
        WrongNumbers{{"--stages",
                      "1000000000",
                      "--micro-batches",
                      "1",
                      "--forward-ms",
                      "1",
                      "--backward-ms",
                      "1"},
                     2,
                     "1000000000"}));

TEST(Simulate, OneChunkForAScheduleOfSeveralIsSaid) {
    const Numbers plan{.stages = 2, .micro_batches = 4};
    const std::string said =
        "interleaved-1f1b is meant for two or more chunks per rank, and has one here: --chunks 2";
    const std::vector<std::string> schedule{"--schedule", "interleaved-1f1b"};
    EXPECT_THAT(pipetwin(simulate_args(plan, joined(schedule, {"--chunks", "1"}))).err,
                HasSubstr(said));
    const Outcome two = pipetwin(simulate_args(plan, joined(schedule, {"--chunks", "2"})));
    EXPECT_EQ(two.err, "");
    EXPECT_EQ(pipetwin(simulate_args(plan, schedule)).out, two.out);  // as in a list
    EXPECT_EQ(pipetwin(simulate_args(plan, {"--schedule", "1f1b"})).err, "");
}

TEST(Simulate, PlainNumbersRefuseKeysOfAScenario) {
    // They were ignored once, and the answer was that to another question.
    const Outcome outcome =
        pipetwin(simulate_args({}, {"--set", "pipeline.channel_capacity=0", "--seed", "3"}));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("--set pipeline.channel_capacity: there is no scenario"));
    EXPECT_EQ(pipetwin(simulate_args({}, {"--seed", "3"})).code, 0);
}

TEST(Simulate, HeadingAndLegendSpeakOfWhatThereIs) {
    const std::string chunks =
        pipetwin(simulate_args({.stages = 2, .micro_batches = 2, .backward = "1"},
                               {"--schedule", "interleaved-1f1b", "--chunks", "2"}))
            .out;
    EXPECT_THAT(chunks, HasSubstr("interleaved-1f1b, 2 ranks with 2 stages each, 2 micro-batches"));
    const std::string equal = pipetwin(simulate_args({.stages = 4, .micro_batches = 4})).out;
    EXPECT_THAT(equal,
                HasSubstr("\ndigits forward, letters backward, '.' idle; a column is 1.000 ms\n"));
}

/// The rows of the picture that `simulate` prints, without their labels.
std::vector<std::string> picture(const std::vector<std::string>& args) {
    std::istringstream lines(pipetwin(args).out);
    std::vector<std::string> rows;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("rank ") && line.size() > 8 && line[6] == ' ') {
            rows.push_back(line.substr(8));
        }
    }
    return rows;
}

TEST(SimulatePicture, GPipeIsFigure2OfItsPaper) {
    // Huang et al. 2019, figure 2c: four micro-batches on four devices, backwards in reverse order.
    EXPECT_THAT(
        picture(simulate_args({.stages = 4, .micro_batches = 4, .backward = "1"},
                              {"--schedule", "gpipe"})),
        ElementsAre("0123......dcba", ".0123....dcba.", "..0123..dcba..", "...0123dcba..."));
}

TEST(SimulatePicture, OneForwardOneBackwardIsFigure4OfMegatron) {
    // Narayanan et al. 2021, figure 4 at the top: a backward takes twice as long as a forward.
    EXPECT_THAT(picture(simulate_args({.stages = 4, .micro_batches = 8}, {"--schedule", "1f1b"})),
                ElementsAre("0123......aa4bb5cc6dd7ee.ff.gg.hh",
                            ".012....aa3bb4cc5dd6ee7ff.gg.hh..",
                            "..01..aa2bb3cc4dd5ee6ff7gg.hh....",
                            "...0aa1bb2cc3dd4ee5ff6gg7hh......"));
}

TEST(SimulatePicture, ZeroBubbleH1HasOneColumnForEachPart) {
    // Qi et al. 2023: with F = I = W the bubble of ZB-H1 is (p - 1)(F + I - W), a third of 1F1B's.
    const std::vector<std::string> rows = picture({"simulate",
                                                   "--schedule",
                                                   "zb-h1",
                                                   "--stages",
                                                   "4",
                                                   "--micro-batches",
                                                   "8",
                                                   "--forward-ms",
                                                   "1",
                                                   "--backward-input-ms",
                                                   "1",
                                                   "--backward-weight-ms",
                                                   "1"});
    ASSERT_EQ(rows.size(), 4);
    for (const std::string& row : rows) {
        EXPECT_EQ(row.size(), 3 * 8 + 3) << row;
        for (const char first : {'0', 'a', 'A'}) {
            for (char letter = first; letter < first + 8; ++letter) {
                EXPECT_EQ(std::ranges::count(row, letter), 1) << letter << " in " << row;
            }
        }
    }
}

TEST(SimulatePicture, SaysWhereItIsScaled) {
    // 3 (M + K - 1) = 129 ms in 90 columns.
    const std::string wide =
        pipetwin(simulate_args({.stages = 4, .micro_batches = 40}, {"--schedule", "gpipe"})).out;
    EXPECT_THAT(wide,
                HasSubstr("\nscaled to fit: a column is 1.433 ms, as 129 columns of 1.000 ms are "
                          "too wide\n"));
    const std::string uneven =
        pipetwin(simulate_args({.stages = 2, .micro_batches = 2, .backward = "2.71828"})).out;
    EXPECT_THAT(uneven, HasSubstr(", as the times have no common unit\n"));
}

TEST(Simulate, VariationIsToldInWordsThatAgree) {
    const auto text = [](const Numbers& plan, const std::vector<std::string>& more) {
        return pipetwin(simulate_args(plan, more)).out;
    };
    // One rank waits for nobody, and one of one device is the device.
    const std::string one = text(
        {}, {"--jitter", "0.1", "--samples", "1", "--mtbf-hours", "5", "--checkpoint-every", "1"});
    EXPECT_THAT(one, HasSubstr("with jitter (1 sample, seed 1)"));
    EXPECT_THAT(one, ::testing::Not(HasSubstr("whoever")));
    EXPECT_THAT(one, HasSubstr("the one device fails every 5.0 hours on average"));
    EXPECT_THAT(one, HasSubstr("with a checkpoint after every step,"));
    EXPECT_THAT(text({.stages = 4, .micro_batches = 8}, {"--jitter", "0.1"}),
                HasSubstr("as ranks wait for the slowest one;\n"));
}

class SimulateFiles : public InFolder {};

TEST_F(SimulateFiles, ScheduleFileGivesTheOrder) {
    const std::string csv = file("own.csv", "0F0,0F1,0B1,0B0\r\n1F0,1F1,1B1,1B0\r\n");
    const Outcome outcome =
        pipetwin(simulated({"--schedule-file", csv, "--forward-ms", "1", "--backward-ms", "2"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["makespan_ms"], 9.0);
    EXPECT_EQ(outcome.json()["schedule"], "own.csv");
    EXPECT_EQ(pipetwin(simulated({"--schedule-file",
                                  csv,
                                  "--stages",
                                  "2",
                                  "--forward-ms",
                                  "1",
                                  "--backward-ms",
                                  "2"}))
                  .code,
              2);
}

/// Two ranks with two stages each, eight micro-batches, with split backwards on rank 1: the file
/// that PyTorch tests its placement of messages with (test/distributed/pipelining/artifacts,
/// zb1p_2rank_2stagep_comms.csv). Many receives stand long before the action that needs them.
constexpr std::string_view pytorch_messages =
    "0F0,0SEND_F0,2RECV_F0,0F1,0SEND_F1,2RECV_F1,2F0,2SEND_F0,2F1,2SEND_F1,2RECV_B0,2BW0,"
    "2SEND_B0,0F2,0SEND_F2,2RECV_B1,2BW1,2SEND_B1,0F3,0SEND_F3,2RECV_F2,0RECV_B0,0BW0,2F2,"
    "2SEND_F2,2RECV_F3,0RECV_B1,0BW1,2F3,2SEND_F3,2RECV_B2,2BW2,2SEND_B2,0F4,0SEND_F4,2RECV_B3,"
    "2BW3,2SEND_B3,0F5,0SEND_F5,2RECV_F4,0RECV_B2,0BW2,2F4,2SEND_F4,2RECV_F5,0RECV_B3,0BW3,2F5,"
    "2SEND_F5,2RECV_B4,2BW4,2SEND_B4,0F6,0SEND_F6,2RECV_B5,2BW5,2SEND_B5,0F7,0SEND_F7,2RECV_F6,"
    "0RECV_B4,0BW4,2F6,2SEND_F6,2RECV_F7,0RECV_B5,0BW5,2F7,2SEND_F7,2RECV_B6,2BW6,2SEND_B6,"
    "2RECV_B7,2BW7,2SEND_B7,0RECV_B6,0BW6,0RECV_B7,0BW7\n"
    "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3RECV_F1,3B0,3SEND_B0,1RECV_B0,"
    "3F1,1RECV_F2,3B1,3SEND_B1,1RECV_B1,3W0,1RECV_F3,1F2,1SEND_F2,1B0,1SEND_B0,3W1,3RECV_F2,1F3,"
    "1SEND_F3,1B1,1SEND_B1,1W0,3RECV_F3,3F2,3B2,3SEND_B2,1RECV_B2,1W1,1RECV_F4,3F3,3B3,3SEND_B3,"
    "1RECV_B3,3W2,1RECV_F5,1F4,1SEND_F4,1B2,1SEND_B2,3W3,3RECV_F4,1F5,1SEND_F5,1B3,1SEND_B3,1W2,"
    "3RECV_F5,3F4,3B4,3SEND_B4,1RECV_B4,1W3,1RECV_F6,3F5,3B5,3SEND_B5,1RECV_B5,3W4,1RECV_F7,1F6,"
    "1SEND_F6,1B4,1SEND_B4,3W5,3RECV_F6,1F7,1SEND_F7,1B5,1SEND_B5,1W4,3RECV_F7,3F6,3B6,3SEND_B6,"
    "1RECV_B6,1W5,3F7,3B7,3SEND_B7,1RECV_B7,3W6,1B6,1SEND_B6,3W7,1B7,1SEND_B7,1W6,1W7\n";

/// PyTorch posts a receive where it stands and waits where its tensor is used. So the messages,
/// which take no time, change nothing: 49 units, as of the rows without them, at F = I = W = 1, B
/// = 2.
TEST_F(SimulateFiles, ReceivesArePostedUnlessTheyShallBlock) {
    const std::string messages = file("messages.csv", pytorch_messages);
    ASSERT_EQ(
        pipetwin({"export", "torch-csv", messages, "--compute-only", "--out", path("rows.csv")})
            .code,
        0);
    const auto simulated = [](const std::string& csv, const std::vector<std::string>& more = {}) {
        std::vector<std::string> args{"simulate",
                                      "--schedule-file",
                                      csv,
                                      "--forward-ms",
                                      "1",
                                      "--backward-ms",
                                      "2",
                                      "--json"};
        args.insert(args.end(), more.begin(), more.end());
        return pipetwin(args);
    };
    EXPECT_EQ(simulated(path("rows.csv")).json()["makespan_ms"], 49.0);
    const Outcome posted = simulated(messages);
    EXPECT_EQ(posted.json()["makespan_ms"], 49.0);
    EXPECT_THAT(posted.err, HasSubstr("waited for where their tensors are used"));
    const Outcome blocking = simulated(messages, {"--receives", "blocking"});
    EXPECT_EQ(blocking.json()["makespan_ms"], 79.0);
    EXPECT_THAT(blocking.err, HasSubstr("receives of the schedule file block: a rank waits"));
    EXPECT_EQ(simulated(messages, {"--receives", "never"}).code, 2);
    EXPECT_EQ(
        pipetwin(simulate_args({.stages = 2, .micro_batches = 2}, {"--receives", "posted"})).code,
        2);
}

/// One round of six micro-batches on four ranks: (m v + p - 1)(F + B) = 15 x 3.
TEST_F(SimulateFiles, InterleavedGroupsFitTheMicroBatches) {
    const std::vector<std::string> more{
        "--schedule", "interleaved-1f1b", "--chunks", "2", "--json"};
    EXPECT_EQ(
        pipetwin(simulate_args({.stages = 4, .micro_batches = 6}, more)).json()["makespan_ms"],
        45.0);
    // Fewer than ranks: what the rows take that PyTorch 2.14.1 makes.
    EXPECT_EQ(
        pipetwin(simulate_args({.stages = 4, .micro_batches = 3}, more)).json()["makespan_ms"],
        30.0);
    EXPECT_EQ(
        pipetwin(simulate_args({.stages = 8, .micro_batches = 4}, more)).json()["makespan_ms"],
        57.0);
    std::vector<std::string> fours = more;
    fours.insert(fours.end(), {"--group-size", "4"});
    const Outcome left = pipetwin(simulate_args({.stages = 4, .micro_batches = 6}, fours));
    EXPECT_EQ(left.code, 4);
    EXPECT_THAT(left.err, HasSubstr("set --group-size 6, or take a multiple of 4 micro-batches"));
}

TEST_F(SimulateFiles, NothingIsWrittenWithoutOut) {
    const auto old = std::filesystem::current_path();
    std::filesystem::current_path(folder());
    const Outcome outcome = pipetwin(simulate_args({.stages = 2, .micro_batches = 2}));
    std::filesystem::current_path(old);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

TEST_F(SimulateFiles, OutGetsPlanRowsAndTimeline) {
    const std::vector<std::string> args =
        simulate_args({.stages = 2, .micro_batches = 2}, {"--out", path("run")});
    EXPECT_EQ(pipetwin(args).code, 0);
    for (const char* const name : {"plan.json", "schedule.csv", "predicted.trace.json"}) {
        EXPECT_TRUE(std::filesystem::exists(folder() / "run" / name)) << name;
    }
    EXPECT_FALSE(std::filesystem::exists(folder() / "run" / "lock"));
    const Outcome again = pipetwin(args);
    EXPECT_EQ(again.code, 6);
    EXPECT_THAT(again.err, HasSubstr("--force"));
}

TEST_F(SimulateFiles, ScenarioNeedsCostsAndSaysHowToGetThem) {
    const std::string scenario = file("small.toml", small_scenario);
    const Outcome outcome = pipetwin({"simulate", scenario});
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err, HasSubstr("hint: run 'pipetwin profile " + scenario + "' first"));
}

// A mini-batch of one sample was once one micro-batch without a word.
TEST_F(SimulateFiles, FewerMicroBatchesThanAskedForAreSaid) {
    const std::vector<std::string> args{"simulate",
                                        file("small.toml", small_scenario),
                                        "--profile",
                                        file("costs.csv", small_profile),
                                        "--set",
                                        "pipeline.micro_batches=8",
                                        "--set"};
    const Outcome outcome = pipetwin(joined(args, {"training.batch=1"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                ::testing::AllOf(HasSubstr("pipeline.micro_batches = 8"),
                                 HasSubstr("a mini-batch has 1 sample"),
                                 HasSubstr("the plan has 1 micro-batch")));
    EXPECT_THAT(pipetwin(joined(args, {"training.batch=8"})).err,
                ::testing::Not(HasSubstr("the plan has")));
    EXPECT_THAT(pipetwin(joined(args, {"pipeline.group_size=2"})).err,
                HasSubstr("pipeline.group_size = 2 changes nothing"));
}

TEST_F(SimulateFiles, ScenarioWithCostsGivesThroughputAndBytes) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string profile = file("small.csv", small_profile);
    const Outcome outcome = pipetwin(
        {"simulate", scenario, "--profile", profile, "--json", "--set", "training.batch=4"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto result = outcome.json();
    EXPECT_GT(result["samples_per_second"].get<double>(), 0);
    EXPECT_EQ(result["devices"][0]["layers"], nlohmann::json::array({"linear0"}));
    EXPECT_EQ(result["devices"][0]["peak_bytes"]["weights"], 576);
    EXPECT_GT(result["devices"][0]["peak_bytes"]["total"].get<int>(), 576);
}

/// What is drawn of the devices' speeds is not counted twice.
TEST_F(SimulateFiles, DeviceJitterTakesThePlaceOfTheSlowestDeviceOfTheStack) {
    const std::vector<std::string> args{"simulate",
                                        file("small.toml", small_scenario),
                                        "--profile",
                                        file("small.csv", small_profile),
                                        "--json"};
    const auto step = [&args](const std::vector<std::string>& more) {
        const Outcome outcome = pipetwin(joined(args, more));
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.json()["step_ms"].get<double>();
    };
    const std::vector<std::string> stack{"--set", "cluster.stack=nemo-2024"};
    const double alike = step({});
    EXPECT_GT(step(stack), alike);
    EXPECT_EQ(step(joined(stack, {"--set", "cluster.device_spread=0"})), alike);
    EXPECT_EQ(step(joined(stack, {"--device-jitter", "0.02"})), alike);
    EXPECT_EQ(step({"--set", "cluster.device_spread=0.1", "--device-jitter", "0.02"}), alike);
}

/// Costs that name no stack take that of the option, which has to know the scenario's device.
TEST_F(SimulateFiles, TheStackOfTheRunIsAnOption) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string profile = file("small.csv", small_profile);
    const auto simulated = [&](const std::string& stack,
                               const std::vector<std::string>& more = {}) {
        return pipetwin(
            joined({"simulate", scenario, "--profile", profile, "--stack", stack, "--json"}, more));
    };
    EXPECT_EQ(simulated("nemo-2024").json()["stack"], "nemo-2024");
    EXPECT_EQ(simulated("nemo-2024").json()["step_ms"],
              simulated("none", {"--set", "cluster.device_spread=0.012"}).json()["step_ms"]);
    EXPECT_EQ(simulated("none").json()["stack"], nullptr);
    const Outcome unknown = simulated("nemo-2024", {"--set", "cluster.device=gb200"});
    EXPECT_EQ(unknown.code, 3);
    EXPECT_THAT(unknown.err,
                AllOf(HasSubstr("'nemo-2024' says nothing of the device 'gb200'"),
                      HasSubstr("'megatron-bridge-2026'")));
    EXPECT_EQ(simulated("nemo-2024", {"--set", "cluster.stack=nemo-2024"}).code, 2);
    EXPECT_EQ(pipetwin({"simulate", "--stages", "2", "--stack", "nemo-2024"}).code, 2);
    EXPECT_EQ(pipetwin({"sweep", "--stages", "2,4", "--stack", "nemo-2024"}).code, 2);
}

TEST_F(SimulateFiles, ProfileOfTheRunFolderIsUsed) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string profile = file("small.csv", small_profile);
    ASSERT_EQ(pipetwin({"simulate", scenario, "--profile", profile, "--out", path("run")}).code, 0);
    const Outcome outcome = pipetwin({"simulate", scenario, "--out", path("run"), "--force"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("profile.json"));
}

/// The folder once named the CSV file by its old path, and needed --profile.
TEST_F(SimulateFiles, ARunFolderWithAScheduleFileIsCompleteInItself) {
    file("own.csv", "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n");
    const std::string scenario = file("small.toml", small_scenario);
    const Outcome first = pipetwin({"simulate",
                                    scenario,
                                    "--profile",
                                    file("small.csv", small_profile),
                                    "--set",
                                    "pipeline.schedule=own.csv",
                                    "--set",
                                    "pipeline.micro_batches=2",
                                    "--set",
                                    "training.batch=4",
                                    "--out",
                                    path("run"),
                                    "--json"});
    ASSERT_EQ(first.code, 0) << first.err;
    EXPECT_THAT(first.err,
                HasSubstr("written to " + path("run") +
                          ": scenario.toml, profile.json, "
                          "plan.json, schedule.csv, predicted.trace.json"));
    EXPECT_THAT(content_of(path("run/scenario.toml")), HasSubstr("schedule = \"schedule.csv\""));
    std::filesystem::remove(path("own.csv"));
    std::filesystem::rename(path("run"), path("moved"));
    const Outcome second = pipetwin({"simulate", path("moved/scenario.toml"), "--json"});
    ASSERT_EQ(second.code, 0) << second.err;
    EXPECT_THAT(second.err, HasSubstr("costs: " + path("moved/profile.json")));
    EXPECT_EQ(second.json()["step_ms"], first.json()["step_ms"]);
    EXPECT_EQ(second.json()["devices"], first.json()["devices"]);
    // The folder may be written from itself.
    const std::string rows = content_of(path("moved/schedule.csv"));
    const Outcome itself = pipetwin(
        {"simulate", path("moved/scenario.toml"), "--out", path("moved"), "--force", "--json"});
    ASSERT_EQ(itself.code, 0) << itself.err;
    EXPECT_EQ(content_of(path("moved/schedule.csv")), rows);
    EXPECT_EQ(itself.json()["step_ms"], first.json()["step_ms"]);
}

TEST_F(SimulateFiles, PlanOverTheMemoryLimitIsRefusedWithTheTable) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string profile = file("small.csv", small_profile);
    const Outcome outcome = pipetwin(
        {"simulate", scenario, "--profile", profile, "--set", "cluster.memory_limit=\"100 B\""});
    EXPECT_EQ(outcome.code, 4);
    EXPECT_EQ(outcome.out, "");
    for (const char* const word : {"100 B", "weights", "stash"}) {
        EXPECT_THAT(outcome.err, HasSubstr(word));
    }
}

TEST_F(SimulateFiles, TableOfDevicesEndsWithTheirSums) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string profile = file("small.csv", small_profile);
    const auto run = [&](std::vector<std::string> more) {
        const Outcome outcome =
            pipetwin(joined({"simulate", scenario, "--profile", profile}, more));
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome;
    };
    const std::string text = run({}).out;
    const std::size_t begin = text.find("\n  all ");
    ASSERT_NE(begin, std::string::npos) << text;
    const std::string line = text.substr(begin, text.find('\n', begin + 1) - begin);
    const nlohmann::json devices = run({"--json"}).json()["devices"];
    ASSERT_EQ(devices.size(), 2U);
    for (const char* kind : {"total", "weights", "gradients", "stash", "boundary"}) {
        Bytes sum;
        for (const nlohmann::json& device : devices) {
            sum += Bytes{device["peak_bytes"][kind].get<std::int64_t>()};
        }
        EXPECT_THAT(line, HasSubstr(format_bytes(sum))) << kind;
    }
    const Outcome single = run({"--set", "pipeline.stages=1"});
    EXPECT_EQ(single.out.find("\n  all "), std::string::npos) << single.out;
}

/// Stage 0 keeps 160 bytes of each micro-batch and its output has 64, stage 1 keeps 100.
///
///     gpipe, rank 0   0F3 finds three stashes and adds its own and its output: 4 * 160 + 64; the
///                     gradient that 0B3 finds has the size of that output, so it adds nothing
///     gpipe, rank 1   1B3 adds the gradient of its input to four stashes: 4 * 100 + 64
///     1f1b            keeps two on rank 0 and one on rank 1: 2 * 160 + 64 and 100 + 64
///
/// Weights and gradients of stage 0 are 576 bytes each, of stage 1 272. F lasts 20 and 10 us, B 40
/// and 20 us, and messages take no time.
TEST_F(SimulateFiles, TellWhenAndInWhichActionMemoryPeaks) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string profile = file("small.csv", small_profile);
    const auto devices = [&](const std::string& schedule) {
        return pipetwin({"simulate",
                         scenario,
                         "--profile",
                         profile,
                         "--json",
                         "--set",
                         "pipeline.recompute=none",
                         "--set",
                         "pipeline.schedule=" + schedule,
                         "--set",
                         "training.batch=4"})
            .json()["devices"];
    };
    const auto at = [](double ms, const char* action) {
        return nlohmann::json{{"ms", ms}, {"action", action}};
    };
    const nlohmann::json gpipe = devices("gpipe");
    EXPECT_EQ(gpipe[0]["peak_at"], at(0.06, "0F3"));
    EXPECT_EQ(gpipe[1]["peak_at"], at(0.09, "1B3"));
    const nlohmann::json one_f_one_b = devices("1f1b");
    EXPECT_EQ(one_f_one_b[0]["peak_at"], at(0.02, "0F1"));
    EXPECT_EQ(one_f_one_b[1]["peak_at"], at(0.03, "1B0"));
}

/// Four blocks of 320 bytes, 64 of them its input, between an embedding that keeps 64 and a head.
/// With n blocks together the backward of the last group holds the embedding's 64, the inputs of
/// all 4 / n groups, what its own n blocks make again, and output and gradient of the last one:
///
///     64 + 64 * 4 / n + (320 n - 64) + 64 + 64
///
/// Every block has its forward twice whatever n is: 6 + 4 * 4 ms.
TEST_F(SimulateFiles, BlocksAreComputedAgainTogether) {
    const std::string scenario = file("blocks.toml",
                                      "[model]\nkind = \"profile\"\nfile = \"blocks.csv\"\n"
                                      "[training]\nbatch = 1\n[pipeline]\nschedule = \"1f1b\"\n"
                                      "recompute = \"block\"\n");
    file("blocks.csv",
         "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n"
         "embedding,1,2,64,64,4\nblock0,1,2,64,320,4\nblock1,1,2,64,320,4\n"
         "block2,1,2,64,320,4\nblock3,1,2,64,320,4\nhead,1,2,0,100,4\n");
    for (const int together : {1, 2, 4}) {
        const Outcome outcome = pipetwin({"simulate",
                                          scenario,
                                          "--json",
                                          "--set",
                                          fmt::format("pipeline.recompute_blocks={}", together)});
        const auto result = outcome.json();
        EXPECT_EQ(result["recompute"], "block");
        EXPECT_EQ(result["recompute_blocks"], together);
        EXPECT_NEAR(result["makespan_ms"].get<double>(), 6 + 4 * 4, 1e-9);
        EXPECT_EQ(result["devices"][0]["peak_bytes"]["stash"],
                  64 + 64 * 4 / together + 320 * together - 64 + 64 + 64);
        EXPECT_EQ(result["devices"][0]["recompute_bytes"], 320 * together - 64 + 64 + 64);
    }
    EXPECT_EQ(pipetwin({"simulate", scenario, "--json", "--set", "pipeline.recompute=none"})
                  .json()["recompute_blocks"],
              nullptr);
    EXPECT_THAT(pipetwin({"simulate", scenario, "--set", "pipeline.recompute_blocks=2"}).out,
                HasSubstr("recompute block (2 blocks at a time)"));
}

/// A pool that reserves a quarter more, and buffers of 1 MB for the pipeline's group.
TEST_F(SimulateFiles, WhatIsHeldBesideTheModelIsNamed) {
    const auto simulated = [this](const char* form) {
        return pipetwin({"simulate",
                         file("small.toml", small_scenario),
                         "--profile",
                         file("small.csv", small_profile),
                         "--set",
                         "cluster.allocator_reserve=25",
                         "--set",
                         "cluster.communicator_bytes=1 MB",
                         form});
    };
    const auto device = simulated("--json").json()["devices"][0];
    EXPECT_EQ(device["peak_bytes"]["context"], 1'000'000);
    EXPECT_EQ(device["beside_bytes"],
              (nlohmann::json{{"runtime", 0},
                              {"communication", 1'000'000},
                              {"product_workspace", 0},
                              {"tensor_buffers", 0},
                              {"allocator_reserve",
                               (device["peak_bytes"]["total"].get<std::int64_t>() - 1'000'000) / 4},
                              {"kept_messages", 0}}));
    EXPECT_THAT(simulated("--verbose").out,
                AllOf(HasSubstr("of message buffers"), HasSubstr("the memory pool reserves")));
}

TEST_F(SimulateFiles, TextNamesTheFullestRankAndItsMoment) {
    const Outcome outcome = pipetwin({"simulate",
                                      file("small.toml", small_scenario),
                                      "--profile",
                                      file("small.csv", small_profile),
                                      "--set",
                                      "pipeline.recompute=none",
                                      "--set",
                                      "pipeline.channel_capacity=4",
                                      "--set",
                                      "training.batch=4"});
    // Room for four gradients of 64 bytes, weights and gradients, four stashes and an output.
    EXPECT_THAT(
        outcome.out,
        HasSubstr("  rank 0 holds the most: 2.06 KiB, at 60.000 us, during 0F3 (the forward of "
                  "micro-batch 3 on stage 0)\n"));
}

TEST(Simulate, TellsHowLongStepsLastUnderJitter) {
    const auto result = Equal{.schedule = "1f1b",
                              .stages = 4,
                              .micro_batches = 16,
                              .more = {"--jitter", "0.1", "--samples", "512", "--seed", "3"}}
                            .simulate();
    const auto& step = result["uncertainty"]["step_ms"];
    EXPECT_EQ(result["uncertainty"]["samples"], 512);
    EXPECT_EQ(result["uncertainty"]["seed"], 3);
    EXPECT_EQ(step["deterministic"], 57.0);
    EXPECT_GT(step["mean"], 57.0);  // whoever is late is waited for
    EXPECT_LT(step["p50"], step["p95"]);
    EXPECT_EQ(result["goodput"], nullptr);
}

/// No failures to speak of: a checkpoint of 1 s after every 100 steps of 30 ms leaves 3/4.
TEST(Simulate, TellsTheGoodputOfALongRun) {
    const auto result =
        Equal{.schedule = "gpipe",
              .stages = 1,
              .micro_batches = 10,
              .more = {"--mtbf-hours", "1e9", "--checkpoint-every", "100", "--checkpoint-s", "1"}}
            .simulate();
    EXPECT_NEAR(result["goodput"]["share"].get<double>(), 0.75, 1e-6);
    EXPECT_NEAR(result["goodput"]["step_ms"].get<double>(), 40, 1e-4);
    EXPECT_EQ(result["uncertainty"], nullptr);
}

/// gpipe lasts all F and B once and m - 1 times the slowest: with one of four stages at twice its
/// time 5 + 10 + 15 (2 + 4) = 105 ms.
TEST(Simulate, TellsWhatAStragglerCosts) {
    const auto result =
        Equal{.schedule = "gpipe", .stages = 4, .micro_batches = 16, .more = {"--straggler", "2:2"}}
            .simulate();
    EXPECT_EQ(result["straggler"]["step_ms"], 105.0);
    EXPECT_EQ(result["step_ms"], 57.0);
}

TEST(Simulate, RefusesUncertaintyThatMakesNoSense) {
    const auto refused = [](std::vector<std::string> more) {
        const Outcome outcome = pipetwin(simulate_args({.stages = 2, .micro_batches = 2}, more));
        EXPECT_EQ(outcome.code, 2) << outcome.out;
        return outcome.err;
    };
    EXPECT_THAT(refused({"--jitter", "-0.1"}), HasSubstr("--jitter: jitter of actions = -0.1"));
    EXPECT_THAT(refused({"--jitter", "nan"}), HasSubstr("--jitter: jitter of actions = nan"));
    EXPECT_THAT(refused({"--transfer-jitter", "3"}), HasSubstr("--transfer-jitter: jitter of tra"));
    EXPECT_THAT(refused({"--device-jitter", "3"}), HasSubstr("--device-jitter: jitter of devices"));
    EXPECT_THAT(refused({"--spikes", "2:4"}),
                AllOf(HasSubstr("--spikes: probability of a spike = 2"),
                      HasSubstr("hint: 0.001 means that one action in a thousand")));
    EXPECT_THAT(refused({"--spikes", "often"}), HasSubstr("'often': expected two numbers"));
    EXPECT_THAT(refused({"--straggler", "2:3"}), HasSubstr("there is no rank 2, expected 0 to 1"));
    EXPECT_THAT(refused({"--straggler", "0:-3"}), HasSubstr("a factor of -3"));
    EXPECT_THAT(refused({"--samples", "300"}), HasSubstr("nothing to sample"));
    EXPECT_THAT(refused({"--checkpoint-s", "3"}),
                HasSubstr("--checkpoint-s: has no effect without failures"));
    EXPECT_THAT(refused({"--mtbf-hours", "0"}),
                HasSubstr("--mtbf-hours: '0', expected a number above 0, at most 1000000000\n"));
    EXPECT_THAT(refused({"--mtbf-hours", "9", "--failing-devices", "0"}),
                HasSubstr("--failing-devices: '0', expected at least 1"));
    EXPECT_THAT(refused({"--mtbf-hours", "9", "--checkpoint-every", "0"}),
                HasSubstr("--checkpoint-every: '0', expected at least 1"));
}

}  // namespace simulate_test
}  // namespace pipetwin::cli
