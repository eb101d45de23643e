// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/setting_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/word_list.h"

namespace pipetwin {

namespace {

/// How much of a value an error shows.
constexpr std::size_t most_shown = 60;

[[noreturn]] void refuse_value(const Setting& setting,
                               std::string_view expected,
                               std::string_view hint) {
    const SettingWord& word = setting.values.front();
    throw Error(ErrorKind::BadInput,
                word.place,
                fmt::format("{} = '{}', expected {}",
                            setting.written,
                            std::string_view(word.text).substr(0, most_shown),
                            expected),
                std::string(hint));
}

/// The number that a text is, and nothing else; none: it is not.
template <typename Number>
std::optional<Number> parsed(std::string_view text) {
    Number number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, number);
    return status == std::errc{} && rest == end ? std::optional(number) : std::nullopt;
}

bool is_digits(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

const SettingWord& first_word(const Setting& setting, std::string_view hint) {
    if (setting.values.empty()) {
        throw Error(ErrorKind::BadInput,
                    setting.place,
                    fmt::format("{} without a value", setting.written),
                    std::string(hint));
    }
    const SettingWord& word = setting.values.front();
    if (!word.choices.empty()) {
        const std::string_view name = variable_name(word.unknown);
        throw Error(ErrorKind::BadInput,
                    word.place,
                    fmt::format("a loop gives {} the values {}: each is a configuration of its own",
                                word.unknown,
                                fmt::join(word.choices, ", ")),
                    fmt::format("choose one, as in --variable {}={}", name, word.choices.front()));
    }
    if (!word.unknown.empty()) {
        throw Error(
            ErrorKind::BadInput,
            word.place,
            fmt::format("{} = '{}', which has no value in this file, or one under a condition",
                        setting.written,
                        word.unknown),
            variable_name(word.unknown).empty()
                ? std::string("write the value in place of the variable")
                : fmt::format(
                      "give the value with --variable {}=VALUE, or write it in place of the "
                      "variable",
                      variable_name(word.unknown)));
    }
    return word;
}

std::string_view variable_name(std::string_view written) {
    if (!written.starts_with('$')) {
        return {};
    }
    written.remove_prefix(1);
    if (written.starts_with('{') && written.ends_with('}')) {
        written = written.substr(1, written.size() - 2);
    }
    const auto is_part = [](char c) {
        return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
               (c >= 'A' && c <= 'Z');
    };
    return std::ranges::all_of(written, is_part) ? written : std::string_view();
}

std::optional<int> whole_in(std::string_view text) {
    return parsed<int>(text);
}

int whole_value(const Setting& setting, int least, std::string_view hint, int most) {
    const std::string& text = first_word(setting, hint).text;
    const std::optional<int> number = whole_in(text);
    if (!number || *number < least || *number > largest_setting) {
        refuse_value(setting,
                     is_digits(text) && (!number || *number > largest_setting)
                         ? fmt::format("a whole number from {} to {}", least, most)
                         : fmt::format("a whole number of at least {}", least),
                     hint);
    }
    if (*number > most) {
        throw Error(ErrorKind::BadInput,
                    setting.values.front().place,
                    fmt::format("{} = {}, expected at most {}", setting.written, *number, most),
                    "no published model is larger: is there a digit too many?");
    }
    return *number;
}

double real_value(const Setting& setting, std::string_view hint) {
    const std::optional<double> number = parsed<double>(first_word(setting, hint).text);
    if (!number || !std::isfinite(*number) || *number < 0) {
        refuse_value(setting, "a number of 0 or more", hint);
    }
    return *number;
}

bool answer_value(const Setting& setting) {
    if (!setting.is_key) {
        // ms-swift's flags have a value, which may be "false".
        return setting.values.size() != 1 || lower_case(setting.values.front().text) != "false";
    }
    const std::string text = lower_case(first_word(setting).text);
    if (!has_word("true false 1 0", text)) {  // as Python takes them
        refuse_value(setting, "true or false", {});
    }
    return text == "true" || text == "1";
}

std::string chosen_word(const Setting& setting, std::string_view words, std::string_view hint) {
    const std::string& word = first_word(setting, hint).text;
    if (!has_word(words, word)) {
        refuse_value(setting, fmt::format("{}", fmt::join(words_in(words), " or ")), hint);
    }
    return word;
}

std::vector<int> whole_list(const Setting& setting, int least) {
    std::vector<int> found;
    first_word(setting);
    for (const SettingWord& word : setting.values) {
        std::string text = word.text;
        std::ranges::replace_if(
            text, [](char c) { return c == ',' || c == '[' || c == ']'; }, ' ');
        for (const std::string_view digits : words_in(text)) {
            const std::optional<int> number = whole_in(digits);
            if (!number || *number < least || *number > largest_setting) {
                throw Error(ErrorKind::BadInput,
                            word.place,
                            fmt::format("{} has '{}', expected whole numbers of at least {}, as in "
                                        "4,5,7,8",
                                        setting.written,
                                        digits.substr(0, most_shown),
                                        least));
            }
            found.push_back(*number);
        }
    }
    if (found.empty()) {
        throw Error(
            ErrorKind::BadInput,
            setting.place,
            fmt::format("{} has no numbers, expected a list as in 4,5,7,8", setting.written));
    }
    return found;
}

std::string all_words(const Setting& setting) {
    std::string text;
    for (const SettingWord& word : setting.values) {
        text += (text.empty() ? "" : " ") + word.text + word.unknown;
    }
    return text;
}

}  // namespace pipetwin
