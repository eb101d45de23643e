// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/base/error.h"

namespace pipetwin {

/// One `--set key=value`; the value is TOML, a bare word is a string.
using Override = KeyValue;

}  // namespace pipetwin
