// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

/// The settings of MaxText by what they do, words apart by blanks.
namespace pipetwin {

/// Settings that change no size, split, message or product of a step: data, checkpoints, logs,
/// rates of learning, other uses of the program, tiles of kernels.
extern const std::string_view harmless_maxtext;

/// What MaxText works out from other settings, and prints with them.
extern const std::string_view maxtext_derived;

/// Sizes of a model, which follow from its name.
extern const std::string_view maxtext_of_model;

/// Settings that change a step in a way that no scenario can say, with the values that do not:
/// "name=value".
extern const std::string_view maxtext_defaults;

}  // namespace pipetwin
