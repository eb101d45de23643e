// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <string>

#include "core/base/error.h"

namespace pipetwin::exec::mpi {

/// Throws Error(WorkerFailed) with MPI's own words where a call failed.
inline void check(int result, const char* call) {
    if (result == MPI_SUCCESS) {
        return;
    }
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(result, text, &length);
    throw Error(ErrorKind::WorkerFailed,
                call,
                std::string(text, static_cast<std::size_t>(length)),
                "another process or the network between them may have failed");
}

}  // namespace pipetwin::exec::mpi

/// Checks one call of MPI.
#define PIPETWIN_MPI_CALL(call) ::pipetwin::exec::mpi::check(call, #call)
