// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cli/base/options.h"
#include "core/artifacts/chrome_trace.h"
#include "core/costs/profile_json.h"
#include "core/scenario/scenario.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/schedule_csv.h"
#include "core/schedule/torch_rows.h"
#include "tests/cli/interop/exchange_fixture.h"
#include "tests/support/builders.h"

namespace pipetwin::cli {
namespace exchange_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// past two stages.
constexpr std::string_view branching_scenario = R"toml([model]
kind = "layers"
input = 8
[[model.layer]]
type = "linear"
name = "first"
outputs = 8
[[model.layer]]
type = "linear"
name = "second"
outputs = 8
[[model.layer]]
type = "linear"
name = "third"
outputs = 8
[[model.layer]]
type = "add"
name = "sum"
inputs = ["third", "first"]
[[model.layer]]
type = "cross_entropy"
name = "loss"
[data]
kind = "synthetic"
[training]
batch = 4
[pipeline]
stages = 4
micro_batches = 4
schedule = "1f1b"
)toml";
constexpr std::string_view partition_of_branching = "pipeline.partition=[1, 1, 1, 2]";

std::size_t count(std::string_view text, std::string_view what) {
    std::size_t found = 0;
    for (auto at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) {
        ++found;
    }
    return found;
}

// --- Round trips. ---

std::vector<testing::ShapedSchedule> shaped_schedules() {
    return testing::every_schedule({1, 2, 4}, {1, 2}, {1, 4, 8});
}

TEST_F(Exchange, EveryScheduleSurvivesExportAndImport) {
    for (const auto& [kind, shape] : shaped_schedules()) {
        const Schedule compute = generate(kind, shape);
        const Schedule comms = add_reduction(add_communication(compute, RecomputeTiming::Eager));
        const std::string ours = file("ours.csv", print_schedule_csv(add_optimizer(comms)));
        if (kind == ScheduleKind::Chimera || kind == ScheduleKind::ForwardOnly) {
            continue;  // PyTorch loads neither
        }
        const std::string exported = written({"export", "torch-csv", ours});
        EXPECT_EQ(exported,
                  print_schedule_csv(torch_rows(comms).schedule, CsvContent::ComputeComms));
        EXPECT_EQ(written({"import", "torch-csv", file("torch.csv", exported)}), exported);
        EXPECT_EQ(written({"export", "torch-csv", path("torch.csv")}), exported);
        EXPECT_EQ(written({"export", "torch-csv", path("ours.csv"), "--compute-only"}),
                  print_schedule_csv(compute));
    }
}

// --- torch-csv. ---

/// An export of them, with messages or without, is one that PyTorch stops at.
TEST_F(Exchange, WhatPyTorchCannotLoadIsNotExportedForIt) {
    const std::string two_copies =
        file("two.csv",
             print_schedule_csv(generate(ScheduleKind::Chimera, {.ranks = 2, .micro_batches = 2})));
    const std::string forwards = file("forwards.csv", "0F0,0F1\n1F0,1F1\n");
    for (const std::string option : {"--compute-only", "--force"}) {
        const Outcome twice = refused({"export", "torch-csv", two_copies, option});
        EXPECT_EQ(twice.code, 4);
        EXPECT_THAT(twice.err, HasSubstr("no stages that share weights"));
        const Outcome untrained = refused({"export", "torch-csv", forwards, option});
        EXPECT_EQ(untrained.code, 4);
        EXPECT_THAT(untrained.err, HasSubstr("no backward"));
    }
}

/// PyTorch trained with such rows, and with wrong gradients.
TEST_F(Exchange, MessagesOfQueuesBetweenStagesAreRefusedFromPyTorchAndOrderedAnewForIt) {
    const ScheduleShape shape{.ranks = 2, .chunks = 2, .micro_batches = 3};
    const Schedule compute = generate(ScheduleKind::ZbV, shape);
    const std::string ours =
        file("ours.csv", print_schedule_csv(add_communication(compute, RecomputeTiming::Eager)));
    const Outcome import = refused({"import", "torch-csv", ours});
    EXPECT_EQ(import.code, 4);
    EXPECT_THAT(import.err, AllOf(HasSubstr("order mismatch"), HasSubstr("export torch-csv")));
    const std::string out = path("again.csv");
    const Outcome outcome = pipetwin({"export", "torch-csv", ours, "--out", out});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("the messages are in another order than in the source"));
    EXPECT_EQ(content_of(out),
              written({"export", "torch-csv", file("rows.csv", print_schedule_csv(compute))}));
    const Outcome of_stages = pipetwin({"check", ours});
    EXPECT_EQ(of_stages.code, 0);
    EXPECT_THAT(of_stages.err, HasSubstr("--one-queue-per-ranks shows where"));
    EXPECT_EQ(pipetwin({"check", ours, "--one-queue-per-ranks"}).code, 4);
    const Outcome checked = pipetwin({"check", out, "--one-queue-per-ranks", "--json"});
    EXPECT_EQ(checked.code, 0);
    EXPECT_EQ(checked.json().at("smallest_capacity"), 0);
}

