// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include <gmock/gmock.h>

#include "cli/text/explanation_text.h"
#include "cli/text/json_output.h"
#include "cli/text/sentences.h"
#include "cli/text/text_output.h"
#include "core/model/model.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "sim/explain/breakdown.h"
#include "sim/explain/cluster_links.h"
#include "sim/questions/prediction.h"
#include "sim/simulate/simulate.h"
#include "tests/cli/support.h"
#include "tests/support/plain_plan.h"
#include "tests/support/scenario_plans.h"

/// The sentences over hand-derived numbers. For gpipe with p equal stages, m micro-batches, F = 1
/// and B = 2 a step takes (m + p - 1)(F + B), a rank works m (F + B) of it, and the last rank
/// begins after (p - 1) F and is done (p - 1) B before the end.
namespace pipetwin::cli {
namespace explanation_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::milliseconds;
using ::testing::Not;
using testing::plain;

/// All lines, each on one line.
std::string words_of(const Plan& plan,
                     const std::optional<Plan>& more = std::nullopt,
                     const std::vector<sim::WhatIf>& cluster_links = {}) {
    const Timeline timeline = sim::simulate(plan);
    const sim::Explanation explanation =
        sim::explain(plan, timeline, sim::breakdown(plan, timeline), more, cluster_links);
    std::string text;
    for (const Paragraph& paragraph : explanation_paragraphs(plan, explanation)) {
        text += std::string(paragraph.heading) + '\n';
        for (const std::string& line : paragraph.lines) {
            text += line + '\n';
        }
    }
    return text;
}

TEST(Explanation, OfBalancedGPipe) {
    EXPECT_EQ(
        words_of(make_plan(plain(ScheduleKind::GPipe, 4, 16)),
                 make_plan(plain(ScheduleKind::GPipe, 4, 32))),
        "Where the time goes\n"
        "A step takes 57.0 ms. On average a rank (one device of the pipeline) works for 48.0 ms of "
        "it and waits for 9.0 ms (15.8 %).\n"
        "9.0 ms of the wait is fill and drain: even if all stages (parts of the model, one after "
        "the other) took equally long and messages took no time, the pipeline would have to fill "
        "at "
        "the "
        "start of a step and to drain at its end. Rank 3 cannot begin before 3.0 "
        "ms, when the first micro-batch (a slice of the batch) reaches it, and it is done 6.0 "
        "ms before the end of the step. More micro-batches make this share of the step "
        "smaller: 32 instead of 16 would bring it from 15.8 % to 8.6 %.\n"
        "The longest single wait is that of rank 0: 9.0 ms before 0B15 (the backward of "
        "micro-batch 15 on stage 0). It waited for 3F13, 3F14, 3F15, 3B15, 2B15 and 1B15, one "
        "after the other.\n"
        "What would help most\n"
        "every backward twice as fast: 57.0 -> 38.0 ms (-33.3 %); infinitely fast: 19.0 ms\n"
        "rank 0's device (or another rank's) twice as fast: 57.0 -> 55.5 ms (-2.6 %); infinitely "
        "fast: 54.0 ms\n"
        "stage 0's backward (or another stage's) twice as fast: 57.0 -> 56.0 ms (-1.8 %); "
        "infinitely fast: 55.0 ms\n");
}

TEST(Explanation, OfOneStageSaysNothingOfWaits) {
    const std::string words = words_of(make_plan(plain(ScheduleKind::GPipe, 1, 4)));
    EXPECT_THAT(words, HasSubstr("A step takes 12.0 ms, and its one rank works all the time."));
    EXPECT_THAT(words, AllOf(Not(HasSubstr("wait")), Not(HasSubstr("bubble"))));
}

/// A step of 2 * (7151 + 18301) + 4 = 50908 ns, of which 2 * (2150 + 3300) = 10900 ns wait for
/// shards. Links between nodes that are twice as fast leave 2 * (5576 + 15151) + 4 = 41458 ns, and
/// infinitely fast ones 2 * (5001 + 15001) + 4 = 40008 ns; backwards that are twice as fast
/// still take max(6000, 6300) + max(1500, 6300) = 12600 ns.
TEST(Explanation, SaysThatActionsWaitForShards) {
    const SettledScenario scenario = testing::sharded_over_nodes();
    const Profile profile = testing::long_and_short_layer();
    const Model model = scenario_model(scenario, &profile);
    const Plan plan = make_plan(scenario, model, profile);
    const std::string words =
        words_of(plan,
                 std::nullopt,
                 sim::faster_cluster_links(plan, Duration(50908), scenario, model, profile));
    EXPECT_THAT(words,
                AllOf(HasSubstr("A step takes 50.9 us. Its one rank is never idle, but it does "
                                "not compute all the time.\n"),
                      HasSubstr("Of rank 0's 50.9 us of work, 10.9 us (21.4 %) are waits for "
                                "weights and gradients of other replicas: no computation hides "
                                "these messages.\n"),
                      Not(HasSubstr("works all the time")),
                      HasSubstr("every backward twice as fast: 50.9 -> 39.5 us (-22.4 %)"),
                      HasSubstr("links between nodes twice as fast: 50.9 -> 41.5 us (-18.6 %); "
                                "infinitely fast: 40.0 us\n")));
}

/// 10900 of 50908 ns.
TEST(Explanation, MessagesInsideOfActionsArePartOfTheTables) {
    const sim::Prediction prediction = sim::predict(
        testing::plan_of(testing::sharded_over_nodes(), testing::long_and_short_layer()));
    std::ostringstream stream;
    const Console console(stream, stream, Terminal{});
    const std::string text = prediction_text(prediction, console);
    EXPECT_THAT(text,
                AllOf(HasSubstr("  not counted as idle: 21.4 % of the step, in which actions wait "
                                "for shards (see Where the time goes)\n"),
                      HasSubstr("\n  of these, waiting for shards of weights and gradients"),
                      HasSubstr("21.41 %\n"),
                      Not(HasSubstr("of these, sums"))));
    const Json messages = prediction_json(prediction)["messages_in_actions_ms"];
    EXPECT_EQ(messages["shards"], 0.0109);
    EXPECT_EQ(messages["tensor_parallel"], 0);
    const sim::Prediction none = sim::predict(make_plan(plain(ScheduleKind::GPipe, 2, 4)));
    EXPECT_EQ(prediction_json(none)["messages_in_actions_ms"]["shards"], 0);
    EXPECT_THAT(prediction_text(none, console),
                AllOf(Not(HasSubstr("not counted as idle")), Not(HasSubstr("of these"))));
}

/// Two devices share two layers: 2 * (1000 + 5 / 2) = 2005 ns of sums in the forward of the first
/// and in the backward of the second, of a step of 2 * (2500 + 7500 + 2 * 2005 + 2) + 15 ns.
TEST(Explanation, SaysWhatSumsOfTensorParallelismTake) {
    SettledScenario scenario = testing::partitioned({2});
    scenario.pipeline.tensor_parallel = 2;
    scenario.cluster.link_gbps = 8;
    scenario.cluster.link_latency_us = 1;
    const Plan plan = testing::plan_of(scenario, testing::long_and_short_layer());
    EXPECT_THAT(words_of(plan),
                HasSubstr("Of rank 0's 28.0 us of work, 8.0 us (28.6 %) are sums among the 2 "
                          "devices of a rank (tensor parallelism).\n"));
}

// row   001122ccc.......bbb..aaa
// out   ..00001111                    4 ms for a stash, and 1 ms of latency
// in    ...........1111.0000
TEST(Explanation, SaysWhatWaitingForStashesCosts) {
    EXPECT_THAT(
        words_of(testing::one_rank_with_host_link(3, 4, 1)),
        AllOf(HasSubstr("9.0 ms of the wait is for stashes, which a forward keeps for its "
                        "backward: they are copied to host memory, and an action that needs one "
                        "waits until it is back. If they stayed on their devices, the step would "
                        "take 15.0 ms."),
              HasSubstr("The longest single wait is that of rank 0: 7.0 ms before 0B1 (the "
                        "backward of micro-batch 1 on stage 0). It waits for its stash, which "
                        "the forward kept for it, to come back from host memory.\n"),
              HasSubstr("every link to host memory twice as fast: 24.0 -> 15.0 ms")));
}

// sum F + sum B + (m - 1)(max F + max B) with F = 1 1 4, B = 2 2 8; then with F = 2, B = 4.
TEST(Explanation, NamesTheSlowestStage) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 3, 4);
    costs.forward = {milliseconds(1), milliseconds(1), milliseconds(4)};
    costs.backward = {milliseconds(2), milliseconds(2), milliseconds(8)};
    EXPECT_THAT(words_of(make_plan(costs)),
                HasSubstr("imbalance: the work is not spread evenly. Rank 2 (stage 2) computes "
                          "longest: 48.0 ms, 100.0 % more than the mean of the ranks (24.0 ms). "
                          "The others wait for it. If all stages were equal, the step would take "
                          "36.0 ms: ranks that wait now would compute more."));
}

