// SPDX-License-Identifier: Apache-2.0
#include "cli/base/options.h"

#include <locale.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/base/grammar.h"
#include "cli/base/help_format.h"
#include "cli/base/input.h"
#include "cli/base/option_hints.h"
#include "cli/base/option_lists.h"
#include "cli/base/shell_word.h"
#include "cli/base/typed_words.h"
#include "cli/base/usage_error.h"
#include "cli/base/value_words.h"
#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/base/typed_text.h"
#include "core/base/version.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/scenario/scenario_tables.h"

namespace pipetwin::cli {

namespace {

using CommandRows = std::span<const CommandRow>;

/// The names of all commands.
std::vector<std::string_view> command_names(CommandRows rows) {
    std::vector<std::string_view> names;
    std::ranges::transform(rows, std::back_inserter(names), &CommandRow::name);
    return names;
}

/// Throws Error(Usage) for a key of --set that stands in a table which is not named.
void refuse_key_without_table(const std::string& key, const std::string& value) {
    if (key.find('.') != std::string::npos) {
        return;
    }
    for (const KeyGroup& group : all_key_groups()) {
        const bool is_table = group.where.starts_with('[');
        std::vector<std::string_view> names;
        std::ranges::transform(group.keys, std::back_inserter(names), &ScenarioKey::name);
        const std::string_view name = is_table ? same_word(key, names) : std::string_view();
        if (!name.empty()) {
            const std::string table = group.where.substr(1, group.where.find(']') - 1);
            throw Error(ErrorKind::Usage,
                        "--set " + key,
                        fmt::format("the table of the key is missing, expected {}.{}", table, name),
                        fmt::format("--set {}.{}={}", table, name, value));
        }
    }
}

/// Throws Error(Usage) for a key that a command without a scenario is to set.
void refuse_keys_without_scenario(const CLI::App& command, const RawCommon& raw) {
    const bool has_scenario = command.get_option("--set")->get_group() != options_without_effect;
    if (!has_scenario && (raw.seed || !raw.settings.empty())) {
        throw Error(
            ErrorKind::Usage,
            raw.settings.empty() ? "--seed" : "--set " + raw.settings.front(),
            fmt::format("'{}' reads no scenario, so there is no key to set", command.get_name()),
            "leave the option out");
    }
}

/// Throws Error(Usage) for "--out -", which other programs take for standard output.
void refuse_standard_output(const CLI::App& command, const std::filesystem::path& out) {
    const CLI::Option& option = *command.get_option("--out");
    if (out == "-" && option.get_group() != options_without_effect) {
        const std::string name = value_name(option);
        const auto says_manual = [](const CLI::Option* given) {
            return given->get_positional() && given->results() == CLI::results_t{"man"};
        };
        if (command.get_name() == "completion" &&
            std::ranges::any_of(command.get_options(), says_manual)) {
            throw Error(ErrorKind::Usage,
                        "--out",
                        "'-' is no folder, and the manual has a page for each command",
                        "name one: pipetwin completion man --out man1");
        }
        throw Error(
            ErrorKind::Usage,
            "--out",
            fmt::format("'-' is no file or folder, expected {}", name),
            fmt::format(
                "{}write --out {}", option.get_required() ? "" : "leave it out, or ", name));
    }
}

}  // namespace

CommonOptions Grammar::common() const {
    CommonOptions options = raw_.options;
    refuse_standard_output(*app_.get_subcommands().front(), options.out);
    for (const std::string& setting : raw_.settings) {
        const std::size_t equals = setting.find('=');
        if (equals == std::string::npos || equals == 0) {
            throw Error(
                ErrorKind::Usage,
                "--set",
                fmt::format("'{}' is not of the form key=value", setting),
                "write the key as in the scenario, with its table: --set pipeline.stages=4");
        }
        const std::string key(trimmed(std::string_view(setting).substr(0, equals)));
        const std::string value(trimmed(std::string_view(setting).substr(equals + 1)));
        refuse_key_without_table(key, value);
        options.overrides.push_back({.key = key, .value = value});
    }
    if (raw_.seed) {
        refuse_key_of_option("--seed", "training.seed", options.overrides);
        options.overrides.push_back({.key = "training.seed", .value = std::to_string(*raw_.seed)});
    }
    refuse_keys_without_scenario(*app_.get_subcommands().front(), raw_);
    return options;
}

Command Grammar::selected() const {
    Command options = commands_.at(app_.get_subcommands().front()->get_name());
    options.common = common();
    return options;
}

namespace {

/// The scenarios of a command line that names more than one, as `sweep` takes them; empty where a
/// word is none.
std::string several_scenarios(const CLI::App& command, const std::vector<std::string>& extras) {
    std::vector<std::string> words;
    for (const CLI::Option* option : command.get_options()) {
        if (option->get_positional()) {
            words.insert(words.end(), option->results().begin(), option->results().end());
        }
    }
    std::ranges::copy_if(extras, std::back_inserter(words), [](const std::string& word) {
        return !word.starts_with('-');
    });
    std::string scenarios;
    for (const std::string& word : words) {
        std::filesystem::path file = word;
        if (is_folder(file)) {
            file /= "scenario.toml";
        }
        std::error_code ignored;
        if (!std::filesystem::is_regular_file(file, ignored)) {
            return {};
        }
        scenarios += ' ' + shell_word(file.string());
    }
    return scenarios;
}

/// What to do about a word that the command has no place for. `extra_word`: as in Command.
std::string hint_for_extra(const CLI::App& command,
                           std::string_view extra_word,
                           const std::vector<std::string>& extras,
                           const std::vector<std::string>& args) {
    const std::string name = command.get_name();
    const std::string& extra = extras.front();
    const std::string scenarios = name == "simulate" ? several_scenarios(command, extras) : "";
    if (!scenarios.empty()) {
        return fmt::format("compare several plans with 'pipetwin sweep{}'", scenarios);
    }
    if (const std::string list = list_with(extra, args); !list.empty()) {
        return fmt::format("write the list with commas: {}", list);
    }
    const auto at = std::ranges::find(args, extra);
    if (at != args.begin() && at != args.end()) {
        const std::string parts = *(at - 1) + ' ' + *at;
        std::error_code ignored;
        if (std::filesystem::exists(parts, ignored)) {
            return fmt::format("put the name in quotes: {}", shell_word(parts));
        }
        if (*(at - 1) == "--resume") {
            return fmt::format("--resume has no value: write --resume --out {}", shell_word(extra));
        }
        constexpr std::array<std::string_view, 8> units{"k", "K", "M", "G", "B", "T", "m", "b"};
        const std::string& number = *(at - 1);
        if (std::ranges::count(units, extra) > 0 &&
            number.find_first_not_of("0123456789.") == std::string::npos) {
            return fmt::format("write the unit behind the number, without a blank: {}{}",
                               number,
                               extra == "m"   ? "M"
                               : extra == "b" ? "B"
                                              : extra);
        }
    }
    const bool has_set = command.get_option_no_throw("--set") != nullptr;
    if (extra == "set" && has_set) {
        return "did you mean '--set'?";
    }
    if (const std::size_t equals = extra.find('='); equals != std::string::npos && has_set) {
        if (const std::string key = whole_key(extra.substr(0, equals)); !key.empty()) {
            return fmt::format("write --set {}{}", key, shell_word(extra.substr(equals)));
        }
    }
    const CLI::Option* const out = command.get_option_no_throw("--out");
    if (out != nullptr && out->get_required() && out->count() == 0) {
        return fmt::format("write --out {}", shell_word(extra));
    }
    if (!extra_word.empty() && command.get_option(std::string(extra_word))->count() == 0) {
        return fmt::format("write {} {}", extra_word, shell_word(extra));
    }
    return fmt::format("leave it out; 'pipetwin {} --help' says what the command takes", name);
}

}  // namespace

void Grammar::refuse_extras(const CLI::App& command, const std::vector<std::string>& args) const {
    const std::vector<std::string> extras = command.remaining();
    if (extras.empty()) {
        return;
    }
    const std::string& extra = extras.front();
    if (!extra.starts_with('-') && !begins_with_dash(extra)) {
        throw Error(
            ErrorKind::Usage,
            "",
            fmt::format("'{}' is one argument more than '{}' takes", extra, command.get_name()),
            hint_for_extra(command, commands_.at(command.get_name()).extra_word, extras, args));
    }
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
        if (!option->get_lnames().empty() && option->get_group() != options_without_effect) {
            names.push_back("--" + option->get_lnames().front());
        }
    }
    const std::vector<std::string_view> known(names.begin(), names.end());
    const std::string word = extra.substr(0, extra.find('='));
    throw Error(ErrorKind::Usage,
                "",
                fmt::format("'{}' has no option '{}'", command.get_name(), word),
                hint_for_option(
                    {.command = command.get_name(), .word = word, .args = args, .known = known}));
}