TEST_F(Exchange, AnImportWithoutReductionsSaysThatPyTorchWouldNotDivideGradients) {
    const std::string csv = "0F0,0SEND_F0,0RECV_B0,0B0{}\n1RECV_F0,1F0,1B0,1SEND_B0{}\n";
    const auto said = [&](std::string_view first, std::string_view second) {
        return pipetwin({"import",
                         "torch-csv",
                         file("torch.csv", fmt::format(fmt::runtime(csv), first, second)),
                         "--force",
                         "--out",
                         path("ours.csv")})
            .err;
    };
    EXPECT_THAT(said("", ""), HasSubstr("REDUCE_GRAD"));
    EXPECT_THAT(said(",0REDUCE_GRAD", ""), HasSubstr("REDUCE_GRAD"));
    EXPECT_THAT(said(",0REDUCE_GRAD", ",1REDUCE_GRAD"), Not(HasSubstr("REDUCE_GRAD")));
}

TEST_F(Exchange, WhatARowForPyTorchCannotSayIsSaid) {
    const std::string scenario = file("gpt.toml", gpt_scenario);
    const auto said = [&](const std::string& setting) {
        return pipetwin({"export",
                         "torch-csv",
                         scenario,
                         "--set",
                         setting,
                         "--force",
                         "--out",
                         path("x.csv")})
            .err;
    };
    EXPECT_EQ(said("training.batch=4"), "");
    EXPECT_THAT(said("pipeline.recompute=always"), HasSubstr("torch.utils.checkpoint"));
    EXPECT_THAT(said("model.tied=true"), HasSubstr("a weight in common"));
    EXPECT_THAT(said("pipeline.deferred_weights=1"), HasSubstr("depends on costs"));
}

TEST_F(Exchange, AScenarioBecomesPyTorchsRowsWithoutAnyCosts) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string comms = written({"export", "torch-csv", scenario});
    EXPECT_THAT(comms, StartsWith("0F0,0SEND_F0,0F1,"));
    EXPECT_THAT(comms, Not(HasSubstr("R0")));  // gpipe recomputes, PyTorch has no word for it
    EXPECT_THAT(comms, Not(HasSubstr("OPT")));
    EXPECT_EQ(written({"export", "torch-csv", scenario, "--compute-only"}),
              "0F0,0F1,0F2,0F3,0B3,0B2,0B1,0B0\r\n1F0,1F1,1F2,1F3,1B3,1B2,1B1,1B0\r\n");
}

// Without costs such a model once counted as a chain: its rows lacked the messages that every run
// of it has. Stage 1 reads the first layer, too, and so hands it on to stage 3.
TEST_F(Exchange, TheRowsOfAScenarioWithBranchesHaveItsSkipMessages) {
    const std::string scenario = file("branches.toml", branching_scenario);
    const std::string set(partition_of_branching);
    const std::string picture = written({"export", "svg", scenario, "--set", set});
    EXPECT_THAT(picture, HasSubstr("unit costs"));
    for (int m = 0; m < 4; ++m) {
        for (const char* const message : {"1SEND_F{}&gt;3", "3SEND_B{}&gt;1"}) {
            const std::string name = fmt::format(fmt::runtime(message), m);
            EXPECT_EQ(count(picture, "<title>" + name + ": handed over at"), 1U) << name;
        }
    }
    EXPECT_EQ(count(picture, ": handed over at"), 8U);
    const std::string trace = written({"export", "chrome-trace", scenario, "--set", set});
    EXPECT_THAT(trace, HasSubstr("1SEND_F0>3"));
    const Outcome checked = pipetwin({"check", scenario, "--set", set, "--json"});
    EXPECT_EQ(checked.code, 0) << checked.err;
    EXPECT_EQ(checked.json().at("deadlock_free"), true);
    const Outcome torch = refused({"export", "torch-csv", scenario, "--set", set});
    EXPECT_EQ(torch.code, 3);
    EXPECT_THAT(torch.err, HasSubstr("stage 1 sends to stage 3, which is not the next one"));
    EXPECT_THAT(written({"export", "torch-csv", scenario, "--set", set, "--compute-only"}),
                StartsWith("0F0,0F1,0F2,0F3,0B0"));
}

