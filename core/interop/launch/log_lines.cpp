// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/log_lines.h"

#include <algorithm>

namespace pipetwin {

namespace {

constexpr char escape = '\x1b';

/// The index behind an escape sequence that begins at `at`: "ESC [ parameters letter", or ESC and
/// one character.
std::size_t behind_escape(std::string_view line, std::size_t at) {
    ++at;
    if (at == line.size() || line[at] != '[') {
        return std::min(at + 1, line.size());
    }
    ++at;
    while (at < line.size() && (line[at] < '@' || line[at] > '~')) {
        ++at;
    }
    return std::min(at + 1, line.size());
}

std::string without_escapes(std::string_view line) {
    std::string plain;
    for (std::size_t i = 0; i < line.size();) {
        if (line[i] == escape) {
            i = behind_escape(line, i);
        } else {
            plain += line[i++];
        }
    }
    return plain;
}

}  // namespace

std::string_view trimmed_line(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
    text.remove_suffix(text.size() - std::min(text.find_last_not_of(blanks) + 1, text.size()));
    return text;
}

void for_each_log_line(std::string_view text,
                       const std::function<void(std::string_view line, int number)>& take) {
    for (int number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        while (line.ends_with('\r')) {
            line.remove_suffix(1);
        }
        do {  // a bar of progress writes its updates over one another
            const std::size_t update_end = std::min(line.find('\r'), line.size());
            const std::string_view update = line.substr(0, update_end);
            line.remove_prefix(std::min(update_end + 1, line.size()));
            if (update.empty() && !line.empty()) {
                continue;
            }
            if (update.find(escape) == std::string_view::npos) {
                take(update, number);
            } else {
                take(without_escapes(update), number);
            }
        } while (!line.empty());
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

}  // namespace pipetwin