Parsed Grammar::parse(const std::vector<std::string>& args) {
    refuse_split_settings(args);
    try {
        app_.parse(std::vector<std::string>(args.rbegin(), args.rend()));
    } catch (const CLI::CallForHelp&) {
        return app_.help();
    } catch (const CLI::CallForVersion&) {
        return std::ranges::count(args, "--json") > 0
                   ? fmt::format("{{\n  \"schema_version\": 1,\n  \"tool_version\": \"{}\"\n}}\n",
                                 program_version())
                   : fmt::format("pipetwin {}\n", program_version());
    } catch (const CLI::ParseError& error) {
        for (const CLI::App* command : app_.get_subcommands()) {
            // A misspelt option explains better than the value that it left over.
            refuse_extras(*command, args);
        }
        const std::vector<CLI::App*> commands = app_.get_subcommands();
        throw usage_error(error, commands.empty() ? nullptr : commands.front(), args);
    }
    refuse_extras(*app_.get_subcommands().front(), args);
    return selected();
}

namespace {

/// "help", "help plan" and "version" as the options that say the same.
std::vector<std::string> with_words_as_options(std::vector<std::string> args, CommandRows rows) {
    if (!args.empty() && (args.front() == "version" || args.front() == "-V")) {
        args.front() = "--version";
    }
    if (args.size() == 2 && args.back() == "help" &&
        std::ranges::count(command_names(rows), args.front()) > 0) {
        args.back() = "--help";
    }
    if (!args.empty() && args.front() == "help" && args.size() <= 2) {
        std::ranges::rotate(args, args.begin() + 1);
        args.back() = "--help";
    }
    return args;
}

/// The file that the command reads, of which standard input is none; empty: it reads none, or
/// takes "-".
std::filesystem::path input_of(const Command& options) {
    return options.input ? options.input() : std::filesystem::path();
}

/// Throws Error(Usage) for standard input in place of a file: what is read must be named in the
/// answer, and read again.
void refuse_standard_input(const Command& options, const std::vector<std::string>& args) {
    const std::filesystem::path file = input_of(options);
    std::error_code ignored;
    const bool is_input = (file == "-" && !std::filesystem::exists(file, ignored)) ||
                          file == "/dev/stdin" || file == "/dev/fd/0" || file == "/proc/self/fd/0";
    if (!is_input) {
        return;
    }
    const std::string name(options.saved_as);
    std::string again = "pipetwin";
    for (const std::string& word : args) {
        again += ' ' + (word == file ? name : shell_word(word));
    }
    throw Error(ErrorKind::Usage,
                file.string(),
                fmt::format("'{}' does not read standard input", args.front()),
                fmt::format("write it to a file first: cat > {} && {}", name, again));
}

/// Throws Error(Io) for the name of a model where a scenario is read.
void refuse_model_name(const Command& options) {
    const std::string name = input_of(options).string();
    std::error_code ignored;
    const bool is_missing =
        !options.takes_model_names && !name.empty() && !std::filesystem::exists(name, ignored);
    if (is_missing && std::ranges::count(model_names(), name) > 0) {
        throw Error(ErrorKind::Io,
                    name,
                    "there is no such file; it is the name of a model, expected a scenario",
                    fmt::format("pipetwin plan {} --cluster 8x-h100-sxm plans the model", name));
    }
}

/// The command line with what stands before its command behind it; empty: there is no command.
std::string command_first(const std::vector<std::string>& args,
                          const std::vector<std::string_view>& names) {
    const auto command = std::ranges::find_if(
        args, [&names](const std::string& word) { return std::ranges::count(names, word) > 0; });
    if (command == args.end()) {
        return "";
    }
    std::vector<std::string> words(command, args.end());
    words.insert(words.end(), args.begin(), command);
    std::string line = "pipetwin";
    for (const std::string& word : words) {
        line += ' ' + shell_word(word);
    }
    return line;
}

/// The first word must be a command, or an option of the program itself.
void check_command_word(const std::vector<std::string>& args, CommandRows rows) {
    const std::vector<std::string_view> names = command_names(rows);
    if (args.empty()) {
        throw Error(ErrorKind::Usage, "", "no command given", "pipetwin --help lists the commands");
    }
    const std::string& word = args.front();
    if (word.starts_with('-') || begins_with_dash(word)) {
        if (word != "--help" && word != "-h" && word != "--version") {
            const std::string in_order = command_first(args, names);
            throw Error(ErrorKind::Usage,
                        "",
                        fmt::format("'{}' comes before the command", word),
                        word == "-v" && args.size() == 1 ? "did you mean '--version'?"
                        : in_order.empty() ? "pipetwin <command> [SCENARIO.toml] [options]"
                                           : in_order);
        }
        return;
    }
    if (std::ranges::find(names, word) == names.end()) {
        throw Error(ErrorKind::Usage,
                    "",
                    fmt::format("'{}' is not a command", word),
                    hint_for_command(word, names));
    }
}

}  // namespace

