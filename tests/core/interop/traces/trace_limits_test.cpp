// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/interop/traces/otlp_events.h"
#include "core/interop/traces/torch_events.h"
#include "core/interop/traces/torch_trace.h"
#include "core/text/json_text.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin {
namespace trace_limits_test {

using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;

/// A file that grows as it is unpacked: `unit` `times` times between `head` and `tail`.
class TraceLimitsTest : public ::testing::Test {
  protected:
    std::filesystem::path packed(std::string_view head,
                                 const std::string& unit,
                                 int times,
                                 std::string_view tail) const {
        const std::filesystem::path path = folder_.path() / "rank0.json.gz";
        const gzFile file = gzopen(path.c_str(), "wb1");
        const auto put = [file](std::string_view text) {
            EXPECT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())),
                      static_cast<int>(text.size()));
        };
        put(head);
        for (int i = 0; i < times; ++i) {
            put(unit);
        }
        put(tail);
        gzclose(file);
        return path;
    }

    tests::ScratchFolder folder_;
};

const std::string megabyte(std::size_t{1} << 20, 'x');

TEST_F(TraceLimitsTest, ANameOfManyMegabytesIsRefusedBeforeItIsHeldWhateverTheFilesSize) {
    const auto file = packed(R"({"traceEvents": [{"ph": "X", "name": ")", megabyte, 200, R"("}]})");
    EXPECT_LT(std::filesystem::file_size(file), std::uintmax_t{2} << 20);
    const Error error = error_of([&] { read_torch_events(file, {}); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.place(), HasSubstr("rank0.json.gz: byte "));
    EXPECT_THAT(error.text(), HasSubstr("a name, a number or blank space of more than 16.00 MiB"));
    EXPECT_THAT(error.hint(), Not(::testing::IsEmpty()));
}

TEST_F(TraceLimitsTest, BlankSpaceAndNumbersHaveTheSameLimitAsNames) {
    const std::string blanks(std::size_t{1} << 20, ' ');
    const std::string digits(std::size_t{1} << 20, '1');
    for (const std::string& unit : {blanks, digits}) {
        const auto file = packed(R"({"traceEvents": [{"ph": "X", "ts": 1)", unit, 40, "}]}");
        EXPECT_THAT(error_of([&] { read_torch_events(file, {}); }).text(),
                    HasSubstr("of more than 16.00 MiB"));
    }
}

TEST_F(TraceLimitsTest, TextBeyondTheLimitIsRefusedHoweverManyValuesItHas) {
    std::string values;
    while (values.size() < 60'000) {
        values += R"({"ph": "i", "name": "mark"},)";
    }
    const auto file = packed(R"({"traceEvents": [)", values, 100, R"({"ph": "i"}]})");
    const TraceLimits limits{.bytes = std::uint64_t{1} << 20U};
    const Error error = error_of([&] { read_torch_events(file, {}, limits); });
    EXPECT_THAT(error.text(), HasSubstr("more than 1.00 MiB of text once it is unpacked"));
    EXPECT_NO_THROW(read_torch_events(file, {}));
}

TEST(TraceLimits, AreFourGibibytesOfTextAndSixteenMebibytesOfOneName) {
    EXPECT_EQ(TraceLimits{}.bytes, 4ULL * 1024 * 1024 * 1024);
    EXPECT_EQ(TraceLimits{}.token_bytes, 16ULL * 1024 * 1024);
    EXPECT_EQ(TraceLimits{}.kept_bytes, 256ULL * 1024 * 1024);
}

// The JSON parser keeps the brackets that follow each other: 600 MB of them took 1 GB.
TEST_F(TraceLimitsTest, BracketsAloneHaveTheLimitOfAName) {
    for (const std::string_view unit : {"[[]],", "{},", R"(null,)"}) {
        std::string many;
        while (many.size() < std::size_t{1} << 20) {
            many += unit;
        }
        const auto file = packed(R"({"traceEvents": [)", many, 20, "{}]}");
        const Error error = error_of([&] { read_torch_events(file, {}); });
        EXPECT_THAT(error.place(), HasSubstr("rank0.json.gz: byte 14 of the unpacked text"))
            << unit;
        EXPECT_THAT(error.text(), HasSubstr("of more than 16.00 MiB begins here")) << unit;
    }
}

// Such a file of 5 MB was read for 29 s before it was refused.
TEST_F(TraceLimitsTest, APackedFileThatGrowsAsNoTraceDoesIsRefusedEarly) {
    std::string events;
    while (events.size() < 60'000) {
        events += R"({"ph":"X"},)";
    }
    const auto file = packed(R"({"traceEvents": [)", events, 80, R"({"ph": "i"}]})");
    ASSERT_GT(std::uint64_t{60'000} * 80, 64 * std::filesystem::file_size(file));
    const TraceLimits limits{.text_beyond_doubt = std::uint64_t{1} << 20U};
    const Error error = error_of([&] { read_torch_events(file, {}, limits); });
    EXPECT_THAT(error.place(), ::testing::ContainsRegex("rank0.json.gz: byte [0-9]+$"));
    EXPECT_THAT(error.text(), HasSubstr("it unpacks to more than 64 times its size, 1."));
    EXPECT_THAT(error.hint(), HasSubstr("gzip -dc FILE > NEW_FILE"));
    EXPECT_NO_THROW(read_torch_events(file, {}));  // so short a text is beyond doubt
    std::string text = R"({"traceEvents": [)";
    for (int i = 0; i < 80; ++i) {
        text += events;
    }
    const auto plain = folder_.write("rank0.json", text + R"({"ph": "i"}]})");
    EXPECT_NO_THROW(read_torch_events(plain, {}, limits));
}

TEST_F(TraceLimitsTest, ATraceWhoseEventsDifferIsReadHoweverWellItPacks) {
    std::string events;
    for (int i = 0; i < 20'000; ++i) {
        events += fmt::format(
            R"({{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 131, "tid": 131,)"
            R"( "ts": {}.125, "dur": 4.500, "args": {{"External id": {}, "Ev Idx": {}}}}},)",
            1'000'000 + 7 * i,
            i,
            i);
    }
    const auto file = packed(R"({"traceEvents": [)", events, 1, R"({"ph": "i"}]})");
    EXPECT_NO_THROW(read_torch_events(file, {}, {.text_beyond_doubt = 1}));
}

TEST_F(TraceLimitsTest, WhatIsKeptCountsSixtyFourBytesAnEventAtLeast) {
    std::string launches;
    for (int i = 0; i < 100; ++i) {
        launches += R"({"ph":"X","cat":"cuda_runtime","ts":1,"args":{"correlation":1}},)";
    }
    const auto file = packed(R"({"traceEvents": [)", launches, 1, R"({"ph": "i"}]})");
    // One thread, and launches.
    EXPECT_NO_THROW(read_torch_events(file, {}, {.kept_bytes = 100 * 64 + 200}));
    const Error error =
        error_of([&] { read_torch_events(file, {}, {.kept_bytes = 90 * std::uint64_t{64}}); });
    EXPECT_THAT(error.text(), HasSubstr("more than 5.62 KiB up to here: "));
    EXPECT_THAT(error.text(), HasSubstr(" events, names and threads"));
}

TEST_F(TraceLimitsTest, MembersOfGzipThatFollowEachOtherAreOneText) {
    const std::string first =
        read_file(packed(R"({"traceEvents": [{"ph": "X", "cat": "ker)", "", 0, ""), 1 << 20);
    const std::string empty = read_file(packed("", "", 0, ""), 1 << 20);
    const std::string second =
        read_file(packed(R"(nel", "name": "gemm", "ts": 1, "dur": 2}]})", "", 0, ""), 1 << 20);
    const auto both = folder_.write("both.json.gz", first + empty + second);
    EXPECT_EQ(read_torch_events(both, {}).kernels.size(), 1U);
}

/// A line that is not there leaves no half document: only the packed file shows that it is cut.
TEST_F(TraceLimitsTest, SpansOfAPackedFileThatIsCutBehindALineSayIt) {
    const std::string line = R"({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "PP:0F0", )"
                             R"("startTimeUnixNano": 1, "endTimeUnixNano": 2}]}]}]})"
                             "\n";
    const std::string whole = read_file(packed(line, line, 1, ""), 1 << 20);
    EXPECT_EQ(read_otlp_events(folder_.write("whole.jsonl.gz", whole), {}).front().cut, "");
    const auto cut = folder_.write("cut.jsonl.gz", whole.substr(0, whole.size() - 6));
    EXPECT_THAT(read_otlp_events(cut, {}).front().cut,
                HasSubstr("2 whole documents before that count"));
}

// zlib's gzread overlooks what stands behind the last member.
TEST_F(TraceLimitsTest, BytesBehindTheEndOfAPackedFileAreNotOverlooked) {
    const std::string whole = read_file(packed(R"({"traceEvents": []})", "", 0, ""), 1 << 20);
    for (const std::string& more : {std::string("x"),
                                    std::string(512, '\0'),
                                    std::string("\x1f"),
                                    std::string(R"({"traceEvents": []})")}) {
        const auto file = folder_.write("more.json.gz", whole + more);
        const Error error = error_of([&] { read_torch_events(file, {}); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.place(), HasSubstr(fmt::format("more.json.gz: byte {}", whole.size())));
        EXPECT_THAT(error.text(), HasSubstr("behind the end of what gzip packed"));
        EXPECT_THAT(error.hint(), Not(::testing::IsEmpty()));
    }
}

/// A text of so many events.
template <class Event>
std::string text_of(int events, Event event) {
    std::string text = R"({"traceEvents": [)";
    for (int i = 0; i < events; ++i) {
        text += event(i);
    }
    return text + R"({"ph": "i"}]})";
}

// Each of these took time as the square of the events, which is hours for what a trace may hold.
TEST_F(TraceLimitsTest, StepsAreFoundForManyRangesAmongManyMarks) {
    constexpr int steps = 200'000;
    const std::string text = text_of(steps, [](int i) {
        return fmt::format(R"({{"ph":"X","name":"ProfilerStep#{}","ts":{},"dur":9}},)"
                           R"({{"ph":"X","name":"PP:0F0","ts":{},"dur":1}},)",
                           i,
                           10 * i,
                           10 * i + 3);
    });
    const TorchTrace trace = parse_torch_trace(text, "rank0.json");
    ASSERT_EQ(trace.steps.size(), std::size_t{steps});
    for (int i = 0; i < steps; ++i) {
        ASSERT_EQ(trace.steps[static_cast<std::size_t>(i)], i);
    }
}

TEST_F(TraceLimitsTest, AMomentIsOfTheFirstMarkInTheTraceThatHoldsIt) {
    const std::string text =
        R"({"traceEvents": [{"ph":"X","name":"ProfilerStep#7","ts":10,"dur":10},
{"ph":"X","name":"ProfilerStep#8","ts":0,"dur":100},{"ph":"X","name":"ProfilerStep#9","ts":90,"dur":20},
{"ph":"X","name":"PP:0F0","ts":5,"dur":1},{"ph":"X","name":"PP:0F1","ts":15,"dur":1},
{"ph":"X","name":"PP:0F2","ts":20,"dur":1},{"ph":"X","name":"PP:0F3","ts":95,"dur":1},
{"ph":"X","name":"PP:0F4","ts":100,"dur":1},{"ph":"X","name":"PP:0F5","ts":110,"dur":1}]})";
    EXPECT_THAT(parse_torch_trace(text, "rank0.json").steps,
                ::testing::ElementsAre(8, 7, 8, 8, 9, -1));
}

