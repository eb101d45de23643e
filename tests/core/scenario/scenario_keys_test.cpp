// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/scenario/scenario_tables.h"
#include "core/text/json_text.h"
#include "tests/support/places.h"

namespace pipetwin {
namespace scenario_keys_test {

using Keys = std::set<std::string>;

/// Cells of a line of a Markdown table; none for any other line.
std::vector<std::string> cells_of(const std::string& line) {
    std::vector<std::string> cells;
    if (!line.starts_with("| ") || line.starts_with("|--")) {
        return cells;
    }
    std::istringstream rest(line.substr(1));
    for (std::string cell; std::getline(rest, cell, '|');) {
        cells.push_back(cell);
    }
    return cells;
}

/// What stands between backticks.
std::vector<std::string> quoted_in(const std::string& text) {
    static const std::regex quotes("`([^`]*)`");
    std::vector<std::string> words;
    for (std::sregex_iterator word(text.begin(), text.end(), quotes), end; word != end; ++word) {
        words.push_back((*word)[1]);
    }
    return words;
}

/// What docs/scenario.md says about the keys of each group.
struct Documentation {
    std::map<std::string, Keys> keys;
    std::map<std::string, std::map<std::string, std::string>> rows;  ///< [group][key]: its line

    void add(const std::string& group, const std::string& key, const std::string& line) {
        keys[group].insert(key);
        rows[group][key] = line;
    }
};

Documentation read_documentation() {
    std::istringstream lines(
        read_file(places::source_folder() + "/docs/scenario.md", std::size_t{1} << 20));
    Documentation found;
    std::string section;
    std::string group;  // of the rows of the table at hand; empty: a row has a group of its own
    bool in_table = false;
    bool of_keys = false;  // the table is about keys, or types of layers
    for (std::string line; std::getline(lines, line);) {
        const std::vector<std::string> cells = cells_of(line);
        const std::vector<std::string> quoted = quoted_in(line);
        if (line.starts_with("## ") || line.starts_with("### ")) {
            section = quoted.empty() ? "" : quoted.front();
        } else if (line.starts_with("|--")) {
            continue;
        } else if (cells.empty()) {
            in_table = false;
            if (line.find("Each is a table `[[model.layer]]`") != std::string::npos) {
                found.add(section, "layer", line);
            }
        } else if (!in_table) {
            in_table = true;
            of_keys = cells[0].find("Key") != std::string::npos ||
                      cells[0].find("`type`") != std::string::npos;
            group = cells[0].find("every layer") != std::string::npos ? "every layer"
                    : cells[0].find("Key") != std::string::npos       ? section
                                                                      : "";
        } else if (!of_keys) {
            continue;
        } else if (!group.empty()) {
            for (const std::string& key : quoted_in(cells[0])) {
                found.add(group, key, line);
            }
        } else {
            Keys& keys = found.keys[quoted.front()];  // there even where a layer has no further key
            for (const std::string& key : quoted_in(cells[1])) {
                keys.insert(key == "[[...layer]]" ? "layer" : key);
            }
        }
    }
    return found;
}

TEST(ScenarioKeys, AreThoseOfTheDocumentation) {
    std::map<std::string, Keys> known;
    for (const KeyGroup& group : all_key_groups()) {
        Keys& keys = known[group.where];
        for (const ScenarioKey& key : group.keys) {
            EXPECT_TRUE(keys.insert(std::string(key.name)).second) << key.name << " stands twice";
        }
    }
    known["[pipeline]"].erase("shard_optimizer");  // an old word, explained with the new one
    EXPECT_EQ(read_documentation().keys, known);
}

TEST(ScenarioKeys, HaveTheirWordsDocumented) {
    const Documentation documented = read_documentation();
    for (const KeyGroup& group : all_key_groups()) {
        for (const ScenarioKey& key : group.keys) {
            if (key.words.empty() || !documented.rows.contains(group.where)) {
                continue;
            }
            const std::string line = documented.rows.at(group.where).at(std::string(key.name));
            for (const std::string_view word : key.words) {
                EXPECT_THAT(quoted_in(line), ::testing::Contains(std::string(word)))
                    << key.name << " of " << group.where;
            }
        }
    }
}

}  // namespace scenario_keys_test
}  // namespace pipetwin
