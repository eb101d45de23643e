// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/interop/launch/setting.h"

/// The values of settings. A value that is none of what is expected throws Error(BadInput) at its
/// place, with `hint`.
namespace pipetwin {

/// The largest whole number that a setting may have.
constexpr int largest_setting = 1 << 30;

/// The first word of a setting. Throws where it has none, or one that the file does not know.
const SettingWord& first_word(const Setting& setting, std::string_view hint = {});

/// The name of a variable as files write it, "$X", "${X}" or "$3"; empty: it is none of these.
std::string_view variable_name(std::string_view written);

/// A text that is a whole number and nothing else; none: it is not.
std::optional<int> whole_in(std::string_view text);

/// A whole number from `least` to `most`.
int whole_value(const Setting& setting,
                int least,
                std::string_view hint = {},
                int most = largest_setting);

/// A number of 0 or more.
double real_value(const Setting& setting, std::string_view hint = {});

/// true or false, also with capitals, as 1 and as 0. A flag alone is a yes.
bool answer_value(const Setting& setting);

/// One of `words`, which are apart by blanks.
std::string chosen_word(const Setting& setting, std::string_view words, std::string_view hint = {});

/// Whole numbers of at least `least`, apart by commas or blanks; one at the least.
std::vector<int> whole_list(const Setting& setting, int least);

/// The words of a setting, apart by blanks.
std::string all_words(const Setting& setting);

}  // namespace pipetwin
