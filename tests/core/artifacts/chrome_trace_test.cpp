// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/chrome_trace.h"

#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "tests/support/error_of.h"
#include "tests/support/plain_plan.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin {
namespace chrome_trace_test {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two steps of a plan with two stages: times are made up, with nanoseconds that microseconds alone
/// would lose.
Trace example() {
    PlainCosts costs = testing::plain(ScheduleKind::OneFOneB, 2, 3);
    costs.recompute = Recompute::Always;
    const Plan plan = make_plan(costs);
    Trace trace;
    trace.plan_hash = plan.hash();
    trace.schedule_name = "1f1b";
    trace.schedule = plan->schedule;
    trace.channel_capacity = 2;
    trace.samples = 48;
    for (int step = 0; step < 2; ++step) {
        Timeline& timeline = trace.timelines.steps.emplace_back();
        timeline.origin = Origin::Emulated;
        std::int64_t time = 7 * step;
        for (const auto& row : plan->schedule.ranks) {
            auto& spans = timeline.ranks.emplace_back();
            for (const Action& action : row) {
                const Duration begin{time += 1'001};
                const bool waits = is_send(action.op) || is_receive(action.op);
                const Duration ready = waits ? begin + Duration{333} : begin;
                spans.push_back(
                    {.action = action, .begin = begin, .ready = ready, .end = ready + Duration{1}});
            }
        }
    }
    Timeline& first = trace.timelines.steps.front();
    first.links.resize(2);
    for (const Span& span : first.ranks[0]) {
        if (span.action.op == Op::SendForward) {
            first.links[0].push_back({.action = span.action,
                                      .begin = span.end,
                                      .ready = span.end + Duration{5},
                                      .end = span.end + Duration{1'999}});
        }
    }
    trace.timelines.peak_bytes = {Bytes{123}, Bytes{456}};
    trace.timelines.breakdown = Breakdown{.forward = Duration{11}, .overhead = Duration{17}};
    trace.timelines.replayed_step = Duration{29};
    for (std::size_t step = 0; step < trace.timelines.steps.size(); ++step) {
        trace.timelines.numbers.push_back(static_cast<int>(3 * step + 2));
    }
    trace.timelines.noise = {
        .stolen_percent = 0.123456789, .p90_over_p10 = 1.07, .dropped_steps = 3, .steps = 29};
    trace.memory.resize(2);
    MemoryPoint point{.time = Duration{1'234'567}, .use = {}};
    point.use[MemoryKind::Stash] = Bytes{99};
    trace.memory[1] = {point};
    return trace;
}

void expect_equal(const Trace& a, const Trace& b) {
    EXPECT_EQ(a.plan_hash, b.plan_hash);
    EXPECT_EQ(a.schedule_name, b.schedule_name);
    EXPECT_EQ(a.schedule, b.schedule);
    EXPECT_EQ(a.channel_capacity, b.channel_capacity);
    EXPECT_EQ(a.samples, b.samples);
    EXPECT_EQ(a.timelines.steps, b.timelines.steps);
    EXPECT_EQ(a.timelines.numbers, b.timelines.numbers);
    EXPECT_EQ(a.timelines.peak_bytes, b.timelines.peak_bytes);
    EXPECT_EQ(a.timelines.replayed_step, b.timelines.replayed_step);
    ASSERT_EQ(a.timelines.breakdown.has_value(), b.timelines.breakdown.has_value());
    if (a.timelines.breakdown) {
        EXPECT_EQ(a.timelines.breakdown->forward, b.timelines.breakdown->forward);
        EXPECT_EQ(a.timelines.breakdown->overhead, b.timelines.breakdown->overhead);
    }
    EXPECT_EQ(a.timelines.noise.stolen_percent, b.timelines.noise.stolen_percent);
    EXPECT_EQ(a.timelines.noise.p90_over_p10, b.timelines.noise.p90_over_p10);
    EXPECT_EQ(a.timelines.noise.dropped_steps, b.timelines.noise.dropped_steps);
    EXPECT_EQ(a.timelines.noise.steps, b.timelines.noise.steps);
    ASSERT_EQ(a.memory.size(), b.memory.size());
    for (std::size_t rank = 0; rank < a.memory.size(); ++rank) {
        ASSERT_EQ(a.memory[rank].size(), b.memory[rank].size());
        for (std::size_t i = 0; i < a.memory[rank].size(); ++i) {
            EXPECT_EQ(a.memory[rank][i].time, b.memory[rank][i].time);
            EXPECT_EQ(a.memory[rank][i].use, b.memory[rank][i].use);
        }
    }
}

/// The example as JSON, to be damaged.
json document() {
    return json::parse(print_chrome_trace(example()));
}

std::size_t first_slice(const json& document) {
    const json& events = document["traceEvents"];
    std::size_t index = 0;
    while (events[index]["ph"] != "X") {
        ++index;
    }
    return index;
}

void expect_refused(const json& document, const std::string& text) {
    const Error error =
        testing::error_of([&] { parse_chrome_trace(document.dump(), "x.trace.json"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.what(), HasSubstr(text));
}

TEST(ChromeTrace, WhatIsPrintedIsReadBackToTheNanosecond) {
    expect_equal(parse_chrome_trace(print_chrome_trace(example()), "x"), example());
}

TEST(ChromeTrace, CopiesOfStashesAndWaitsForThemAreReadBack) {
    Trace trace = example();
    Timeline& step = trace.timelines.steps.front();
    const auto at = [](const Action& action, int begin) {
        return Span{action, Duration{begin}, Duration{begin + 5}, Duration{begin + 12}};
    };
    step.host_copies.resize(4);
    for (const Span& span : step.ranks[0]) {
        if (span.action.op == Op::Forward) {
            step.host_copies[0].push_back(at(span.action, 17 * (span.action.micro_batch + 1)));
        } else if (span.action.op == Op::Recompute) {
            step.host_copies[1].push_back(at(span.action, 170 + 17 * span.action.micro_batch));
        }
    }
    step.ranks[0].back().ready += Duration{1};
    ASSERT_EQ(step.host_copies[1].size(), 3U);
    const std::string text = print_chrome_trace(trace);
    EXPECT_THAT(text, HasSubstr("\"copy in\""));
    expect_equal(parse_chrome_trace(text, "x"), trace);
}

/// Its example with two more replicas, whose actions come later.
Trace replicated() {
    Trace trace = example();
    for (Timeline& step : trace.timelines.steps) {
        step.replicas.assign(2, step.ranks);
        for (auto& row : step.replicas[1]) {
            for (Span& span : row) {
                span.begin += Duration{17};
                span.ready += Duration{17};
                span.end += Duration{17};
            }
        }
    }
    return trace;
}

TEST(ChromeTrace, TimesInGroupsAreReadBack) {
    Trace trace = replicated();
    Timeline& step = trace.timelines.steps.front();
    for (std::size_t cell = 0; cell < step.ranks[1].size(); ++cell) {
        const bool computes = is_compute(step.ranks[1][cell].action.op);
        note_in_groups(step, 1, cell, Duration{computes ? 1234 + static_cast<int>(cell) : 0});
    }
    const std::string text = print_chrome_trace(trace);
    EXPECT_THAT(text, HasSubstr("\"groups_us\":1.23"));
    const Trace found = parse_chrome_trace(text, "x");
    expect_equal(found, trace);
    EXPECT_EQ(found.timelines.steps.front().in_groups, step.in_groups);
}

TEST(ChromeTrace, RowsOfReplicasAreReadBack) {
    const Trace trace = replicated();
    const std::string text = print_chrome_trace(trace);
    expect_equal(parse_chrome_trace(text, "x"), trace);
    const tests::ScratchFolder folder;
    expect_equal(read_chrome_trace_so_far(folder.write("x.trace.json", text)).trace, trace);
    const json events = json::parse(text)["traceEvents"];
    std::set<std::string> names;
    std::map<std::pair<std::string, int>, int> arrows;  // of phase and id
    for (const json& event : events) {
        if (event["name"] == "process_name") {
            names.insert(event["args"]["name"]);
        }
        if (event["name"] == "message") {
            ++arrows[{event["ph"], event["id"]}];
        }
    }
    EXPECT_THAT(names,
                ElementsAre("rank 0",
                            "rank 1",
                            "replica 1, rank 0",
                            "replica 1, rank 1",
                            "replica 2, rank 0",
                            "replica 2, rank 1"));
    for (const auto& [arrow, count] : arrows) {
        EXPECT_EQ(count, 1) << arrow.first << arrow.second;
    }
    json less = json::parse(text);
    less["pipetwin"]["replicas"] = 2;
    expect_refused(less, "/pid");
    less["pipetwin"]["replicas"] = 4;
    expect_refused(less, "replica 3, rank 0, cell 0 is missing");
    less["pipetwin"]["replicas"] = 70'000;
    expect_refused(less, "/pipetwin/replicas");
    less["pipetwin"]["replicas"] = 0;
    expect_refused(less, "/pipetwin/replicas");
}

TEST(ChromeTrace, WhatHasNoMeaningIsReadBackAsNothing) {
    Trace trace = example();
    trace.channel_capacity.reset();
    trace.samples.reset();
    trace.timelines.breakdown.reset();
    trace.timelines.replayed_step.reset();
    trace.timelines.peak_bytes.clear();
    trace.timelines.numbers.clear();
    trace.timelines.steps.pop_back();
    trace.timelines.steps[0].links.clear();
    trace.memory.clear();
    expect_equal(parse_chrome_trace(print_chrome_trace(trace), "x"), trace);
}

TEST(ChromeTrace, SlicesAreNamedAsTorchNamesThem) {
    const json trace = document();
    const json& slice = trace["traceEvents"][first_slice(trace)];
    EXPECT_EQ(slice["name"], "PP:0F0");
    EXPECT_EQ(slice["pid"], 0);
    EXPECT_EQ(slice["tid"], 0);
    EXPECT_EQ(slice["ts"], 1.001);
    EXPECT_EQ(slice["dur"], 0.001);
    EXPECT_EQ(slice["args"]["step"], 0);
}

TEST(ChromeTrace, EverySendHasAnArrowToItsReceive) {
    const json trace = document();
    std::map<std::int64_t, std::string> starts;
    std::size_t ends = 0;
    for (const json& event : trace["traceEvents"]) {
        if (event["ph"] == "s") {
            EXPECT_EQ(event["tid"], 1);
            EXPECT_TRUE(starts.emplace(event["id"].get<std::int64_t>(), "").second);
        }
    }
    for (const json& event : trace["traceEvents"]) {
        if (event["ph"] == "f") {
            EXPECT_EQ(event["tid"], 2);
            EXPECT_EQ(starts.count(event["id"].get<std::int64_t>()), 1U);
            ++ends;
        }
    }
    EXPECT_EQ(ends, starts.size());
    EXPECT_EQ(ends, 12U);  // 2 steps, 3 micro-batches, 2 directions
}

TEST(ChromeTrace, StepsFollowEachOther) {
    const json trace = document();
    double last_of_first = 0;
    double first_of_second = 1e9;
    for (const json& event : trace["traceEvents"]) {
        if (event["ph"] != "X" || event["tid"] == 3) {
            continue;
        }
        const double begin = event["ts"];
        const double end = begin + event["dur"].get<double>();
        if (event["args"]["step"] == 0) {
            last_of_first = std::max(last_of_first, end);
        } else {
            first_of_second = std::min(first_of_second, begin);
        }
    }
    EXPECT_LE(last_of_first, first_of_second);
}

TEST(ChromeTrace, MetadataTellsThePlan) {
    const json metadata = document()["pipetwin"];
    EXPECT_EQ(metadata["schema_version"], 1);
    EXPECT_EQ(metadata["origin"], "emulated");
    EXPECT_EQ(metadata["plan_hash"], example().plan_hash);
    EXPECT_EQ(metadata["channel_capacity"], 2);
    EXPECT_EQ(metadata["peak_bytes"], json({123, 456}));
    EXPECT_EQ(metadata["breakdown_ns"]["overhead"], 17);
}

TEST(ChromeTrace, AForeignTraceIsRefusedSayingWhatToDo) {
    expect_refused(json{{"traceEvents", json::array()}},
                   "hint: 'pipetwin run', 'train' and 'simulate' write such");
}

TEST(ChromeTrace, AMissingActionIsRefusedByItsPlace) {
    json damaged = document();
    damaged["traceEvents"].erase(first_slice(damaged));
    expect_refused(damaged, "0F0 of step 0, rank 0, cell 0 is missing");
}

TEST(ChromeTrace, ADoubledActionIsRefused) {
    json damaged = document();
    const json again = damaged["traceEvents"][first_slice(damaged)];
    damaged["traceEvents"].push_back(again);
    expect_refused(damaged, "expected each cell once per step");
}

TEST(ChromeTrace, BrokenFieldsAreRefusedWithTheirPointer) {
    const std::size_t index = first_slice(document());
    const std::string pointer = "x.trace.json: /traceEvents/" + std::to_string(index);
    const auto with = [index](const char* key, const json& value) {
        json damaged = document();
        damaged["traceEvents"][index][key] = value;
        return damaged;
    };
    expect_refused(with("ph", "Q"), pointer + "/ph: \"Q\", expected X, C, M, s or f");
    expect_refused(with("name", "PP:9F9"), pointer + "/name: \"PP:9F9\", expected PP:0F0");
    expect_refused(with("pid", 2), pointer + "/pid: 2, expected a number below 2");
    expect_refused(with("tid", 1), pointer + "/tid: 1, expected 0");
    expect_refused(with("ts", -1), pointer + "/ts");
    expect_refused(with("ts", 1e300), pointer + "/ts");
    expect_refused(with("dur", "long"), pointer + "/dur");
    expect_refused(with("args", {{"step", 2}, {"cell", 0}}), pointer + "/args/step: 2");
    expect_refused(with("args", {{"step", 0}, {"cell", 99}}), pointer + "/args/cell: 99");
    expect_refused(with("colour", "red"), pointer + "/colour: unknown key");
}

TEST(ChromeTrace, BrokenMetadataIsRefusedWithItsPointer) {
    const auto with = [](const char* key, const json& value) {
        json damaged = document();
        damaged["pipetwin"][key] = value;
        return damaged;
    };
    expect_refused(with("schema_version", 2), "/pipetwin/schema_version: 2, expected 1");
    expect_refused(with("origin", "guessed"), "expected predicted, measured or emulated");
    expect_refused(with("rows", "0F0,1F0,0B0\r\n"), "/pipetwin/rows");
    expect_refused(with("rows", "0SEND_B0\r\n"), "/pipetwin/rows");
    expect_refused(with("step_begins_ns", json::array()), "expected at least one step");
    expect_refused(with("step_numbers", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "as step_begins_ns has");
    expect_refused(with("step_numbers", {3, 3}), "expected ascending numbers below 2^31");
    expect_refused(with("peak_bytes", {1, "x"}), "/pipetwin/peak_bytes/1");
    expect_refused(with("noise", 3), "/pipetwin/noise");
    expect_refused(with("channel_capacity", -1), "/pipetwin/channel_capacity");
}

TEST(ChromeTrace, TextCutAnywhereIsRefused) {
    const std::string text = print_chrome_trace(example());
    for (std::size_t length = 0; length + 2 < text.size(); length += 397) {
        EXPECT_THROW(parse_chrome_trace(std::string_view(text).substr(0, length), "x"), Error)
            << length;
    }
}

TEST(ChromeTrace, IsReadFromAFile) {
    const tests::ScratchFolder folder;
    const std::filesystem::path file = folder.write("example.json", print_chrome_trace(example()));
    expect_equal(read_chrome_trace(file), example());
    std::filesystem::remove(file);
    EXPECT_THROW(read_chrome_trace(file), Error);
}

TraceSoFar so_far(const std::string& text) {
    const tests::ScratchFolder folder;
    return read_chrome_trace_so_far(folder.write("x.json", text));
}

TEST(ChromeTrace, IsReadInEveryLayout) {
    for (const int indent : {-1, 0, 1, 4}) {
        expect_equal(parse_chrome_trace(document().dump(indent), "x"), example());
        const TraceSoFar read = so_far(document().dump(indent));
        EXPECT_FALSE(read.ended_at);
        EXPECT_EQ(read.problem, "");
        expect_equal(read.trace, example());
    }
}

TEST(ChromeTrace, OfManyMegabytesIsReadInEveryLayout) {
    Trace trace = example();
    while (trace.timelines.steps.size() < 1000) {
        trace.timelines.steps.push_back(trace.timelines.steps[1]);
        trace.timelines.numbers.push_back(trace.timelines.numbers.back() + 1);
    }
    const std::string text = print_chrome_trace(trace);
    ASSERT_GT(text.size(), std::size_t{4'000'000});
    expect_equal(parse_chrome_trace(text, "x"), trace);
    std::string one_line;
    for (const char c : text) {
        one_line += c == '\n' ? "" : std::string(1, c);
    }
    expect_equal(parse_chrome_trace(one_line, "x"), trace);
}

TEST(ChromeTrace, OfWhichTheEndIsMissingGivesTheWholeStepsBeforeTheByte) {
    const std::string text = print_chrome_trace(example());
    const std::size_t second = text.find("\"step\":1");
    const std::size_t third_event = text.find("\n{", text.find("\n{", second) + 1);
    const TraceSoFar cut = so_far(text.substr(0, third_event + 10));
    ASSERT_EQ(cut.trace.timelines.steps.size(), 1U);
    EXPECT_EQ(cut.trace.timelines.steps[0].ranks, example().timelines.steps[0].ranks);
    EXPECT_THAT(cut.trace.timelines.numbers, ::testing::ElementsAre(2));
    EXPECT_THAT(cut.trace.memory, ::testing::IsEmpty());
    EXPECT_EQ(cut.trace.plan_hash, example().plan_hash);
    EXPECT_EQ(cut.ended_at, third_event + 1);
    EXPECT_THAT(cut.problem, HasSubstr("only 1 of 2 steps can be shown"));
    EXPECT_THAT(cut.problem,
                HasSubstr("byte " + std::to_string(third_event + 1) + " of " +
                          std::to_string(third_event + 10)));
}

/// A trace that is cut short behind its last step shows all steps, and must not be said to show
/// only some.
TEST(ChromeTrace, OfWhichOnlyWhatFollowsTheStepsIsMissingGivesThemAll) {
    const std::string text = print_chrome_trace(example());
    const std::size_t last_action = text.rfind("\"ph\":\"X\"");
    const std::size_t end = text.find("},\n{", last_action) + 1;
    const TraceSoFar cut = so_far(text.substr(0, end));
    EXPECT_EQ(cut.trace.timelines.steps.size(), example().timelines.steps.size());
    EXPECT_THAT(cut.problem,
                HasSubstr("the file is cut short or damaged at byte " + std::to_string(end) +
                          " of " + std::to_string(end) + " ("));
    EXPECT_TRUE(cut.problem.ends_with("); the 2 steps before it are shown")) << cut.problem;
    EXPECT_THAT(cut.problem, Not(HasSubstr("only")));
}

TEST(ChromeTrace, WithABrokenEventGivesTheWholeStepsBeforeIt) {
    json damaged = document();
    std::size_t index = damaged["traceEvents"].size() - 1;
    while (damaged["traceEvents"][index]["ph"] != "X") {
        --index;
    }
    damaged["traceEvents"][index]["ts"] = -1;
    const TraceSoFar read = so_far(damaged.dump());
    EXPECT_EQ(read.trace.timelines.steps.size(), 1U);
    ASSERT_TRUE(read.ended_at);
    EXPECT_EQ(damaged.dump().substr(*read.ended_at, 1), "{");
    EXPECT_THAT(damaged.dump().substr(*read.ended_at, 200), HasSubstr("\"ts\":-1"));
}

TEST(ChromeTrace, WithoutItsMetadataGivesNothing) {
    const std::string text = print_chrome_trace(example());
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{100}}) {
        EXPECT_THROW(so_far(text.substr(0, size)), Error);
    }
    EXPECT_THROW(so_far(std::string(1000, '[')), Error);
    EXPECT_THROW(so_far(std::string(100'000, '{')), Error);
}

/// A few bytes of a file could ask for rows without end.
TEST(ChromeTrace, WithMoreStepsThanItsBytesCanHoldIsRefused) {
    json damaged = document();
    damaged["pipetwin"]["step_begins_ns"] = std::vector<int>(100'000, 0);
    damaged["pipetwin"].erase("step_numbers");
    expect_refused(damaged, "cannot hold");
    EXPECT_EQ(so_far(damaged.dump()).trace.timelines.steps.size(), 2U);
}

/// Texts with one to three bytes changed, or cut: whatever they are, the strict reader decides.
class DamagedTrace : public ::testing::Test {
  protected:
    static std::string damaged(std::string text, std::mt19937& random) {
        const auto below = [&](std::size_t count) { return random() % count; };
        for (std::size_t i = below(3); i < 3; ++i) {
            constexpr std::string_view bytes = "0123456789{}[],:\"\\-.eE nul\n\x80\xff";
            text[below(text.size())] = bytes[below(bytes.size())];
        }
        return below(3) == 0 ? text.substr(0, below(text.size())) : text;
    }
};

TEST_F(DamagedTrace, GivesItsStepsOrAnError) {
    std::mt19937 random(20);  // NOLINT(cert-msc51-cpp): the same every time
    const std::string whole = print_chrome_trace(example());
    const tests::ScratchFolder folder;
    int with_steps = 0;
    for (int i = 0; i < 1000; ++i) {
        const std::string text = damaged(whole, random);
        const std::filesystem::path file = folder.write("x.json", text);
        try {
            const TraceSoFar read = read_chrome_trace_so_far(file);
            EXPECT_EQ(read.ended_at.has_value(), !read.problem.empty());
            for (const Timeline& step : read.trace.timelines.steps) {
                ASSERT_EQ(step.ranks.size(), read.trace.schedule.ranks.size());
                for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
                    ASSERT_EQ(step.ranks[rank].size(), read.trace.schedule.ranks[rank].size());
                }
            }
            with_steps += read.trace.timelines.steps.empty() ? 0 : 1;
        } catch (const Error& error) {
            EXPECT_NE(error.text(), "");
        }
    }
    EXPECT_GT(with_steps, 100);
}

}  // namespace chrome_trace_test
}  // namespace pipetwin
