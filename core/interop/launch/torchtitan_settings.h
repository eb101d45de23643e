// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "core/interop/launch/setting_problems.h"

/// The settings of torchtitan by what they do.
namespace pipetwin {

/// Settings of all versions that change no size, split, message or kernel of a step, or that only
/// another setting, which is refused, would make do so (those of quantization). Words apart by
/// blanks.
extern const std::string_view harmless_titan;

/// Switches that make the run another one than a training, and numbers of other widths.
extern const std::span<const SettingGroup> refused_titan;

}  // namespace pipetwin
