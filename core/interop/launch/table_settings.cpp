// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/table_settings.h"

#include <utility>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <toml++/toml.h>

#include "core/base/error.h"
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

}  // namespace pipetwin
