// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/scenario/scenario_tables.h"
#include "core/text/json_text.h"
#include "tests/support/places.h"

/// The tables of docs/scenario.md and docs/scenario.schema.json follow from the rows of the keys.
/// PIPETWIN_UPDATE_GOLDEN=1 writes both anew.
namespace pipetwin {
namespace scenario_pages_test {

using Json = nlohmann::ordered_json;

/// A range up to here is one without end for a reader.
constexpr std::int64_t unbounded = 1'000'001;

std::string with_commas(std::int64_t number) {
    std::string text = fmt::to_string(number);
    for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > (number < 0 ? 1 : 0);
         at -= 3) {
        text.insert(static_cast<std::size_t>(at), ",");
    }
    return text;
}

std::string range_text(Range range) {
    return range.high < unbounded
               ? fmt::format("{} to {}", with_commas(range.low), with_commas(range.high))
           : range.low == 0 ? "0 or more"
                            : fmt::format("from {}", with_commas(range.low));
}

/// "`a`, `b`" of a few words; "text" of any or many.
std::string words_text(const ScenarioKey& key) {
    constexpr std::size_t few = 4;
    if (key.words.empty() || key.words.size() > few) {
        return "text";
    }
    return fmt::format("`{}`", fmt::join(key.words, "`, `"));
}

/// The cell of a key's type.
std::string type_of(const ScenarioKey& key) {
    if (!key.type.empty()) {
        return std::string(key.type);
    }
    const std::vector<std::pair<Form, std::string>> texts{{Form::Integer, range_text(key.range)},
                                                          {Form::Number, range_text(key.range)},
                                                          {Form::Boolean, "true, false"},
                                                          {Form::Text, words_text(key)},
                                                          {Form::Integers, "list of numbers"},
                                                          {Form::Numbers, "list of numbers"},
                                                          {Form::Texts, "list of text"},
                                                          {Form::Sizes, "list"},
                                                          {Form::Lists, "lists"},
                                                          {Form::TextLists, "lists of text"},
                                                          {Form::Tables, "tables"},
                                                          {Form::Auto, "auto"}};
    std::vector<std::string> parts;
    for (const auto& [form, text] : texts) {
        if (key.may_be(form)) {
            parts.push_back(text);
        }
    }
    std::string all = parts.empty() ? "" : parts.back();
    if (parts.size() > 1) {
        parts.pop_back();
        all = fmt::format("{} or {}", fmt::join(parts, ", "), all);
    }
    return all;
}

/// Whether two groups are two kinds with the same rows.
bool are_same(const KeyGroup& one, const KeyGroup& other) {
    return std::ranges::equal(one.keys, other.keys, [](const ScenarioKey& a, const ScenarioKey& b) {
        return a.name == b.name && a.meaning == b.meaning;
    });
}

/// The table of a group; of a kind that has the rows of another, these say so.
std::string table_of(const KeyGroup& group, const KeyGroup* same) {
    const std::string head = group.where == "kind = \"layers\"" ? "Key of `[model]`"
                             : group.where == "every layer"     ? "Key of every layer"
                                                                : "Key";
    std::string text = fmt::format("| {} | Type | Default | Meaning |\n|---|---|---|---|\n", head);
    for (const ScenarioKey& key : group.keys) {
        if (key.meaning.empty()) {  // an old word, or tables that the page has below
            continue;
        }
        const std::string meaning =
            same != nullptr
                ? fmt::format("as for `{}`", same->where.substr(8, same->where.size() - 9))
                : std::string(key.meaning);
        const std::string value = default_text(key);
        EXPECT_FALSE(value.empty()) << group.where << " " << key.name;
        text += fmt::format("| `{}` | {} | {} | {} |\n", key.name, type_of(key), value, meaning);
    }
    return text;
}

/// Every group that is a table of keys: not those of the types of layers.
std::map<std::string, std::string> tables() {
    std::map<std::string, std::string> result;
    const std::vector<KeyGroup> groups = all_key_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const std::string& where = groups[i].where;
        if (where.starts_with('[') || where.starts_with("kind") || where == "every layer") {
            const bool is_same = i > 0 && are_same(groups[i], groups[i - 1]);
            result[where] = table_of(groups[i], is_same ? &groups[i - 1] : nullptr);
        }
    }
    return result;
}

/// The page with the tables behind their markers.
std::string page_with_tables(std::string page) {
    for (const auto& [where, table] : tables()) {
        const std::string marker = fmt::format("<!-- keys {} -->\n", where);
        const std::size_t begin = page.find(marker);
        if (begin == std::string::npos) {
            ADD_FAILURE() << "docs/scenario.md lacks " << marker;
            continue;
        }
        const std::size_t from = begin + marker.size();
        const std::size_t to =
            page.compare(from, 1, "\n") == 0 ? from : page.find("\n\n", from) + 1;
        page.replace(from, to - from, table);
    }
    return page;
}

Json with_range(Json type, const ScenarioKey& key) {
    if (key.range.high > key.range.low) {
        type["minimum"] = key.range.low;
        type["maximum"] = key.range.high;
    }
    return type;
}

Json list_of(Json entry) {
    return {{"type", "array"}, {"items", std::move(entry)}};
}

