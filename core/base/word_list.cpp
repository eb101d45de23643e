// SPDX-License-Identifier: Apache-2.0
#include "core/base/word_list.h"

#include <algorithm>

#include "core/base/ascii.h"

namespace pipetwin {

std::vector<std::string_view> words_in(std::string_view list) {
    std::vector<std::string_view> words;
    while (!list.empty()) {
        const std::size_t end = std::min(list.find(' '), list.size());
        if (end > 0) {
            words.push_back(list.substr(0, end));
        }
        list.remove_prefix(std::min(end + 1, list.size()));
    }
    return words;
}

bool has_word(std::string_view list, std::string_view word) {
    const std::vector<std::string_view> words = words_in(list);
    return std::ranges::find(words, word) != words.end();
}

std::string lower_case(std::string_view text) {
    std::string result(text);
    std::ranges::transform(result, result.begin(), ascii::lower);
    return result;
}

}  // namespace pipetwin