TEST_F(TraceLimitsTest, ImpossibleLengthsAreFoundAmongManyRanges) {
    constexpr int ranges = 200'000;
    const std::string text = text_of(ranges, [](int i) {
        // A fifth of them is longer than twice the others, and overlaps the next one.
        return fmt::format(
            R"({{"ph":"X","cat":"gpu_user_annotation","name":"PP:0F1","ts":{},"dur":{},"tid":8}},)"
            R"({{"ph":"X","cat":"gpu_user_annotation","name":"PP:0SEND_F1","ts":{},"dur":{},"tid":9}},)",
            4 * i,
            i % 5 == 0 ? 9 : 2,
            4 * i,
            i % 5 == 0 ? 9 : 2);
    });
    const TorchTrace trace = parse_torch_trace(text, "rank0.json");
    EXPECT_EQ(trace.stages.at(0).forward.size(), std::size_t{ranges / 5 * 4});
}

TEST_F(TraceLimitsTest, KernelsAreFoundForManyStages) {
    constexpr int stages = 50'000;
    const std::string text = text_of(stages, [](int i) {
        return fmt::format(
            R"({{"ph":"X","name":"PP:{0}F0","ts":{1},"dur":3,"tid":1}},)"
            R"({{"ph":"X","cat":"cuda_runtime","ts":{2},"tid":1,"args":{{"correlation":{0}}}}},)"
            R"({{"ph":"X","cat":"kernel","name":"k","ts":{2},"dur":2,"tid":7,"args":{{"correlation":{0}}}}},)",
            i,
            10 * i,
            10 * i + 1);
    });
    const TorchTrace trace = parse_torch_trace(text, "rank0.json");
    EXPECT_TRUE(trace.on_gpu);
    ASSERT_EQ(trace.stages.size(), std::size_t{stages});
    EXPECT_THAT(trace.stages.at(stages - 1).forward,
                ::testing::ElementsAre(std::chrono::microseconds(2)));
}

