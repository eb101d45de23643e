// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/table_settings.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <toml++/toml.h>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/word_list.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

std::string dotted(const std::vector<std::string>& sections, std::string_view key) {
    return sections.empty() ? std::string(key)
                            : fmt::format("{}.{}", fmt::join(sections, "."), key);
}

// --- TOML. ---

std::string toml_text(const toml::node& node) {
    if (const auto text = node.value_exact<std::string>()) {
        return *text;
    }
    if (const auto number = node.value_exact<std::int64_t>()) {
        return fmt::to_string(*number);
    }
    if (const auto answer = node.value_exact<bool>()) {
        return *answer ? "true" : "false";
    }
    if (const auto number = node.value_exact<double>()) {
        return fmt::to_string(*number);
    }
    if (const toml::array* const list = node.as_array()) {
        std::string text;
        for (const toml::node& element : *list) {
            text += text.empty() ? "" : " ";
            text += toml_text(element);
        }
        return text;
    }
    return {};
}

void add_toml(const toml::table& table,
              std::vector<std::string>& sections,
              std::string_view place,
              LaunchFile& file) {
    for (const auto& [key, node] : table) {
        const std::string name(key.str());
        if (const toml::table* const inner = node.as_table()) {
            sections.push_back(name);
            add_toml(*inner, sections, place, file);
            sections.pop_back();
            continue;
        }
        const auto place_of = [place](const toml::node& at) {
            return fmt::format("{}:{}:{}", place, at.source().begin.line, at.source().begin.column);
        };
        Setting setting{.name = name,
                        .written = dotted(sections, name),
                        .place = place_of(node),
                        .values = {},
                        .is_key = true,
                        .sections = sections};
        if (const toml::array* const list = node.as_array()) {
            for (const toml::node& element : *list) {
                setting.values.push_back({.text = toml_text(element), .place = place_of(element)});
            }
        } else {
            setting.values.push_back({.text = toml_text(node), .place = setting.place});
        }
        file.settings.push_back(std::move(setting));
    }
}

// --- JSON. ---

std::string json_value_text(const nlohmann::json& value) {
    if (value.is_string()) {
        return value.get<std::string>();
    }
    if (value.is_array()) {
        std::string text;
        for (const nlohmann::json& element : value) {
            text += text.empty() ? "" : " ";
            text += json_value_text(element);
        }
        return text;
    }
    return value.dump();
}

void add_json(const nlohmann::json& object,
              std::vector<std::string>& sections,
              std::string_view place,
              LaunchFile& file) {
    for (const auto& [name, value] : object.items()) {
        if (value.is_null()) {
            continue;
        }
        if (value.is_object()) {
            sections.push_back(name);
            add_json(value, sections, place, file);
            sections.pop_back();
            continue;
        }
        std::string pointer;
        for (const std::string& section : sections) {
            pointer += "/" + section;
        }
        Setting setting{.name = name,
                        .written = dotted(sections, name),
                        .place = fmt::format("{}: {}/{}", place, pointer, name),
                        .values = {},
                        .is_key = true,
                        .sections = sections};
        if (value.is_array()) {
            for (const nlohmann::json& element : value) {
                setting.values.push_back(
                    {.text = json_value_text(element), .place = setting.place});
            }
        } else {
            setting.values.push_back({.text = json_value_text(value), .place = setting.place});
        }
        file.settings.push_back(std::move(setting));
    }
}

}  // namespace

LaunchFile parse_toml_settings(std::string_view text, std::string_view place) {
    LaunchFile file;
    std::vector<std::string> sections;
    try {
        add_toml(toml::parse(text, std::string_view{}), sections, place, file);
    } catch (const toml::parse_error& error) {
        const toml::source_position at = error.source().begin;
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}:{}:{}", place, at.line, at.column),
                    std::string(error.description()),
                    "expected TOML: [table] lines and key = value lines, strings in quotes");
    }
    return file;
}

