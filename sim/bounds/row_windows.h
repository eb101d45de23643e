// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/partition/rank_partition.h"
#include "core/schedule/recompute.h"
#include "core/schedule/schedule.h"
#include "sim/bounds/layer_sums.h"
#include "sim/bounds/step_bound.h"

/// What the order of the actions says of ranks with several pieces, whatever the partition.
namespace pipetwin::sim {

/// What a rank keeps of a micro-batch from F to B.
enum class Kept {
    Nothing,  ///< it goes to host memory
    Input,    ///< the rest is computed again
    All
};

/// [rank of the chain]: the bytes of its layers' weights, gradients and optimizer state, and of
/// what it keeps at the moment of its row when it has most micro-batches under way. Less than a
/// plan needs: messages, workspace and gradients of outputs are left out. The pieces lie on the
/// ranks of the order as on those of the chain, or each on both of two ranks that count as one.
RankQuantity held_memory(const RankChain& chain,
                         const Schedule& order,
                         const LayerSums& sums,
                         Kept kept);

/// What the windows of a candidate's rows depend on beside the layers.
struct RowQuestion {
    const BoundQuestion& asked;
    Recompute again = Recompute::None;  ///< what is computed again by a rank that does
    bool holds_all = true;              ///< what a rank keeps from F to B stays on its device
    double reduction = 0;     ///< nanoseconds for each byte of weights, of their sum over replicas
    int reduction_slack = 0;  ///< nanoseconds by which that may be too much, of one rank
};

/// Adds quantities to a chain of two pieces to a rank, in a loop or a V. Each is a window of a
/// rank's row, from one of its actions to another, between two ways of one micro-batch: the forward
/// that comes through all layers before the piece of the first action, and, where the window ends
/// with a backward, the backward that goes back through the layers before the piece of the last. In
/// between the rank has all actions of its window to do. The windows:
///
///     from the first F of the first piece   to its last backward
///     from the first F of the second piece  to the update
///     from the first F of the second piece  to the last backward of the first piece
///
/// And the memory of the rank at the moment when it holds most stashes. Where a rank recomputes
/// only what it cannot hold, it has room for them or, in the other alternative, computes forwards
/// again.
void add_windows(RankChain& chain,
                 const Schedule& order,
                 const LayerSums& sums,
                 const RowQuestion& question);

/// Adds the memory of ranks with any number of pieces in a loop, and where a rank recomputes only
/// what it cannot hold the alternative: what `chain.quantities.front()` is then. A rank holds its
/// stashes at every moment; added is the mean of those moments at which it has most of them, as its
/// pieces take turns.
void add_mean_memory(RankChain& chain,
                     const Schedule& order,
                     const LayerSums& sums,
                     const RowQuestion& question);

}  // namespace pipetwin::sim
