// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "exec/transport/process_group.h"

namespace pipetwin::exec {

/// Joins the processes that mpirun or srun started, by the module `pipetwin_mpi.so`
/// (exec/base/run_time_module.h). Once in a program. Throws Error(Unavailable), naming the package
/// to install, where the module or MPI's library is missing.
std::unique_ptr<ProcessGroup> join_mpi();

/// Throws what `join_mpi` would, without joining.
void require_mpi();

}  // namespace pipetwin::exec