TEST(Explanation, NamesLinksAndWhatMessagesCost) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 3, 4);
    costs.link.latency = milliseconds(1);
    EXPECT_THAT(words_of(make_plan(costs)),
                HasSubstr("4.0 ms of the wait is for messages on their way from rank to rank. Each "
                          "of them takes 1.0 ms, whatever its size. If messages took no time, the "
                          "step would take 18.0 ms."));
    const Plan plan = make_plan(costs);
    std::vector<LinkCost> links = plan->links;
    links[1] = {.latency = milliseconds(5), .bytes_per_second = 0};
    EXPECT_THAT(words_of(plan.with_costs(plan->costs, links)),
                HasSubstr("The slowest link is that between rank 1 and rank 2, where a message "
                          "takes 5.0 ms, whatever its size."));
}

/// 153.05 ms without latency; half of the latency takes 0.05 ms off, which is 0.03 %.
TEST(Explanation, SaysNothingOfAGainThatIsRoundedToZero) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 8);
    costs.forward.assign(costs.forward.size(), milliseconds(5));
    costs.backward.assign(costs.backward.size(), milliseconds(12));
    costs.link.latency = std::chrono::microseconds(50);
    const std::string words = words_of(make_plan(costs));
    EXPECT_THAT(words, HasSubstr("What would help most"));
    EXPECT_THAT(words, AllOf(Not(HasSubstr("0.0 %")), Not(HasSubstr("every link"))));
}

