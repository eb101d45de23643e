// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/measured_runs.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/scenario/scenario_tables.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using nlohmann::json;
using std::string_view;

constexpr std::size_t most_rows = 64;

constexpr std::array<string_view, 4> times_of_row{"step_seconds",
                                                  "tokens_per_second_per_device",
                                                  "samples_per_second_per_device",
                                                  "tflops_per_device"};
/// What a run arrived at: read for their type, and no part of a prediction.
constexpr std::array<string_view, 2> losses_of_row{"first_loss", "last_loss"};
constexpr std::array<string_view, 9> rest_of_row{"peak_bytes",
                                                 "timer_seconds",
                                                 "tflops_count",
                                                 "tokens_per_sample",
                                                 "first_loss",
                                                 "last_loss",
                                                 "name",
                                                 "comment",
                                                 "source"};
constexpr std::array<std::pair<string_view, std::optional<double> MeasuredTimers::*>, 3>
    timers_of_row{{{"forward-compute", &MeasuredTimers::forward},
                   {"backward-compute", &MeasuredTimers::backward},
                   {"forward-backward", &MeasuredTimers::pipeline}}};
constexpr std::array<string_view, 5> words_of_costs{
    "model", "device", "stack", "precision", "sequence"};
constexpr std::array<string_view, 6> scenario_tables{
    "model", "data", "training", "pipeline", "cluster", "output"};

bool is_in(string_view word, std::span<const string_view> words) {
    return std::ranges::find(words, word) != words.end();
}

/// Every key that a row may have, those of scenarios with their tables.
std::vector<std::string> known_keys() {
    std::vector<std::string> keys(times_of_row.begin(), times_of_row.end());
    keys.insert(keys.end(), rest_of_row.begin(), rest_of_row.end());
    keys.insert(keys.end(), words_of_costs.begin(), words_of_costs.end());
    for (const KeyGroup& group : all_key_groups()) {
        const string_view where = group.where;
        if (where.starts_with('[') && where.ends_with(']')) {
            for (const ScenarioKey& key : group.keys) {
                keys.push_back(fmt::format("{}.{}", where.substr(1, where.size() - 2), key.name));
            }
        }
    }
    return keys;
}

/// A key without its table ("stages") suggests the key with it.
Hint suggestion_for(const std::string& key) {
    const std::vector<std::string> keys = known_keys();
    std::vector<string_view> known(keys.begin(), keys.end());
    std::vector<string_view> short_names;
    for (const string_view name : known) {
        const std::size_t dot = name.find('.');
        short_names.push_back(dot == name.npos ? name : name.substr(dot + 1));
    }
    if (const string_view near = nearest_word(key, short_names); !near.empty()) {
        const auto at = std::ranges::find(short_names, near) - short_names.begin();
        return did_you_mean(known[static_cast<std::size_t>(at)]);
    }
    return suggestion(key, times_of_row);
}

/// Reads one row.
class RowReader {
  public:
    RowReader(const json& row, const std::string& file_and_row)
        : row_(row), place_(file_and_row), object_(row, place_, "") {}

    MeasuredRun read() {
        run_.name = object_.text_or("name", "");
        run_.place = run_.name.empty() ? place_ : fmt::format("{} ({})", place_, run_.name);
        run_.step_seconds = positive("step_seconds");
        run_.tokens_per_second_per_device = positive("tokens_per_second_per_device");
        run_.samples_per_second_per_device = positive("samples_per_second_per_device");
        run_.tflops_per_device = positive("tflops_per_device");
        read_count();
        if (object_.has("tokens_per_sample")) {
            run_.tokens_per_sample = static_cast<int>(whole("tokens_per_sample"));
        }
        read_peak();
        read_timers();
        for (const string_view key : losses_of_row) {
            object_.number_or(key, 0);
        }
        read_words_of_costs();
        for (const auto& [key, value] : row_.items()) {
            const bool is_word = is_in(key, words_of_costs) && !value.is_object();
            if (!is_word && !is_in(key, times_of_row) && !is_in(key, rest_of_row)) {
                read_key_of_scenario(key, value);
            }
        }
        const bool has_time =
            std::ranges::any_of(times_of_row, [this](string_view key) { return object_.has(key); });
        if (!has_time) {
            throw Error(ErrorKind::BadInput,
                        run_.place,
                        fmt::format("no time, expected one of {}", fmt::join(times_of_row, ", ")),
                        "write what was measured, as in \"step_seconds\": 12.5");
        }
        return std::move(run_);
    }

  private:
    std::optional<double> positive(string_view key) const {
        if (!object_.has(key)) {
            return std::nullopt;
        }
        const double value = object_.number_or(key, 0);
        if (value <= 0) {
            object_.refuse(key, "a number above 0");
        }
        return value;
    }

    std::int64_t whole(string_view key) const {
        const std::int64_t value = object_.whole(key);
        if (value < 1 || value > std::numeric_limits<int>::max()) {
            object_.refuse(key, "a whole number from 1 to 2^31 - 1");
        }
        return value;
    }

    void read_count() {
        const std::string word = object_.text_or("tflops_count", "model");
        const std::optional<FlopsCount> count =
            word == "model" ? FlopsCount::Palm : flops_count_named(word);
        if (!count) {
            object_.refuse("tflops_count",
                           "\"palm\" or \"model\" (all pairs of attention), \"megatron\" (half of "
                           "causal attention) or \"hardware\" (as palm, with the forward that is "
                           "computed again)");
        }
        if (object_.has("tflops_count") && !run_.tflops_per_device) {
            object_.refuse("tflops_count", "tflops_per_device beside it");
        }
        run_.flops_count = *count;
        run_.names_flops_count = object_.has("tflops_count");
    }