TEST_F(Exchange, TheMessagesOfAnOpenPartitionAreThoseOfItsCostsOrOfEqualLayers) {
    const std::string scenario = file("branches.toml", branching_scenario);
    constexpr std::string_view assumed = "layers that cost the same";
    const std::string out = path("picture.svg");
    const Outcome open = pipetwin({"export", "svg", scenario, "--out", out});
    EXPECT_EQ(open.code, 0) << open.err;
    EXPECT_THAT(open.err, HasSubstr(std::string(assumed)));
    EXPECT_EQ(content_of(out),
              written({"export", "svg", scenario, "--set", std::string(partition_of_branching)}));
    EXPECT_THAT(pipetwin({"check", scenario}).err, HasSubstr(std::string(assumed)));
    const std::string costs = file("costs.csv",
                                   "name,forward_ms,backward_ms,output_bytes,saved_bytes,"
                                   "parameter_bytes,inputs\n"
                                   "first,1,2,64,64,64,\n"
                                   "second,1,2,64,64,64,\n"
                                   "third,1,2,64,64,64,\n"
                                   "sum,1,1,64,64,0,third;first\n"
                                   "loss,0,1,0,64,0,\n");
    const Outcome known =
        pipetwin({"export", "svg", scenario, "--profile", costs, "--force", "--out", out});
    EXPECT_EQ(known.code, 0) << known.err;
    EXPECT_THAT(known.err, Not(HasSubstr(std::string(assumed))));
}

TEST_F(Exchange, TheOldDialectIsImportedInOurWords) {
    const std::string old = file("old.csv", "0F0,0F1,0B0,0W0,0BW1\n");
    EXPECT_EQ(written({"import", "torch-csv", old}), "0F0,0F1,0I0,0W0,0B1\r\n");
}

TEST_F(Exchange, ImportRefusesWhatCheckRefuses) {
    const Outcome incomplete =
        refused({"import", "torch-csv", file("odd.csv", "0F0,0F1,0B0\n1F0,1F1,1B1,1B0\n")});
    EXPECT_EQ(incomplete.code, 4);
    EXPECT_THAT(incomplete.err, HasSubstr("0B1"));
    const Outcome grammar = refused({"import", "torch-csv", file("bad.csv", "0F0,0Q0\n")});
    EXPECT_EQ(grammar.code, 3);
    EXPECT_THAT(grammar.err, HasSubstr("bad.csv:1:6"));
}

TEST_F(Exchange, ImportListsEveryBrokenRule) {
    std::string rows;  // every backward before its forward: 12 on each of 2 ranks
    for (const int stage : {0, 1}) {
        for (int k = 0; k < 12; ++k) {
            rows += fmt::format("{0}B{1},{0}F{1}{2}", stage, k, k < 11 ? "," : "\n");
        }
    }
    const Outcome outcome = refused({"import", "torch-csv", file("turned.csv", rows)});
    EXPECT_EQ(outcome.code, 4);
    for (const int rank : {0, 1}) {
        for (int k = 0; k < 12; ++k) {
            EXPECT_THAT(outcome.err, HasSubstr(fmt::format("rank {}, cell {}: ", rank, 2 * k)));
        }
    }
}

/// 10^9 columns through a pipe: they are made as they are read, and refused long before the end.
TEST_F(Exchange, AThousandMillionColumnsAreRefusedWithLineAndCell) {
    class Columns : public std::streambuf {
        int_type underflow() override {
            parts_ += 1;
            if (parts_ > 1'000'000'000 / std::ssize(part_)) {
                return traits_type::eof();
            }
            setg(part_.data(), part_.data(), part_.data() + part_.size());
            return traits_type::to_int_type(part_.front());
        }
        std::string part_ = std::string(std::size_t{1} << 16, ',');
        std::int64_t parts_ = 0;
    } columns;
    std::streambuf* const before = std::cin.rdbuf(&columns);
    const Outcome outcome = refused({"import", "torch-csv", "-"});
    std::cin.rdbuf(before);
    std::cin.clear();
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                HasSubstr("standard input:1:64000002: the file has more than 64000000 cells"));
}