// A message of 3 ms and 1 ms of latency.
TEST(Explanation, TellsLatencyFromTheTimeOnTheLink) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 1);
    costs.link = {.latency = milliseconds(1), .bytes_per_second = 1e9};
    costs.boundary = Bytes{3'000'000};
    EXPECT_THAT(words_of(make_plan(costs)),
                HasSubstr("takes 4.0 ms, of which 1.0 ms would pass even if it were empty."));
}

// Messages take 5 ms, and one at a time is taken before the next sets out. Forwards arrive at 6,
// 11, 16 and 21; the backwards of rank 1 end at 24, 26, 31 and 36, their messages arrive at 29, 34,
// 39 and 44, and the last backward ends at 46. With room it is 5 * 3 + 2 * 5, and with free links 5
// * 3.
TEST(Explanation, SaysThatSendersWaitForRoom) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 4);
    costs.link.latency = milliseconds(5);
    costs.channel_capacity = 1;
    EXPECT_THAT(
        words_of(make_plan(costs)),
        AllOf(HasSubstr("A step takes 46.0 ms."),
              HasSubstr("10.0 ms of the wait is for messages on their way"),
              HasSubstr(
                  "21.0 ms of the wait is for room: between two ranks there is room "
                  "for 1 message at a time, and a rank that has made another waits "
                  "until the receiver takes the one before. With room for every message the step "
                  "would take 25.0 ms.")));
}

// Four messages of 5 ms. On one link they are through at 6, 11, 16 and 21, and the last forward
// ends at 22; on two, at 6, 11, 12 and 17, and it ends at 18.
TEST(Explanation, SaysWhatSharingALinkCosts) {
    PlainCosts costs = plain(ScheduleKind::ForwardOnly, 3, 2);
    costs.link.bytes_per_second = 1e9;
    costs.boundary = Bytes{5'000'000};
    PlanParts parts = make_plan(costs).parts();
    parts.contention = testing::one_link(2);
    EXPECT_THAT(words_of(Plan::make(std::move(parts))),
                AllOf(HasSubstr("A step takes 22.0 ms."),
                      HasSubstr("4.0 ms of the wait comes from sharing")));
}

TEST(Explanation, OfRecomputeSaysWhatItIsFor) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 4, 8);
    costs.recompute = Recompute::Always;
    EXPECT_THAT(
        words_of(make_plan(costs)),
        HasSubstr("8.0 ms of the work is recompute: forwards are computed a second time, so "
                  "that their results need not stay in memory until the backward. "
                  "Without it the step would take 33.0 ms."));
}

