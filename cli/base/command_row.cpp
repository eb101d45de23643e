// SPDX-License-Identifier: Apache-2.0
#include "cli/base/command_row.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "cli/base/help_format.h"
#include "cli/base/value_words.h"
#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_choice.h"
#include "core/scenario/scenario_writer.h"

namespace pipetwin::cli {

void leave_out_of_help(CLI::App& command, std::initializer_list<const char*> options) {
    for (const char* const option : options) {
        command.get_option(option)->group(options_without_effect);
    }
}

void reads_no_scenario(CLI::App& command) {
    leave_out_of_help(command, {"--set", "--seed", "--verbose"});
}

void needs_out_file(CLI::App& app) {
    app.get_option("--out")->description("File to write")->type_name("FILE")->required();
}

void takes_out_file(CLI::App& app) {
    app.get_option("--out")->description("File to write the result to, as JSON")->type_name("FILE");
}

void add_scenario(CLI::App& app, std::filesystem::path& file) {
    app.add_option("scenario", file, "Scenario file")->type_name("SCENARIO.toml")->required();
}

void add_profile(CLI::App& app, std::filesystem::path& file, const std::string& text) {
    app.add_option("--profile", file, text)->type_name("FILE");
}

void add_stack(CLI::App& app, std::optional<std::string>& stack, const std::string& text) {
    app.add_option("--stack", stack, text)->type_name("NAME")->check(suggests(NameList::Stacks));
}

void set_stack_key(const std::optional<std::string>& stack, std::vector<Override>& overrides) {
    if (!stack) {
        return;
    }
    refuse_key_of_option("--stack", "cluster.stack", overrides);
    const std::string name = stack_named(*stack);
    if (!name.empty()) {
        find_stack(name, "--stack");
    }
    overrides.push_back(
        {.key = "cluster.stack", .value = toml_string(name.empty() ? no_stack : name)});
}

void add_sequence(CLI::App& app, std::optional<int>& tokens, const std::string& text) {
    const std::map<std::string, int> units{{"k", 1024}, {"K", 1024}, {"M", 1 << 20}};
    app.add_option("--sequence", tokens, text)
        ->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::CASE_SENSITIVE, "N[k|M]"))
        ->check(CLI::Range(1, 1 << 26))
        ->type_name("N[k|M]");
}

void add_run_calibration(CLI::App& app, std::filesystem::path& file) {
    app.add_option(
           "--calibrate",
           file,
           "JSON file of measured runs that correct the costs. Each run has its step time, "
           "tokens/s or TFLOP/s, and the keys whose values differ from the scenario; optional: its "
           "peak memory")
        ->type_name("FILE");
}

void add_flops_count(CLI::App& app, std::optional<FlopsCount>& count) {
    std::vector<std::pair<std::string, FlopsCount>> words;
    std::vector<std::string_view> names;
    for (const FlopsCount known : flops_counts) {
        words.emplace_back(to_string(known), known);
        names.emplace_back(to_string(known));
    }
    app.add_option("--mfu",
                   count,
                   "What counts as an operation of the model in its MFU: palm (all pairs of "
                   "attention), megatron (half of causal attention; default) or hardware (as palm, "
                   "and recompute)")
        ->transform(CLI::CheckedTransformer(words).description(""))
        ->check(suggests(names))
        ->type_name("COUNT");
}

void refuse_key_of_option(std::string_view option,
                          std::string_view key,
                          const std::vector<Override>& overrides) {
    const auto twice = std::ranges::find(overrides, key, &Override::key);
    if (twice != overrides.end()) {
        throw Error(ErrorKind::Usage,
                    std::string(option),
                    fmt::format("it sets {0}, and so does --set {0}={1}", key, twice->value),
                    "leave one of the two out");
    }
}

}  // namespace pipetwin::cli
