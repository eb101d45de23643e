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
#include "tests/cli/support.h"
#include "tests/support/builders.h"

namespace pipetwin::cli {
namespace exchange_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Whole blocks of a gpt on two ranks; nothing of it is ever computed.
constexpr std::string_view gpt_scenario = R"toml([model]
kind = "gpt"
layers = 6
d_model = 16
heads = 2
context = 8
vocabulary = 32
[training]
batch = 8
[pipeline]
stages = 2
chunks = 2
micro_batches = 4
schedule = "interleaved-1f1b"
partition = [2, 1, 2, 1]
)toml";

/// Four layers, one a stage where the partition is written; the last one reads the first one, too,
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

class Exchange : public InFolder {
  protected:
    /// The content that `args` and "--out FILE" write.
    std::string written(std::vector<std::string> args) const {
        const std::string out = path("written");
        args.insert(args.end(), {"--force", "--out", out});
        const Outcome outcome = pipetwin(args);
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.code == 0 ? content_of(out) : "";
    }

    /// The outcome of `args` and "--out FILE", which must leave no file behind.
    Outcome refused(std::vector<std::string> args) const {
        args.insert(args.end(), {"--out", path("refused")});
        const Outcome outcome = pipetwin(args);
        EXPECT_FALSE(std::filesystem::exists(path("refused")));
        EXPECT_EQ(outcome.out, "");
        return outcome;
    }
};

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

TEST_F(Exchange, AGptScenarioBecomesALayout) {
    EXPECT_EQ(written({"export", "megatron-layout", file("gpt.toml", gpt_scenario)}),
              "Ett|t|tt|tL\n");
}

TEST_F(Exchange, AnImportedLayoutIsTheScenariosPartition) {
    const std::string layout =
        written({"export", "megatron-layout", file("gpt.toml", gpt_scenario)});
    const std::string fragment =
        written({"import", "megatron", file("layout.txt", layout), "--chunks", "2"});
    EXPECT_THAT(fragment,
                HasSubstr("[pipeline]\nstages = 2\nchunks = 2\npartition = [2, 1, 2, 1]\n"));
    // Pasted into a scenario it means what it meant in Megatron.
    const std::string scenario =
        std::string(gpt_scenario.substr(0, gpt_scenario.find("[pipeline]"))) + fragment +
        "micro_batches = 4\nschedule = \"interleaved-1f1b\"\n";
    EXPECT_EQ(written({"export", "megatron-layout", file("pasted.toml", scenario)}), layout);
}

TEST_F(Exchange, ALayoutMayGiveTheEndsStagesOfTheirOwn) {
    const std::string fragment =
        written({"import", "megatron", file("layout.txt", "E|t*4|(tt)*1|L\n")});
    EXPECT_THAT(fragment, HasSubstr("# partition counts whole blocks, 6 in all"));
    EXPECT_THAT(fragment, HasSubstr("stages = 4\nchunks = 1\npartition = [0, 4, 2, 0]\n"));
    const std::string scenario =
        std::string(gpt_scenario.substr(0, gpt_scenario.find("[pipeline]"))) + fragment +
        "micro_batches = 4\n";
    EXPECT_EQ(written({"export", "megatron-layout", file("pasted.toml", scenario)}),
              "E|t*4|tt|L\n");
}

TEST_F(Exchange, ALayoutIsReadFromStandardInput) {
    std::istringstream input("Et*3|(tt|)*29,m|L\n");
    std::streambuf* const before = std::cin.rdbuf(input.rdbuf());
    const std::string fragment = written({"import", "megatron", "-", "--chunks", "2"});
    std::cin.rdbuf(before);
    std::cin.clear();
    EXPECT_THAT(fragment, StartsWith("# Megatron's pipeline layout Et*3|(tt|)*29m|L\n"));
    EXPECT_THAT(fragment, HasSubstr("stages = 16\nchunks = 2\npartition = [4, 2, 2,"));
}

