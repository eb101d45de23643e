// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// Settings of another program's training run, whatever file they were written in.
namespace pipetwin {

/// One word of a setting's value, and where it stands.
struct SettingWord {
    std::string text;
    std::string place{};  ///< file:line:column
    /// The variable that the word holds and that the file gives no value; empty: none.
    std::string unknown{};
    std::vector<std::string> choices{};  ///< values that a loop gives that variable

    bool operator==(const SettingWord&) const = default;
};

/// One setting: a flag of a command line with the words behind it, or a key of a YAML file with its
/// value.
struct Setting {
    std::string name;                   ///< "num-layers", also where a file writes num_layers
    std::string written{};              ///< as the file has it: "--num-layers", "model.num_layers"
    std::string place{};                ///< file:line:column
    std::vector<SettingWord> values{};  ///< empty: a flag alone
    /// A key of a file that can say "false", "null" or nothing; a flag of a command line cannot.
    bool is_key = false;
    std::vector<std::string> sections{};  ///< tables that a key stands in, the outermost first
    bool is_unset = false;  ///< a key with `null`, which takes away what a base file says
    bool is_list = false;   ///< a key of a YAML file whose value is a list

    bool operator==(const Setting&) const = default;
};

/// Values for variables that a file leaves open, by their names ("MBS", and "3" for "$3").
using LaunchVariables = std::map<std::string, std::string, std::less<>>;

/// A launch file: its settings, and what it says beside them.
struct LaunchFile {
    std::vector<Setting> settings;
    std::string program{};    ///< the program that is started; empty: none is named
    std::string framework{};  ///< whose stacks the run has, where the file says it; else empty
    std::optional<int> processes{};      ///< of a node; none: not said
    std::optional<int> nodes{};          ///< none: not said
    bool has_usual_nodes = false;        ///< the file does not say `nodes`, and launchers take 1
    std::optional<int> all_processes{};  ///< on all nodes; none: those of a node times the nodes
    std::vector<std::string> models{};   ///< further files that the settings continue, as written
    std::vector<std::string> notes{};    ///< what the reader left out
    /// Variables that hold flags which the reader has not seen, as written; so what is not among
    /// the settings may be there all the same.
    std::vector<std::string> unseen{};
    /// Variables of the environment that choose kernels ("NVTE_FLASH_ATTN"), with certain values.
    std::map<std::string, std::string, std::less<>> environment{};
    /// The program itself printed the settings: all that it has, those with default values, too.
    bool is_printed = false;

    bool operator==(const LaunchFile&) const = default;
};

}  // namespace pipetwin
