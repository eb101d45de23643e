// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/costs/profile_json.h"
#include "tests/cli/support.h"
#include "tests/support/places.h"

/// `import` of other tools' measurements: PipeDream's graphs, PyTorch's traces, ours.
namespace pipetwin::cli {
namespace import_costs_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ImportCosts : public InFolder {
  protected:
    Outcome refused(std::vector<std::string> args) const {
        args.insert(args.end(), {"--out", path("refused")});
        const Outcome outcome = pipetwin(args);
        EXPECT_FALSE(std::filesystem::exists(path("refused")));
        EXPECT_EQ(outcome.out, "");
        return outcome;
    }

    /// A scenario of two stages whose model is "x.profile.json" here.
    std::string scenario(const std::string& partition) const {
        return file("x.toml",
                    "[model]\nkind = \"profile\"\nfile = \"x.profile.json\"\n"
                    "[training]\nbatch = 8\n"
                    "[pipeline]\nstages = 2\nmicro_batches = 2\nschedule = \"gpipe\"\n"
                    "recompute = \"none\"\npartition = " +
                        partition +
                        "\n[cluster]\ncount = 2\nlink_gbps = 8.0\nlink_latency_us = 0.0\n");
    }
};

// --- pipedream. ---

/// a -> (b, c) -> d: F 2 + 1 | 1 + 2 ms, B twice that, and 1 MB + 0.5 MB between the halves.
constexpr std::string_view diamond =
    "node1 -- Input0 -- forward_compute_time=0.0, backward_compute_time=0.0, "
    "activation_size=4000.0, parameter_size=0.0 -- stage_id=0\n"
    "d -- Add() -- forward_compute_time=2.0, backward_compute_time=4.0, "
    "activation_size=[8.0; 8.0], parameter_size=0.0 -- stage_id=1\n"
    "a -- Conv2d(3, 64, kernel_size=(7, 7)) -- forward_compute_time=2.0, "
    "backward_compute_time=4.0, activation_size=1000000.0, parameter_size=400.0 -- stage_id=0\n"
    "c -- ReLU() -- forward_compute_time=1.0, backward_compute_time=2.0, "
    "activation_size=7.0, parameter_size=0.0 -- stage_id=1\n"
    "b -- ReLU() -- forward_compute_time=1.0, backward_compute_time=2.0, "
    "activation_size=500000.0, parameter_size=0.0 -- stage_id=0\n"
    "\tnode1 -- a\n\ta -- b\n\ta -- c\n\tb -- d\n\tc -- d\n";

TEST_F(ImportCosts, ABranchingGraphGoesThroughSimulate) {
    const Outcome outcome = pipetwin({"import",
                                      "pipedream",
                                      file("graph.txt", diamond),
                                      "--micro-batch-size",
                                      "4",
                                      "--out",
                                      path("x.profile.json")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("x.profile.json: 4 layers"));
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("one node is the model's input and no layer: node1"),
                      HasSubstr("the file's stages are pipeline.partition = [2, 2]"),
                      HasSubstr("a lower bound")));
    const Outcome simulated = pipetwin({"simulate", scenario("[2, 2]"), "--json"});
    ASSERT_EQ(simulated.code, 0) << simulated.err;
    // 8 Gbit/s carry what b and c read, 1.5 MB, in 1.5 ms. The second rank begins at 3 + 1.5, its
    // forwards end at 10.5 and its backwards at 22.5; the first rank's last one then takes from 24
    // to 30.
    EXPECT_DOUBLE_EQ(simulated.json().at("makespan_ms"), 30);
    EXPECT_EQ(simulated.json().at("cost_source"), "imported");
}

TEST_F(ImportCosts, AGraphNeedsTheSizeOfItsMiniBatch) {
    const Outcome outcome = refused({"import", "pipedream", file("graph.txt", diamond)});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("'import pipedream' needs --micro-batch-size N"),
                      HasSubstr("whole mini-batch")));
    const Outcome broken =
        refused({"import", "pipedream", file("bad.txt", "\ta -- b\n"), "--micro-batch-size", "4"});
    EXPECT_EQ(broken.code, 3);
    EXPECT_THAT(broken.err, HasSubstr("bad.txt:1:2: no line describes node 'a'"));
}

// --- torch-trace. ---

