// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/costs/profile.h"

namespace pipetwin {

/// Hand-written profile: header
/// `name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes` and, optionally,
/// `backward_input_ms,backward_weight_ms,inputs` (separated by ';'); costs at micro-batch size 1,
/// source estimated. Lines are read as core/text/csv_lines.h says; `;` or a tab may stand for the
/// comma in the whole file. Throws Error(BadInput) with file:line:column, the field and its text.
Profile parse_profile_csv(std::string_view text, std::string_view place);

}  // namespace pipetwin