TEST_F(Exchange, LayoutsThatDoNotFitAreRefused) {
    const Outcome huge = refused({"import", "megatron", file("huge.txt", "Et*999999999|L")});
    EXPECT_EQ(huge.code, 3);
    EXPECT_THAT(huge.err, HasSubstr("huge.txt:1:2: from here on more than 262144"));
    const Outcome empty = refused({"import", "megatron", file("empty.txt", "Et||tL")});
    EXPECT_EQ(empty.code, 4);
    EXPECT_THAT(empty.err, HasSubstr("stage 1 is empty"));
    const Outcome odd =
        refused({"import", "megatron", file("odd.txt", "Et|t|tL"), "--chunks", "2"});
    EXPECT_EQ(odd.code, 4);
    EXPECT_THAT(odd.err, HasSubstr("3 stages are not a multiple of 2 chunks"));
}

TEST_F(Exchange, PlansThatNoLayoutCanHoldAreRefused) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    const Outcome halves =
        refused({"export", "megatron-layout", gpt, "--set", "pipeline.partition=[4, 3, 4, 3]"});
    EXPECT_EQ(halves.code, 4);
    EXPECT_THAT(halves.err, HasSubstr("stage 1 begins with the second half of block 1"));
    const Outcome placed =
        refused({"export", "megatron-layout", gpt, "--set", "pipeline.schedule=zb-v"});
    EXPECT_EQ(placed.code, 4);
    EXPECT_THAT(placed.err, HasSubstr("Megatron puts it on rank 0"));
    const Outcome costs =
        refused({"export", "megatron-layout", gpt, "--set", "pipeline.partition=auto"});
    EXPECT_EQ(costs.code, 3);  // the balancer's partition follows the costs
    EXPECT_THAT(costs.err, HasSubstr("pipetwin profile"));
    const Outcome mlp = refused({"export", "megatron-layout", file("small.toml", small_scenario)});
    EXPECT_EQ(mlp.code, 4);
    EXPECT_THAT(mlp.err, HasSubstr("model.kind = \"mlp\""));
    EXPECT_EQ(refused({"export", "megatron-layout", file("x.csv", "0F0,0B0\n")}).code, 4);
}

/// Flags of the gpt that all exports below have: its sizes, and what ours leaves out.
constexpr std::string_view gpt_sizes =
    "--hidden-size 16 --ffn-hidden-size 64 --num-attention-heads 2 --seq-length 8 "
    "--max-position-embeddings 8 --vocab-size 32 --make-vocab-size-divisible-by 1 "
    "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 ";
constexpr std::string_view gpt_training =
    "--no-bias-gelu-fusion --untie-embeddings-and-output-weights --clip-grad 0 --hidden-dropout 0 "
    "--attention-dropout 0";

TEST_F(Exchange, MegatronsFlagsSayWhatLayersRecomputeAndWhatReplicasShare) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    const auto flags = [&](const std::string& setting) {
        return written({"export", "megatron-flags", gpt, "--set", setting});
    };
    EXPECT_THAT(flags("pipeline.recompute=block"),
                HasSubstr("--recompute-granularity full --recompute-method uniform "
                          "--recompute-num-layers 1"));
    const auto groups_of = [&](const char* partition, int together) {
        return std::vector<std::string>{"export",
                                        "megatron-flags",
                                        gpt,
                                        "--set",
                                        "model.layers=8",
                                        "--set",
                                        partition,
                                        "--set",
                                        "pipeline.recompute=block",
                                        "--set",
                                        fmt::format("pipeline.recompute_blocks={}", together)};
    };
    const char* const equal = "pipeline.partition=[2, 2, 2, 2]";
    EXPECT_THAT(written(groups_of(equal, 2)), HasSubstr("--recompute-num-layers 2"));
    // All blocks of a stage are its group; Megatron wants to know how many these are.
    EXPECT_THAT(written(groups_of(equal, 9)), HasSubstr("--recompute-num-layers 2"));
    const Outcome uneven = refused(groups_of("pipeline.partition=[3, 1, 2, 2]", 2));
    EXPECT_EQ(uneven.code, 4);
    EXPECT_THAT(uneven.err,
                HasSubstr("pipeline.recompute_blocks = 2, but stages have 3, 1, 2, 2 blocks"));
    EXPECT_THAT(flags("pipeline.shard=optimizer"), HasSubstr("--use-distributed-optimizer"));
    EXPECT_THAT(flags("pipeline.recompute=selective"),
                HasSubstr("--recompute-granularity selective"));
    EXPECT_THAT(flags("pipeline.shard=gradients"),
                AllOf(HasSubstr("--use-distributed-optimizer --use-megatron-fsdp"),
                      HasSubstr("--data-parallel-sharding-strategy optim_grads ")));
    // The required flags of NVIDIA's Megatron-FSDP user guide.
    EXPECT_THAT(flags("pipeline.shard=weights"),
                AllOf(HasSubstr("--use-distributed-optimizer --use-megatron-fsdp"),
                      HasSubstr("--data-parallel-sharding-strategy optim_grads_params"),
                      HasSubstr("--no-gradient-accumulation-fusion"),
                      HasSubstr("--ckpt-format fsdp_dtensor\n")));
    EXPECT_THAT(flags("training={batch=8, precision=\"bf16\", gradients=\"same\"}"),
                HasSubstr("--grad-reduce-in-bf16"));
    EXPECT_THAT(flags("training={batch=8, precision=\"bf16\", optimizer_state_bytes=8}"),
                Not(HasSubstr("--use-precision-aware-optimizer")));
    EXPECT_THAT(flags("training={batch=8, precision=\"bf16\", accumulation=\"separate\"}"),
                HasSubstr("--no-gradient-accumulation-fusion"));
}

