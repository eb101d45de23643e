#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace pipetwin::cli {

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
    std::string make_subcommand(const CLI::App* command) const override;
};

}  // namespace pipetwin::cli