// Without its forwards there is nothing left of the step.
TEST(Explanation, LeavesOutAStepThatWouldTakeNoTime) {
    EXPECT_THAT(words_of(make_plan(plain(ScheduleKind::ForwardOnly, 3, 4))),
                HasSubstr("every forward twice as fast: 6.00 -> 3.00 ms (-50.0 %)\n"));
}

TEST(Explanation, ParagraphsFitTheWidthAndKeepUnitsWithTheirNumbers) {
    const Paragraph paragraph{
        .heading = "Head", .lines = {"Rank 3 cannot begin before the time of 3.0 ms, and ends."}};
    EXPECT_EQ(paragraph_text(paragraph, 40),
              "Head\n"
              "  Rank 3 cannot begin before the time of\n"
              "    3.0 ms, and ends.\n");
}

/// Two stages and two micro-batches, the second stage slower.
std::vector<std::string> simulated(std::vector<std::string> more) {
    return simulate_args({.stages = 2, .micro_batches = 2, .forward = "1,3", .backward = "1"},
                         std::move(more));
}

// rank 0  01......ba     waits from 2 to 8
// rank 1  .000111ba
TEST(Explanation, StandsInTheTextOfSimulate) {
    const Outcome plain_text = pipetwin(simulated({}));
    EXPECT_THAT(plain_text.out, HasSubstr("Where the time goes\n  A step takes 10.0 ms."));
    EXPECT_THAT(plain_text.out, Not(HasSubstr("row_order")));
    EXPECT_THAT(pipetwin(simulated({"--verbose"})).out,
                HasSubstr("rank 0  2.0 .. 8.0 ms  before 0B1: 1F0 row_order 2.0, 1F1 compute 3.0, "
                          "1B1 compute 1.0"));
}

TEST(Explanation, StandsInTheJsonOfSimulate) {
    const nlohmann::json json = pipetwin(simulated({"--json"})).json()["explanation"];
    EXPECT_THAT(json["text"][0].get<std::string>(), HasSubstr("A step takes 10.0 ms."));
    const nlohmann::json& wait = json["waits"][0];
    EXPECT_EQ(wait["rank"], 0);
    EXPECT_EQ(wait["action"], "0RECV_B1");
    EXPECT_EQ(wait["begin_ms"], 2.0);
    EXPECT_EQ(wait["end_ms"], 8.0);
    EXPECT_EQ(wait["slack_ms"], 0.0);
    EXPECT_EQ(wait["chain"][0],
              (nlohmann::json{{"action", "1F0"},
                              {"rank", 1},
                              {"begin_ms", 2.0},
                              {"end_ms", 4.0},
                              {"reason", "row_order"}}));
    // The forward of stage 1 at 1.5 ms: 1 + 2 * 1.5 + 2 + 1 = 7 ms.
    const auto& what_ifs = json["what_if"];
    const auto found = std::find_if(what_ifs.begin(), what_ifs.end(), [](const auto& what) {
        return what["what"] == "stage 1's forward";
    });
    ASSERT_NE(found, what_ifs.end());
    EXPECT_EQ((*found)["factor"], 2.0);
    EXPECT_EQ((*found)["step_ms"], 7.0);
    EXPECT_EQ((*found)["gain_percent"], 30.0);
    EXPECT_TRUE(found->contains("least_step_ms"));
}

/// Each part rounded by itself could add up to a tenth more or less than the whole.
TEST(Explanation, PartsOfAWaitAddUpAsTheyAreShown) {
    const Times time(milliseconds(40));
    const auto parts = [&time](std::vector<int> microseconds) {
        std::vector<Duration> exact;
        Duration whole{};
        for (const int part : microseconds) {
            exact.emplace_back(std::chrono::microseconds(part));
            whole += exact.back();
        }
        std::string text = time(whole) + ':';
        for (const Duration part : time.parts_of(whole, exact)) {
            text += ' ' + time.number(part);
        }
        return text;
    };
    EXPECT_EQ(parts({7'140, 3'360, 1'340}), "11.8 ms: 7.1 3.4 1.3");
    EXPECT_EQ(parts({10'040, 10'040, 10'040}), "30.1 ms: 10.1 10.0 10.0");
    EXPECT_EQ(parts({9'000, 0, 0}), "9.0 ms: 9.0 0.0 0.0");
    EXPECT_EQ(parts({160, 210}), "0.37 ms: 0.16 0.21");
}

}  // namespace explanation_test
}  // namespace pipetwin::cli
