// SPDX-License-Identifier: Apache-2.0
#include "core/text/json_text.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/error_of.h"
#include "tests/support/mutate.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace json_text_test {

using testing::error_of;

Error refusal(std::string_view text, const JsonLimits& limits = {}) {
    return error_of([&] { (void)parse_json(text, "x.json", limits); });
}

TEST(ParseJson, BuildsWhatNlohmannBuilds) {
    for (const char* text : {"null",
                             "true",
                             "-12",
                             "0.125",
                             "1e300",
                             R"("a\u00e4\"\\")",
                             "[]",
                             "{}",
                             R"([1, [2, {"a": [], "b": {"c": null}}], "x"])",
                             R"({"a": {"b": [1, 2, 3]}, "c": -9007199254740992})",
                             "  9007199254740992  "}) {
        EXPECT_EQ(parse_json(text, "x.json"), nlohmann::json::parse(text)) << text;
    }
}

TEST(ParseJson, RefusesBrokenSyntaxWithLineAndColumn) {
    EXPECT_EQ(refusal("{\"a\": 1,\n \"b\" 2}").place(), "x.json:2:6");
    EXPECT_EQ(refusal("[1, 2").kind(), ErrorKind::BadInput);
    EXPECT_NE(refusal("[1, 2").text().find("unexpected end of input"), std::string::npos);
    for (const char* text : {"",
                             " ",
                             "{",
                             "[1,]",
                             "{\"a\"}",
                             "nul",
                             "01",
                             "+1",
                             "NaN",
                             "Infinity",
                             "'a'",
                             "\"\t\"",
                             "\"\xff\"",
                             "1 2",
                             "{} x",
                             "// c\n1",
                             "[1}",
                             "\"\\x\""}) {
        EXPECT_EQ(refusal(text).kind(), ErrorKind::BadInput) << text;
    }
}

TEST(ParseJson, RefusesDoubledKeysWithTheirPlace) {
    const Error error = refusal("{\n  \"a\": 1,\n  \"b\": 2,\n  \"a\": 3\n}");
    EXPECT_EQ(error.place(), "x.json:4:3");
    EXPECT_EQ(error.text(), "key 'a' occurs twice");
    EXPECT_EQ(refusal(R"({"a\"b": 1, "a\"b": 2})").place(), "x.json:1:13");
    EXPECT_NO_THROW((void)parse_json(R"([{"a": 1}, {"a": 1}])", "x.json"));
}

TEST(ParseJson, RefusesWholeNumbersThatAreNotExact) {
    const Error error = refusal("{\"a\": [1, 9007199254740993]}");
    EXPECT_EQ(error.place(), "x.json:1:11");
    EXPECT_NE(error.text().find("9007199254740993 is beyond 2^53"), std::string::npos);
    for (const char* text : {"18446744073709551616",  // 2^64, which nlohmann turns into a double
                             "-18446744073709551616",
                             "18446744073709551615",
                             "-9007199254740993",
                             "123456789012345678901234567890"}) {
        const Error one = refusal(text);
        EXPECT_EQ(one.place(), "x.json:1:1") << text;
        EXPECT_NE(one.text().find(text), std::string::npos) << one.text();
    }
}

TEST(ParseJson, RefusesNumbersThatOverflow) {
    EXPECT_EQ(refusal("1e400").kind(), ErrorKind::BadInput);
    EXPECT_EQ(refusal("[-1e400]").kind(), ErrorKind::BadInput);
}

TEST(ParseJson, ReadsBehindAByteOrderMarkAndCountsColumnsWithoutIt) {
    EXPECT_EQ(parse_json("\xEF\xBB\xBF[1]", "x.json"), nlohmann::json::parse("[1]"));
    EXPECT_EQ(refusal("\xEF\xBB\xBF[1 2]").place(), "x.json:1:4");
}

/// nlohmann's parser takes a byte of value 0 for the end of the text, and read what stood in front
/// of it as if it were all.
TEST(ParseJson, RefusesBytesOfValueZero) {
    using namespace std::string_view_literals;
    for (const std::string_view text : {"{}\0{\"a\": 1}"sv, "{\"a\": \"x\0\"}"sv, "[1, 2]\n\0"sv}) {
        const Error error = refusal(text);
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_NE(error.text().find("a byte of value 0"), std::string::npos) << error.text();
        EXPECT_FALSE(error.hint().empty());
    }
    EXPECT_EQ(refusal("[1, 2]\n\0"sv).place(), "x.json:2:1");
    EXPECT_NE(refusal("{\0\"\0a\0\"\0"sv).text().find("UTF-16LE"), std::string::npos);
}

TEST(ParseJson, RefusesDepthAndSizeAboveTheLimits) {
    const std::string deep = std::string(64, '[') + std::string(64, ']');
    EXPECT_NO_THROW((void)parse_json(deep, "x.json"));
    const Error error = refusal("[" + deep + "]");
    EXPECT_EQ(error.place(), "x.json:1:65");
    EXPECT_EQ(error.text(), "nested deeper than 64");
    EXPECT_EQ(refusal("[[]]", {.max_depth = 1}).text(), "nested deeper than 1");
    EXPECT_NE(refusal("[1, 2]", {.max_bytes = 5}).text().find("above the limit of 5"),
              std::string::npos);
    EXPECT_EQ(refusal(std::string(4'000'000, '[')).text(), "nested deeper than 64");
}

