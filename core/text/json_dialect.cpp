#include "core/text/json_dialect.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace pipetwin {

namespace {

using std::string_view;

constexpr std::array<string_view, 3> python_numbers{"NaN", "Infinity", "-Infinity"};
constexpr string_view blanks = " \t\r\n";

bool goes_on(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Whether the word stands at the index, and no longer one.
bool has_word(string_view text, std::size_t index, string_view word) {
    const string_view rest = text.substr(std::min(index, text.size()));
    return rest.starts_with(word) && (rest.size() == word.size() || !goes_on(rest[word.size()]));
}

/// The last character before the index that is no blank; 0 if there is none.
char before(string_view text, std::size_t index) {
    const std::size_t found = text.substr(0, index).find_last_not_of(blanks);
    return found == string_view::npos ? '\0' : text[found];
}

/// The word at the index in a place where a value may stand; empty if there is none.
string_view python_number_at(string_view text, std::size_t index) {
    const char previous = before(text, index);
    if (previous != ':' && previous != ',' && previous != '[') {
        return {};
    }
    const auto found = std::ranges::find_if(
        python_numbers, [&](string_view word) { return has_word(text, index, word); });
    return found == python_numbers.end() ? string_view{} : *found;
}

JsonDamage no_json(string_view text) {
    if (text.starts_with("version https://git-lfs")) {
        return {"a pointer of Git LFS, not the file itself", "'git lfs pull' brings the file"};
    }
    const std::size_t first = text.find_first_not_of(blanks);
    if (first != string_view::npos && text[first] == '<') {
        return {"a page of HTML or XML, no JSON", "was an error page saved in place of the file?"};
    }
    return {};
}

}  // namespace

std::string without_python_numbers(string_view text) {
    std::string result;
    result.reserve(text.size());
    bool in_quotes = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_quotes) {
            result += c;
            if (c == '\\' && i + 1 < text.size()) {
                result += text[++i];
            }
            in_quotes = c != '"';
            continue;
        }
        const string_view word =
            c == 'N' || c == 'I' || c == '-' ? python_number_at(text, i) : string_view{};
        if (!word.empty()) {
            result += fmt::format("{:<{}}", "null", word.size());
            i += word.size() - 1;
            continue;
        }
        result += c;
        in_quotes = c == '"';
    }
    return result;
}

JsonDamage json_damage(string_view text, std::size_t index) {
    if (JsonDamage other = no_json(text); !other.what.empty()) {
        return other;
    }
    const string_view rest = text.substr(std::min(index, text.size()));
    if (rest.starts_with("//") || rest.starts_with("/*") || rest.starts_with('#')) {
        return {"a comment, and JSON has none", "take the comments out of the file"};
    }
    for (const string_view word : python_numbers) {
        if (has_word(text, index, word)) {
            return {fmt::format("{}, which is no number of JSON", word),
                    "write null, or a number that is finite"};
        }
    }
    for (const auto& [word, json] :
         {std::pair("True", "true"), std::pair("False", "false"), std::pair("None", "null")}) {
        if (has_word(text, index, word)) {
            return {fmt::format("{}, a word of Python", word), fmt::format("JSON writes {}", json)};
        }
    }
    if (rest.starts_with('\'')) {
        return {"a text in single quotes", "JSON has double quotes"};
    }
    if ((rest.starts_with('}') || rest.starts_with(']')) && before(text, index) == ',') {
        return {fmt::format("a comma in front of '{}'", rest.front()),
                "take the comma behind the last entry away"};
    }
    return {};
}

}  // namespace pipetwin
