// SPDX-License-Identifier: Apache-2.0
#include "core/base/version.h"

namespace pipetwin {

std::string_view program_version() {
    return PIPETWIN_VERSION;
}

}  // namespace pipetwin
