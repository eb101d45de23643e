// SPDX-License-Identifier: Apache-2.0
#include "core/interop/safetensors.h"

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/error_of.h"
#include "tests/support/mutate.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace safetensors_test {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

/// A header with its length in front.
std::string with_length(const std::string& json) {
    std::string file;
    for (unsigned i = 0; i < 8; ++i) {
        file += static_cast<char>(json.size() >> (8 * i) & 0xffU);
    }
    return file + json;
}

SafetensorsHeader parse(const std::string& json, std::int64_t data) {
    const std::string file = with_length(json);
    return parse_safetensors_header(file, static_cast<std::int64_t>(file.size()) + data, "x");
}

Error refusal(const std::string& json, std::int64_t data) {
    const Error error = error_of([&] { parse(json, data); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error;
}

/// The example of the format's own documentation, with a second tensor.
constexpr const char* two_tensors =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[],"data_offsets":[12,16]},)"
    R"("a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}}   )";

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
    const SafetensorsHeader header = parse(two_tensors, 16);
    ASSERT_EQ(header.tensors.size(), 2U);
    EXPECT_EQ(header.tensors[0], (SafetensorsEntry{"a", "F16", {2, 3}, 0, 12}));
    EXPECT_EQ(header.tensors[1], (SafetensorsEntry{"b", "F32", {}, 12, 16}));
    EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
    EXPECT_EQ(header.data_begin, static_cast<std::int64_t>(8 + std::string(two_tensors).size()));
    EXPECT_EQ(value_count(header.tensors[0], "x"), 6);
    EXPECT_EQ(value_count(header.tensors[1], "x"), 1);
    EXPECT_TRUE(parse("{}", 0).tensors.empty());
}

TEST(Safetensors, KnowsTheSizeOfEveryType) {
    for (const auto& [size, names] : std::vector<std::pair<int, std::vector<std::string>>>{
             {1, {"BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"}},
             {2, {"U16", "I16", "F16", "BF16"}},
             {4, {"U32", "I32", "F32"}},
             {8, {"U64", "I64", "F64"}}}) {
        for (const std::string& name : names) {
            const std::string json =
                fmt::format(R"({{"t":{{"dtype":"{}","shape":[5,0,3],"data_offsets":[0,0]}},)"
                            R"("u":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})",
                            name,
                            name,
                            3 * size);
            EXPECT_EQ(parse(json, 3 * size).tensors.size(), 2U) << name;
        }
    }
}

// --- One test per rule of the format. ---

TEST(Safetensors, AHeaderThatIsCutOffIsRefusedWithItsPlace) {
    const Error length = error_of([] { parse_safetensors_header("abc", 3, "x"); });
    EXPECT_EQ(length.place(), "x: byte 3");
    EXPECT_THAT(length.text(), HasSubstr("expected 8 bytes with the length of the header"));
    const std::string file = with_length(two_tensors).substr(0, 50);
    const Error json = error_of([&] { parse_safetensors_header(file, 50, "x"); });
    EXPECT_EQ(json.place(), "x: byte 50");
    EXPECT_EQ(json.text(),
              fmt::format("the file ends in its header, which is to end at byte {}",
                          8 + std::string(two_tensors).size()));
    EXPECT_THAT(json.hint(), HasSubstr("cut off"));
}

TEST(Safetensors, ALengthBeyondTheLimitIsRefusedBeforeAnythingIsRead) {
    std::string file(8, '\0');
    file[3] = 6;  // 6 * 2^24 = 100,663,296
    const Error error =
        error_of([&] { parse_safetensors_header(file, std::int64_t{1} << 40, "x"); });
    EXPECT_EQ(error.text(), "a header of 100663296 bytes, expected at most 100000000");
    file.assign(8, '\xff');
    EXPECT_THAT(error_of([&] { parse_safetensors_header(file, 1 << 20, "x"); }).text(),
                HasSubstr("18446744073709551615 bytes"));
}

TEST(Safetensors, AHeaderThatIsNoObjectIsRefused) {
    EXPECT_EQ(refusal(" {}", 0).place(), "x: byte 8");
    EXPECT_THAT(refusal("[]", 0).text(), HasSubstr("does not begin with '{'"));
    EXPECT_THAT(refusal("", 0).text(), HasSubstr("does not begin with '{'"));
    EXPECT_THAT(refusal("{]", 0).place(), HasSubstr("x: header:1:2"));
    EXPECT_THAT(refusal("{} {}", 0).place(), HasSubstr("x: header:1:"));
}

TEST(Safetensors, ADoubledNameIsRefused) {
    const std::string t = R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
    EXPECT_THAT(refusal(fmt::format("{{{0},{0}}}", t), 1).what(), HasSubstr("t"));
}

