// SPDX-License-Identifier: Apache-2.0
#include "core/base/version.h"

namespace pipetwin {

std::string_view program_version() {
    return PIPETWIN_VERSION;
}

std::string_view release_date() {
    return PIPETWIN_RELEASED;
}

}  // namespace pipetwin