    void read_peak() {
        if (object_.has("peak_bytes")) {
            run_.peak = Bytes{object_.whole("peak_bytes")};
            if (*run_.peak <= Bytes{}) {
                object_.refuse("peak_bytes", "a number of bytes above 0");
            }
        }
    }

    void read_timers() {
        if (!object_.has("timer_seconds")) {
            return;
        }
        if (!object_.is_object("timer_seconds")) {
            object_.refuse("timer_seconds",
                           R"(an object, as in {"forward-compute": 1.2, "backward-compute": 2.5})");
        }
        const JsonObject timers = object_.object("timer_seconds");
        std::vector<string_view> names;
        for (const auto& [name, time] : timers_of_row) {
            names.push_back(name);
            if (timers.has(name)) {
                run_.timers.*time = timers.number_or(name, 0);
                if (*(run_.timers.*time) <= 0) {
                    timers.refuse(name, "seconds above 0");
                }
            }
        }
        timers.expect_keys(names);
    }

    /// "model" may be a table of the scenario, too.
    void read_words_of_costs() {
        if (!object_.is_object("model")) {
            run_.model = object_.text_or("model", "");
        }
        run_.device = object_.text_or("device", "");
        run_.stack = object_.text_or("stack", "");
        run_.precision = object_.text_or("precision", "");
        if (!object_.has("sequence")) {
            return;
        }
        const int sequence = static_cast<int>(whole("sequence"));
        if (run_.tokens_per_sample.value_or(sequence) != sequence) {
            object_.refuse("sequence", "the same as tokens_per_sample", "leave one of them out");
        }
        run_.tokens_per_sample = sequence;
    }

    void read_key_of_scenario(const std::string& key, const json& value) {
        const string_view table = string_view(key).substr(0, key.find('.'));
        const bool has_place = key.find('.') != key.npos || value.is_object();
        if (!is_in(table, scenario_tables) || !has_place) {
            throw Error(ErrorKind::BadInput,
                        fmt::format("{}, {}", run_.place, key),
                        "unknown key, expected a measurement or a key of a scenario with its table",
                        suggestion_for(key));
        }
        add_keys(key, value);
    }

    void add_keys(const std::string& key, const json& value) {
        if (value.is_object()) {
            for (const auto& [inner, inner_value] : value.items()) {
                add_keys(fmt::format("{}.{}", key, inner), inner_value);
            }
            return;
        }
        if (std::ranges::find(run_.keys, key, &Override::key) != run_.keys.end()) {
            throw Error(ErrorKind::BadInput,
                        fmt::format("{}, {}", run_.place, key),
                        "written twice, with dots and in an object",
                        "leave one of them out");
        }
        if (value.is_null()) {
            throw Error(ErrorKind::BadInput,
                        fmt::format("{}, {}", run_.place, key),
                        "null, expected the value of the run",
                        "leave the key out where the run has the scenario's value");
        }
        // JSON's text of numbers, strings and lists of them is TOML, too.
        run_.keys.push_back({.key = key, .value = value.dump()});
    }

    const json& row_;
    std::string place_;
    JsonObject object_;
    MeasuredRun run_;
};

/// The rows of a text of one object per line; empty where it is another one.
std::vector<json> rows_of_lines(string_view text, string_view place) {
    std::vector<json> rows;
    std::size_t line = 0;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const string_view row = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        const std::size_t first = row.find_first_not_of(" \t\r");
        const std::size_t last = row.find_last_not_of(" \t\r");
        if (first != row.npos) {
            if (row[first] != '{' || row[last] != '}') {
                return {};
            }
            rows.push_back(parse_json(std::string(line, '\n').append(row), place));
        }
        ++line;
    }
    return rows;
}

/// True for several lines with an object on each.
bool has_row_on_each_line(string_view text) {
    const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    const std::size_t end = text.find('\n', begin);
    if (end == text.npos || text.find_first_not_of(" \t\r\n", end) == text.npos) {
        return false;
    }
    const string_view line = text.substr(begin, end - begin);
    return line.starts_with('{') && json::accept(line.begin(), line.end());
}

std::vector<json> rows_of(string_view text, string_view place) {
    if (has_row_on_each_line(text)) {
        if (std::vector<json> rows = rows_of_lines(text, place); !rows.empty()) {
            return rows;
        }
    }
    const json root = parse_json(text, place);
    if (root.is_array()) {
        return root.get<std::vector<json>>();
    }
    const JsonObject object(root, place, "");
    if (!object.has("rows")) {
        return std::vector<json>(1, root);
    }
    object.expect_keys(std::array<string_view, 4>{"rows", "name", "comment", "source"});
    if (!object.is_list("rows")) {
        object.refuse("rows", "a list of rows");
    }
    return root.at("rows").get<std::vector<json>>();
}

}  // namespace

std::vector<MeasuredRun> parse_measured_runs(string_view text, string_view place) {
    const std::vector<json> rows = rows_of(text, place);
    if (rows.empty() || rows.size() > most_rows) {
        throw Error(ErrorKind::BadInput,
                    std::string(place),
                    fmt::format("{} rows, expected 1 to {}", rows.size(), most_rows),
                    R"(a row is one measured run: {"step_seconds": 12.5, "training.batch": 512})");
    }
    std::vector<MeasuredRun> runs;
    for (const json& row : rows) {
        runs.push_back(RowReader(row, fmt::format("{}: row {}", place, runs.size() + 1)).read());
    }
    return runs;
}

}  // namespace pipetwin