std::string torch_trace(int rank, std::string_view events) {
    return "{\"distributedInfo\": {\"rank\": " + std::to_string(rank) +
           ", \"world_size\": 2},\n\"traceEvents\": [" + std::string(events) + "]}";
}

std::string range(const std::string& name, int microseconds) {
    return "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"PP:" + name +
           "\", \"pid\": 1, \"tid\": 1, \"ts\": 1, \"dur\": " + std::to_string(microseconds) + "}";
}

TEST_F(ImportCosts, TracesOfTwoRanksBecomeAStageEach) {
    const std::string first =
        file("rank0.json", torch_trace(0, range("0F0", 3000) + "," + range("0B0", 6000)));
    // The median of three forwards and of two backwards: 3 ms and 6 ms.
    const std::string second =
        file("rank1.json",
             torch_trace(1,
                         range("1F0", 3000) + "," + range("1F1", 2000) + "," + range("1F2", 90000) +
                             "," + range("1B0", 5000) + "," + range("1B1", 7000)));
    const Outcome outcome = pipetwin({"import",
                                      "torch-trace",
                                      second,
                                      first,
                                      "--micro-batch-size",
                                      "4",
                                      "--out",
                                      path("x.profile.json")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("2 ranks, 2 stages, 2 layers"));
    EXPECT_THAT(outcome.err, HasSubstr("times but no sizes"));
    const Outcome simulated = pipetwin({"simulate", scenario("[1, 1]"), "--json"});
    ASSERT_EQ(simulated.code, 0) << simulated.err;
    // (micro-batches + stages - 1) * (F + B), nothing to send.
    EXPECT_DOUBLE_EQ(simulated.json().at("makespan_ms"), (2 + 2 - 1) * (3 + 6));

    const Outcome half = refused({"import", "torch-trace", second, "--micro-batch-size", "4"});
    EXPECT_EQ(half.code, 3);
    EXPECT_THAT(half.err, HasSubstr("stage 0 has no range at all"));
    const Outcome twice =
        refused({"import", "torch-trace", first, first, "--micro-batch-size", "4"});
    EXPECT_EQ(twice.code, 3);
    EXPECT_THAT(twice.err, HasSubstr("it is the trace of rank 0, and so is"));
    // Neither says its rank, but no two ranks do the same at the same times.
    const std::string unnamed =
        file("unnamed.json",
             "{\"traceEvents\": [" + range("0F0", 3000) + "," + range("0B0", 6000) + "]}");
    const Outcome copied =
        refused({"import", "torch-trace", unnamed, unnamed, "--micro-batch-size", "4"});
    EXPECT_EQ(copied.code, 3);
    EXPECT_THAT(copied.err, HasSubstr("the same actions at the same times"));
    const std::string cut =
        file("cut.json", "{\"traceEvents\": [" + range("0F0", 3000) + ",\n{\"ph\": \"X\"");
    const Outcome too_few = refused({"import", "torch-trace", cut, "--micro-batch-size", "4"});
    EXPECT_EQ(too_few.code, 3);
    EXPECT_THAT(too_few.err,
                AllOf(HasSubstr("stage 0 has no backward"), HasSubstr("the file ends too early")));
    EXPECT_EQ(refused({"import", "torch-trace", first, second}).code, 2);
}

TEST_F(ImportCosts, SpansOfOtherMicroBatchesAreRefusedWithTheirFile) {
    const std::string first =
        file("rank0.json", torch_trace(0, range("0F0", 3000) + "," + range("0B0", 6000)));
    const std::string second = file(
        "spans.jsonl",
        R"({"resourceSpans": [{"resource": {"attributes": [{"key": )"
        R"("megatron.micro_batch_size", "value": {"intValue": 2}}]}, "scopeSpans": )"
        R"([{"spans": [{"name": "PP:1F0", "startTimeUnixNano": 1, "endTimeUnixNano": 9}]}]}]})");
    const Outcome other =
        refused({"import", "torch-trace", first, second, "--micro-batch-size", "4"});
    EXPECT_EQ(other.code, 3);
    EXPECT_THAT(other.err,
                HasSubstr("spans.jsonl: its micro-batches have 2 samples, --micro-batch-size says "
                          "4"));
}

TEST_F(ImportCosts, ATraceWithoutRangesSaysHowToMakeThem) {
    const Outcome outcome = refused({"import",
                                     "torch-trace",
                                     file("rank0.json", torch_trace(0, "")),
                                     "--micro-batch-size",
                                     "4"});
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("rank0.json: no ranges of a forward, named PP:0F3"),
                      HasSubstr("hint: the schedules of torch.distributed.pipelining")));
}

