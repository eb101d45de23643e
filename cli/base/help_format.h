// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace pipetwin::cli {

/// Group of the options that most commands have; --help lists it last.
inline constexpr const char* general_options = "General options";
/// Group of options that a command accepts and does not use; --help leaves it out. (CLI11 has no
/// name in its errors for options of a group without a name.)
inline constexpr const char* options_without_effect = "Options without effect";

/// What the help says of an option, with what it needs and excludes.
std::string option_text(const CLI::Option& option);

/// Layout of --help: options with the name of their value, without the ranges that CLI11 puts
/// behind it; texts end before column 100; what an option needs or excludes is a remark behind its
/// text.
class HelpFormat : public CLI::Formatter {
  public:
    HelpFormat();

    std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
    std::string make_option_opts(const CLI::Option* option) const override;
    std::string make_option_desc(const CLI::Option* option) const override;
    std::string make_option_usage(const CLI::Option* option) const override;
    std::string make_help(const CLI::App* app,
                          std::string name,
                          CLI::AppFormatMode mode) const override;
    std::string make_subcommand(const CLI::App* command) const override;
};

}  // namespace pipetwin::cli
