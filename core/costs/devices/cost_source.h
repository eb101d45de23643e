// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace pipetwin {

/// Origin of a cost: measured here, read from another program's file, computed from a datasheet, or
/// estimated.
enum class CostSource { Measured, Imported, Datasheet, Estimated };

/// The word of a source in profiles: "measured".
std::string_view to_string(CostSource source);

/// The device of costs that are measured here, and of a scenario that names none: costs and links
/// are those of its profile.
inline constexpr const char* this_machine = "this-machine";

}  // namespace pipetwin
