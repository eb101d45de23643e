// SPDX-License-Identifier: Apache-2.0
#include "core/text/json_dialect.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace pipetwin {

namespace {

using std::string_view;

constexpr double infinity = std::numeric_limits<double>::infinity();

struct PythonNumber {
    string_view word;
    double value;
};

constexpr std::array python_numbers{PythonNumber{"NaN", std::numeric_limits<double>::quiet_NaN()},
                                    PythonNumber{"Infinity", infinity},
                                    PythonNumber{"-Infinity", -infinity}};
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

/// The word at the index in a place where a value may stand; null if there is none.
const PythonNumber* python_word_at(string_view text, std::size_t index) {
    const char previous = before(text, index);
    if (previous != ':' && previous != ',' && previous != '[') {
        return nullptr;
    }
    const auto* const found = std::ranges::find_if(python_numbers, [&](const PythonNumber& number) {
        return has_word(text, index, number.word);
    });
    return found == python_numbers.end() ? nullptr : found;
}

}  // namespace

std::optional<double> python_number_at(string_view text, std::size_t index) {
    const PythonNumber* const found = python_word_at(text, index);
    return found == nullptr ? std::nullopt : std::optional(found->value);
}

char PythonNumberFilter::pass(char c) {
    constexpr string_view nan = "NaN";
    constexpr string_view positive = "Infinity";
    constexpr string_view negative = "-Infinity";
    if (in_quotes_) {
        in_quotes_ = is_escaped_ || c != '"';
        is_escaped_ = !is_escaped_ && c == '\\';
        return c;
    }
    const char before = std::exchange(before_, c);
    if (at_ == 0 && (c == 'N' || c == 'I') && !goes_on(before)) {
        word_ = c == 'N' ? nan : positive;
        complete_ = {};
        at_ = 1;
        is_negative_ = before == '-';
        return '0';
    }
    if (at_ > 0 && c == word_[at_]) {
        // 0e1, and 0e000001: no other program writes zero so.
        ++at_;
        const char stand_in = at_ == 2 ? 'e' : at_ == word_.size() ? '1' : '0';
        if (at_ == word_.size()) {
            complete_ = is_negative_ ? negative : word_;
            at_ = 0;
        }
        return stand_in;
    }
    // A word that only begins like one of Python's, or goes on behind it, is no number.
    const bool is_other =
        at_ > 0 || (!complete_.empty() && goes_on(c) && before == complete_.back());
    at_ = 0;
    in_quotes_ = c == '"' && !is_other;
    return is_other ? '?' : c;
}

string_view PythonNumberFilter::take_word() {
    return std::exchange(complete_, string_view());
}

std::string with_zeros_for_python_numbers(string_view text) {
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
        const PythonNumber* const number =
            c == 'N' || c == 'I' || c == '-' ? python_word_at(text, i) : nullptr;
        if (number != nullptr) {
            const std::size_t length = number->word.size();
            result += fmt::format("0.{:0>{}}", "", length - 2);
            i += length - 1;
            continue;
        }
        result += c;
        in_quotes = c == '"';
    }
    return result;
}

namespace {

/// What stands at the index in a text that is JSON elsewhere.
FileDamage dialect_at(string_view text, std::size_t index) {
    if (text.find_first_not_of(blanks) == string_view::npos) {
        return {"no content, expected JSON", "copy or download the file again"};
    }
    const string_view rest = text.substr(std::min(index, text.size()));
    if (rest.starts_with("//") || rest.starts_with("/*") || rest.starts_with('#')) {
        return {"a comment, and JSON has none", "take the comments out of the file"};
    }
    for (const PythonNumber& number : python_numbers) {
        if (has_word(text, index, number.word)) {
            return {fmt::format("{}, which is no number of JSON", number.word),
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

}  // namespace

FileDamage json_damage(string_view text, std::size_t index) {
    FileDamage damage = damage_of_file(text, "JSON");
    if (damage.what.empty()) {
        damage = dialect_at(text, index);
        damage.index = index;
    }
    return damage;
}

}  // namespace pipetwin
