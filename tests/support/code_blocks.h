// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/places.h"

namespace pipetwin::testing {

/// The fenced blocks of one language in a Markdown file of the source tree.
inline std::vector<std::string> code_blocks(const std::string& file, std::string_view language) {
    std::ifstream stream(places::source_folder() + "/" + file);
    const std::string begin = "```" + std::string(language);
    std::vector<std::string> blocks;
    bool inside = false;  // any block
    bool wanted = false;
    for (std::string line; std::getline(stream, line);) {
        const bool is_fence = line.starts_with("```");
        if (is_fence && !inside) {
            wanted = line == begin;
            if (wanted) {
                blocks.emplace_back();
            }
        } else if (!is_fence && inside && wanted) {
            blocks.back() += line + "\n";
        }
        inside = is_fence ? !inside : inside;
    }
    return blocks;
}

}  // namespace pipetwin::testing
