#include <zlib.h>

#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
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
    const std::size_t half = bytes.size() / 2;
    const auto cut = folder_.write("cut.json.gz", bytes.substr(0, half));
    const Error short_one = error_of([&] { read_torch_events(cut, {}); });
    EXPECT_THAT(short_one.place(), HasSubstr(fmt::format("cut.json.gz: byte {}", half)));
    EXPECT_THAT(short_one.text(), HasSubstr("it ends before its last block"));
    bytes[bytes.size() - 6] = static_cast<char>(bytes[bytes.size() - 6] ^ 0x55);  // of the checksum
    const auto changed = folder_.write("changed.json.gz", bytes);
    const Error other = error_of([&] { read_torch_events(changed, {}); });
    EXPECT_THAT(other.place(), ::testing::ContainsRegex("changed.json.gz: byte [0-9]+$"));
    EXPECT_THAT(other.text(), HasSubstr("incorrect data check"));
}

}  // namespace trace_limits_test
}  // namespace pipetwin
