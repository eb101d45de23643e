// SPDX-License-Identifier: Apache-2.0
#include "core/base/printable.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>

namespace pipetwin {

namespace {

/// A character at the beginning of a text.
struct Character {
    std::uint32_t code = 0;
    std::size_t size = 0;  ///< bytes; 0: the bytes are no UTF-8
};

/// Decodes the first character of a text that is not empty, by RFC 3629.
Character first_character(std::string_view text) {
    const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = byte(0);
    if (lead < 0x80) {
        return {.code = lead, .size = 1};
    }
    const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    constexpr std::array<std::uint32_t, 5> smallest{0, 0, 0x80, 0x800, 0x10000};
    if (lead < 0xc2 || lead > 0xf4 || text.size() < size) {
        return {};
    }
    std::uint32_t code = lead & (0x7fU >> size);
    for (std::size_t i = 1; i < size; ++i) {
        if ((byte(i) & 0xc0U) != 0x80) {
            return {};
        }
        code = code << 6U | (byte(i) & 0x3fU);
    }
    const bool is_surrogate = code >= 0xd800 && code < 0xe000;
    const bool is_known = code >= smallest.at(size) && code <= 0x10ffff && !is_surrogate;
    return is_known ? Character{.code = code, .size = size} : Character{};
}

/// A range of characters, both ends included.
struct Characters {
    std::uint32_t first;
    std::uint32_t last;
};

/// Whether a terminal or a page would obey the character in place of showing it.
bool is_obeyed(std::uint32_t code) {
    if (code >= 0x20 && code < 0x7f) {
        return false;  // nearly all of them
    }
    constexpr std::array obeyed{Characters{0, 0x1f},          // C0
                                Characters{0x7f, 0x9f},       // DEL and C1
                                Characters{0x61c, 0x61c},     // a mark of direction
                                Characters{0x200e, 0x200f},   // marks of direction
                                Characters{0x2028, 0x202e},   // ends of lines, embeddings
                                Characters{0x2066, 0x2069},   // isolates
                                Characters{0xfff9, 0xfffb},   // annotations
                                Characters{0xfeff, 0xfeff}};  // a byte-order mark
    return std::ranges::any_of(obeyed, [code](const Characters& range) {
        return code >= range.first && code <= range.last;
    });
}

void append_escaped(std::string& to, std::uint32_t code) {
    switch (code) {
        case '\n':
            to += "\\n";
            break;
        case '\r':
            to += "\\r";
            break;
        case '\t':
            to += "\\t";
            break;
        default:
            fmt::format_to(std::back_inserter(to), "\\u{:04x}", code);
    }
}

/// The size of a sequence at the beginning of the text that sets a colour, and nothing else; 0
/// where there is none.
std::size_t size_of_colour(std::string_view text) {
    constexpr std::string_view begin = "\x1b[";
    if (!text.starts_with(begin)) {
        return 0;
    }
    const std::size_t end = text.find_first_not_of("0123456789;", begin.size());
    return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

/// Calls `keep` with the rest of the text at each character that would be obeyed; it returns how
/// many bytes stay as they are.
template <class Keep>
std::string escaped(std::string_view text, Keep keep) {
    std::string result;
    result.reserve(text.size());
    while (!text.empty()) {
        const Character next = first_character(text);
        const std::size_t kept = next.size == 0          ? 0
                                 : !is_obeyed(next.code) ? next.size
                                                         : keep(text);
        if (kept > 0) {
            result += text.substr(0, kept);
        } else if (next.size == 0) {
            fmt::format_to(
                std::back_inserter(result), "\\x{:02x}", static_cast<unsigned char>(text.front()));
        } else {
            append_escaped(result, next.code);
        }
        text.remove_prefix(std::max({kept, next.size, std::size_t{1}}));
    }
    return result;
}

}  // namespace

std::string printable(std::string_view text) {
    return escaped(text, [](std::string_view /*rest*/) { return std::size_t{0}; });
}

bool is_printable(std::string_view text) {
    while (!text.empty()) {
        const Character next = first_character(text);
        if (next.size == 0 || is_obeyed(next.code)) {
            return false;
        }
        text.remove_prefix(next.size);
    }
    return true;
}

std::string printable_lines(std::string_view text, Colours colours) {
    return escaped(text, [colours](std::string_view rest) -> std::size_t {
        if (rest.front() == '\n' || rest.front() == '\t') {
            return 1;
        }
        if (rest.starts_with("\r\n")) {
            return 2;
        }
        return colours == Colours::Kept ? size_of_colour(rest) : 0;
    });
}

std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

}  // namespace pipetwin
