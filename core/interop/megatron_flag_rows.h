// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/interop/launch/setting.h"
#include "core/interop/launch/setting_problems.h"
#include "core/interop/launch/setting_values.h"
#include "core/interop/megatron_flags.h"

/// The flags that MegatronFlags has members for, a row for each.
namespace pipetwin {

/// What is known while flags are read one by one.
struct MegatronReading {
    MegatronFlags flags;
    SettingProblems problems;
    std::optional<int> scheduled_batch{};  ///< the last of --step-batch-size-schedule
    bool checkpoints_activations = false;  ///< --checkpoint-activations, of 2021
};

/// A setting with the begin of its value: "--spec x".
std::string shown_setting(const Setting& setting);

/// Reports a setting that changes the run in a way that no scenario can say.
void add_problem(MegatronReading& reading, const Setting& setting, std::string_view why);

/// A whole number from `least` to `most`.
struct WholeFlag {
    std::optional<int> MegatronFlags::*member;
    int least = 1;
    int most = largest_setting;
};

/// Whole numbers of at least `least`.
struct WholesFlag {
    std::vector<int> MegatronFlags::*member;
    int least = 1;
};

/// One of two or more words; `on` are those that mean true.
struct ChoiceFlag {
    bool MegatronFlags::*member;
    std::string_view words;  ///< apart by blanks
    std::string_view on;     ///< apart by blanks; the first is written
};

/// Any word, or one of `words`.
struct WordFlag {
    std::optional<std::string> MegatronFlags::*member;
    std::string_view words{};  ///< apart by blanks; empty: any
};

/// A flag with a meaning of its own.
struct OwnFlag {
    void (*take)(const Setting&, MegatronReading&);
    /// The value to write; empty: the flag is not written.
    std::string (*print)(const MegatronFlags&) = nullptr;
};

/// A switch is a bool, a number of 0 or more a double.
using MegatronTarget = std::variant<WholeFlag,
                                    WholesFlag,
                                    bool MegatronFlags::*,
                                    std::optional<double> MegatronFlags::*,
                                    ChoiceFlag,
                                    WordFlag,
                                    OwnFlag>;

/// What else there is to know of a flag.
enum class FlagRule {
    Plain,
    Once,      ///< stands once, as numbers do; where two keys say it, they agree
    Keys,      ///< as a key of a file alone: the command line has no such flag
    Unprinted  ///< another flag is written in its place
};

/// A flag, its member and its rule.
struct MegatronFlagRow {
    std::string_view names;  ///< apart by blanks: the first is written
    MegatronTarget target;
    FlagRule rule = FlagRule::Plain;
    /// Whether it says what is trained or how, so that in a table of unknown owner it is a problem;
    /// else it chooses kernels.
    bool decides = true;
};

/// The row of the flag of this name; null: it has none.
const MegatronFlagRow* megatron_flag_row(std::string_view name);

/// Takes a setting by its row. `is_inverted`: a switch whose name says the contrary of the row's.
/// Throws Error(BadInput) with place:line:column for a value that is none.
void take_flag(const MegatronFlagRow& row,
               const Setting& setting,
               bool is_inverted,
               MegatronReading& reading);

/// The names of all rows but lists of layers, for suggestions.
std::vector<std::string_view> megatron_row_names();

}  // namespace pipetwin