TEST_F(Exchange, MegatronsFlagsSayWhatTheScenarioSays) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    // 8 samples in 4 micro-batches; stages of 2, 1, 2 and 1 blocks have no larger divisor than 1.
    EXPECT_EQ(written({"export", "megatron-flags", gpt, "--set", "pipeline.recompute=always"}),
              fmt::format("--num-layers 6 {}--micro-batch-size 2 --global-batch-size 8 "
                          "--pipeline-model-parallel-layout \"Ett|t|tt|tL\" {} "
                          "--recompute-granularity full --recompute-method uniform "
                          "--recompute-num-layers 1\n",
                          gpt_sizes,
                          gpt_training));
    EXPECT_EQ(written({"export",
                       "megatron-flags",
                       gpt,
                       "--set",
                       "model.layers=8",
                       "--set",
                       "pipeline.partition=[2, 2, 2, 2]"}),
              fmt::format("--num-layers 8 {}--num-layers-per-virtual-pipeline-stage 2 "
                          "--micro-batch-size 2 --global-batch-size 8 {}\n",
                          gpt_sizes,
                          gpt_training));
    EXPECT_THAT(written({"export",
                         "megatron-flags",
                         gpt,
                         "--set",
                         "pipeline.stages=4",
                         "--set",
                         "pipeline.chunks=1",
                         "--set",
                         "pipeline.schedule=1f1b",
                         "--set",
                         "pipeline.partition=[1, 2, 2, 1]"}),
                HasSubstr("--decoder-first-pipeline-num-layers 1 "
                          "--decoder-last-pipeline-num-layers 1 --micro-batch-size 2"));
    const Outcome uneven = refused({"export", "megatron-flags", gpt, "--set", "training.batch=9"});
    EXPECT_EQ(uneven.code, 4);
    EXPECT_THAT(uneven.err, HasSubstr("micro-batches of 3 and of 2 samples"));
    const Outcome last =
        refused({"export", "megatron-flags", gpt, "--set", "pipeline.recompute=except-last"});
    EXPECT_EQ(last.code, 4);
    EXPECT_THAT(last.err, HasSubstr("which Megatron has no flag for"));
    const Outcome mixed =
        refused({"export",
                 "megatron-flags",
                 gpt,
                 "--set",
                 "pipeline.recompute=[\"always\", \"none\", \"none\", \"none\"]"});
    EXPECT_EQ(mixed.code, 4);
    EXPECT_THAT(
        mixed.err,
        HasSubstr(
            "always on stage 0, none on stages 1-3, but Megatron's flags apply to all stages"));
}

