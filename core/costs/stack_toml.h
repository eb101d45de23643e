// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "core/costs/stack.h"

namespace pipetwin {

/// Reads the file of a stack. Every device with products has rows of the sustained share and of
/// attention, every narrow precision one of casts, and every number a kind and a source that the
/// file explains. Throws Error(BadInput) with `place`, line, column, what was found and what was
/// expected.
Stack parse_stack(std::string_view text, std::string place);

}  // namespace pipetwin
