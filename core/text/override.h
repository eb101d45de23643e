// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace pipetwin {

/// One `--set key=value`; the value is TOML, a bare word is a string.
struct Override {
    std::string key;
    std::string value;
};

}  // namespace pipetwin