// A plan reads back from them: --swiglu and others say what a Llama is in Megatron's arguments.py.
TEST_F(Exchange, MegatronsFlagsSayWhatALlamaIs) {
    const std::string llama =
        file("llama.toml",
             "[model]\nkind = \"llama\"\nlayers = 4\nd_model = 64\nheads = 8\n"
             "key_value_heads = 2\nhead_size = 16\ncontext = 32\n"
             "vocabulary = 256\nfeed_forward = 96\nepsilon = 1e-6\n"
             "rotary_base = 500000\nrotary_factor = 32\n"
             "rotary_context = 16\n"
             "[training]\nbatch = 8\n"
             "[pipeline]\nstages = 2\nmicro_batches = 4\n"
             "schedule = \"1f1b\"\npartition = [2, 2]\n");
    const std::string out = path("llama.sh");
    const Outcome exported = pipetwin({"export", "megatron-flags", llama, "--out", out});
    ASSERT_EQ(exported.code, 0) << exported.err;
    const std::string flags = content_of(out);
    for (const std::string_view flag : {"--num-layers 4 ",
                                        "--hidden-size 64 ",
                                        "--ffn-hidden-size 96 ",
                                        "--num-attention-heads 8 ",
                                        "--group-query-attention",
                                        "--num-query-groups 2 ",
                                        "--kv-channels 16 ",
                                        "--swiglu",
                                        "--disable-bias-linear",
                                        "--normalization RMSNorm",
                                        "--position-embedding-type rope",
                                        "--untie-embeddings-and-output-weights",
                                        "--hidden-dropout 0"}) {
        EXPECT_THAT(flags, HasSubstr(flag));
    }
    EXPECT_THAT(flags,
                HasSubstr(" --norm-epsilon 1e-06 --rotary-base 500000 --use-rope-scaling "
                          "--rope-scaling-factor 32\n"));
    // Megatron-LM's scaling has these three numbers in its code.
    EXPECT_THAT(exported.err,
                AllOf(HasSubstr("Megatron-LM has no flag for rope_scaling"),
                      HasSubstr("original_max_position_embeddings 16")));
}

TEST_F(Exchange, MegatronsFlagsBecomeAScenarioAndComeBack) {
    const std::string script =
        "#!/bin/bash\ntorchrun --nproc_per_node 8 pretrain_gpt.py \\\n"
        "  --num-layers 8 --hidden-size=64 --num-attention-heads 4 --seq-length 32 \\\n"
        "  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 \\\n"
        "  --num-layers-per-virtual-pipeline-stage 2 --micro-batch-size 2 --global-batch-size 16 "
        "\\\n"
        "  --lr 1e-4 --bf16\n";
    const std::string fragment = written({"import", "megatron", file("train.sh", script)});
    EXPECT_THAT(fragment, HasSubstr("# without effect on a prediction: --lr\n"));
    // Megatron's own defaults: tied ends, dropout, a clipped norm; two devices of eight each.
    EXPECT_THAT(
        fragment,
        AllOf(HasSubstr("feed_forward = 256\ntied = true\ndropout = 0.1\ngelu = \"tanh\"\n"),
              HasSubstr("precision = \"bf16\"\nclip_norm = 1\n"),
              HasSubstr("micro_batches = 2\ndata_parallel = 4\n")));
    const std::string flags = written({"export", "megatron-flags", file("pasted.toml", fragment)});
    EXPECT_EQ(flags,
              "--num-layers 8 --hidden-size 64 --ffn-hidden-size 256 --num-attention-heads 4 "
              "--seq-length 32 --max-position-embeddings 32 --vocab-size 256 "
              "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 "
              "--num-layers-per-virtual-pipeline-stage 2 --micro-batch-size 2 "
              "--global-batch-size 16 --bf16 --clip-grad 1 --hidden-dropout 0.1 "
              "--attention-dropout 0\n");
    const std::string again = written({"import", "megatron", file("flags.txt", flags)});
    EXPECT_EQ(written({"export", "megatron-flags", file("again.toml", again)}), flags);
    const Outcome variable = refused(
        {"import", "megatron", file("bad.sh", "x \\\n --pipeline-model-parallel-size $PP\n")});
    EXPECT_EQ(variable.code, 3);
    EXPECT_THAT(variable.err, AllOf(HasSubstr("bad.sh:2:33: "), HasSubstr("of the variable")));
    const Outcome odd = refused(
        {"import", "megatron", file("odd.sh", "--pipeline-model-parallel-size 2 --num-layers 7")});
    EXPECT_EQ(odd.code, 4);
    EXPECT_THAT(odd.err, HasSubstr("--num-layers 7 cannot be shared out to 2 stages"));
}

