// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pipetwin {

/// Which settings of another program a reader leaves out, each with a warning, where no scenario
/// can say them.
enum class LeaveOut {
    Nothing,  ///< names that are not known, and are nothing like one that is
    Unknown,  ///< all names that are not known, but for those that speak of a run
    All,      ///< what changes model, split, batch or memory, too: the result is of another run
};

/// What says of a switch or a number that it is off.
constexpr std::string_view off_values = "0 false none null no";

/// Settings that a reader has one answer for.
struct SettingGroup {
    std::string_view names;  ///< apart by blanks
    std::string_view why;    ///< what they change, or what a prediction leaves out
    /// Values with which there is nothing to say, apart by blanks.
    std::string_view harmless_values{};
};

/// The group that has this name; null: none has.
const SettingGroup* group_with(std::span<const SettingGroup> groups, std::string_view name);

/// Returns the part of a setting's name that speaks of the model, its split, its batch or its
/// memory, as "layer" in "num-layer-list"; empty: none does. A name that is not known may not be
/// left out where it does.
std::string_view word_of_a_run(std::string_view name);

/// The settings of a file that no scenario can say.
class SettingProblems {
  public:
    /// Adds a setting that is known to change the run: "--spec x", and what it changes.
    void add(std::string place, std::string setting, std::string_view why);

    /// Adds a setting that is not known. `name` decides whether it may be left out. `meant`: the
    /// known name of which it may be a slip; empty: none.
    void add_unknown(std::string place,
                     std::string setting,
                     std::string_view name,
                     std::string_view why,
                     std::string_view meant = {});

    /// Adds a line to `warnings` with all names that are not known, and one for each other setting
    /// that is left out, and to `left_out` each of these. Throws Error(BadInput), naming all that
    /// may not be left out.
    void settle(LeaveOut leave_out,
                std::vector<std::string>& warnings,
                std::vector<std::string>& left_out) const;

  private:
    enum class Kind { Unknown, Slip, ChangesRun };
    struct Problem {
        std::string place;
        std::string setting;
        std::string why;
        Kind kind = Kind::ChangesRun;
    };

    std::vector<Problem> problems_;
};

}  // namespace pipetwin
