// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/torch_trace.h"

#include <zlib.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/mutate.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace torch_trace_test {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

std::string range(std::string_view name,
                  double microseconds,
                  std::string_view category = "user_annotation",
                  int lane = 1) {
    return fmt::format(
        R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 7, "tid": {}, "ts": 10.5, "dur": {:.3f}, )"
        R"("args": {{"External id": 3, "name": "PP:9F9", "dims": [[1, 2], {{"dur": 5}}]}}}})",
        category,
        name,
        lane,
        microseconds);
}

std::string trace(const std::vector<std::string>& events, int rank = 0) {
    return fmt::format(
        R"({{"schemaVersion": 1, "distributedInfo": {{"backend": "nccl", "rank": {}, "world_size": 2}},
"deviceProperties": [{{"name": "H100", "rank": 5}}],
"traceEvents": [
{}
], "traceName": "x.json"}})",
        rank,
        fmt::join(events, ",\n"));
}

TorchTrace read(const std::vector<std::string>& events) {
    return parse_torch_trace(trace(events), "rank0.json");
}

TEST(ParseTorchTrace, KeepsTheDurationsOfEveryStage) {
    const TorchTrace found = parse_torch_trace(
        trace({range("PP:0F0", 1.5),
               range("PP:0F1", 2.25),
               range("PP:2F0", 4),
               range("PP:0SEND_F0", 9),
               range("PP:2RECV_F0", 9),
               range("PP:0UNSHARD", 9),
               range("PP:2REDUCE_GRAD", 9),
               range("aten::mm", 9, "cpu_op"),
               R"({"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}})",
               range("PP:2B0", 8),
               range("PP:0I0", 3),
               range("PP:0W0", 0.001)},
              1),
        "rank1.json");
    EXPECT_EQ(found.rank, 1);
    EXPECT_EQ(found.world_size, 2);
    EXPECT_FALSE(found.on_gpu);
    ASSERT_EQ(found.stages.size(), 2U);
    EXPECT_THAT(found.stages.at(0).forward, ElementsAre(1500ns, 2250ns));
    EXPECT_THAT(found.stages.at(0).backward_input, ElementsAre(3000ns));
    EXPECT_THAT(found.stages.at(0).backward_weight, ElementsAre(1ns));
    EXPECT_THAT(found.stages.at(2).forward, ElementsAre(4000ns));
    EXPECT_THAT(found.stages.at(2).backward, ElementsAre(8000ns));
}