/// Error text of an export that succeeds.
std::string said_of(std::vector<std::string> args, const std::string& out) {
    args.insert(args.end(), {"--out", out, "--force"});
    const Outcome outcome = pipetwin(args);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err;
}

/// What Megatron cannot be told is said, and what it can be reads back without a word.
TEST_F(Exchange, WhatMegatronsFlagsReadBackOtherwiseIsNoted) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    const auto said = [&](const std::vector<std::string>& settings) {
        std::vector<std::string> args{"export", "megatron-flags", gpt};
        for (const std::string& setting : settings) {
            args.insert(args.end(), {"--set", setting});
        }
        return said_of(args, path("flags.txt"));
    };
    EXPECT_THAT(said({"training.optimizer=adam"}), HasSubstr("as adamw does"));
    EXPECT_THAT(said({"training.optimizer=adamw"}), Not(HasSubstr("adamw")));
    const std::string odd =
        said({"model.vocabulary=257", "model.heads=4", "pipeline.tensor_parallel=2"});
    EXPECT_THAT(odd, HasSubstr("it pads the 257 words to 258"));
    EXPECT_THAT(written({"import", "megatron", path("flags.txt")}),
                HasSubstr("vocabulary = 258\n"));
    EXPECT_THAT(said({"model.vocabulary=256", "pipeline.tensor_parallel=2"}),
                Not(HasSubstr("words")));
    EXPECT_THAT(said({"model.vocabulary=257"}), Not(HasSubstr("words")));
    EXPECT_THAT(written({"import", "megatron", path("flags.txt")}),
                HasSubstr("vocabulary = 257\n"));
}

