// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "exec/executor/executor.h"
#include "exec/executor/trained_parameters.h"
#include "exec/transport/process_group.h"

namespace pipetwin::exec {

/// The executors of this process, by replica and by device of those that divide its layers.
using ExecutorsHere = std::map<std::pair<int, int>, Executor*>;

/// Reads or writes the parameters of all ranks, such as for a checkpoint: process 0 calls `use`
/// with those of the whole model, and the others hand out and take what it asks for until it is
/// done. What is written goes to all replicas, and to all stages that have the same weights.
/// Collective: all processes call it, and what `use` throws is thrown in all of them.
void with_all_parameters(ProcessGroup& group,
                         const ExecutorsHere& here,
                         const std::function<void(const TrainedParameters&)>& use);

}  // namespace pipetwin::exec