TEST_F(TraceLimitsTest, TheOptimizersKernelsAreFoundAmongManyOfItsSteps) {
    constexpr int steps = 100'000;
    // Forward, send, backward, and an optimizer's step that would be a part of the backward.
    const std::string text = text_of(steps, [](int i) {
        std::string events = fmt::format(
            R"({{"ph":"X","name":"Optimizer.step#A","ts":{},"dur":5,"tid":1}},)", 100 * i + 30);
        int at = 0;
        for (const auto& [name, length] : {std::pair("f", 2),
                                           std::pair("ncclDevKernel_SendRecv", 1),
                                           std::pair("b", 4),
                                           std::pair("o", 9)}) {
            events += fmt::format(
                R"({{"ph":"X","cat":"cuda_runtime","ts":{0},"tid":1,"args":{{"correlation":{1}}}}},)"
                R"({{"ph":"X","cat":"kernel","name":"{2}","ts":{0},"dur":{3},"tid":{4},"args":{{"correlation":{1}}}}},)",
                100 * i + 11 * at,
                4 * i + at,
                name,
                length,
                at == 1 ? 9 : 7);
            ++at;
        }
        return events;
    });
    const TorchTrace trace = parse_torch_trace(text, "rank0.json");
    const StageDurations& stage = trace.stages.at(own_stage);
    EXPECT_THAT(stage.forward, ::testing::Each(std::chrono::microseconds(2)));
    EXPECT_THAT(stage.backward, ::testing::Each(std::chrono::microseconds(4)));
    EXPECT_EQ(stage.forward.size(), std::size_t{steps});
}

TEST_F(TraceLimitsTest, AsManyBytesAsTheLimitAreReadAndOneMoreIsNot) {
    constexpr std::string_view text = R"({"traceEvents": []})";
    const auto file = packed(text, " ", 100'000, "");
    const std::uint64_t all = text.size() + 100'000;
    EXPECT_NO_THROW(read_torch_events(file, {}, {.bytes = all}));
    EXPECT_EQ(error_of([&] { read_torch_events(file, {}, {.bytes = all - 1}); }).kind(),
              ErrorKind::BadInput);
}

TEST_F(TraceLimitsTest, WhatIsKeptHasALimitWhetherItIsKernelsLanesOrNames) {
    const auto refused = [this](const std::string& events) {
        const auto file = packed(R"({"traceEvents": [)", events, 400, R"({"ph": "i"}]})");
        const TraceLimits limits{.kept_bytes = std::uint64_t{100} << 10U};
        const Error error = error_of([&] { read_torch_events(file, {}, limits); });
        EXPECT_THAT(error.text(), HasSubstr("takes more than 100.00 KiB up to here"));
        EXPECT_THAT(error.hint(), HasSubstr("record fewer steps"));
    };
    std::string kernels;
    std::string names;
    for (int i = 0; i < 40; ++i) {
        kernels += R"({"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 1},)";
        names +=
            fmt::format(R"({{"ph": "X", "cat": "kernel", "name": "{}{}", "ts": 1, "dur": 1}},)",
                        std::string(500, 'k'),
                        i);
    }
    refused(kernels);
    refused(names);
}

