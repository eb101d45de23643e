// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

/// The tables of a file of settings, and the words in front of the dots of an override: they say
/// what a key is about.
namespace pipetwin {

/// What a table's keys are about.
enum class SettingOwner {
    Training,  ///< the model that is trained, and its training
    Other,     ///< another model or program beside it: inference, a reference, a vision encoder
    Unknown,   ///< a table that is not known here
};

/// Returns whose settings a key in these tables is, the outermost first; without a table it is the
/// training's. `other` becomes the table that says so where it is not.
SettingOwner owner_of(const std::vector<std::string>& sections, std::string_view& other);

}  // namespace pipetwin