TEST(Safetensors, BrokenEntriesAreRefusedWithTheirPointer) {
    const auto one = [](const std::string& entry) { return refusal("{\"t\":" + entry + "}", 4); };
    EXPECT_THAT(one(R"({"dtype":"F23","shape":[1],"data_offsets":[0,4]})").what(),
                HasSubstr("x: header: /t/dtype: \"F23\", expected one of BOOL, U8"));
    EXPECT_THAT(one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})").place(),
                HasSubstr("/t/shape/0"));
    EXPECT_THAT(one(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})").place(),
                HasSubstr("/t/shape/0"));
    EXPECT_THAT(one(R"({"dtype":"F32","data_offsets":[0,4]})").text(), HasSubstr("missing"));
    EXPECT_THAT(one(R"({"dtype":"F32","shape":[1]})").text(), HasSubstr("[begin, end]"));
    EXPECT_THAT(one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})").text(),
                HasSubstr("end not below begin"));
    EXPECT_THAT(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})").text(),
                HasSubstr("unknown key"));
    EXPECT_THAT(one(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})").text(),
                HasSubstr("at most 8 dimensions"));
    EXPECT_THAT(refusal(R"({"__metadata__":{"n":1}})", 0).what(),
                HasSubstr("/__metadata__/n: 1, expected a text"));
    EXPECT_NO_THROW(
        parse(R"({"t":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4));
}

TEST(Safetensors, ASizeThatIsNotThatOfShapeAndTypeIsRefused) {
    const Error error = refusal(R"({"t":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,8]}})", 8);
    EXPECT_EQ(error.place(), "x: header: tensor 't'");
    EXPECT_EQ(error.text(), "8 bytes from 0 to 8, expected the 12 of BF16 [2, 3]");
}

/// 2^53 * 2^53, and 2^52 * 2^9 * 4: neither fits into 63 bits.
TEST(Safetensors, ProductsThatOverflowAreRefused) {
    for (const char* const shape :
         {"[9007199254740992,9007199254740992]", "[4503599627370496,512]"}) {
        EXPECT_THAT(
            refusal(
                fmt::format(R"({{"t":{{"dtype":"F32","shape":{},"data_offsets":[0,0]}}}})", shape),
                0)
                .text(),
            HasSubstr("more than 2^63 - 1"));
    }
}

TEST(Safetensors, HolesAndOverlapsAreRefused) {
    const auto two = [](const char* a, const char* b) {
        return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                           R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
                           a,
                           b);
    };
    EXPECT_EQ(parse(two("[4,8]", "[0,4]"), 8).tensors[0].name, "b");
    const Error hole = refusal(two("[0,4]", "[5,9]"), 9);
    EXPECT_EQ(hole.place(), "x: tensor 'b'");
    EXPECT_EQ(hole.text(), "begins at 5: bytes 4 to 5 belong to no tensor");
    EXPECT_EQ(refusal(two("[1,5]", "[5,9]"), 9).text(),
              "begins at 1: bytes 0 to 1 belong to no tensor");
    EXPECT_EQ(refusal(two("[0,4]", "[3,7]"), 7).text(),
              "begins at 3, in the bytes of another tensor, which end at 4");
    EXPECT_THAT(refusal(two("[0,4]", "[0,4]"), 4).text(), HasSubstr("in the bytes of another"));
}

TEST(Safetensors, TheLastTensorEndsWithTheFile) {
    const std::string json = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
    EXPECT_NO_THROW(parse(json, 4));
    const Error longer = refusal(json, 5);
    EXPECT_EQ(longer.text(), "1 byte behind the last tensor, expected none");
    EXPECT_EQ(longer.place(), fmt::format("x: byte {}", 8 + json.size() + 4));
    EXPECT_EQ(refusal(json, 3).text(), "the file ends, 1 byte before the last tensor does");
    EXPECT_THAT(refusal("{}", 1).text(), HasSubstr("expected none"));
}

// --- Writing. ---

TEST(Safetensors, WhatIsWrittenIsReadBack) {
    SafetensorsHeader header;
    header.metadata = {{"step", "7"}};
    header.tensors = {{.name = "w \"1\"", .dtype = "F32", .shape = {3, 5}},
                      {.name = "empty", .dtype = "F64", .shape = {0}},
                      {.name = "b", .dtype = "BF16", .shape = {7}}};
    place_tensors(header);
    EXPECT_EQ(header.tensors[2].begin, 60);
    EXPECT_EQ(header.tensors[2].end, 74);
    const std::string text = print_safetensors_header(header);
    EXPECT_EQ(text.size() % 8, 0U);
    EXPECT_EQ(text[8], '{');
    header.data_begin = static_cast<std::int64_t>(text.size());
    EXPECT_EQ(parse_safetensors_header(text, header.data_begin + 74, "x"), header);
}

TEST(Safetensors, AFileIsReadUpToTheEndOfItsHeader) {
    const tests::ScratchFolder folder;
    const std::filesystem::path file = folder.path() / "m.safetensors";
    std::ofstream(file, std::ios::binary) << with_length(two_tensors) << std::string(16, 'x');
    EXPECT_EQ(read_safetensors_header(file), parse(two_tensors, 16));
    std::filesystem::resize_file(file, 60);
    const Error error = error_of([&] { read_safetensors_header(file); });
    EXPECT_EQ(error.place(), file.string() + ": byte 60");
    EXPECT_EQ(error_of([&] { read_safetensors_header(folder.path() / "none"); }).kind(),
              ErrorKind::Io);
    EXPECT_EQ(error_of([&] { read_safetensors_header(folder.path()); }).kind(),
              ErrorKind::BadInput);
}

TEST(Safetensors, DamagedHeadersAreReadOrRefusedAndNothingElse) {
    std::mt19937_64 random(tests::seed());
    const std::string whole = with_length(two_tensors) + std::string(16, 'x');
    for (int i = 0; i < tests::soaked(5000); ++i) {
        const std::string damaged = testing::mutated(whole, random);
        try {
            const SafetensorsHeader header =
                parse_safetensors_header(damaged, static_cast<std::int64_t>(damaged.size()), "x");
            std::int64_t end = 0;
            for (const SafetensorsEntry& tensor : header.tensors) {
                EXPECT_EQ(tensor.begin, end);
                end = tensor.end;
            }
            EXPECT_EQ(header.data_begin + end, std::ssize(damaged));
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        }
    }
}

}  // namespace safetensors_test
}  // namespace pipetwin
