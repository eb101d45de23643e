// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <random>
#include <string>

namespace pipetwin::testing {

/// The text with one to four small damages: bytes flipped, cut out, doubled or inserted, or the end
/// lost.
inline std::string mutated(std::string text, std::mt19937_64& random) {
    const auto below = [&random](std::size_t limit) {
        return limit == 0 ? std::size_t{0} : static_cast<std::size_t>(random() % limit);
    };
    const std::size_t damages = 1 + below(4);
    for (std::size_t damage = 0; damage < damages && !text.empty(); ++damage) {
        const std::size_t at = below(text.size());
        switch (below(6)) {
            case 0:
                text[at] =
                    static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1U << below(8)));
                break;
            case 1:
                text.erase(at, 1 + below(8));
                break;
            case 2:
                text.insert(at, text.substr(below(text.size()), below(16)));
                break;
            case 3:
                text.insert(at, 1, static_cast<char>(below(256)));
                break;
            case 4:
                text[at] = "0129.-+e\"'[]{},:=#\n"[below(19)];
                break;
            default:
                text.resize(at);
                break;
        }
    }
    return text;
}

}  // namespace pipetwin::testing
