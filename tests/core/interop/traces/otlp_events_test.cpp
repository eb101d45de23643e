// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/otlp_events.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/traces/torch_trace.h"
#include "tests/support/error_of.h"

/// Files of an OpenTelemetry collector with spans of Megatron-LM.
namespace pipetwin {
namespace otlp_events_test {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using namespace std::chrono_literals;

/// 2026-01-01 in nanoseconds.
constexpr std::int64_t year_2026 = 1'767'225'600'000'000'000;

/// A span of `length` microseconds at `begin`.
std::string span(std::string_view name,
                 std::int64_t begin,
                 std::int64_t length,
                 std::string_view attributes = "",
                 std::string_view id = "") {
    return fmt::format(
        R"({{"traceId":"aa","spanId":"{}","parentSpanId":"","name":"{}","kind":1,)"
        R"("startTimeUnixNano":"{}","endTimeUnixNano":"{}","attributes":[{}],"status":{{}}}})",
        id,
        name,
        year_2026 + 1000 * begin,
        year_2026 + 1000 * (begin + length),
        attributes);
}

std::string number(std::string_view key, int value) {
    return fmt::format(R"({{"key":"{}","value":{{"intValue":"{}"}}}})", key, value);
}

/// A line of a collector's file: spans of a rank of a pipeline of two, batch 4 of micro-batches
/// of 2.
std::string line(int rank, const std::vector<std::string>& spans, int world = 2) {
    return fmt::format(
        R"({{"resourceSpans":[{{"resource":{{"attributes":[)"
        R"({{"key":"service.name","value":{{"stringValue":"megatron-lm"}}}},{},{},{},{},{},{}]}},)"
        R"("scopeSpans":[{{"scope":{{"name":"nemo.lens"}},"spans":[{}]}}]}}]}})",
        number("dl.rank", rank),
        number("dl.world_size", world),
        number("dl.pipeline_parallel.size", 2),
        number("dl.data_parallel.size", world / 2),
        number("dl.batch_size", 4 * world / 2),
        number("megatron.micro_batch_size", 2),
        fmt::join(spans, ","));
}

std::string iteration(int count, std::int64_t begin, std::int64_t length) {
    return span("megatron.train.iteration", begin, length, number("megatron.iteration", count));
}

/// Two iterations of a rank with two micro-batches: F 10 us, B 20 us.
std::vector<std::string> two_iterations() {
    std::vector<std::string> spans;
    for (const std::int64_t begin : {0, 200}) {
        spans.push_back(span("megatron.p2p.recv_forward", begin, 10));
        spans.push_back(span("megatron.microbatch.forward", begin + 10, 10));
        spans.push_back(span("megatron.microbatch.backward", begin + 30, 20));
        spans.push_back(span("megatron.microbatch.forward", begin + 60, 10));
        spans.push_back(span("megatron.microbatch.backward", begin + 80, 20));
        spans.push_back(iteration(7 + static_cast<int>(begin) / 200, begin, 150));  // ends last
    }
    return spans;
}

std::vector<TraceEvents> parsed(const std::string& text) {
    return parse_otlp_events(text, "spans.jsonl", {});
}

TEST(OtlpEvents, ForwardsAndBackwardsOfMegatron) {
    const std::string text = line(1, two_iterations()) + "\n" + line(0, two_iterations()) + "\n";
    const std::vector<TraceEvents> ranks = parsed(text);
    ASSERT_THAT(ranks, SizeIs(2));
    for (int rank = 0; rank < 2; ++rank) {
        EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].rank, rank);
        const TorchTrace found = torch_trace(ranks[static_cast<std::size_t>(rank)], "spans.jsonl");
        EXPECT_EQ(found.pipeline_rank, rank);
        EXPECT_EQ(found.micro_batch_size, 2);
        EXPECT_THAT(found.stages.at(own_stage).forward, Each(10us));
        EXPECT_THAT(found.stages.at(own_stage).forward, SizeIs(4));
        EXPECT_THAT(found.stages.at(own_stage).backward, Each(20us));
        EXPECT_THAT(found.step_lengths, ElementsAre(150us, 150us));
        std::vector<std::string> order;
        for (std::size_t i = 0; i < 4; ++i) {
            order.push_back(fmt::format(
                "{}{}", op_text(found.spans[i].action.op), found.spans[i].action.micro_batch));
        }
        EXPECT_THAT(order, ElementsAre("F0", "B0", "F1", "B1"));
        EXPECT_EQ(found.steps.front(), 7);
        EXPECT_EQ(found.steps.back(), 8);
    }
}

