// SPDX-License-Identifier: Apache-2.0
#include "cli/base/typed_words.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "cli/base/option_hints.h"
#include "cli/base/shell_word.h"
#include "core/base/error.h"
#include "core/base/typed_text.h"

namespace pipetwin::cli {

namespace {

using std::string_view;

/// The text without quotes around it.
string_view without_quotes(string_view text) {
    constexpr string_view quotes = "\"'";
    while (!text.empty() && quotes.find(text.front()) != string_view::npos) {
        text.remove_prefix(1);
    }
    while (!text.empty() && quotes.find(text.back()) != string_view::npos) {
        text.remove_suffix(1);
    }
    return text;
}

bool is_there(const std::string& word) {
    std::error_code ignored;
    return std::filesystem::exists(word, ignored);
}

/// What a word of --set, with the words behind it, was meant to be: "key=value"; empty where it
/// says no value.
std::string meant_setting(const std::vector<std::string>& args, std::size_t at) {
    std::string text = as_typed(args[at]);
    const auto next = [&]() -> const std::string* {
        const bool is_value = at + 1 < args.size() && !args[at + 1].starts_with("--");
        return is_value ? &args[at + 1] : nullptr;
    };
    if (text.find('=') == std::string::npos && text.find(':') == std::string::npos) {
        const std::string* word = next();
        if (word != nullptr && word->starts_with('=')) {
            text += *word;
            ++at;
        } else if (word != nullptr && !is_there(*word)) {
            text += '=' + *word;
            ++at;
        }
    }
    if (text.ends_with('=') || text.ends_with(':')) {
        const std::string* const word = next();
        if (word != nullptr && !is_there(*word)) {
            text += as_typed(*word);
        }
    }
    const std::size_t sign = text.find_first_of("=:");
    if (sign == std::string::npos) {
        return "";
    }
    const string_view key = trimmed(without_quotes(trimmed(string_view(text).substr(0, sign))));
    const string_view value = trimmed(without_quotes(trimmed(string_view(text).substr(sign + 1))));
    const std::string whole = whole_key(key);
    return value.empty() || whole.empty() ? "" : fmt::format("{}={}", whole, value);
}

}  // namespace

void refuse_split_settings(const std::vector<std::string>& args) {
    for (std::size_t i = 0; i < args.size(); ++i) {
        const bool is_joined = args[i].starts_with("--set=");
        if (!is_joined && (args[i] != "--set" || i + 1 == args.size())) {
            continue;
        }
        std::vector<std::string> words(args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
        const std::size_t at = is_joined ? 0 : 1;
        words[at] = is_joined ? words[at].substr(std::string_view("--set=").size()) : words[at];
        const std::string& word = words[at];
        const std::size_t equals = word.find('=');
        const bool is_whole = equals != std::string::npos && equals > 0 &&
                              equals + 1 < word.size() && !is_in_foreign_signs(word) &&
                              !is_in_foreign_signs(string_view(word).substr(equals + 1));
        const bool is_value_split = equals != std::string::npos && equals + 1 == word.size() &&
                                    at + 1 < words.size() && !words[at + 1].starts_with("--") &&
                                    !is_there(words[at + 1]);
        if (is_whole ||
            (equals != std::string::npos && equals + 1 == word.size() && !is_value_split)) {
            continue;
        }
        const std::string meant = meant_setting(words, at);
        throw Error(
            ErrorKind::Usage,
            "--set",
            fmt::format("'{}' is not of the form key=value", word),
            meant.empty()
                ? "write the key as in the scenario, with its table: --set pipeline.stages=4"
                : fmt::format("write --set {}", shell_word(meant)));
    }
}

}  // namespace pipetwin::cli
