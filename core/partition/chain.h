#pragma once

#include <optional>
#include <vector>

#include "core/base/units.h"
#include "core/partition/partition.h"

/// Exact partition of chains: with costs of the cuts, limits of memory, recompute where it is
/// needed, and devices that differ.
namespace pipetwin {

/// Costs of each layer on one kind of device.
struct DeviceWork {
    std::vector<Duration> work;         ///< [layer] of one micro-batch, without recompute
    std::vector<Duration> recompute{};  ///< [layer] in addition, where a stage keeps its input only
};

/// Costs that a boundary adds to the stages at both its sides, by its place: before layer 1, 2, ...
struct CutCost {
    std::vector<Duration> sender;    ///< [layer] by the stage in front of it; entry 0 is not read
    std::vector<Duration> receiver;  ///< [layer] by the stage behind it
};

/// Tensors that the stages keep from forward to backward.
enum class Keep {
    Everything,
    InputOnly,  ///< and pay for the recompute
    WhatFits,   ///< everything where that fits, else the input only; each stage for itself
};

/// Memory of stages against their limits. A stage of layers i to j - 1 holds, with n micro-batches
/// in flight at the most:
///
///     everything    states(i, j) + n * saved(i, j)                    + ends(i, j) + peak(i, j)
///     input only    states(i, j) + (n - 1) * input(i) + saved(i, j)   + ends(i, j) + peak(i, j)
///
/// states and saved are sums over the layers, peak is the largest workspace of one of them, and
/// ends(i, j) = received(i) + sent(j). `input` is part of what a stage saves.
struct ChainMemory {
    std::vector<Bytes> states;       ///< [layer] weights, gradients, optimizer state
    std::vector<Bytes> saved;        ///< [layer] of one micro-batch
    std::vector<Bytes> workspace{};  ///< [layer]; empty: nothing
    std::vector<Bytes> input{};      ///< [0 .. layers] what a stage that begins here reads
    std::vector<Bytes> received{};   ///< [0 .. layers] buffers of a stage that begins here
    std::vector<Bytes> sent{};       ///< [0 .. layers] buffers of a stage that ends before this
    std::vector<int> in_flight;      ///< [stage] n, at least 1; 1f1b: min(M, K - s); gpipe: M
    std::vector<Bytes> limit;        ///< [stage]
    Keep keep = Keep::Everything;
};

/// A chain of layers and the devices in the order of the pipeline. A stage of layers i to j - 1
/// costs what its layers do on its device, and its share of the boundaries at i and at j; the ends
/// of the chain are no boundaries.
struct ChainProblem {
    std::vector<DeviceWork> devices;      ///< the kinds of devices that there are
    std::vector<int> device_of_stage;     ///< index into `devices`; one entry per stage
    std::vector<CutCost> links{};         ///< the kinds of links; empty: boundaries cost nothing
    std::vector<int> link_of_boundary{};  ///< [stage] to the next one; empty: the first kind
    std::optional<ChainMemory> memory{};  ///< none: everything fits, nothing is recomputed
};

/// Stages of a chain and their times: of the largest stage, and of all stages together.
struct ChainSplit {
    Partition partition;
    std::vector<bool> recomputes;  ///< [stage] whether it keeps its input only
    Duration largest{};
    Duration sum{};
};

/// Missing memory where no split fits, of the split that comes closest.
struct MemoryGap {
    Bytes excess;   ///< of the stage that is furthest above its limit; no split has less
    int stage = 0;  ///< the first with that excess
    Partition partition;
};

/// Result of a search: the split, or the missing memory if none fits. Exactly one of the two is
/// there.
struct ChainAnswer {
    std::optional<ChainSplit> split;
    std::optional<MemoryGap> gap;
};

/// Splits the chain so that the largest stage is as small as possible.
///
/// Exact, though costs of cuts are not monotone. Of several best splits the lexicographically
/// smallest list of sizes is returned. Throws Error(Infeasible), naming both numbers, if there are
/// fewer layers than stages, and Error(BadInput) if times or bytes add up to more than 73 years or
/// 2 EiB. O(stages * layers * w), w = layers that a stage near the best limit may have at most
/// (core/partition/split_table.h).
ChainAnswer smallest_largest_stage(const ChainProblem& problem);

/// Splits the chain so that sum + (micro_batches - 1) * largest over the stages is as small as
/// possible: how long a pipeline takes from its first forward to its last backward where nothing
/// but work and boundaries costs time (the closed form of a chain of machines that each job passes
/// in order).
///
/// Exact, with the tie rule and the errors of `smallest_largest_stage`; some tens of its tables.
ChainAnswer shortest_pipeline(const ChainProblem& problem, int micro_batches);

}  // namespace pipetwin