TEST(ParseTorchTrace, RangesOnTheGpuCountBeforeThoseThatLaunchedTheWork) {
    const TorchTrace found =
        read({range("PP:0F0", 1),
              range("PP:0F0", 50, "gpu_user_annotation", 20),
              range("PP:0B0", 90, "gpu_user_annotation", 20),
              range("PP:0F0", 2, "gpu_user_annotation", 24),  // a copy's stream
              range("PP:0B0", 1)});
    EXPECT_TRUE(found.on_gpu);
    EXPECT_THAT(found.stages.at(0).forward, ElementsAre(50'000ns));
    EXPECT_THAT(found.stages.at(0).backward, ElementsAre(90'000ns));
}

TEST(ParseTorchTrace, KernelsWithoutRangesOnTheGpuMeanThatOnlyLaunchesWereTimed) {
    EXPECT_TRUE(read({range("PP:0F0", 1), range("gemm", 5, "kernel")}).only_launches);
    EXPECT_FALSE(read({range("PP:0F0", 1), range("aten::mm", 5, "cpu_op")}).only_launches);
}

/// The machine of these traces has a GPU ("deviceProperties").
TEST(ParseTorchTrace, AGpuOfWhichNoKernelWasRecordedIsTold) {
    EXPECT_TRUE(read({range("PP:0F0", 1)}).lacks_kernels);
    EXPECT_FALSE(read({range("PP:0F0", 1), range("gemm", 5, "kernel")}).lacks_kernels);
    EXPECT_FALSE(parse_torch_trace("[" + range("PP:0F0", 1) + "]", "x").lacks_kernels);
}

TEST(ParseTorchTrace, InTheOlderDialectBIsTheInputsBackward) {
    const TorchTrace found = read({range("PP:0F0", 1),
                                   range("PP:0B0", 2),
                                   range("PP:0W0", 3),
                                   range("PP:1F0", 1),
                                   range("PP:1BW0", 5)});
    EXPECT_THAT(found.stages.at(0).backward_input, ElementsAre(2000ns));
    EXPECT_THAT(found.stages.at(0).backward_weight, ElementsAre(3000ns));
    EXPECT_TRUE(found.stages.at(0).backward.empty());
    EXPECT_THAT(found.stages.at(1).backward, ElementsAre(5000ns));
}

TEST(ParseTorchTrace, PairsIssuedTogetherAreLeftOutAndCounted) {
    const TorchTrace found = read({range("PP:0F0", 1), range("PP:(0F1;0B0)OVERLAP_F_B", 4)});
    EXPECT_EQ(found.overlapped_pairs, 1);
    EXPECT_THAT(found.stages.at(0).forward, ElementsAre(1000ns));
}

TEST(ParseTorchTrace, ABareListOfEventsIsATraceToo) {
    const TorchTrace found =
        parse_torch_trace(fmt::format("[{}, {}]", range("PP:0F0", 1), range("PP:0B0", 2)), "x");
    EXPECT_EQ(found.rank, std::nullopt);
    EXPECT_THAT(found.stages.at(0).backward, ElementsAre(2000ns));
}

TEST(ReadTorchTrace, ReadsPackedFilesLargerThanABlock) {
    std::vector<std::string> events{range("PP:0F0", 1), range("PP:0B0", 2)};
    for (int i = 0; i < 5000; ++i) {
        events.push_back(range("aten::mm", i, "cpu_op"));
    }
    events.push_back(range("PP:0F1", 3));
    const std::string text = trace(events);
    ASSERT_GT(text.size(), std::size_t{1} << 19);
    const tests::ScratchFolder folder;
    const std::string path = (folder.path() / "rank0.json.gz").string();
    const gzFile file = gzopen(path.c_str(), "wb");
    ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    gzclose(file);
    EXPECT_THAT(read_torch_traces(path).front().stages.at(0).forward, ElementsAre(1000ns, 3000ns));

    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    const TorchTrace cut = read_torch_traces(path).front();
    EXPECT_THAT(cut.stages.at(0).forward, ElementsAre(1000ns));
    EXPECT_THAT(cut.notes, ElementsAre(HasSubstr("the file ends too early, at " + path + ":")));
    EXPECT_EQ(error_of([&] { read_torch_traces(folder.path() / "none.json"); }).kind(),
              ErrorKind::Io);
    EXPECT_EQ(error_of([&] { read_torch_traces(folder.path()); }).kind(), ErrorKind::BadInput);
}

TEST(ParseTorchTrace, WithoutRangesItSaysHowToMakeThem) {
    for (const std::string& text :
         {trace({range("aten::mm", 1, "cpu_op")}), trace({range("PP:0SEND_F0", 1)}), trace({})}) {
        const Error error = error_of([&] { parse_torch_trace(text, "rank0.json"); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(error.text(), "no ranges of a forward, named PP:0F3 (stage 0, micro-batch 3)");
        EXPECT_THAT(error.hint(), HasSubstr("record_function(\"PP:0F3\")"));
    }
    const Error pairs = error_of([] { read({range("PP:(0F1;0B0)OVERLAP_F_B", 4)}); });
    EXPECT_THAT(pairs.text(), HasSubstr("only ranges of pairs"));
}

TEST(ParseTorchTrace, RefusesWithThePlace) {
    const auto refusal = [](const std::string& text) {
        return error_of([&] { parse_torch_trace(text, "x.json"); });
    };
    EXPECT_EQ(refusal("{\n \"traceEvents\": [\n {]}").place(), "x.json:3:3");
    EXPECT_THAT(refusal("{}").text(), HasSubstr("no \"traceEvents\""));
    EXPECT_EQ(refusal("").place(), "x.json:1:1");
    EXPECT_EQ(refusal(std::string(2000, '[')).text(), "nested deeper than 512");
    for (const std::string_view name : {"PP:0F1x", "PP:F0", "PP:0X0", "PP:", "PP:999999999999F0"}) {
        const Error error = refusal(trace({range(name, 1)}));
        EXPECT_EQ(error.text(), fmt::format("range '{}', expected PP: and an action", name));
        EXPECT_THAT(error.place(), HasSubstr("x.json:4:"));
    }
    EXPECT_THAT(refusal(R"([{"ph": "X", "name": "PP:0F0"}])").text(), HasSubstr("no \"dur\""));
    EXPECT_THAT(refusal(R"([{"ph": "X", "name": "PP:0F0", "dur": -1}])").text(), HasSubstr("dur"));
}

TEST(ParseTorchTrace, ThrowsNothingButErrorForDamagedTexts) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    std::mt19937_64 random(seed);
    const std::string text =
        trace({range("PP:0F0", 1), range("PP:0B0", 2), range("PP:1F0", 3), range("PP:1B0", 4)});
    for (int round = 0; round < tests::soaked(1000); ++round) {
        const std::string damaged = testing::mutated(text, random);
        try {
            static_cast<void>(stage_profile(parse_torch_trace(damaged, "x").stages, 1, "x"));
        } catch (const Error& error) {
            ASSERT_FALSE(error.text().empty()) << damaged;
        } catch (const std::exception& other) {
            FAIL() << other.what() << "\nfor\n" << damaged;
        }
    }
}

// --- Times, streams, damage. ---

/// An event with a time of its own.
std::string at(double begin,
               double microseconds,
               std::string_view name,
               int lane,
               std::string_view category = "gpu_user_annotation",
               std::string_view args = "{}") {
    return fmt::format(
        R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 0, "tid": {}, "ts": {:.3f}, )"
        R"("dur": {:.3f}, "args": {}}})",
        category,
        name,
        lane,
        begin,
        microseconds,
        args);
}

/// Kineto and Python's json write numbers that JSON does not have; the file was called cut short.
TEST(ParseTorchTrace, NumbersThatAreNoneAreRead) {
    const std::string kernel =
        R"({"ph": "X", "cat": "kernel", "name": "NaN \"Infinity", "pid": 0, "tid": 7, "ts": 1, )"
        R"("dur": 2, "args": {"est. achieved occupancy %": NaN, "blocks per SM":Infinity, )"
        R"("list": [-Infinity,NaN , 1e3]}})";
    const TorchTrace found = parse_torch_trace(
        trace({kernel, range("PP:0F0", 10), range("PP:0F1", 10), range("PP:0B0", 20)}), "x");
    EXPECT_THAT(found.stages.at(0).forward, ElementsAre(10us, 10us));
    EXPECT_THAT(found.stages.at(0).backward, ElementsAre(20us));
    for (const std::string word : {"NaN", "Infinity", "-Infinity"}) {
        const std::string text = trace(
            {R"({"ph": "X", "name": "PP:0F0", "pid": 1, "tid": 1, "ts": 10, "dur": )" + word + "}",
             range("PP:0F1", 10)});
        EXPECT_THAT(error_of([&] { parse_torch_trace(text, "x"); }).text(),
                    HasSubstr("\"dur\": " + word + ", expected microseconds"));
    }
    for (const std::string word : {"Nan", "NaNs", "NaN5", "N", "Infinit", "nan", "+Infinity"}) {
        const std::string text = "{\"a\": " + word + ", \"traceEvents\": []}";
        EXPECT_THAT(error_of([&] { parse_torch_trace(text, "x"); }).hint(), HasSubstr("no JSON"))
            << word;
    }
}

TEST(ParseTorchTrace, TimesMayBeStrings) {
    const TorchTrace found = parse_torch_trace(
        R"([{"ph": "X", "name": "PP:0F0", "ts": "1747124456789012.345", "dur": "10000.5"},
            {"ph": "X", "name": "PP:0B0", "ts": 1747124456799013, "dur": "2e4"}])",
        "x");
    EXPECT_THAT(found.stages.at(0).forward, ElementsAre(10'000'500ns));
    EXPECT_THAT(found.stages.at(0).backward, ElementsAre(20ms));
    ASSERT_EQ(found.spans.size(), 2U);
    // Beyond 2^53 nanoseconds, where a double has steps of 256.
    EXPECT_EQ(found.spans[0].begin, 1'747'124'456'789'012'345ns);
    EXPECT_EQ(found.spans[1].begin, 1'747'124'456'799'013'000ns);
    const Error words = error_of(
        [] { parse_torch_trace(R"([{"ph": "X", "name": "PP:0F0", "dur": "long"}])", "x"); });
    EXPECT_THAT(words.text(), HasSubstr("has \"dur\": \"long\", expected microseconds"));
}

TEST(ParseTorchTrace, TheHostsClockIsTheTracesBase) {
    const std::string events = at(1.5, 10, "PP:0F0", 7) + "," + at(20, 10, "PP:0B0", 7);
    const TorchTrace found = parse_torch_trace(
        "{\"traceEvents\": [" + events + "], \"baseTimeNanoseconds\": 1700000000000000001}", "x");
    EXPECT_EQ(found.spans.front().begin, 1'700'000'000'000'001'501ns);
}

// A receive that is pending is long: the stream with the longest ranges is not the one that
// computes.
TEST(ParseTorchTrace, TheStreamThatComputesIsTheOneWithMostRangesOfComputation) {
    const TorchTrace found = read({at(0, 100, "PP:1RECV_F0", 20),
                                   at(100, 10, "PP:1F0", 7),
                                   at(110, 900, "PP:1RECV_B0", 20),
                                   at(1010, 20, "PP:1B0", 7),
                                   at(0, 10, "ncclDevKernel_SendRecv", 20, "kernel")});
    EXPECT_THAT(found.stages.at(1).forward, ElementsAre(10us));
    EXPECT_THAT(found.stages.at(1).backward, ElementsAre(20us));
    EXPECT_EQ(found.messages.size(), 2U);
}

TEST(ParseTorchTrace, KernelsSayWhichOfTwoStreamsWithTheSameRangesComputes) {
    for (const std::string_view message :
         {"ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
          "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
          "mscclKernel_Sum_half_Simple_false",
          "void oneccl_sendrecv_kernel"}) {
        const TorchTrace found = read({at(0, 1000, "PP:0F0", 20),
                                       at(1000, 1000, "PP:0B0", 20),
                                       at(5, 900, message, 20, "kernel"),
                                       at(1005, 900, message, 20, "kernel"),
                                       at(0, 10, "PP:0F0", 7),
                                       at(1000, 20, "PP:0B0", 7),
                                       at(1, 8, "gemm", 7, "kernel"),
                                       at(1001, 18, "gemm", 7, "kernel")});
        EXPECT_THAT(found.stages.at(0).forward, ElementsAre(10us)) << message;
        EXPECT_THAT(found.stages.at(0).backward, ElementsAre(20us)) << message;
    }
}

TEST(ParseTorchTrace, ActionsOnAStreamOfTheirOwnCount) {
    const TorchTrace found = read({at(0, 10, "PP:0F0", 7),
                                   at(10, 10, "PP:0F1", 7),
                                   at(30, 20, "PP:0B0", 9),
                                   at(1, 8, "gemm", 7, "kernel"),
                                   at(11, 8, "gemm", 7, "kernel"),
                                   at(31, 18, "gemm", 9, "kernel")});
    EXPECT_THAT(found.stages.at(0).backward, ElementsAre(20us));
    EXPECT_THAT(found.notes, ElementsAre("0B ran on stream 9, the other actions on stream 7"));
}

/// F 10 us and B 20 us of `count` micro-batches on stream 7; event `damaged` lasts for
/// `microseconds`.
std::vector<std::string> regular(int count, int damaged, double microseconds) {
    std::vector<std::string> events;
    for (int i = 0; i < 2 * count; ++i) {
        const bool forward = i < count;
        const double begin = forward ? i * 10 : count * 10 + (i - count) * 20;
        const double usual = forward ? 10 : 20;
        events.push_back(at(begin,
                            i == damaged ? microseconds : usual,
                            fmt::format("PP:0{}{}", forward ? 'F' : 'B', i % count),
                            7));
    }
    return events;
}

TEST(ParseTorchTrace, AnImpossibleLengthIsLeftOutAndNamed) {
    // Of two backwards one is impossible: their median would be 1.7 s.
    const TorchTrace found = read(regular(4, 5, 3.4e6));
    EXPECT_THAT(found.stages.at(0).forward, ElementsAre(10us, 10us, 10us, 10us));
    EXPECT_THAT(found.stages.at(0).backward, ElementsAre(20us, 20us, 20us));
    EXPECT_THAT(found.notes, ElementsAre("stream 7: 0B1 lasts 3.400 s, which cannot be: left out"));
    EXPECT_TRUE(read(regular(4, -1, 0)).notes.empty());
}

TEST(ParseTorchTrace, AnImpossibleLengthOnAnotherStreamChangesNothing) {
    const StageTimes right = read(regular(4, -1, 0)).stages;
    for (const std::string& damage :
         {at(1, 3.4e6, "PP:0F0", 24),
          at(1, 9e12, "PP:0F0", 24),
          at(1, -5, "PP:0F0", 24),
          std::string(R"({"ph": "X", "cat": "gpu_user_annotation", "name": "PP:0F1", "pid": 0,
                          "tid": 24, "ts": 1, "dur": 1e300})"),
          std::string(R"({"ph": "X", "cat": "gpu_user_annotation", "name": "PP:0F1", "pid": 0,
                          "tid": 24, "ts": 1})"),
          at(1, 3.4e6, "copy", 24, "kernel"),
          at(1, 1e14, "copy", 24, "kernel")}) {
        std::vector<std::string> events = regular(4, -1, 0);
        events.insert(events.begin(), damage);
        const TorchTrace found = read(events);
        EXPECT_EQ(found.stages.at(0).forward, right.at(0).forward) << damage;
        EXPECT_EQ(found.stages.at(0).backward, right.at(0).backward) << damage;
        ASSERT_EQ(found.notes.size(), 1U) << damage;
        EXPECT_THAT(found.notes[0], ::testing::AnyOf(HasSubstr("0F"), HasSubstr("copy"))) << damage;
    }
}

