// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/scenario_key.h"

#include <algorithm>
#include <iterator>

#include "core/base/error.h"

namespace pipetwin {

std::vector<std::string_view> names_of(std::span<const ScenarioKey> keys) {
    std::vector<std::string_view> names;
    for (const ScenarioKey& key : keys) {
        names.push_back(key.name);
    }
    return names;
}

namespace {

/// Whether the bracket at `at` opens the words of a link.
bool is_link(std::string_view markdown, std::size_t at) {
    const std::size_t end = markdown.find(']', at);
    return end != std::string_view::npos && markdown.substr(end).starts_with("](");
}

/// The keys of a table in the order in which they are read or printed: each that names another in
/// `behind` is moved there.
std::vector<ScenarioKey> in_order(std::span<const ScenarioKey> keys,
                                  std::string_view ScenarioKey::*behind) {
    std::vector<ScenarioKey> ordered;
    std::ranges::copy_if(keys, std::back_inserter(ordered), [behind](const ScenarioKey& key) {
        return (key.*behind).empty();
    });
    for (const ScenarioKey& key : keys) {
        if (!(key.*behind).empty()) {
            const auto other = std::ranges::find(ordered, key.*behind, &ScenarioKey::name);
            PIPETWIN_EXPECT(other != ordered.end(), "a key goes behind one that is not there");
            ordered.insert(other + 1, key);
        }
    }
    return ordered;
}

}  // namespace

const ScenarioKey& key_named(std::span<const ScenarioKey> keys, std::string_view name) {
    const auto found = std::ranges::find(keys, name, &ScenarioKey::name);
    PIPETWIN_EXPECT(found != keys.end(), "the table has the key");
    return *found;
}

std::string written_value(const ScenarioKey& key, const Scenario& scenario) {
    ScenarioWriter writer;
    key.print(key, writer, scenario);
    const std::string line = writer.take();
    const std::size_t equals = line.find(" = ");
    return equals == std::string::npos ? "" : line.substr(equals + 3, line.size() - equals - 4);
}

std::string default_text(const ScenarioKey& key) {
    if (!key.otherwise.empty() || key.print == nullptr) {
        return std::string(key.otherwise);
    }
    std::string value = written_value(key, Scenario{});
    if (value == "\"auto\"") {
        return "auto";
    }
    std::ranges::replace(value, '"', '`');
    return value;
}

std::string plain_text(std::string_view markdown) {
    std::string text;
    for (std::size_t at = 0; at < markdown.size(); ++at) {
        const std::size_t target = markdown.find("](", at);  // behind the words of a link
        if (markdown[at] == ']' && target == at) {
            at = markdown.find(')', at);
        } else if (markdown[at] != '`' && !(markdown[at] == '[' && is_link(markdown, at))) {
            text += markdown[at];
        }
    }
    return text;
}

void read_keys(std::span<const ScenarioKey> keys, const TomlTable& table, Scenario& scenario) {
    for (const ScenarioKey& key : in_order(keys, &ScenarioKey::read_behind)) {
        if (key.read != nullptr) {
            key.read(key, table, scenario);
        }
        if (key.check != nullptr) {
            key.check(table, scenario);
        }
    }
}

void print_keys(std::span<const ScenarioKey> keys,
                ScenarioWriter& writer,
                const Scenario& scenario) {
    for (const ScenarioKey& key : in_order(keys, &ScenarioKey::printed_behind)) {
        if (key.print != nullptr) {
            key.print(key, writer, scenario);
        }
    }
}

double keys::read_probability(const TomlTable& table, std::string_view name) {
    const double value = table.number(name, {0, 1}).value_or(0);
    if (value == 1) {
        table.refuse(name, "a number from 0 up to, but not, 1", "with 1 nothing would be left");
    }
    return value;
}

}  // namespace pipetwin
