// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/grid/device_grid.h"
#include "core/grid/parallel_grids.h"

/// Which devices have a parameter, and over which groups its gradient is summed.
namespace pipetwin {

/// Parameters that are divided in the same way.
enum class ParameterKind {
    /// Matrices that TP cuts: of attention, feed-forwards and shared experts; embedding and head.
    Matrix,
    /// Whole on each device of TP: norms, biases behind a product whose rows are cut, routers,
    /// latent down-projections, learned positions.
    Whole,
    HeadNorm,   ///< norms of queries and keys that all heads share
    Expert,     ///< of routed experts
    RouterBias  ///< moved by counts of tokens: without gradient
};

/// Axes of a parameter in its grid.
struct ParameterGroups {
    bool in_expert_grid = false;  ///< follows from the layer, not from the degrees
    AxisSet cut{};                ///< each device along them has a part
    AxisSet copies{};             ///< each device along them has the same
    AxisSet summed_first{};       ///< gradients of a part of the tokens or heads; empty: none
    AxisSet summed{};             ///< then; these devices share the state, where it is sharded
};

/// Groups of a kind of parameter, as Megatron-LM has them (megatron/core/distributed).
/// `sequence_parallel`: devices of TP see different tokens where a layer is whole on each.
ParameterGroups groups_of(ParameterKind kind, bool sequence_parallel);

/// Axes over which tokens and losses of a micro-batch are counted.
inline constexpr AxisSet loss_axes = Axis::Context | Axis::Data;
/// Axes over which an auxiliary loss counts the tokens of each expert, of one micro-batch.
inline constexpr AxisSet load_axes = Axis::Tensor | Axis::Context;

const DeviceGrid& grid_of(const ParallelGrids& grids, const ParameterGroups& groups);

/// By which summed gradients are divided, those of experts as well, for the mean over all tokens
/// where each device takes the mean of its own: DP x CP. An expert has seen the tokens of all
/// devices that share its layer.
int gradient_divisor(const ParallelGrids& grids);

/// Parts in which a parameter is cut, before its state is sharded.
int cut_parts(const ParallelGrids& grids, const ParameterGroups& groups);

/// Devices that have a whole copy of a part's state between them, where replicas shard it into
/// `copies` copies: of dense layers DP x CP / copies, of experts EDP / copies. 1: nothing is
/// summed.
int shard_devices(const ParallelGrids& grids, const ParameterGroups& groups, int copies = 1);

/// Whether this device adds its gradient's square to the norm, so that every number is in it once.
bool counts_in_norm(const ParallelGrids& grids, const ParameterGroups& groups, int device);

}  // namespace pipetwin