// --- Names. ---

TEST(ParseTorchTrace, GPipesOwnNamesAreOfTheRanksOnlyStage) {
    TorchTrace found = read({at(0, 10, "Forward 0", 7), at(10, 20, "Backward 0", 7)});
    EXPECT_THAT(found.stages.at(own_stage).forward, ElementsAre(10us));
    set_own_stage(found, 3);
    EXPECT_THAT(found.stages.at(3).backward, ElementsAre(20us));
    EXPECT_EQ(to_string(found.spans.at(1).action), "3B0");
    // Both kinds of names at once would count the work twice.
    const TorchTrace both =
        read({at(0, 10, "Forward 0", 7), at(1, 8, "PP:0F0", 7), at(10, 20, "PP:0B0", 7)});
    EXPECT_EQ(both.stages.size(), 1U);
    EXPECT_THAT(both.stages.at(0).forward, ElementsAre(8us));
}

TEST(ParseTorchTrace, RangesByPattern) {
    const RangeNames names({{.op = Op::Forward, .text = "*forward_step*"},
                            {.op = Op::Backward, .text = "*backward_step*"}});
    const std::string text = trace({at(0, 10, "megatron/forward_step (mb)", 7),
                                    at(10, 20, "megatron/backward_step", 7),
                                    at(30, 40, "PP:0F0", 7)});
    const TorchTrace found = parse_torch_trace(text, "x", names);
    EXPECT_THAT(found.stages.at(own_stage).forward, ElementsAre(10us));
    EXPECT_THAT(found.stages.at(own_stage).backward, ElementsAre(20us));
    EXPECT_FALSE(found.numbers_micro_batches);
}