bool UncertaintyOptions::any() const {
    return samples || jitter || transfer_jitter || device_jitter || spikes || straggler ||
           mtbf_hours || devices || checkpoint_every || checkpoint_s || restart_s;
}

namespace {

/// Numbers of this thread with a decimal point, whatever the process' locale: CLI11 reads them with
/// the C library.
class PlainNumbers {
  public:
    PlainNumbers()
        : plain_(newlocale(LC_NUMERIC_MASK, "C", locale_t{})), before_(uselocale(plain_)) {}
    PlainNumbers(const PlainNumbers&) = delete;
    PlainNumbers& operator=(const PlainNumbers&) = delete;
    ~PlainNumbers() {
        uselocale(before_);
        freelocale(plain_);
    }

  private:
    locale_t plain_;
    locale_t before_;
};

}  // namespace

Parsed parse_options(const std::vector<std::string>& given, CommandRows rows) {
    const PlainNumbers plain;
    const std::vector<std::string> args = with_words_as_options(given, rows);
    check_command_word(args, rows);
    Parsed parsed = Grammar(rows).parse(args);
    if (auto* const options = std::get_if<Command>(&parsed)) {
        refuse_standard_input(*options, args);
        refuse_model_name(*options);
        if (options->complete) {
            options->complete(args, options->common);
        }
    }
    return parsed;
}

}  // namespace pipetwin::cli
