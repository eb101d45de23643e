// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/text/override.h"

/// Options of every command, as the user writes them after `pipetwin`. Parsing fills these structs
/// in and checks nothing that needs a file.
namespace pipetwin::cli {

class Console;
struct CommandRow;

enum class ColorMode { Auto, Always, Never };

/// Shared by every command.
struct CommonOptions {
    bool json = false;                ///< the result on stdout as one JSON object
    std::filesystem::path out;        ///< empty: not given
    std::vector<Override> overrides;  ///< --set key=value in the order given, then --seed
    bool quiet = false;
    bool verbose = false;
    ColorMode color = ColorMode::Auto;
    bool force = false;
};

/// Options for what varies from step to step, and for what interrupts a run; see
/// cli/text/uncertainty.h.
struct UncertaintyOptions {
    std::optional<int> samples;
    std::optional<double> jitter;
    std::optional<double> transfer_jitter;
    std::optional<double> device_jitter;
    std::optional<std::string> spikes;
    std::optional<std::string> straggler;
    std::optional<double> mtbf_hours;
    std::optional<int> devices;
    std::optional<int> checkpoint_every;
    std::optional<double> checkpoint_s;
    std::optional<double> restart_s;

    /// True if any of them was given.
    bool any() const;
};

/// A command that was given: its options (cli/base/command_row.h), and what is done with them, in
/// this order.
struct Command {
    CommonOptions common;
    /// Refuses what the options do not allow together, and may add overrides; `args` are the words
    /// of the command line. Throws Error(Usage). Null, as the next: nothing is left to do.
    std::function<void(const std::vector<std::string>& args, CommonOptions& common)> complete{};
    /// Throws Error(BadInput) for files of other kinds than these options take.
    std::function<void()> expect_files{};
    std::function<void(const CommonOptions& common, Console& console)> run;

    /// The file that it reads, of which standard input is none; null: it reads none, or takes "-".
    std::function<std::filesystem::path()> input{};
    /// The scenario, which has the lines of keys that errors name; null: it reads none.
    std::function<std::filesystem::path()> scenario{};
    std::string_view saved_as = "scenario.toml";  ///< name for what is on standard input
    bool takes_model_names = false;               ///< in place of the file
    std::string_view extra_word{};  ///< option that a word too many is the value of; empty: none
};

/// The command that was given, or a text to print in its place (--help, --version).
using Parsed = std::variant<Command, std::string>;

/// Reads a command line; `args` are without the program's name. Throws Error(Usage) with the
/// nearest known command or option.
Parsed parse_options(const std::vector<std::string>& args, std::span<const CommandRow> rows);

}  // namespace pipetwin::cli