// What was asked for is not replaced by what the kernels between messages look like.
TEST(ParseTorchTrace, PatternsThatNoRangeHasAreRefused) {
    const RangeNames names(
        {{.op = Op::Forward, .text = "fwd *"}, {.op = Op::Backward, .text = "bwd *"}});
    const std::string send = "ncclDevKernel_SendRecv(x)";
    const std::string text = trace({at(0, 10, "gemm", 7, "kernel"),
                                    at(10, 5, send, 20, "kernel"),
                                    at(20, 20, "gemm_backward", 7, "kernel"),
                                    at(40, 5, send, 20, "kernel")});
    EXPECT_TRUE(parse_torch_trace(text, "x").is_unlabelled);
    const Error error = error_of([&] { parse_torch_trace(text, "x", names); });
    EXPECT_EQ(error.text(), "no range has a name like the pattern of a forward, 'fwd *'");
}

// --- Ranges of the host with kernels of a device. ---

/// A kernel, and the call of thread `thread` that launched it.
std::string launched(int correlation,
                     double launch,
                     int thread,
                     double begin,
                     double length,
                     std::string_view name = "gemm",
                     int stream = 7) {
    const std::string args = fmt::format(R"({{"correlation": {}}})", correlation);
    return at(launch, 1, "cudaLaunchKernel", thread, "cuda_runtime", args) + ",\n" +
           at(begin, length, name, stream, "kernel", args);
}

