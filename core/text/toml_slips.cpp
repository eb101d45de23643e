// SPDX-License-Identifier: Apache-2.0
#include "core/text/toml_slips.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/ascii.h"
#include "core/base/typed_text.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr std::size_t longest_line = 200;

bool is_toml(const std::string& line) {
    try {
        return !toml::parse(line).empty();
    } catch (const toml::parse_error&) {
        return false;
    }
}

/// A line "key = value" in parts.
struct KeyAndValue {
    std::string key;
    std::string value;
};

std::optional<KeyAndValue> parts_of(string_view line) {
    const std::size_t sign = line.find_first_of("=:");
    if (sign == string_view::npos || sign == 0) {
        return std::nullopt;
    }
    string_view value = line.substr(sign + 1);
    value.remove_prefix(value.starts_with('=') ? 1 : 0);
    return KeyAndValue{.key = std::string(trimmed(line.substr(0, sign))),
                       .value = std::string(trimmed(value))};
}

/// The text before a comment of another language, or a sign at the end that ends nothing here.
std::string without_end(const std::string& value) {
    string_view text = value;
    if (const std::size_t slashes = text.find("//"); slashes != string_view::npos) {
        text = text.substr(0, slashes);
    }
    text = trimmed(text);
    while (text.ends_with(',') || text.ends_with(';')) {
        text = trimmed(text.substr(0, text.size() - 1));
    }
    return std::string(text);
}

std::string in_lower_case(std::string text) {
    std::ranges::transform(text, text.begin(), ascii::lower);
    return text;
}

/// "1024" of "1,024" and "0.001" of "0,001".
std::string without_comma(const std::string& value) {
    const std::size_t comma = value.find(',');
    if (value.empty() || value.find_first_not_of("0123456789,") != std::string::npos ||
        comma == std::string::npos) {
        return "";
    }
    std::string number = value;
    if (value.size() - comma == 4 && value.front() != '0') {
        std::erase(number, ',');
    } else if (value.find(',', comma + 1) == std::string::npos) {
        number[comma] = '.';
    }
    return number;
}

/// A list with brackets and commas: "[8, 16]" of "(8, 16)", "[8 16]" and "8, 16".
std::string as_list(string_view value) {
    constexpr string_view of_list = "0123456789.-+eE, ()[]\t";
    if (value.find_first_not_of(of_list) != string_view::npos) {
        return "";
    }
    std::string list;
    for (std::size_t begin = 0; begin < value.size();) {
        const std::size_t end = std::min(value.find_first_of(", ()[]\t", begin), value.size());
        if (end > begin) {
            list += fmt::format("{}{}", list.empty() ? "" : ", ", value.substr(begin, end - begin));
        }
        begin = end + 1;
    }
    return list.empty() ? "" : fmt::format("[{}]", list);
}

/// A word in quotes; empty: the text is more than a word.
std::string in_quotes(const std::string& value) {
    constexpr string_view of_words =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./~";
    const std::size_t letters = value.find_first_not_of("0123456789.");
    const bool is_scaled = letters != 0 && letters + 1 == value.size();  // "8k"
    const bool is_word = !value.empty() && !is_scaled &&
                         value.find_first_not_of(of_words) == std::string::npos &&
                         std::ranges::any_of(value, ascii::is_letter);
    return is_word ? fmt::format("\"{}\"", value) : "";
}

/// True and False of Python, and the words of YAML.
std::string as_boolean(const std::string& value) {
    const std::string lower = in_lower_case(value);
    const bool is_true = lower == "true" || lower == "yes" || lower == "on";
    const bool is_false = lower == "false" || lower == "no" || lower == "off";
    return is_true ? "true" : is_false ? "false" : "";
}

