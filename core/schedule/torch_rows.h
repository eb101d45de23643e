// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/schedule/schedule.h"

namespace pipetwin {

/// A schedule as PyTorch's pipeline runtime (torch.distributed.pipelining) carries it out: without
/// R, NORM and OPT, for which it has no words, and with REDUCE_GRAD behind the last backward of
/// every stage, where it divides the gradients by the number of micro-batches.
struct TorchRows {
    Schedule schedule;
    /// The messages of the rows were not those that PyTorch's one queue for each pair of ranks
    /// needs, and are ordered anew.
    bool reordered = false;
};

/// Messages that the rows have stay where they are, if they need no room in queues between ranks:
/// then NCCL carries them out, too, which has no room. Other rows get theirs by
/// `receive_in_order_of_sends`. The schedule must be valid, with one copy of each stage.
TorchRows torch_rows(Schedule rows);

}  // namespace pipetwin
