// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/traces/torch_events.h"
#include "core/interop/traces/torch_trace.h"
#include "tests/support/error_of.h"

/// Traces of a profiler that was killed while it wrote: what is whole counts, and a note says where
/// the file ends.
namespace pipetwin {
namespace cut_trace_test {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

/// An event of 1 us at `begin`, or of `length`.
std::string event(std::string_view category,
                  std::string_view name,
                  int thread,
                  double begin,
                  double length = 1,
                  std::string_view args = "{}") {
    return fmt::format(
        R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 0, "tid": {}, "ts": {}, "dur": {}, )"
        R"("args": {}}})",
        category,
        name,
        thread,
        begin,
        length,
        args);
}

const std::string head =
    "{\"schemaVersion\": 1,\n\"distributedInfo\": {\"rank\": 3, \"world_size\": 4},\n"
    "\"traceEvents\": [\n";

/// A forward of 10 us and a backward of 20 us on the CPU.
const std::string pair = event("user_annotation", "PP:0F0", 1, 0, 10) + ",\n" +
                         event("user_annotation", "PP:0B0", 1, 10, 20);

TEST(CutTrace, WholeEventsBeforeTheEndCount) {
    const std::string next = event("user_annotation", "PP:0F1", 1, 30, 99);
    for (const std::string& rest : {std::string(),
                                    std::string("\n"),
                                    std::string(","),
                                    ",\n" + next.substr(0, 30),
                                    ",\n" + next.substr(0, next.size() - 1),
                                    std::string("]"),
                                    std::string("],\n\"trace")}) {
        const TorchTrace found = parse_torch_trace(head + pair + rest, "rank3.json");
        EXPECT_EQ(found.rank, 3);
        EXPECT_THAT(found.stages.at(0).forward, ElementsAre(10us)) << rest;
        EXPECT_THAT(found.stages.at(0).backward, ElementsAre(20us)) << rest;
        EXPECT_THAT(found.notes,
                    ElementsAre(::testing::StartsWith("the file ends too early, at rank3.json:")))
            << rest;
        EXPECT_THAT(found.notes.front(), HasSubstr("2 whole events before that count"));
    }
    EXPECT_THAT(parse_torch_trace(head + pair + "]}", "rank3.json").notes, IsEmpty());
}

/// Chrome's own format lets a list of events end without its bracket.
TEST(CutTrace, ABareListMayEndAnywhere) {
    const TorchTrace found = parse_torch_trace("[" + pair + ",", "x");
    EXPECT_THAT(found.stages.at(0).forward, ElementsAre(10us));
    EXPECT_THAT(found.notes, ElementsAre(HasSubstr("the file ends too early, at x:2:")));
}

TEST(CutTrace, AFileThatEndsBeforeItsFirstEventIsRefused) {
    for (const std::string& text : {head, head + pair.substr(0, 20), head + "]"}) {
        const Error error = error_of([&] { parse_torch_trace(text, "x.json"); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.place(), HasSubstr("x.json:4:")) << text;
        EXPECT_EQ(error.text(), "the file ends here, before its first whole event");
    }
    const Error early = error_of([] { parse_torch_trace(head.substr(0, 40), "x.json"); });
    EXPECT_THAT(early.hint(), HasSubstr("ends before its first event"));
}

/// A profiler writes kernels last: without them, the calls that launched them would count.
TEST(CutTrace, AFileThatEndsBeforeItsKernelsIsRefused) {
    const std::string launch =
        event("cuda_runtime", "cudaLaunchKernel", 1, 2, 1, R"({"correlation": 1})");
    const std::string cut = head + pair + ",\n" + launch;
    EXPECT_EQ(error_of([&] { parse_torch_trace(cut, "x.json"); }).text(),
              "the file ends here, before the kernels of the GPU, which a profiler writes last");
    const std::string kernel = event("kernel", "gemm", 7, 50, 8, R"({"correlation": 1})");
    EXPECT_THAT(parse_torch_trace(cut + ",\n" + kernel, "x.json").stages.at(0).forward,
                ElementsAre(8us));
}

/// The second forward has one of its two kernels: 8 us would be too short.
TEST(CutTrace, ARangeWithoutAllOfItsKernelsIsLeftOut) {
    std::string text = head + pair + ",\n" + event("user_annotation", "PP:0F1", 1, 30, 10);
    for (const int number : {1, 2, 3, 4}) {
        const double begin = number < 3 ? number : 28 + number;
        text += ",\n" + event("cuda_runtime",
                              "cudaLaunchKernelExC",
                              1,
                              begin,
                              0.5,
                              fmt::format(R"({{"correlation": {}}})", number));
    }
    text += ",\n" + event("cuda_runtime", "cudaLaunchKernel", 1, 12, 1, R"({"correlation": 9})");
    const auto kernel = [](int number, double begin) {
        return ",\n" +
               event(
                   "kernel", "gemm", 7, begin, 8, fmt::format(R"({{"correlation": {}}})", number));
    };
    text += kernel(1, 50) + kernel(2, 60) + kernel(9, 70) + kernel(3, 80);
    EXPECT_THAT(parse_torch_trace(text, "x").stages.at(0).forward, ElementsAre(18us));
    EXPECT_THAT(parse_torch_trace(text + "]}", "x").stages.at(0).forward, ElementsAre(18us, 8us));
}

/// A profiler of a CPU writes a range before its operators: F has one of 7 us, B nodes from 12 us
/// to 17 and from 17 to 28.
TEST(CutTrace, ARangeOfACpuWithoutAllOfItsOperatorsIsLeftOut) {
    const auto work = [](std::string_view name, double begin, double length, int thread) {
        return ",\n" + event("cpu_op",
                             name,
                             1,
                             begin,
                             length,
                             fmt::format(R"({{"Sequence number": {}, "Fwd thread id": {}}})",
                                         static_cast<int>(begin),
                                         thread));
    };
    constexpr std::string_view node = "autograd::engine::evaluate_function: AddmmBackward0";
    const std::string forward = head + pair + work("aten::linear", 1, 7, 0);
    const std::string half = forward + work(node, 12, 5, 1);
    const TorchTrace cut = parse_torch_trace(half, "x");
    EXPECT_THAT(cut.stages.at(0).forward, ElementsAre(7us));
    EXPECT_THAT(cut.stages.at(0).backward, IsEmpty());
    EXPECT_THAT(cut.notes, ElementsAre(HasSubstr("left out: 1 range whose operators it may lack")));
    const TorchTrace whole = parse_torch_trace(half + work(node, 17, 11, 1) + "]}", "x");
    EXPECT_THAT(whole.stages.at(0).forward, ElementsAre(7us));
    EXPECT_THAT(whole.stages.at(0).backward, ElementsAre(16us));
    EXPECT_THAT(whole.notes, IsEmpty());

    const Error none = error_of([&] { parse_torch_trace(forward, "x"); });
    EXPECT_THAT(none.text(), HasSubstr("no ranges of a forward, named PP:0F3"));
    EXPECT_THAT(none.text(), HasSubstr("the file ends too early, at x:6:"));
    EXPECT_THAT(none.text(), HasSubstr("left out: 2 ranges"));
    EXPECT_EQ(none.hint(), "export the trace again");
}

TEST(CutTrace, APatternThatFitsNothingOfACutFileSaysThatItIsCut) {
    const RangeNames names({{.op = Op::Forward, .text = "fwd"}});
    const Error none = error_of([&] { parse_torch_trace(head + pair, "x", names); });
    EXPECT_THAT(none.text(), HasSubstr("pattern of a forward, 'fwd'; the file ends too early"));
    EXPECT_EQ(none.hint(), "export the trace again");
}

}  // namespace cut_trace_test
}  // namespace pipetwin