/// "4" of "four"; empty: it is no word for a number from 0 to 12, 16, 32 or 64.
std::string as_digits(const std::string& value) {
    constexpr auto words = std::to_array<std::pair<string_view, int>>({{"zero", 0},
                                                                       {"one", 1},
                                                                       {"two", 2},
                                                                       {"three", 3},
                                                                       {"four", 4},
                                                                       {"five", 5},
                                                                       {"six", 6},
                                                                       {"seven", 7},
                                                                       {"eight", 8},
                                                                       {"nine", 9},
                                                                       {"ten", 10},
                                                                       {"eleven", 11},
                                                                       {"twelve", 12},
                                                                       {"sixteen", 16},
                                                                       {"thirty-two", 32},
                                                                       {"sixty-four", 64}});
    const std::string lower = in_lower_case(value);
    const auto* const found = std::ranges::find(words, lower, &std::pair<string_view, int>::first);
    return found == words.end() ? "" : fmt::format("{}", found->second);
}

bool is_nothing(const std::string& value) {
    const std::string lower = in_lower_case(value);
    return lower == "none" || lower == "null" || lower == "nil";
}

/// A number and the unit behind it.
struct WithUnit {
    double number = 0;
    string_view unit;
};

std::optional<WithUnit> number_with_unit(string_view text) {
    WithUnit found;
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, found.number);
    found.unit = trimmed({rest, static_cast<std::size_t>(end - rest)});
    const bool is_unit = !found.unit.empty() && std::ranges::all_of(found.unit, [](char c) {
        return ascii::is_letter(c) || c == '/' || c == '%';
    });
    return status == std::errc{} && is_unit ? std::optional(found) : std::nullopt;
}

}  // namespace

std::string mended_line(std::string_view line) {
    if (line.size() > longest_line) {
        return "";
    }
    const std::string typed(trimmed(as_typed(line)));
    if (typed != trimmed(line) && is_toml(typed)) {
        return typed;
    }
    if (typed.starts_with('[') && typed.find('=') == std::string::npos) {
        const std::string name(trimmed(typed.substr(1, typed.find_first_of("],;#:", 1) - 1)));
        const std::string header = fmt::format("[{}]", name);
        return is_toml(header) && header != typed ? header : "";
    }
    const std::optional<KeyAndValue> parts = parts_of(typed);
    if (!parts) {
        return "";
    }
    const std::string end = without_end(parts->value);
    if (is_nothing(end)) {
        return fmt::format("leave the line out: without {} the default holds", parts->key);
    }
    const std::array<std::string, 6> candidates{
        end, as_boolean(end), without_comma(end), as_list(end), in_quotes(end), parts->value};
    for (const std::string& value : candidates) {
        const std::string whole = fmt::format("{} = {}", parts->key, value);
        if (!value.empty() && whole != typed && is_toml(whole)) {
            return whole;
        }
    }
    return "";
}

std::string meant_value(std::string_view key, const toml::node& written, ValueKind expected) {
    const std::optional<std::string> text = written.value_exact<std::string>();
    const std::optional<double> number = written.value_exact<double>();
    if (text && expected == ValueKind::Numbers) {
        return as_list(*text);
    }
    if (text && expected == ValueKind::Boolean) {
        return as_boolean(*text);
    }
    if (text && expected == ValueKind::WholeNumber) {
        return as_digits(*text);
    }
    if (const auto whole = written.value_exact<std::int64_t>();
        whole && expected == ValueKind::Boolean && (*whole == 0 || *whole == 1)) {
        return *whole == 1 ? "true" : "false";
    }
    if (const std::optional<WithUnit> with_unit = text ? number_with_unit(*text) : std::nullopt;
        with_unit && expected == ValueKind::Number) {
        std::string unit = in_lower_case(std::string(with_unit->unit));
        unit = unit == "gb/s" && with_unit->unit.find('B') == string_view::npos ? "gbps"
               : unit == "gbit/s"                                               ? "gbps"
                                                                                : unit;
        const bool is_of_key = key.ends_with("_" + unit) && with_unit->unit != "GBps";
        return is_of_key     ? fmt::format("{:g}", with_unit->number)
               : unit == "%" ? fmt::format("{:g}", with_unit->number / 100)
                             : "";
    }
    const bool is_whole = number && std::abs(*number) < 1e15 && *number == std::floor(*number);
    const bool takes_whole = expected == ValueKind::WholeNumber || expected == ValueKind::Bytes;
    return is_whole && takes_whole ? fmt::format("{}", static_cast<std::int64_t>(*number)) : "";
}

}  // namespace pipetwin
