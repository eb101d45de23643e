// SPDX-License-Identifier: Apache-2.0
#include "cli/base/scenario_place.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <fmt/format.h>

#include "core/schedule/generators/generate.h"
#include "core/text/json_text.h"
#include "core/text/toml_table.h"

namespace pipetwin::cli {

namespace {

using std::string_view;

constexpr std::size_t largest_scenario = std::size_t{16} << 20;

/// A key of a scenario, "pipeline" and "partition"; the second one is empty for the table alone.
struct ScenarioKey {
    std::string table;
    std::string key;
};

/// The first key that a text names.
std::optional<ScenarioKey> key_in(string_view text) {
    constexpr std::array<string_view, 6> tables{
        "model", "data", "training", "pipeline", "cluster", "output"};
    constexpr string_view letters = "abcdefghijklmnopqrstuvwxyz_";
    for (std::size_t dot = text.find('.'); dot != string_view::npos;
         dot = text.find('.', dot + 1)) {
        const string_view before = text.substr(0, dot);
        const std::size_t blank = before.find_last_not_of(letters);
        const string_view table = before.substr(blank == string_view::npos ? 0 : blank + 1);
        const string_view after = text.substr(dot + 1);
        const string_view key = after.substr(0, after.find_first_not_of(letters));
        for (const string_view known : tables) {
            if (table == known && !key.empty()) {
                return ScenarioKey{.table = std::string(table), .key = std::string(key)};
            }
        }
    }
    return std::nullopt;
}

/// Whether a place is the name of a schedule, whose rules a shape breaks.
bool is_schedule_name(string_view place) {
    return std::ranges::any_of(known_schedules(),
                               [place](const ScheduleName& known) { return known.name == place; });
}

/// Whether a text begins with the name of a schedule, as in "naive: needs one micro-batch, got 4".
bool names_schedule(string_view text) {
    return is_schedule_name(text.substr(0, text.find(':')));
}

/// What the place of an error says beside the scenario's name; none where it names something else.
std::optional<string_view> rest_of_place(string_view place, string_view file) {
    if (place == file) {
        return string_view();
    }
    if (place.starts_with(file) && place.substr(file.size()).starts_with(": ")) {
        return place.substr(file.size() + 2);
    }
    if (place == "memory" || place == "partition") {
        return place;
    }
    const std::optional<ScenarioKey> key = key_in(place);
    const bool is_key = key && place.starts_with(key->table + "." + key->key);
    return is_key || place == "model" || is_schedule_name(place) ? std::optional(place)
                                                                 : std::nullopt;
}

/// Where the key stands, or would stand.
std::string place_of_key(const std::optional<ScenarioKey>& key,
                         const std::filesystem::path& scenario,
                         const std::vector<Override>& overrides) {
    const std::string begin = scenario.string() + ":1:1";
    const TomlDocument document(
        read_file(scenario, largest_scenario), scenario.string(), overrides);
    if (!key) {
        return begin;
    }
    const std::string place = document.root().table(key->table).place(key->key);
    return place == scenario.string() ? begin : place;
}

/// A place and what follows it, "x.toml:9:13: partition". An option is not named twice: "--set K"
/// and "K = 2" are "--set K=2".
std::string joined_places(const std::string& place, string_view rest) {
    if (rest.empty() || place == fmt::format("--set {}", rest)) {
        return place;
    }
    constexpr string_view equals = " = ";
    const std::size_t end_of_key = rest.find(equals);
    if (end_of_key != rest.npos && place == fmt::format("--set {}", rest.substr(0, end_of_key))) {
        return fmt::format("{}={}", place, rest.substr(end_of_key + equals.size()));
    }
    return fmt::format("{}: {}", place, rest);
}

/// Finds the scenario among the options of a command.
struct ScenarioOf {
    std::filesystem::path operator()(const auto& options) const {
        if constexpr (requires { options.scenario; }) {
            return options.scenario;
        } else if constexpr (requires { options.run.scenario; }) {
            return options.run.scenario;
        } else if constexpr (
            requires { options.file; } && !requires { options.format; }) {
            return options.file.extension() == ".toml" ? options.file : std::filesystem::path();
        } else if constexpr (requires { options.source; }) {
            return options.source.extension() == ".toml" ? options.source : std::filesystem::path();
        } else {
            return {};
        }
    }
};

}  // namespace

std::filesystem::path scenario_of(const Command& command) {
    return std::visit(ScenarioOf(), command);
}

Error with_scenario_place(const Error& error,
                          const std::filesystem::path& scenario,
                          const std::vector<Override>& overrides) {
    const std::optional<string_view> rest = error.place().empty() && names_schedule(error.text())
                                                ? string_view()
                                                : rest_of_place(error.place(), scenario.string());
    if (scenario.empty() || !rest || error.kind() == ErrorKind::Io ||
        error.kind() == ErrorKind::Usage) {
        return error;
    }
    std::optional<ScenarioKey> key = key_in(*rest);
    if (is_schedule_name(*rest) || (rest->empty() && names_schedule(error.text()))) {
        key = ScenarioKey{.table = "pipeline", .key = "schedule"};
    }
    for (const std::string* text : {&error.text(), &error.hint()}) {
        key = key ? key : key_in(*text);
    }
    if (!key && error.text().find(" cannot fill ") != std::string::npos) {  // fewer layers
        key = ScenarioKey{.table = "pipeline", .key = "stages"};
    }
    if (!key && (*rest == "memory" || *rest == "partition")) {
        return error;
    }
    try {
        const std::string place = place_of_key(key, scenario, overrides);
        return {error.kind(), joined_places(place, *rest), error.text(), error.hint()};
    } catch (const std::exception&) {
        return error;  // what was read a moment ago is gone, or is no TOML: that is another error
    }
}

}  // namespace pipetwin::cli
