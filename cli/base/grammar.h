// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/base/command_row.h"

namespace pipetwin::cli {

/// Common options in types that CLI11 can read, before they become CommonOptions.
struct RawCommon {
    CommonOptions options;
    std::vector<std::string> settings;
    std::optional<std::uint64_t> seed;
};

/// Refuses what the range refuses, and NaN and infinity: CLI11's ranges take NaN.
CLI::Validator finite_in(const CLI::Range& range);

/// The commands and options of the command line, and what one parse fills in. Used once.
class Grammar {
  public:
    /// Declares all commands and options.
    explicit Grammar(std::span<const CommandRow> rows);
    /// Reads the arguments behind the program's name. Throws Error(Usage) with the nearest known
    /// command or option.
    Parsed parse(const std::vector<std::string>& args);

    const CLI::App& app() const { return app_; }

  private:
    CLI::App& add_command(const CommandRow& row);
    Command selected() const;  ///< the options of the command that was given
    CommonOptions common() const;
    /// Refuses what the command did not take, naming the nearest option it knows.
    void refuse_extras(const CLI::App& command, const std::vector<std::string>& args) const;

    CLI::App app_{"pipetwin: plan, predict and run pipeline-parallel training", "pipetwin"};
    RawCommon raw_;
    std::map<std::string, Command, std::less<>> commands_;  ///< [name of the command]
};

}  // namespace pipetwin::cli
