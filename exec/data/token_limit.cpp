// SPDX-License-Identifier: Apache-2.0
#include "exec/data/token_limit.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/base/simd_targets.h"

namespace pipetwin::exec {
namespace {

template <class Token>
PIPETWIN_INLINE bool has_above_in(const Token* tokens, std::size_t count, Token most) {
    Token largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        largest = std::max(largest, tokens[i]);
    }
    return largest > most;
}

PIPETWIN_SIMD_TARGETS
bool has_above(const std::uint16_t* tokens, std::size_t count, std::uint16_t most) {
    return has_above_in(tokens, count, most);
}

PIPETWIN_SIMD_TARGETS
bool has_above(const std::uint32_t* tokens, std::size_t count, std::uint32_t most) {
    return has_above_in(tokens, count, most);
}

template <class Token>
std::size_t first_above_of(std::span<const std::byte> bytes, std::size_t most) {
    const std::size_t count = bytes.size() / sizeof(Token);
    if (most >= std::numeric_limits<Token>::max()) {
        return count;
    }
    const auto limit = static_cast<Token>(most);
    // The bytes of a file may begin at any address: a few are copied to where numbers may lie.
    constexpr std::size_t at_once = 2048;
    Token piece[at_once];  // NOLINT(modernize-avoid-c-arrays): not initialized
    for (std::size_t begin = 0; begin < count; begin += at_once) {
        const std::size_t length = std::min(at_once, count - begin);
        std::memcpy(piece, bytes.data() + begin * sizeof(Token), length * sizeof(Token));
        if (has_above(piece, length, limit)) {
            const Token* const found =
                std::find_if(piece, piece + length, [&](Token id) { return id > limit; });
            return begin + static_cast<std::size_t>(found - piece);
        }
    }
    return count;
}

}  // namespace

std::size_t first_above(std::span<const std::byte> tokens,
                        std::size_t token_bytes,
                        std::size_t most) {
    return token_bytes == sizeof(std::uint16_t) ? first_above_of<std::uint16_t>(tokens, most)
                                                : first_above_of<std::uint32_t>(tokens, most);
}

}  // namespace pipetwin::exec
