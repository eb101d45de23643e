// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace pipetwin::testing {

/// Runs `call` and returns the Error that it throws; fails the test if it throws none.
template <class Call>
Error error_of(Call call) {
    try {
        call();
    } catch (const Error& error) {
        return error;
    }
    ADD_FAILURE() << "no Error was thrown";
    return {ErrorKind::Other, "", "", ""};
}

}  // namespace pipetwin::testing
