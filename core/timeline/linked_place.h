// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Places of a run that links lead to: "step=3,rank=1,ms=12.5".
namespace pipetwin {

/// A place in a run, in the numbers that a reader sees.
struct LinkedPlace {
    std::optional<int> step{};   ///< in the training; none: the main one
    std::optional<int> rank{};   ///< none: no action is selected
    std::optional<double> ms{};  ///< since the begin of the step; none: the first action

    bool operator==(const LinkedPlace&) const = default;
};

/// The place of a link. Throws Error(Usage) at `asked_by` ("--at") with what was expected.
LinkedPlace parse_place(std::string_view text, std::string_view asked_by);

/// The text of a place, which `parse_place` reads.
std::string place_text(const LinkedPlace& place);

}  // namespace pipetwin