// --- csv. ---

TEST_F(Exchange, AProfileByHandBecomesAProfile) {
    const std::string costs = file("costs.csv",
                                   "name,forward_ms,backward_ms,output_bytes,saved_bytes,"
                                   "parameter_bytes\na,1.5,3,100,200,400\nb,0.25,0.5,0,10,0\n");
    const Profile profile = parse_profile(written({"import", "csv", costs}), "written");
    EXPECT_EQ(profile, read_profile(costs));
    const Outcome outcome =
        pipetwin({"import", "csv", costs, "--json", "--out", path("costs.profile.json")});
    EXPECT_EQ(outcome.json().at("layers"), 2);
    EXPECT_TRUE(outcome.json().at("ranks").is_null());
    const Outcome bad = refused({"import", "csv", file("bad.csv", "name,forward\n")});
    EXPECT_EQ(bad.code, 3);
    EXPECT_THAT(bad.err, HasSubstr("bad.csv:1"));
}

// --- Pictures and traces. ---

TEST_F(Exchange, APictureNeedsNoCosts) {
    const std::string out = path("small.svg");
    const Outcome outcome =
        pipetwin({"export", "svg", file("small.toml", small_scenario), "--out", out});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("unit costs"), HasSubstr("pipetwin profile")));
    EXPECT_EQ(outcome.out, out + ": 2 ranks, 2 stages, 4 micro-batches\n");
    EXPECT_THAT(
        content_of(out),
        AllOf(StartsWith("<svg"), HasSubstr("gpipe, 2 ranks, 4 micro-batches, unit costs")));
}

TEST_F(Exchange, APictureTakesTheCostsThatItIsGiven) {
    const std::string out = path("small.svg");
    const Outcome outcome = pipetwin({"export",
                                      "svg",
                                      file("small.toml", small_scenario),
                                      "--profile",
                                      file("costs.csv", small_profile),
                                      "--json",
                                      "--out",
                                      out});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto result = outcome.json();
    EXPECT_EQ(result["format"], "svg");
    EXPECT_EQ(result["source"], path("small.toml"));
    EXPECT_EQ(result["file"], out);
    EXPECT_EQ(result["ranks"], 2);
    EXPECT_EQ(result["stages"], 2);
    EXPECT_EQ(result["micro_batches"], 4);
    EXPECT_EQ(result["costs"], path("costs.csv"));
    EXPECT_THAT(content_of(out), Not(HasSubstr("unit costs")));
}

TEST_F(Exchange, EveryScheduleCanBeDrawn) {
    for (const auto& [kind, shape] : shaped_schedules()) {
        const std::string csv = file("x.csv", print_schedule_csv(generate(kind, shape)));
        EXPECT_THAT(written({"export", "svg", csv}), HasSubstr("x.csv, ")) << to_string(kind);
    }
}

TEST_F(Exchange, APictureTellsTheStagesOfARankApart) {
    const std::string scenario = file("gpt.toml", gpt_scenario);
    EXPECT_THAT(written({"export", "svg", scenario}), HasSubstr("second stage of the rank"));
}

/// With F = I = W = 1 and B = 2, GPipe on two ranks with four micro-batches takes (2 + 4 - 1) * 3.
TEST_F(Exchange, UnitCostsAreOneMillisecondAndTwoForAWholeBackward) {
    const Schedule gpipe = generate(ScheduleKind::GPipe, {.ranks = 2, .micro_batches = 4});
    const std::string text =
        written({"export", "chrome-trace", file("gpipe.csv", print_schedule_csv(gpipe))});
    const Trace trace = parse_chrome_trace(text, "x.json");
    EXPECT_EQ(pipeline_time(trace.timelines.steps.front()), std::chrono::milliseconds(15));
}

