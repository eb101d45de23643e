// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pipetwin::exec {
class ProcessGroup;
}

/// The C interface of the module `pipetwin_mpi`, looked up by name after dlopen. Program and module
/// come from one build, and the interface version says so: classes and exceptions cross this line.
extern "C" {

/// Grows with every incompatible change; a program refuses a module of another version.
inline constexpr int pipetwin_mpi_interface = 4;

/// The `pipetwin_mpi_interface` that the module was built with.
int pipetwin_mpi_interface_version();

/// Joins the processes that MPI started; once in a program. `*group` is deleted by the caller.
/// Throws Error(Unavailable).
void pipetwin_mpi_join(pipetwin::exec::ProcessGroup** group);

/// "Open MPI v4.1.4, ...".
const char* pipetwin_mpi_library();

}  // extern "C"