TEST(ParseTorchTrace, RangesOfTheHostAreAsLongAsTheKernelsThatTheyLaunched) {
    const TorchTrace found = read({at(0, 3, "PP:0F0", 1, "user_annotation"),
                                   launched(1, 1, 1, 100, 50),
                                   launched(2, 2, 1, 150, 25),
                                   at(4, 3, "PP:0B0", 1, "user_annotation"),
                                   launched(3, 5, 2, 180, 200)});  // from autograd's thread
    EXPECT_TRUE(found.on_gpu);
    EXPECT_FALSE(found.only_launches);
    EXPECT_THAT(found.stages.at(0).forward, ElementsAre(75us));
    EXPECT_THAT(found.stages.at(0).backward, ElementsAre(200us));
}

// PyTorch's own ranges of the GPU hold what their thread launched; backwards run in another.
TEST(ParseTorchTrace, KernelsThatOtherThreadsLaunchedBelongToTheRange) {
    const std::vector<std::string> host{at(0, 3, "PP:0F0", 1, "user_annotation"),
                                        launched(1, 1, 1, 100, 50),
                                        at(4, 3, "PP:0B0", 1, "user_annotation"),
                                        launched(2, 5, 2, 180, 200)};
    std::vector<std::string> forward_only = host;
    forward_only.push_back(at(100, 50, "PP:0F0", 7));
    const TorchTrace lacking = read(forward_only);
    EXPECT_THAT(lacking.stages.at(0).forward, ElementsAre(50us));
    EXPECT_THAT(lacking.stages.at(0).backward, ElementsAre(200us));
    std::vector<std::string> short_backward = forward_only;
    short_backward.push_back(at(379, 1, "PP:0B0", 7));
    const TorchTrace cut = read(short_backward);
    EXPECT_THAT(cut.stages.at(0).backward, ElementsAre(200us));
    EXPECT_THAT(cut.notes, ElementsAre(HasSubstr("kernels that other threads launched")));
}

