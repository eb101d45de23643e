// SPDX-License-Identifier: Apache-2.0
#include "core/text/file_damage.h"

#include <string>
#include <string_view>

#include <gmock/gmock.h>

namespace pipetwin {
namespace file_damage_test {

using std::string_view;
using ::testing::HasSubstr;

/// The characters of an ASCII text in two bytes each: the low byte in front, or behind.
std::string in_two_bytes(string_view text, bool low_in_front) {
    std::string wide;
    for (const char c : text) {
        wide += low_in_front ? c : '\0';
        wide += low_in_front ? '\0' : c;
    }
    return wide;
}

TEST(FileDamage, WhatIsNoTextIsNamedWithOneThingToDo) {
    struct Case {
        std::string content;
        string_view what;
        string_view hint;
        std::size_t index = 0;
    };
    const string_view json = "{\"hidden_size\": 64}";
    const std::vector<Case> cases{
        {std::string("\x1f\x8b\x08\0\0", 5), "a file packed by gzip, expected JSON", "gzip -dc"},
        {"PK\x03\x04 and so on", "a zip archive", "unzip"},
        {"\x28\xb5\x2f\xfd and so on", "a file packed by zstd", "zstd -dc"},
        {std::string("\xfd\x37zXZ\0", 6), "a file packed by xz", "xz -dc"},
        {"BZh91AY", "a file packed by bzip2", "bzip2 -dc"},
        {std::string("GGUF\3\0\0\0", 8), "a GGUF file of weights", "published beside it"},
        {"\xFF\xFE" + in_two_bytes(json, true), "a text in UTF-16", "iconv -f UTF-16 -t"},
        {"\xFE\xFF" + in_two_bytes(json, false), "a text in UTF-16", "iconv -f UTF-16 -t"},
        {in_two_bytes(json, true), "a text in UTF-16LE", "iconv -f UTF-16LE -t"},
        {in_two_bytes(json, false), "a text in UTF-16BE", "iconv -f UTF-16BE -t"},
        {std::string("\xFF\xFE\0\0{\0\0\0", 8), "a text in UTF-32", "iconv -f UTF-32 -t"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
         "a pointer of Git LFS, not the file itself, expected JSON",
         "'git lfs pull'"},
        {"\n <!DOCTYPE html><html>", "a page of HTML or XML, expected JSON", "download the raw"},
        {"\xEF\xBB\xBF<html>", "a page of HTML or XML", "download the raw"},
        {std::string("{\"a\"\0: 1}", 9), "a byte of value 0, as no text has", "copy", 4},
        {std::string(512, '\0'), "nothing but bytes of value 0", "copy"}};
    for (const Case& one : cases) {
        const FileDamage damage = damage_of_file(one.content, "JSON");
        EXPECT_THAT(damage.what, HasSubstr(std::string(one.what)));
        EXPECT_THAT(damage.what, HasSubstr("expected JSON"));
        EXPECT_THAT(damage.hint, HasSubstr(std::string(one.hint)));
        EXPECT_EQ(damage.index, one.index) << one.what;
    }
}

TEST(FileDamage, TextsHaveNone) {
    for (const string_view content :
         {"", "{}", "\xEF\xBB\xBF{}", "0F0,0B0\r\n", "a\xc3\xa4", "BZ", "PK", "versions"}) {
        EXPECT_EQ(damage_of_file(content, "JSON").what, "") << content;
    }
}

}  // namespace file_damage_test
}  // namespace pipetwin