/// Each warning names the key that the other system lacks, or has otherwise.
TEST_F(Exchange, KeysThatTheOtherSystemLacksAreNamed) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    const auto said = [&](const std::string& format, const std::vector<std::string>& settings) {
        std::vector<std::string> args{"export", format, gpt};
        for (const std::string& setting : settings) {
            args.insert(args.end(), {"--set", "pipeline." + setting});
        }
        return said_of(args, path("exported"));
    };
    const std::string two = "tensor_parallel=2";
    EXPECT_THAT(said("megatron-flags", {two, "scatter_boundaries=true"}),
                HasSubstr("warning: pipeline.scatter_boundaries = true"));
    EXPECT_THAT(said("megatron-flags", {"sequence_parallel=true"}),
                HasSubstr("warning: pipeline.sequence_parallel changes nothing"));
    EXPECT_THAT(said("megatron-flags", {"recompute=always"}),
                AllOf(HasSubstr("warning: pipeline.recompute = \"always\""),
                      Not(HasSubstr("pipeline.recompute_timing"))));
    EXPECT_THAT(said("megatron-flags", {"recompute=always", "recompute_timing=eager"}),
                HasSubstr("warning: pipeline.recompute_timing = \"eager\""));
    EXPECT_THAT(said("megatron-flags", {"recompute=block", two, "sequence_parallel=true"}),
                Not(HasSubstr("warning")));

    // Gradients that replicas divide are added up in their sums: the setting that a note named
    // changes no such step.
    EXPECT_THAT(said("megatron-flags", {"shard=weights"}),
                HasSubstr("--set training.accumulation=separate"));
    EXPECT_THAT(said("megatron-flags", {"shard=weights", "data_parallel=2"}),
                Not(HasSubstr("training.accumulation=separate")));

    EXPECT_THAT(said("torchtitan", {"recompute=block", two, "sequence_parallel=true"}),
                AllOf(HasSubstr("parallelism.data_parallel_shard_degree = 1, "
                                "parallelism.tensor_parallel_degree = 2, "
                                "activation_checkpoint.mode = \"full\""),
                      Not(HasSubstr("warning"))));
    EXPECT_THAT(said("torchtitan", {"data_parallel=2", "shard=optimizer"}),
                AllOf(HasSubstr("parallelism.data_parallel_shard_degree = 2, "
                                "activation_checkpoint.mode = \"none\""),
                      HasSubstr("torchtitan has no ZeRO-1: data_parallel_shard_degree is FSDP"),
                      Not(HasSubstr("warning"))));
    EXPECT_THAT(said("torchtitan", {"data_parallel=2", "shard=weights", "prefetch=0"}),
                AllOf(Not(HasSubstr("no ZeRO-1")),
                      HasSubstr("parallelism.fsdp_reshard_after_forward = \"always\""),
                      HasSubstr("warning: pipeline.shard = \"weights\""),
                      HasSubstr("warning: pipeline.prefetch = 0")));
    EXPECT_THAT(said("torchtitan", {"data_parallel=4", "shard=weights", "shard_group=2"}),
                HasSubstr("parallelism.data_parallel_replicate_degree = 2, "
                          "parallelism.data_parallel_shard_degree = 2, "));
    EXPECT_THAT(said("torchtitan", {"data_parallel=2", "shard=gradients"}),
                HasSubstr("warning: pipeline.shard = \"gradients\""));
    EXPECT_THAT(said("torchtitan", {"recompute=selective"}),
                HasSubstr("activation_checkpoint.mode = \"selective\", "
                          "activation_checkpoint.selective_ac_option = \"op\""));
    EXPECT_THAT(said("torchtitan", {"recompute=except-last"}),
                HasSubstr("warning: pipeline.recompute, except-last"));
    EXPECT_THAT(said("torchtitan", {two, "scatter_boundaries=true"}),
                AllOf(HasSubstr("warning: pipeline.scatter_boundaries = true"),
                      HasSubstr("warning: pipeline.sequence_parallel = false")));
    EXPECT_THAT(said_of({"export",
                         "torchtitan",
                         gpt,
                         "--set",
                         "training={batch=8, precision=\"bf16\", gradients=\"same\"}"},
                        path("exported")),
                HasSubstr("warning: training.gradients = \"same\""));
}

// --- torchtitan, and profiles of transformers. ---

/// What `import hf` calls the layers of a model of two blocks.
constexpr std::string_view transformer_profile =
    "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n"
    "embedding,1,2,8,8,8\nblock0.attention,1,2,8,8,8\nblock0.feed_forward,1,2,8,8,8\n"
    "block1.attention,1,2,8,8,8\nblock1.feed_forward,1,2,8,8,8\nhead,1,2,0,8,8\n";
constexpr std::string_view transformer_scenario =
    "[model]\nkind = \"profile\"\nfile = \"costs.csv\"\n[training]\nbatch = 4\n"
    "[pipeline]\nstages = 2\nmicro_batches = 4\nschedule = \"1f1b\"\npartition = [3, 3]\n";

TEST_F(Exchange, StagesBecomeTorchtitansLists) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    EXPECT_EQ(written({"export", "torchtitan", gpt}),
              "[\n  [\"tok_embeddings\", \"layers.0\", \"layers.1\"],\n  [\"layers.2\"],\n"
              "  [\"layers.3\", \"layers.4\"],\n  [\"layers.5\", \"norm\", \"output\"]\n]\n");
    EXPECT_THAT(pipetwin({"export", "torchtitan", gpt, "--out", path("titan.json")}).err,
                AllOf(HasSubstr("pipeline_parallel_degree = 2"),
                      HasSubstr("pipeline_parallel_schedule = \"Interleaved1F1B\"")));
    const Outcome halves =
        refused({"export", "torchtitan", gpt, "--set", "pipeline.partition=[4, 3, 4, 3]"});
    EXPECT_EQ(halves.code, 4);
    EXPECT_THAT(halves.err, HasSubstr("stage 1 begins with block1.feed_forward"));
    EXPECT_EQ(refused({"export", "torchtitan", file("x.csv", "0F0,0B0\n")}).code, 4);
}

