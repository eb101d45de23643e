// SPDX-License-Identifier: Apache-2.0
#include "core/text/file_damage.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace pipetwin {

namespace {

using std::string_view;

/// The bytes that files of a kind begin with.
struct FileStart {
    string_view bytes;
    string_view kind;
    string_view hint;
};

constexpr string_view give_text = "give the text file that was published beside it";

/// RFC 1952; PKWARE's APPNOTE 4.3.7; RFC 8878; the .xz file format 1.1; bzip2; GGUF; HDF5's format
/// specification.
constexpr std::array file_starts{
    FileStart{string_view("\x1f\x8b", 2),
              "a file packed by gzip",
              "unpack it first: gzip -dc FILE > NEW_FILE"},
    FileStart{string_view("PK\x03\x04", 4),
              "a zip archive",
              "give the file that is inside of it: unzip FILE"},
    FileStart{string_view("\x28\xb5\x2f\xfd", 4),
              "a file packed by zstd",
              "unpack it first: zstd -dc FILE > NEW_FILE"},
    FileStart{string_view("\xfd\x37zXZ\0", 6),
              "a file packed by xz",
              "unpack it first: xz -dc FILE > NEW_FILE"},
    FileStart{"BZh", "a file packed by bzip2", "unpack it first: bzip2 -dc FILE > NEW_FILE"},
    FileStart{"GGUF", "a GGUF file of weights", give_text},
    FileStart{string_view("\x89HDF\r\n\x1a\n", 8), "an HDF5 file", give_text},
};

/// Whether a content begins with ASCII characters that have a byte of value 0 beside each: in front
/// of it (`zero` = 0), or behind it (1).
bool has_zero_in_each_pair(string_view content, std::size_t zero) {
    const string_view head = content.substr(0, 8);
    for (std::size_t i = 0; i < head.size(); ++i) {
        if ((head[i] == '\0') != (i % 2 == zero)) {
            return false;
        }
    }
    return head.size() >= 4;
}

/// The name that iconv has for the encoding of a text in two or four bytes per character; empty for
/// others.
string_view wide_encoding(string_view content) {
    if (content.starts_with(string_view("\xFF\xFE\0\0", 4)) ||
        content.starts_with(string_view("\0\0\xFE\xFF", 4))) {
        return "UTF-32";
    }
    if (content.starts_with("\xFF\xFE") || content.starts_with("\xFE\xFF")) {
        return "UTF-16";
    }
    return has_zero_in_each_pair(content, 1)   ? "UTF-16LE"
           : has_zero_in_each_pair(content, 0) ? "UTF-16BE"
                                               : "";
}

FileDamage zeros_in(string_view content, string_view expected) {
    const std::size_t first = content.find('\0');
    if (first == string_view::npos) {
        return {};
    }
    const bool only = content.find_first_not_of('\0') == string_view::npos;
    return {fmt::format("{}, expected {}",
                        only ? "nothing but bytes of value 0" : "a byte of value 0, as no text has",
                        expected),
            "the file is damaged, or no text: copy or download it again",
            first};
}

}  // namespace

FileDamage damage_of_file(string_view content, string_view expected) {
    const auto damage = [expected](string_view kind, string_view hint) {
        return FileDamage{fmt::format("{}, expected {}", kind, expected), std::string(hint)};
    };
    const auto start = std::ranges::find_if(file_starts, [content](const FileStart& known) {
        return content.starts_with(known.bytes);
    });
    if (start != file_starts.end()) {
        return damage(start->kind, start->hint);
    }
    if (const string_view encoding = wide_encoding(content); !encoding.empty()) {
        return damage(
            fmt::format("a text in {}", encoding),
            fmt::format("save it in UTF-8: iconv -f {} -t UTF-8 FILE > NEW_FILE", encoding));
    }
    if (content.starts_with("version https://git-lfs")) {
        return damage("a pointer of Git LFS, not the file itself",
                      "'git lfs pull' brings the file");
    }
    string_view text = content;
    text.remove_prefix(text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first != string_view::npos && text[first] == '<') {
        return damage("a page of HTML or XML",
                      "an error or a page around the file was saved in place of it: download the "
                      "raw file");
    }
    return zeros_in(content, expected);
}

}  // namespace pipetwin
