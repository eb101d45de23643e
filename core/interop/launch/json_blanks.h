// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "core/interop/launch/setting.h"

namespace pipetwin {

/// JSON in which a script fills blanks: "${NAME}" and "$NAME" anywhere, and words in capitals of
/// two letters or more outside of strings ("train_batch_size": GB_SIZE). Returns the text with each
/// blank written "${NAME}".
std::string with_marked_blanks(std::string_view json);

/// Fills the blanks of such a text by the given values: outside of strings a value that is no
/// number, list, object, true, false or null becomes a string. Throws Error(BadInput) at the
/// first blank without a value, with line and column, and names all such blanks.
std::string with_filled_blanks(std::string_view json,
                               std::string_view place,
                               const LaunchVariables& given);

}  // namespace pipetwin
