// SPDX-License-Identifier: Apache-2.0
#include "cli/base/shell_word.h"

#include <fmt/format.h>

#include "core/base/printable.h"

namespace pipetwin::cli {
namespace {

/// The word between $' and ', where bash and POSIX shells since 2024 take \x1b for a byte.
std::string with_escapes(std::string_view word) {
    std::string quoted = "$'";
    for (const char letter : word) {
        const auto byte = static_cast<unsigned char>(letter);
        if (letter == '\'' || letter == '\\') {
            quoted += '\\';
            quoted += letter;
        } else {
            quoted += byte < 0x20 || byte >= 0x7f ? fmt::format("\\x{:02x}", byte)
                                                  : std::string(1, letter);
        }
    }
    return quoted + "'";
}

}  // namespace

std::string shell_word(std::string_view word) {
    constexpr std::string_view plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,=:+-";
    if (!word.empty() && word.find_first_not_of(plain) == std::string_view::npos) {
        return std::string(word);
    }
    if (!is_printable(word)) {
        return with_escapes(word);
    }
    std::string quoted = "'";
    for (const char letter : word) {
        quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    }
    return quoted + "'";
}

}  // namespace pipetwin::cli
