// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/interop/launch/shell_words.h"

namespace pipetwin {

/// The variables of a script, as far as its text says what they hold.
class ShellVariables {
  public:
    /// `place` names the script in errors; both must outlive the object.
    ShellVariables(std::string_view script, std::string_view place)
        : script_(script), place_(place) {}

    /// Gives a variable, or an argument of the script ("3"), a value that no assignment changes.
    void fix(const std::string& name, const std::string& value);

    bool is_fixed(const std::string& name) const { return fixed_.contains(name); }

    /// Carries out an assignment. Throws Error(BadInput) with place:line:column where an array is
    /// not closed. One that `is_optional` may not be carried out by the shell, so what it sets is
    /// unknown from then on.
    void assign(const ShellWord& assignment, bool is_optional);

    /// Gives a variable a value as an assignment does, one of a loop; `is_optional`: as in assign.
    void set(const std::string& name, ShellText value, bool is_optional);

    /// The words that the shell makes of one: variables replaced, quotes removed, split at blanks
    /// that come from variables outside of quotes.
    std::vector<ShellText> expand(const ShellWord& word) const;

    /// The words of all arrays and the texts of all variables that hold flags, in the order in
    /// which they were set first.
    std::vector<ShellText> all_words() const;

    /// Returns the certain values of variables whose names begin with `prefix`, but for arrays.
    std::map<std::string, std::string, std::less<>> values_of(std::string_view prefix) const;

  private:
    friend class ShellExpansion;

    struct Value {
        std::vector<ShellText> words;  ///< one for a variable that is no array
        std::size_t at = 0;            ///< position of the assignment in the script
        bool is_array = false;
        bool is_certain = true;
        bool holds_flags = false;  ///< so does one of the values that it may have
    };

    /// The words of an array, of which `inside` stands between the parentheses, at `at`.
    std::vector<ShellText> array_words(std::string_view inside, std::size_t at) const;

    std::string_view script_;
    std::string_view place_;
    std::map<std::string, Value, std::less<>> values_;
    std::vector<std::string> order_;
    std::set<std::string, std::less<>> fixed_;
};

}  // namespace pipetwin
