// SPDX-License-Identifier: Apache-2.0
#include "cli/base/swept_keys.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "cli/base/plan_grammar.h"
#include "cli/base/value_words.h"
#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/base/typed_text.h"
#include "core/scenario/scenario_tables.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view sweep_option = "--sweep";

/// The parts between commas that stand in no brackets or quotes, without the blanks around them.
std::vector<std::string> values_of(std::string_view list) {
    std::vector<std::string> values;
    int depth = 0;
    char quote = 0;
    std::size_t begin = 0;
    for (std::size_t at = 0; at <= list.size(); ++at) {
        const char letter = at < list.size() ? list[at] : ',';
        const bool is_end = at == list.size() || (letter == ',' && depth == 0 && quote == 0);
        if (is_end) {
            values.emplace_back(trimmed(list.substr(begin, at - begin)));
            begin = at + 1;
        } else if (quote != 0) {
            quote = letter == quote ? '\0' : quote;
        } else if (letter == '"' || letter == '\'') {
            quote = letter;
        } else if (letter == '[') {
            ++depth;
        } else if (letter == ']') {
            --depth;
        }
    }
    return values;
}

void expect_known(const std::string& key) {
    const std::vector<std::string> known = scenario_key_names();
    if (std::ranges::find(known, key) != known.end()) {
        return;
    }
    const std::vector<std::string_view> words(known.begin(), known.end());
    const std::string_view near = nearest_word(key, words);
    throw Error(ErrorKind::Usage,
                std::string(sweep_option),
                fmt::format("'{}' is no key of a scenario", key),
                near.empty() ? Hint("write the key as in the scenario, with its table: --sweep "
                                    "pipeline.stages=2,4")
                             : did_you_mean(near));
}

SweptKey swept_key(const std::string& text) {
    const std::size_t equals = text.find('=');
    SweptKey swept{.key = std::string(trimmed(std::string_view(text).substr(0, equals)))};
    if (equals != std::string::npos && equals > 0) {
        swept.values = values_of(std::string_view(text).substr(equals + 1));
    }
    const bool is_empty = std::ranges::any_of(swept.values, &std::string::empty);
    if (swept.values.empty() || is_empty) {
        throw Error(ErrorKind::Usage,
                    std::string(sweep_option),
                    is_empty ? fmt::format("the list '{}' has an empty entry", text)
                             : fmt::format("'{}' is not of the form key=value,value", text),
                    "write it as in --sweep pipeline.stages=2,4");
    }
    expect_known(swept.key);
    return swept;
}

}  // namespace

std::vector<std::string> scenario_key_names() {
    std::vector<std::string> keys;
    for (const KeyGroup& group : all_key_groups()) {
        const bool is_table = group.where.starts_with('[');
        const std::string table =
            is_table ? group.where.substr(1, group.where.find(']') - 1) : "model";
        for (const ScenarioKey& key : group.keys) {
            keys.push_back(fmt::format("{}.{}", table, key.name));
        }
    }
    return keys;
}

void add_swept_keys(CLI::App& app, std::vector<std::string>& texts) {
    take_one_word(*app.add_option(std::string(sweep_option),
                                  texts,
                                  "Compare the values of a key of the scenario, as in "
                                  "pipeline.tensor_parallel=2,4,8, in a table; repeated: every "
                                  "combination")
                       ->type_name("KEY=A,B,...")
                       ->check(suggests(NameList::Keys)));
}

std::vector<SweptKey> swept_keys(const std::vector<std::string>& texts,
                                 const std::vector<Override>& set) {
    std::vector<SweptKey> keys;
    for (const std::string& text : texts) {
        SweptKey swept = swept_key(text);
        const bool is_set = std::ranges::find(set, swept.key, &Override::key) != set.end();
        if (is_set || std::ranges::find(keys, swept.key, &SweptKey::key) != keys.end()) {
            throw Error(ErrorKind::Usage,
                        fmt::format("{} {}", sweep_option, swept.key),
                        is_set ? "the key has one value by another option already"
                               : "the key is swept twice",
                        is_set ? "leave one of the two out"
                               : fmt::format("write all values in one list: {} {}={},...",
                                             sweep_option,
                                             swept.key,
                                             swept.values.front()));
        }
        keys.push_back(std::move(swept));
    }
    return keys;
}

std::vector<std::vector<Override>> combinations(const std::vector<SweptKey>& keys) {
    std::vector<std::vector<Override>> all{{}};
    for (const SweptKey& swept : keys) {
        std::vector<std::vector<Override>> longer;
        for (const std::vector<Override>& one : all) {
            for (const std::string& value : swept.values) {
                longer.push_back(one);
                longer.back().push_back({.key = swept.key, .value = value});
            }
        }
        all = std::move(longer);
    }
    return all;
}

std::size_t combination_count(const std::vector<SweptKey>& keys) {
    std::size_t count = 1;
    for (const SweptKey& swept : keys) {
        count *= swept.values.size();
    }
    return count;
}

}  // namespace pipetwin::cli