/// A range of a GPU's stream in microseconds.
std::string on_stream(const std::string& name, double begin, double length, int stream) {
    return fmt::format(R"({{"ph": "X", "cat": "gpu_user_annotation", "name": "PP:{}", "pid": 0, )"
                       R"("tid": {}, "ts": {}, "dur": {}}})",
                       name,
                       stream,
                       begin,
                       length);
}

/// GPipe of two micro-batches on four ranks, F 10 ms, B 20 ms, messages of 0.1 ms, whose receives
/// are pending on a stream of their own from when the rank has nothing to do.
std::string trace_of_gpipe(int rank) {
    constexpr int last = 3;
    constexpr double f = 10'000;
    constexpr double b = 20'000;
    constexpr double message = 100;
    const double forward = rank * (f + message);
    const double turn = last * (f + message) + 2 * f;  // the last stage begins its backwards
    const double backward = turn + (last - rank) * (b + message);
    const std::string stage = std::to_string(rank);
    std::string events = on_stream(stage + "F0", forward, f, 7) + "," +
                         on_stream(stage + "F1", forward + f, f, 7) + "," +
                         on_stream(stage + "B1", backward, b, 7) + "," +
                         on_stream(stage + "B0", backward + b, b, 7);
    if (rank > 0) {
        events += "," + on_stream(stage + "RECV_F0", 0, forward, 20);
    }
    if (rank < last) {
        events +=
            "," + on_stream(stage + "RECV_B1", forward + 2 * f, backward - forward - 2 * f, 20);
    }
    return torch_trace(rank, events);
}

