// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

namespace pipetwin {

/// Makes a system call again as long as a signal interrupts it; returns what the last call
/// returned.
template <class Call>
auto without_signals(Call call) {
    auto result = call();
    while (result < 0 && errno == EINTR) {
        result = call();
    }
    return result;
}

}  // namespace pipetwin
