// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pipetwin::tests {

enum class ByteOrder : std::uint8_t { LittleEndian, BigEndian };

/// Texts and their translations.
using MoRows = std::vector<std::pair<std::string, std::string>>;

/// A catalogue as the gettext manual describes it: seven numbers, the two tables, and the strings,
/// each with a 0 behind it.
inline std::string mo_file(const MoRows& rows, ByteOrder order = ByteOrder::LittleEndian) {
    const auto number = [order](std::size_t value) {
        std::string bytes;
        for (int i = 0; i < 4; ++i) {
            bytes +=
                static_cast<char>(value >> (8 * (order == ByteOrder::LittleEndian ? i : 3 - i)));
        }
        return bytes;
    };
    const std::size_t tables = 28;
    std::string originals;
    std::string translations;
    std::string strings;
    const std::size_t begin = tables + 16 * rows.size();
    for (const auto& [from, to] : rows) {
        originals += number(from.size()) + number(begin + strings.size());
        strings += from + '\0';
        translations += number(to.size()) + number(begin + strings.size());
        strings += to + '\0';
    }
    return number(0x950412de) + number(0) + number(rows.size()) + number(tables) +
           number(tables + 8 * rows.size()) + number(0) + number(0) + originals + translations +
           strings;
}

}  // namespace pipetwin::tests