/// The schema of a key's value.
Json schema_of(const ScenarioKey& key, std::string_view tables_are) {
    const Json integer = with_range({{"type", "integer"}}, key);
    const Json number = with_range({{"type", "number"}}, key);
    Json word{{"type", "string"}};
    if (!key.words.empty()) {
        word = {{"enum", key.words}};
    }
    if (key.may_be(Form::TextLists) && key.range.high > 0) {  // words with numbers behind them
        word = {{"type", "string"},
                {"pattern", fmt::format("^({})(:[1-9][0-9]*)?$", fmt::join(key.words, "|"))}};
    }
    const std::vector<std::pair<Form, Json>> forms{
        {Form::Integer, integer},
        {Form::Number, number},
        {Form::Boolean, {{"type", "boolean"}}},
        {Form::Text, word},
        {Form::Integers, list_of(integer)},
        {Form::Numbers, list_of(number)},
        {Form::Texts, list_of(word)},
        {Form::Sizes, list_of({{"type", {"string", "integer"}}})},
        {Form::Lists, list_of(list_of(number))},
        {Form::TextLists, list_of(list_of(word))},
        {Form::Tables,
         list_of(tables_are.empty() ? Json{{"type", "object"}} : Json{{"$ref", tables_are}})},
        {Form::Auto, {{"const", "auto"}}}};
    std::vector<Json> possible;
    for (const auto& [form, schema] : forms) {
        if (key.may_be(form)) {
            possible.push_back(schema);
        }
    }
    EXPECT_FALSE(possible.empty()) << key.name;
    Json schema = possible.size() == 1 ? possible.front() : Json{{"anyOf", possible}};
    if (!key.meaning.empty()) {
        schema["description"] = plain_text(key.meaning);
    }
    return schema;
}

/// The schema of a table with these keys and no others.
Json schema_of(const std::vector<ScenarioKey>& keys) {
    Json properties = Json::object();
    Json required = Json::array();
    for (const ScenarioKey& key : keys) {
        properties[key.name] = schema_of(key, key.name == "layer" ? "#/$defs/layer" : "");
        if (key.otherwise == "required") {
            required.push_back(key.name);
        }
    }
    Json schema{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
    if (!required.empty()) {
        schema["required"] = required;
    }
    return schema;
}

/// A table whose other keys follow from the word of one of them.
Json schema_by(std::string_view key, const std::map<std::string, Json>& of_word) {
    Json words = Json::array();
    Json cases = Json::array();
    for (const auto& [word, schema] : of_word) {
        words.push_back(word);
        cases.push_back({{"if", {{"properties", {{key, {{"const", word}}}}}}}, {"then", schema}});
    }
    return {{"type", "object"},
            {"required", {key}},
            {"properties", {{key, {{"enum", words}}}}},
            {"allOf", cases}};
}

std::string schema() {
    std::map<std::string, Json> models;
    std::map<std::string, Json> layers;
    Json tables = Json::object();
    std::vector<ScenarioKey> of_models;
    std::vector<ScenarioKey> of_layers;
    for (KeyGroup& group : all_key_groups()) {
        const auto with = [&group](std::vector<ScenarioKey> keys) {
            keys.insert(keys.end(), group.keys.begin(), group.keys.end());
            return schema_of(keys);
        };
        if (group.where == "[model]") {
            of_models = group.keys;
        } else if (group.where.starts_with("kind")) {
            models[group.where.substr(8, group.where.size() - 9)] = with(of_models);
        } else if (group.where == "every layer") {
            of_layers = group.keys;
        } else if (group.where.starts_with('[')) {
            tables[group.where.substr(1, group.where.size() - 2)] = schema_of(group.keys);
        } else {
            layers[group.where] = with(of_layers);
        }
    }
    Json properties{{"model", schema_by("kind", models)}};
    properties.update(tables);
    const Json whole{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                     {"title", "A scenario of pipetwin: docs/scenario.md"},
                     {"type", "object"},
                     {"required", {"model"}},
                     {"properties", properties},
                     {"additionalProperties", false},
                     {"$defs", {{"layer", schema_by("type", layers)}}}};
    return whole.dump(1) + "\n";
}

/// Compares a file with what it should be, or writes it.
void expect_file(const std::string& name, std::string (*make)(std::string)) {
    const std::filesystem::path file = std::filesystem::path(places::source_folder()) / name;
    constexpr std::size_t largest = std::size_t{1} << 20;
    const std::string now = std::filesystem::exists(file) ? read_file(file, largest) : "";
    const std::string expected = make(now);
    if (std::getenv("PIPETWIN_UPDATE_GOLDEN") != nullptr) {
        write_file(file, expected);
    } else {
        EXPECT_EQ(now, expected) << "PIPETWIN_UPDATE_GOLDEN=1 writes " << name << " anew";
    }
}

TEST(ScenarioPages, HaveTheTablesThatTheKeysSay) {
    expect_file("docs/scenario.md", page_with_tables);
}

TEST(ScenarioPages, HaveTheSchemaThatTheKeysSay) {
    expect_file("docs/scenario.schema.json", [](std::string) { return schema(); });
}

}  // namespace scenario_pages_test
}  // namespace pipetwin