TEST(ParseTorchTrace, KernelsBetweenMessagesAreAStageWhereNothingIsNamed) {
    std::vector<std::string> events;
    for (int i = 0; i < 4; ++i) {
        const double begin = i * 100;
        const bool forward = i < 2;
        events.push_back(at(begin, 10, "ncclDevKernel_SendRecv", 20, "kernel"));
        events.push_back(
            at(begin + 10, forward ? 20 : 40, forward ? "gemm_nn" : "gemm_nt", 7, "kernel"));
        events.push_back(at(begin + 10, forward ? 5 : 6, "all_gather", 9, "kernel"));
    }
    const TorchTrace found = read(events);
    EXPECT_TRUE(found.is_unlabelled);
    EXPECT_THAT(found.stages.at(own_stage).forward, ElementsAre(20us, 20us));
    EXPECT_THAT(found.stages.at(own_stage).backward, ElementsAre(40us, 40us));
}

TEST(ParseTorchTrace, StepsAreThoseOfTheMarks) {
    const TorchTrace found = read({at(0, 100, "ProfilerStep#5", 7),
                                   at(100, 100, "ProfilerStep#6", 7),
                                   at(0, 10, "PP:0F0", 7),
                                   at(20, 10, "PP:0B0", 7),
                                   at(120, 10, "PP:0F0", 7),
                                   at(140, 10, "PP:0B0", 7),
                                   at(240, 10, "PP:0F0", 7)});
    EXPECT_THAT(found.steps, ElementsAre(5, 5, 6, 6, -1));
}

