// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.h"

namespace pipetwin::cli {

/// The text of a reader of Megatron's flags with the keys that another program has for them:
/// "--num-layers 30" as "num_layers 30" for "neox", and without what it says of Megatron's own
/// checks. Formats are "neox", "nemo" and "nanotron"; others, options of the command line, and
/// flags that the program has no key for, stay.
std::string in_keys_of(std::string_view format, std::string_view text);

/// The error with its text and hint in the keys of the program.
Error in_keys_of(std::string_view format, const Error& error);

}  // namespace pipetwin::cli
