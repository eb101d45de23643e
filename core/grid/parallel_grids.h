// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/grid/device_grid.h"

/// The two grids in which the same devices train a model with experts, and what can be divided.
namespace pipetwin {

/// Degrees of parallelism of a training run.
struct ParallelSizes {
    int tensor = 1;         ///< TP
    int context = 1;        ///< CP
    int data = 1;           ///< DP: replicas
    int pipeline = 1;       ///< PP: ranks of the pipeline
    int expert_tensor = 1;  ///< ETP: devices that share each expert
    int expert = 1;         ///< EP: groups of devices, each with its part of a layer's experts
    int shard_group = 0;    ///< replicas that have a copy of their state between them; 0: all

    bool operator==(const ParallelSizes&) const = default;
};

/// Devices in two grids at once (Liu et al., "MoE Parallel Folding", arXiv 2504.14960, section 3):
/// the pipeline's groups are the same lists in both, all others may differ.
struct ParallelGrids {
    DeviceGrid dense;   ///< TP x CP x DP x PP, without experts
    DeviceGrid expert;  ///< ETP x EP x EDP x PP: its axis of data are replicas of an expert
};

/// The grids of degrees that divide (`grid_fits`).
ParallelGrids parallel_grids(const ParallelSizes& sizes, const AxisOrder& order = pipeline_last);

/// Numbers of a model that degrees of parallelism divide; 0: not known, or not there.
struct DividedModel {
    int experts = 0;       ///< of a layer, without shared ones
    int expert_width = 0;  ///< inner width of one of them
    int heads = 0;
    int key_value_heads = 0;
    int sequence = 0;  ///< tokens; of packed sequences each has to be a multiple of the same
};

/// Everything that decides whether a run can be laid out.
struct GridRequest {
    ParallelSizes sizes{};
    AxisOrder order = pipeline_last;
    DividedModel model{};
    bool sequence_parallel = false;  ///< devices of TP divide the sequence between products
    /// All-to-all of heads: devices of CP divide them while attention is computed.
    bool context_divides_heads = false;
};

/// True if all of these hold (Megatron-LM, megatron/core/parallel_state.py and
/// transformer_config.py; TransformerEngine, context_parallel.py):
///
///     TP divides heads; key/value heads and TP: one divides the other (then keys are copied)
///     CP > 1: 2 CP divides the sequence, 2 CP TP where TP divides it, too (two chunks each, for
///         equal work under a causal mask)
///     all-to-all of heads: CP divides the heads of a device, and its key/value heads
///     a shard group divides DP
///     ETP divides TP x CP x DP and an expert's width; ETP x EP divides TP x CP x DP
///     EP divides the experts
///     copies of the state (DP / shard group) divide EDP
///     PP > 1 and pp not last in the order: EDP = DP, and the same product of sizes before pp
bool grid_fits(const GridRequest& request);

/// Throws Error(BadInput) at `place` for the first of the rules that is broken, about its key, with
/// both numbers. The hint's settings are the nearest value of that key, and of those of further
/// broken rules; with all of them set the request fits.
void require_grid(const GridRequest& request, const std::string& place);

/// DP of so many devices: their number divided by TP x CP x PP; `sizes.data` is not read. Throws
/// Error(BadInput) at `place` if the devices cannot be divided by this or by ETP x EP x PP, with
/// the nearest number of devices that can, about cluster.count.
int data_parallel_of(int devices, const ParallelSizes& sizes, const std::string& place);

}  // namespace pipetwin