LaunchFile parse_json_settings(std::string_view text, std::string_view place) {
    const nlohmann::json root = parse_json(text, place);
    if (!root.is_object()) {
        throw Error(ErrorKind::BadInput,
                    std::string(place),
                    "the file is not a JSON object",
                    "expected settings in braces, as in {\"train_batch_size\": 32}");
    }
    LaunchFile file;
    std::vector<std::string> sections;
    add_json(root, sections, place, file);
    return file;
}

namespace {

/// A blank at the begin of a text: its name, and how many bytes it takes.
struct Blank {
    std::string_view name;
    std::size_t length = 0;
};

bool is_part_of_name(char c) {
    return c == '_' || ascii::is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string_view name_at(std::string_view text) {
    const auto* const end = std::ranges::find_if_not(text, is_part_of_name);
    return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

std::optional<Blank> blank_at(std::string_view text, bool in_string) {
    if (text.starts_with('$')) {
        const bool has_braces = text.size() > 1 && text[1] == '{';
        const std::string_view name = name_at(text.substr(has_braces ? 2 : 1));
        const std::size_t behind = name.size() + (has_braces ? 2 : 1);
        const bool is_closed = !has_braces || text.substr(behind).starts_with('}');
        return !name.empty() && is_closed
                   ? std::optional(Blank{.name = name, .length = behind + (has_braces ? 1 : 0)})
                   : std::nullopt;
    }
    const std::string_view name = name_at(text);
    const bool is_word = !in_string && name.size() > 1 && name[0] >= 'A' && name[0] <= 'Z' &&
                         !has_word("NaN Infinity True False None", name);
    return is_word ? std::optional(Blank{.name = name, .length = name.size()}) : std::nullopt;
}

/// Calls `text` with each piece of JSON between blanks, and `blank` with each blank, where it
/// begins, and whether it is in a string.
template <class OfText, class OfBlank>
void each_piece(std::string_view json, const OfText& text, const OfBlank& blank) {
    bool in_string = false;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < json.size();) {
        const bool is_in_name = !in_string && at > 0 && is_part_of_name(json[at - 1]);
        const std::optional<Blank> found =
            is_in_name ? std::nullopt : blank_at(json.substr(at), in_string);
        if (found) {
            text(json.substr(begin, at - begin));
            blank(found->name, at, in_string);
            at += found->length;
            begin = at;
            continue;
        }
        if (in_string && json[at] == '\\') {
            ++at;
        } else if (json[at] == '"') {
            in_string = !in_string;
        }
        ++at;
    }
    text(json.substr(std::min(begin, json.size())));
}

std::string place_of_blank(std::string_view json, std::size_t at, std::string_view place) {
    const std::string_view before = json.substr(0, at);
    const std::size_t line = 1 + static_cast<std::size_t>(std::ranges::count(before, '\n'));
    const std::size_t start =
        before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return fmt::format("{}:{}:{}", place, line, at - start + 1);
}

}  // namespace

std::string with_marked_blanks(std::string_view json) {
    std::string marked;
    each_piece(
        json,
        [&](std::string_view text) { marked += text; },
        [&](std::string_view name, std::size_t /*at*/, bool /*in_string*/) {
            marked += fmt::format("${{{}}}", name);
        });
    return marked;
}

std::string with_filled_blanks(std::string_view json,
                               std::string_view place,
                               const LaunchVariables& given) {
    std::string filled;
    std::vector<std::string> open;
    std::string first;
    each_piece(
        json,
        [&](std::string_view text) { filled += text; },
        [&](std::string_view name, std::size_t at, bool in_string) {
            const auto value = given.find(name);
            if (value == given.end()) {
                first = open.empty() ? place_of_blank(json, at, place) : first;
                const std::string option = fmt::format("--variable {}=VALUE", name);
                if (std::ranges::find(open, option) == open.end()) {
                    open.push_back(option);
                }
            } else if (in_string) {
                filled += value->second;
            } else {
                filled += nlohmann::json::accept(value->second)
                              ? value->second
                              : nlohmann::json(value->second).dump();
            }
        });
    if (!open.empty()) {
        throw Error(ErrorKind::BadInput,
                    first,
                    "a blank of the file, which a script fills",
                    fmt::format("give what the script writes there: {}", fmt::join(open, " ")));
    }
    return filled;
}

}  // namespace pipetwin
