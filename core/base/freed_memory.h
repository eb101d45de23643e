// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pipetwin {

/// Lets the process keep the memory that it frees, up to 1 GiB, for what it asks for next. The C
/// library gives large blocks back at once, and pages that are taken again and again cost more than
/// what is done in them. False where it cannot be told to.
bool keep_freed_memory();

}  // namespace pipetwin