/// Megatron numbers ranks so that those of a stage follow each other.
TEST(OtlpEvents, TheStageOfARankAmongReplicas) {
    std::string text;
    for (int rank = 0; rank < 4; ++rank) {
        text += line(rank, two_iterations(), 4) + "\n";
    }
    std::vector<int> places;
    for (const TraceEvents& rank : parsed(text)) {
        places.push_back(rank.pipeline_rank.value_or(-1));
    }
    EXPECT_THAT(places, ElementsAre(0, 0, 1, 1));
}

TEST(OtlpEvents, OneDocumentNumbersAsNumbersAndNamesOfActions) {
    const std::string text = R"({
  "resourceSpans": [ { "resource": {}, "instrumentationLibrarySpans": [ { "spans": [
    { "name": "PP:0F0", "startTimeUnixNano": 1767225600000000000,
      "endTimeUnixNano": 1767225600000010001 },
    { "name": "PP:0B0", "startTimeUnixNano": 1767225600000020000,
      "endTimeUnixNano": 1767225600000040000 } ] } ] } ] })";
    const TorchTrace found = torch_trace(parsed(text).front(), "x");
    EXPECT_THAT(found.stages.at(0).forward, ElementsAre(10'001ns));
    EXPECT_THAT(found.stages.at(0).backward, ElementsAre(20us));
}

/// Exporters send a batch again where they got no answer.
TEST(OtlpEvents, SpansThatComeTwiceCountOnceAndEvaluationsDoNot) {
    const std::string batch = line(0,
                                   {iteration(3, 0, 100),
                                    span("megatron.microbatch.forward", 1, 10, "", "f1"),
                                    span("megatron.microbatch.backward", 20, 20, "", "b1"),
                                    span("megatron.evaluate", 100, 100),
                                    span("megatron.microbatch.forward", 110, 77, "", "f2")});
    const TorchTrace found = torch_trace(parsed(batch + "\n" + batch).front(), "x");
    EXPECT_THAT(found.stages.at(own_stage).forward, ElementsAre(10us));
    EXPECT_THAT(found.stages.at(own_stage).backward, ElementsAre(20us));
}

/// Ids are those of one rank: a program may count them from 1 on each.
TEST(OtlpEvents, SpansOfTwoRanksMayHaveTheSameIds) {
    std::string text;
    for (int rank = 0; rank < 2; ++rank) {
        text += line(rank,
                     {iteration(3, 0, 100),
                      span("megatron.microbatch.forward", 1, 10, "", "f1"),
                      span("megatron.microbatch.backward", 20, 20, "", "b1")}) +
                "\n";
    }
    const std::vector<TraceEvents> ranks = parsed(text);
    ASSERT_THAT(ranks, SizeIs(2));
    EXPECT_THAT(ranks[1].ranges, SizeIs(2));
}

/// Megatron's iteration holds its step, the data and the logs.
TEST(OtlpEvents, AStepInsideOfItsIterationDoesNotCountAgain) {
    const std::vector<std::string> inside{
        span("megatron.train_step", 1, 90, number("megatron.iteration", 3)),
        span("megatron.microbatch.forward", 2, 10),
        span("megatron.microbatch.backward", 20, 20)};
    std::vector<std::string> both = inside;
    both.push_back(iteration(3, 0, 100));
    const TorchTrace found = torch_trace(parsed(line(0, both)).front(), "x");
    EXPECT_THAT(found.step_lengths, ElementsAre(100us));
    EXPECT_THAT(found.steps, Each(3));
    const TorchTrace alone = torch_trace(parsed(line(0, inside)).front(), "x");
    EXPECT_THAT(alone.step_lengths, ElementsAre(90us));
    EXPECT_THAT(alone.steps, Each(3));
}

TEST(OtlpEvents, ALastLineThatIsNotWholeIsLeftOut) {
    const std::string whole = line(0, two_iterations()) + "\n";
    const std::string more = line(1, two_iterations());
    const std::vector<TraceEvents> ranks = parsed(whole + more.substr(0, more.size() / 2));
    ASSERT_THAT(ranks, SizeIs(1));
    EXPECT_THAT(ranks.front().cut, HasSubstr("the file ends too early, at spans.jsonl:2:"));
    EXPECT_THAT(ranks.front().cut, HasSubstr("1 whole document before that counts"));
    const Error nothing = error_of([&] { parsed(more.substr(0, 99)); });
    EXPECT_EQ(nothing.text(), "the file ends here, before its first document is whole");
}

TEST(OtlpEvents, WhatCannotBeReadIsRefusedWithItsPlaceAndOneThingToDo) {
    const auto refusal = [](const std::string& text) {
        const Error error = error_of([&] { parsed(text); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_FALSE(error.hint().empty());
        return error;
    };
    const Error coarse = refusal(line(0, {iteration(1, 0, 10)}));
    EXPECT_THAT(coarse.text(), HasSubstr("1 span, none of a micro-batch"));
    EXPECT_THAT(coarse.hint(), HasSubstr("--otel-span-groups per_step,microbatch"));
    const std::string good = line(0, two_iterations()) + "\n";
    EXPECT_EQ(refusal(good + "{\"resourceSpans\": [}").place(), "spans.jsonl:2:20");
    EXPECT_EQ(refusal(good + "{\"resourceSpans\": [a]}").place(), "spans.jsonl:2:1");
    EXPECT_THAT(refusal(good + "x").text(), HasSubstr("expected a JSON object"));
    EXPECT_THAT(refusal(good + std::string(70, '[')).text(), HasSubstr("expected a JSON object"));
    EXPECT_THAT(refusal("{\"a\":" + std::string(70, '[')).text(),
                HasSubstr("nested deeper than 64"));
    const Error times = refusal(line(0, {span("megatron.microbatch.forward", 10, -5)}));
    EXPECT_THAT(times.text(), HasSubstr("has no startTimeUnixNano and endTimeUnixNano"));
}

/// Batch 4 in micro-batches of 2 are two forwards an iteration; with four, the rank has two stages.
TEST(OtlpEvents, SeveralStagesOfARankAreRefused) {
    std::vector<std::string> spans{iteration(1, 0, 1000)};
    for (int i = 0; i < 4; ++i) {
        spans.push_back(span("megatron.microbatch.forward", 10 + 20 * i, 10));
        spans.push_back(span("megatron.microbatch.backward", 500 + 30 * i, 20));
    }
    const Error error = error_of([&] { parsed(line(0, spans)); });
    EXPECT_THAT(error.text(),
                HasSubstr("rank 0 has more than 2 forwards of an iteration, its number of "
                          "micro-batches: it has several stages"));
    spans = {iteration(1, 0, 1000)};
    for (int i = 0; i < 3; ++i) {
        spans.push_back(span("megatron.microbatch.backward", 10 + 30 * i, 20));
    }
    EXPECT_THAT(error_of([&] { parsed(line(0, spans)); }).text(),
                HasSubstr("rank 0 has more than 2 backwards of an iteration"));
}

}  // namespace otlp_events_test
}  // namespace pipetwin