TEST(ParseJson, ShortensWhatItQuotes) {
    EXPECT_LT(refusal("\"" + std::string(50'000, 'a')).text().size(), 300U);
    EXPECT_LT(refusal(std::string(50'000, '1')).text().size(), 300U);
}

TEST(ParseJson, ThrowsNothingButErrorForDamagedTexts) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    std::mt19937_64 random(seed);
    const std::string text = R"({"a": [1, -2.5e3, "x\u00e4"], "b": {"c": null, "d": true}})";
    for (int round = 0; round < tests::soaked(2000); ++round) {
        const std::string damaged = testing::mutated(text, random);
        try {
            (void)parse_json(damaged, "x.json");
        } catch (const Error& error) {
            ASSERT_FALSE(error.text().empty()) << damaged;
        } catch (const std::exception& other) {
            FAIL() << other.what() << "\nfor\n" << damaged;
        }
    }
}

TEST(IsUtf8, AcceptsUtf8AndNothingElse) {
    EXPECT_TRUE(is_utf8(""));
    EXPECT_TRUE(is_utf8("plain"));
    EXPECT_TRUE(is_utf8("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"));
    for (const std::string_view bytes : {"\xff",
                                         "\x80",
                                         "\xc3",
                                         "\xc3(",
                                         "\xc0\xaf",
                                         "\xed\xa0\x80",
                                         "\xf4\x90\x80\x80",
                                         "\xe0\x80\x80",
                                         "a\xf0\x9f\x98"}) {
        EXPECT_FALSE(is_utf8(bytes));
    }
}

/// A folder of its own, removed at the end.
class Files : public ::testing::Test {
  protected:
    std::filesystem::path path(std::string_view name) const { return folder_ / name; }

    std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
            all.push_back(entry.path().filename());
        }
        return all;
    }

  private:
    tests::ScratchFolder folder_;
};

using ReadFile = Files;
using WriteFile = Files;

TEST_F(ReadFile, GivesBackWhatWasWritten) {
    std::string content = "line\r\n";
    content.append(300'000, '\0');
    write_file(path("a"), content);
    EXPECT_EQ(read_file(path("a"), 1 << 20), content);
    EXPECT_EQ(names(), (std::vector<std::string>{"a"}));
}

TEST_F(ReadFile, NamesTheFileAndTheReasonWhereItCannotBeRead) {
    const Error error = error_of([&] { (void)read_file(path("none"), 10); });
    EXPECT_EQ(error.kind(), ErrorKind::Io);
    EXPECT_EQ(error.place(), path("none").string());
    EXPECT_EQ(error.text(), "cannot open: No such file or directory");
}

TEST_F(ReadFile, RefusesMoreThanTheLimit) {
    write_file(path("a"), "12345");
    EXPECT_EQ(read_file(path("a"), 5), "12345");
    const Error error = error_of([&] { (void)read_file(path("a"), 4); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.text(), "larger than the limit of 4 bytes");
}

TEST_F(ReadFile, RefusesWhatIsNoRegularFileWithoutWaiting) {
    ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
    for (const std::filesystem::path& file :
         {path("fifo"), path(""), std::filesystem::path("/dev/zero")}) {
        const Error error = error_of([&] { (void)read_file(file, 10); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.text(), ::testing::HasSubstr("expected a regular file"));
    }
}

TEST_F(ReadFile, FollowsALinkToAFile) {
    write_file(path("a"), "content");
    std::filesystem::create_symlink(path("a"), path("link"));
    EXPECT_EQ(read_file(path("link"), 10), "content");
}

TEST_F(WriteFile, ReplacesTheContentAsAWhole) {
    write_file(path("a"), "a long first content");
    write_file(path("a"), "short");
    EXPECT_EQ(read_file(path("a"), 100), "short");
    EXPECT_EQ(names(), (std::vector<std::string>{"a"}));
}

TEST_F(WriteFile, ReplacesWhatALinkPointsTo) {
    write_file(path("a"), "old");
    std::filesystem::create_symlink("a", path("link"));
    write_file(path("link"), "new");
    EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
    EXPECT_EQ(read_file(path("a"), 100), "new");
}

TEST_F(WriteFile, NamesTheFileAndTheReasonWhereItCannotBeWritten) {
    const Error error = error_of([&] { write_file(path("none/a"), "x"); });
    EXPECT_EQ(error.kind(), ErrorKind::Io);
    EXPECT_EQ(error.place(), path("none/a").string());
    EXPECT_EQ(error.text(), "cannot write: No such file or directory");
    EXPECT_EQ(error_of([&] { write_file(path(""), "x"); }).kind(), ErrorKind::Io);
}

TEST_F(WriteFile, ReportsAFullDisk) {
    const Error error = error_of([] { write_file("/dev/full", "x"); });
    EXPECT_EQ(error.kind(), ErrorKind::Io);
    EXPECT_EQ(error.text(), "cannot write: No space left on device");
}

}  // namespace json_text_test
}  // namespace pipetwin