// --- Costs. ---

TEST(StageProfile, CostsAreMediansAndTheSpreadIsTheWidest) {
    StageTimes stages;
    stages[0].forward = {1us, 9us, 2us};
    stages[0].backward = {5us, 3us};
    // 11 values of which the second lowest and the second highest are the 10 % marks.
    stages[1].forward = {10us, 10us, 10us, 10us, 10us, 10us, 10us, 10us, 10us, 10us, 10us};
    stages[1].backward = {99us};  // the parts count
    stages[1].backward_input = {6us, 8us, 8us, 8us, 8us, 8us, 8us, 8us, 8us, 12us, 99us};
    stages[1].backward_weight = {7us};
    const Profile profile = stage_profile(stages, 4, "x");
    EXPECT_EQ(profile.source, CostSource::Imported);
    ASSERT_EQ(profile.layers.size(), 2U);
    EXPECT_EQ(profile.layers[0].name, "stage0");
    const LayerSample& first = profile.layers[0].samples[0];
    EXPECT_EQ(first.micro_batch_size, 4);
    EXPECT_EQ(first.forward, 2us);
    EXPECT_EQ(first.backward(), 4us);
    EXPECT_EQ(first.backward_input, first.backward_weight);
    const LayerSample& second = profile.layers[1].samples[0];
    EXPECT_EQ(second.backward_input, 8us);
    EXPECT_EQ(second.backward_weight, 7us);
    EXPECT_DOUBLE_EQ(second.spread, (12.0 - 8.0) / 8.0);
}

TEST(StageProfile, NamesTheStageThatLacksSomething) {
    const StageDurations whole{.forward = {1us}, .backward = {2us}};
    const auto text = [](const StageTimes& stages) {
        return error_of([&] { stage_profile(stages, 1, "x"); }).text();
    };
    EXPECT_EQ(text({{0, whole}, {2, whole}}),
              "stage 1 has no range at all, though there are later stages");
    EXPECT_EQ(text({{0, {.backward = {1us}}}}), "stage 0 has no forward (F)");
    EXPECT_EQ(text({{0, {.forward = {1us}}}}), "stage 0 has no backward (B, or I and W)");
    EXPECT_EQ(text({{0, {.forward = {1us}, .backward_input = {1us}}}}),
              "stage 0 has no backward of the weights (W), but one of the input (I)");
}

}  // namespace torch_trace_test
}  // namespace pipetwin