TEST_F(Exchange, ARunFolderIsExportedAsItWasPredicted) {
    const std::string run = path("run");
    ASSERT_EQ(pipetwin({"simulate",
                        file("small.toml", small_scenario),
                        "--profile",
                        file("costs.csv", small_profile),
                        "--out",
                        run})
                  .code,
              0);
    const std::filesystem::path folder(run);
    EXPECT_EQ(written({"export", "chrome-trace", run}),
              content_of(folder / "predicted.trace.json"));
    EXPECT_EQ(
        written({"export", "torch-csv", run}),
        print_schedule_csv(torch_rows(compute_only(parse_schedule_csv(
                                          content_of(folder / "schedule.csv"), "schedule.csv")))
                               .schedule,
                           CsvContent::ComputeComms));
    EXPECT_THAT(written({"export", "svg", run}), HasSubstr("gpipe, 2 ranks, 4 micro-batches"));
}

// --- megatron. ---

TEST_F(Exchange, ThePlanOfAScenarioIsThatOfItsRun) {
    const std::string scenario = file("small.toml", small_scenario);
    const std::string costs = file("costs.csv", small_profile);
    const std::string run = path("run");
    ASSERT_EQ(pipetwin({"simulate", scenario, "--profile", costs, "--out", run}).code, 0);
    const std::string plan = content_of(std::filesystem::path(run) / "plan.json");
    EXPECT_EQ(written({"export", "json", run}), plan);
    EXPECT_EQ(written({"export", "json", scenario, "--profile", costs}), plan);
    EXPECT_EQ(refused({"export", "json", file("x.csv", "0F0,0B0\n")}).code, 4);
}

// --- What both commands refuse. ---

TEST_F(Exchange, UnknownFormatsNameTheNearestAndWhatThereIs) {
    const std::string csv = file("x.csv", "0F0,0B0\n");
    const Outcome misspelt = refused({"export", "torch-cvs", csv});
    EXPECT_EQ(misspelt.code, 2);
    EXPECT_EQ(
        misspelt.err,
        "error: 'torch-cvs' is not a format that can be exported; known: torch-csv, "
        "chrome-trace, megatron-layout, megatron-flags, torchtitan, torchtitan-toml, "
        "torchtitan-python, bridge, automodel, deepspeed, sbatch, kubernetes, json, svg, pdf, "
        "png, hf\n"
        "hint: did you mean 'torch-csv'?\n");
    EXPECT_THAT(refused({"export", "megatron", csv}).err,
                HasSubstr("did you mean 'megatron-layout'?"));
    const Outcome strange = refused({"import", "visio", csv});
    EXPECT_EQ(strange.code, 2);
    EXPECT_THAT(strange.err, HasSubstr("known: torch-csv, megatron"));
}

TEST_F(Exchange, WhatIsThereIsKeptUnlessForced) {
    const std::string csv = file("x.csv", "0F0,0B0\n");
    const std::string out = file("there.csv", "mine");
    const Outcome kept = pipetwin({"export", "torch-csv", csv, "--out", out});
    EXPECT_EQ(kept.code, 6);
    EXPECT_THAT(kept.err, AllOf(HasSubstr(out), HasSubstr("--force")));
    EXPECT_EQ(content_of(out), "mine");
    EXPECT_EQ(pipetwin({"import", "torch-csv", csv, "--out", out}).code, 6);
    EXPECT_EQ(pipetwin({"export", "torch-csv", csv, "--out", out, "--force"}).code, 0);
    EXPECT_EQ(content_of(out), "0F0,0B0,0REDUCE_GRAD\r\n");
    EXPECT_EQ(pipetwin({"export", "torch-csv", csv, "--out", folder().string(), "--force"}).code,
              6);
}

TEST_F(Exchange, MisusedOptionsAreUsageErrors) {
    const std::string csv = file("x.csv", "0F0,0B0\n");
    EXPECT_EQ(pipetwin({"export", "svg", csv}).code, 2);  // no --out
    EXPECT_EQ(refused({"export", "svg"}).code, 2);
    EXPECT_EQ(refused({"export", "svg", csv, "--compute-only"}).code, 2);
    EXPECT_EQ(refused({"export", "svg", csv, "--set", "pipeline.stages=2"}).code, 2);
    EXPECT_EQ(refused({"export", "svg", csv, "--profile", "x.csv"}).code, 2);
    EXPECT_EQ(refused({"import", "torch-csv", csv, "--chunks", "2"}).code, 2);
    EXPECT_EQ(refused({"export", "svg", path("missing.csv")}).code, 6);
}

}  // namespace exchange_test
}  // namespace pipetwin::cli