// A receive that is pending lasts longer than all that the rank computes. The stream of computation
// was once taken to be the longest.
TEST_F(ImportCosts, PendingReceivesAreWaitsAndTheirTransferBecomesTheLink) {
    std::vector<std::string> args{"import", "torch-trace"};
    for (int rank = 0; rank < 4; ++rank) {
        args.push_back(file("gpipe" + std::to_string(rank) + ".json", trace_of_gpipe(rank)));
    }
    const std::string out = path("x.profile.json");
    const Outcome outcome = pipetwin(joined(args, {"--micro-batch-size", "4", "--out", out}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("messages take 100.000 us: the median of 6"));
    const Profile profile = read_profile(out);
    ASSERT_EQ(profile.layers.size(), 4U);
    for (const LayerCost& layer : profile.layers) {
        EXPECT_EQ(layer.samples[0].forward, std::chrono::milliseconds(10));
        EXPECT_EQ(layer.samples[0].backward(), std::chrono::milliseconds(20));
    }
    ASSERT_EQ(profile.links.size(), 1U);
    EXPECT_EQ(profile.links[0].latency, std::chrono::microseconds(100));
}

/// The files NAME-rank0.json, NAME-rank1.json, ... of data/, imported for micro-batches of 4.
class ImportTraceFiles : public ImportCosts {
  protected:
    Outcome outcome_of(const std::string& name, int ranks) const {
        const std::filesystem::path data = std::filesystem::path(places::source_folder()) /
                                           "tests" / "cli" / "interop" / "import" / "data";
        std::vector<std::string> args{"import", "torch-trace"};
        for (int rank = 0; rank < ranks; ++rank) {
            args.push_back((data / fmt::format("{}-rank{}.json", name, rank)).string());
        }
        return pipetwin(joined(args, {"--micro-batch-size", "4", "--out", out()}));
    }
    std::string out() const { return path("of-files.profile.json"); }
    double forward_ms(std::size_t stage) const {
        return to_milliseconds(read_profile(out()).layers.at(stage).samples.at(0).forward);
    }
    double backward_ms(std::size_t stage) const {
        return to_milliseconds(read_profile(out()).layers.at(stage).samples.at(0).backward());
    }
};

// Receives of these traces are pending for longer than all that their ranks compute.
TEST_F(ImportTraceFiles, PendingReceives) {
    const Outcome outcome = outcome_of("pending-receive", 4);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    for (std::size_t stage = 0; stage < 4; ++stage) {
        EXPECT_DOUBLE_EQ(forward_ms(stage), 10);
        EXPECT_DOUBLE_EQ(backward_ms(stage), 20);
    }
}

// Some ranges of these traces last 3.4 s by the file, but the next ones begin 10 ms later. The
// medians of all that are written are 10.02 and 10.00 ms.
TEST_F(ImportTraceFiles, ImpossibleLengths) {
    const Outcome outcome = outcome_of("impossible-length", 2);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NEAR(forward_ms(0), 10.02, 0.01);
    EXPECT_NEAR(forward_ms(1), 10.00, 0.01);
    EXPECT_THAT(outcome.err, HasSubstr("lasts 3.400 s, which cannot be (1 other range likewise)"));
}

TEST_F(ImportTraceFiles, TimesAsText) {
    for (const std::string name : {"text-begins", "text-lengths"}) {
        const Outcome outcome = outcome_of(name, 2);
        ASSERT_EQ(outcome.code, 0) << outcome.err;
        for (std::size_t stage = 0; stage < 2; ++stage) {
            EXPECT_DOUBLE_EQ(forward_ms(stage), 10) << name;
            EXPECT_DOUBLE_EQ(backward_ms(stage), 20) << name;
        }
        std::filesystem::remove(out());
    }
}

TEST_F(ImportCosts, NamesByPatternAreOfTheRanksInTheirOrder) {
    const auto trace = [&](int rank, int length) {
        std::string events = range("x", length) + "," + range("x", 2 * length);
        events.replace(events.find("PP:x"), 4, "step_forward");
        events.replace(events.find("PP:x"), 4, "step_backward");
        return file("named" + std::to_string(rank) + ".json", torch_trace(rank, events));
    };
    const std::vector<std::string> args{"import",
                                        "torch-trace",
                                        trace(1, 2000),
                                        trace(0, 1000),
                                        "--micro-batch-size",
                                        "4",
                                        "--forward",
                                        "*_forward"};
    const std::string out = path("x.profile.json");
    const Outcome half = pipetwin(joined(args, {"--out", out}));
    EXPECT_EQ(half.code, 2);
    EXPECT_THAT(half.err, HasSubstr("--forward: patterns name the forward and the backward"));
    const Outcome outcome = pipetwin(joined(args, {"--backward", "*_backward", "--out", out}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("the ranges do not name a stage"));
    const Profile profile = read_profile(out);
    ASSERT_EQ(profile.layers.size(), 2U);
    EXPECT_EQ(profile.layers[0].samples[0].forward, std::chrono::milliseconds(1));
    EXPECT_EQ(profile.layers[1].samples[0].backward(), std::chrono::milliseconds(4));
    const Outcome other = pipetwin(
        {"import", "torch-csv", file("x.csv", "0F0,0B0\n"), "--forward", "x", "--out", path("y")});
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.err, HasSubstr("has no named ranges"));
}

// --- chrome-trace. ---

TEST_F(ImportCosts, OurOwnTraceComesBackAsTheCostsThatMadeIt) {
    const std::string costs =
        "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n"
        "one,1.5,4,0,0,0\ntwo,2.5,3,0,0,0\n";
    file("x.profile.json", print_profile(read_profile(file("costs.csv", costs))));
    const std::string trace = path("x.trace.json");
    const std::string own = scenario("[1, 1]");
    const Outcome exported =
        pipetwin({"export", "chrome-trace", own, "--set", "training.batch=2", "--out", trace});
    ASSERT_EQ(exported.code, 0) << exported.err;
    const std::string out = path("back.profile.json");
    const Outcome outcome =
        pipetwin({"import", "chrome-trace", trace, "--micro-batch-size", "1", "--out", out});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Profile profile = read_profile(out);
    ASSERT_EQ(profile.layers.size(), 2U);
    EXPECT_EQ(profile.layers[0].samples[0].forward, std::chrono::microseconds(1500));
    EXPECT_EQ(profile.layers[1].samples[0].backward(), std::chrono::milliseconds(3));
}

TEST_F(ImportCosts, OptionsOfOtherFormatsAreUsageErrors) {
    const std::string csv = file("x.csv", "0F0,0B0\n");
    const Outcome more = refused({"import", "torch-csv", csv, csv});
    EXPECT_EQ(more.code, 2);
    EXPECT_THAT(more.err, HasSubstr("'import torch-csv' reads one file"));
    EXPECT_EQ(refused({"import", "torch-csv", csv, "--micro-batch-size", "2"}).code, 2);
}

}  // namespace import_costs_test
}  // namespace pipetwin::cli