/// Messages beside products are a setting that only the compiler carries out.
TEST_F(Exchange, TorchtitansAsynchronousTensorParallelismComesBack) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    const auto settings = [&](const std::string& overlap) {
        const std::string said = said_of({"export",
                                          "torchtitan",
                                          gpt,
                                          "--set",
                                          "pipeline.tensor_parallel=2",
                                          "--set",
                                          "pipeline.sequence_parallel=true",
                                          "--set",
                                          "pipeline.tensor_overlap=" + overlap},
                                         path("exported"));
        const std::string intro = "set in torchtitan, too: ";
        const std::size_t begin = said.find(intro) + intro.size();
        std::string lines = said.substr(begin, said.find('\n', begin) - begin);
        for (std::size_t at = 0; (at = lines.find(", ", at)) != std::string::npos;) {
            lines.replace(at, 2, "\n");
        }
        return lines + "\n";
    };
    for (const std::string overlap : {"true", "false"}) {
        const std::string lines = settings(overlap);
        EXPECT_EQ(lines.find("enable_async_tensor_parallel = true\ncompile.enable = true\n") !=
                      std::string::npos,
                  overlap == "true")
            << lines;
        EXPECT_THAT(written({"import", "torchtitan", file("titan.toml", lines)}),
                    HasSubstr("tensor_parallel = 2\nsequence_parallel = true\ntensor_overlap = " +
                              overlap + "\n"));
    }
    EXPECT_EQ(settings("\"auto\""), settings("false"));  // no stack hides anything
}

// Flags and lists say nothing of the order, and Megatron has two of them.
TEST_F(Exchange, SchedulesThatTheOtherSystemLacksAreTold) {
    const std::string one = file("one.toml", transformer_scenario);
    file("costs.csv", transformer_profile);
    const std::string several = file("gpt.toml", gpt_scenario);
    const std::string out = path("exported");
    const auto with = [](const std::string& schedule) { return "pipeline.schedule=" + schedule; };
    for (const std::string format : {"megatron-layout", "megatron-flags"}) {
        EXPECT_THAT(said_of({"export", format, one, "--set", with("gpipe")}, out),
                    AllOf(HasSubstr("Megatron has no schedule like gpipe"),
                          HasSubstr("it runs 1f1b"),
                          HasSubstr("--set pipeline.schedule=1f1b")));
        EXPECT_THAT(said_of({"export", format, several, "--set", with("interleaved-zb")}, out),
                    HasSubstr("it runs interleaved-1f1b"));
        EXPECT_THAT(said_of({"export", format, one}, out), Not(HasSubstr("no schedule like")));
        EXPECT_THAT(said_of({"export", format, several}, out), Not(HasSubstr("no schedule like")));
    }
    EXPECT_THAT(said_of({"export", "torchtitan", one, "--set", with("zb-h1")}, out),
                AllOf(HasSubstr("torchtitan has no schedule zb-h1"),
                      HasSubstr("pipetwin export torch-csv --compute-only")));
    EXPECT_THAT(said_of({"export", "torchtitan", one}, out), Not(HasSubstr("of its own")));
}

