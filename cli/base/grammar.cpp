// SPDX-License-Identifier: Apache-2.0
#include "cli/base/grammar.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/base/help_format.h"
#include "cli/base/value_words.h"
#include "core/base/version.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view exit_code_text =
    "Exit codes: 0 success, 1 other failure, 2 usage, 3 bad input file, 4 infeasible, 5 backend "
    "or\n"
    "device missing, 6 I/O or folder in use, 7 a worker failed, 8 hang, 9 NaN or infinity,\n"
    "10 ranks disagree, 11 beyond a gate, 12 no verdict of a gate, 129, 130, 141 and 143 stopped\n"
    "by a signal.\n";

constexpr std::array<std::string_view, 3> color_words{"auto", "always", "never"};

void add_common(CLI::App& app, RawCommon& raw) {
    app.add_flag("--json", raw.options.json, "Print the result as one JSON object")
        ->group(general_options);
    app.add_option(
           "--out", raw.options.out, "Folder for the files of the result (default: no files)")
        ->type_name("DIR");
    app.add_option(
           "--set",
           raw.settings,
           "Override a key of the scenario, as in pipeline.stages=4; the value is TOML, or a bare "
           "word for a string; can be repeated")
        ->type_name("KEY=VALUE")
        ->check(suggests(NameList::Keys))
        ->expected(1)
        ->allow_extra_args(false)
        ->take_all();
    app.add_option("--seed", raw.seed, "Seed of weights and data, as --set training.seed=N")
        ->type_name("N")
        ->check(CLI::NonNegativeNumber);
    CLI::Option* const quiet =
        app.add_flag("--quiet", raw.options.quiet, "Print only the result and errors");
    quiet->group(general_options);
    app.add_flag("--verbose", raw.options.verbose, "Also print the critical path")
        ->group(general_options)
        ->excludes(quiet);
    app.add_option("--color", raw.options.color, "Colours: auto (default), always or never")
        ->transform(CLI::CheckedTransformer(std::vector<std::pair<std::string, ColorMode>>{
                                                {"auto", ColorMode::Auto},
                                                {"always", ColorMode::Always},
                                                {"never", ColorMode::Never}})
                        .description(""))
        ->check(suggests(color_words))
        ->type_name("WHEN")
        ->group(general_options);
    app.add_flag("--force", raw.options.force, "Overwrite existing files")->group(general_options);
}

}  // namespace

CLI::Validator finite_in(const CLI::Range& range) {
    return {[range](std::string& text) {
                double number = 0;
                const bool is_number = CLI::detail::lexical_cast(text, number);
                return is_number && !std::isfinite(number)
                           ? fmt::format("Value {} is no finite number", text)
                           : range(text);
            },
            range.get_description()};
}

CLI::App& Grammar::add_command(const CommandRow& row) {
    CLI::App* const command = app_.add_subcommand(std::string(row.name), std::string(row.help));
    command->group("Commands")->footer(std::string(exit_code_text));
    command
        ->allow_extras();  // told apart after the parse, where the nearest known one can be named
    add_common(*command, raw_);
    return *command;
}

Grammar::Grammar(std::span<const CommandRow> rows) {
    app_.formatter(std::make_shared<HelpFormat>());
    app_.require_subcommand(1);
    app_.set_version_flag("--version", fmt::format("pipetwin {}", program_version()));
    app_.footer("'pipetwin COMMAND --help' lists a command's options.\n" +
                std::string(exit_code_text));
    for (const CommandRow& row : rows) {
        commands_.emplace(row.name, row.declare(add_command(row)));
    }
}

}  // namespace pipetwin::cli