TEST_F(TraceLimitsTest, BytesBehindAByteOfValueZeroAreNotOverlooked) {
    std::string text = R"({"traceEvents": []})";
    text += '\0';
    text += R"({"traceEvents": [)";
    for (const bool is_packed : {false, true}) {
        const auto file = is_packed ? packed(text, "", 0, "") : folder_.write("rank0.json", text);
        const Error error = error_of([&] { read_torch_events(file, {}); });
        EXPECT_THAT(error.place(), HasSubstr(": byte 19 of the unpacked text"));
        EXPECT_THAT(error.text(), HasSubstr("a byte of value 0"));
    }
}

TEST_F(TraceLimitsTest, DamageOfAPackedFileIsToldWithItsByte) {
    const auto file = packed(R"({"traceEvents": [)", R"({"ph": "i"},)", 50'000, R"({"ph": "i"}]})");
    std::string bytes = read_file(file, std::size_t{1} << 20);
    bytes[bytes.size() - 6] = static_cast<char>(bytes[bytes.size() - 6] ^ 0x55);  // of the checksum
    const auto changed = folder_.write("changed.json.gz", bytes);
    const Error other = error_of([&] { read_torch_events(changed, {}); });
    EXPECT_THAT(other.place(), ::testing::ContainsRegex("changed.json.gz: byte [0-9]+$"));
    EXPECT_THAT(other.text(), HasSubstr("incorrect data check"));
}

}  // namespace trace_limits_test
}  // namespace pipetwin