/// PyTorch's 1F1B refuses fewer micro-batches than stages, and its Interleaved1F1B takes m in
/// max(1, m div p) rounds of equal size alone.
TEST_F(Exchange, ThePlanNamesASchedulesOfTorchtitanOnlyWhereItHasTheseRows) {
    const std::string scenario = file("gpt.toml", gpt_scenario);
    const auto said = [&](const std::string& schedule, int micro_batches, int group) {
        return said_of(
            {"export",
             "torchtitan",
             scenario,
             "--set",
             "pipeline.schedule=" + schedule,
             "--set",
             fmt::format("pipeline.chunks={}", schedule == "1f1b" ? 1 : 2),
             "--set",
             schedule == "1f1b" ? "pipeline.partition=[3, 3]" : "pipeline.partition=[2, 1, 2, 1]",
             "--set",
             fmt::format("pipeline.micro_batches={}", micro_batches),
             "--set",
             fmt::format("pipeline.group_size={}", group),
             "--set",
             fmt::format("training.batch={}", micro_batches)},
            path("x.txt"));
    };
    constexpr std::string_view named = "parallelism.pipeline_parallel_schedule = ";
    constexpr std::string_view other = "has no such order";
    EXPECT_THAT(said("1f1b", 2, 0), HasSubstr(std::string(named)));
    EXPECT_THAT(said("1f1b", 1, 0), HasSubstr(std::string(other)));
    EXPECT_THAT(said("interleaved-1f1b", 4, 0), HasSubstr(std::string(named)));
    EXPECT_THAT(said("interleaved-1f1b", 1, 0), HasSubstr(std::string(named)));
    EXPECT_THAT(said("interleaved-1f1b", 5, 0), HasSubstr(std::string(other)));
    EXPECT_THAT(said("interleaved-1f1b", 4, 4), HasSubstr(std::string(other)));
    EXPECT_THAT(said("hanayo", 2, 0), HasSubstr("ZBVZeroBubble"));
}

/// Megatron took six in groups of four, and refused the last two.
TEST_F(Exchange, MegatronsFlagsHaveTheGroupsThatThePlanHas) {
    const std::string scenario = file("gpt.toml", gpt_scenario);
    const auto exported = [&](int micro_batches) {
        return written({"export",
                        "megatron-flags",
                        scenario,
                        "--set",
                        fmt::format("pipeline.micro_batches={}", micro_batches),
                        "--set",
                        fmt::format("training.batch={}", micro_batches)});
    };
    constexpr std::string_view flag = "--microbatch-group-size-per-virtual-pipeline-stage";
    EXPECT_THAT(exported(4), Not(HasSubstr(std::string(flag))));
    EXPECT_THAT(exported(5), HasSubstr(std::string(flag) + " 3"));
    EXPECT_THAT(said_of({"export",
                         "megatron-flags",
                         scenario,
                         "--set",
                         "pipeline.micro_batches=1",
                         "--set",
                         "training.batch=1"},
                        path("x.txt")),
                HasSubstr("Megatron refuses fewer micro-batches (1) than ranks (2)"));
}

TEST_F(Exchange, AProfileOfATransformerIsExportedAsAGptIs) {
    file("costs.csv", transformer_profile);
    const std::string scenario = file("profile.toml", transformer_scenario);
    EXPECT_EQ(
        written({"export", "torchtitan", scenario}),
        "[\n  [\"tok_embeddings\", \"layers.0\"],\n  [\"layers.1\", \"norm\", \"output\"]\n]\n");
    EXPECT_EQ(written({"export", "megatron-layout", scenario}), "Et|tL\n");
    EXPECT_EQ(written({"export", "megatron-flags", scenario}),
              "--num-layers 2 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 "
              "--micro-batch-size 1 --global-batch-size 4\n");
    EXPECT_THAT(pipetwin({"export", "megatron-flags", scenario, "--out", path("noted")}).err,
                HasSubstr("the costs do not contain the sizes of the model"));
    // A layout counts blocks, and so may the partition of a profile that has them.
    const std::string layout = file("layout.txt", "Et|tL\n");
    EXPECT_THAT(written({"import", "megatron", layout}), HasSubstr("partition = [1, 1]\n"));
    EXPECT_EQ(
        written({"export", "megatron-layout", scenario, "--set", "pipeline.partition=[1, 1]"}),
        "Et|tL\n");

    std::string other(transformer_profile);
    other.replace(other.find("block1.attention"), 16, "convolution");
    file("costs.csv", other);
    const Outcome outcome = refused({"export", "torchtitan", scenario});
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("layer 3 is 'convolution', expected 'block1.attention'"),
                      HasSubstr("import hf")));
}

// --- json. ---

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
    EXPECT_EQ(misspelt.err,
              "error: 'torch-cvs' is not a format that can be exported; known: torch-csv, "
              "chrome-trace, megatron-layout, megatron-flags, torchtitan, torchtitan-toml, "
              "torchtitan-python, bridge, automodel, deepspeed, sbatch, kubernetes, json, svg, hf\n"
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
