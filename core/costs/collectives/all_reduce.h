// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "core/base/units.h"
#include "core/costs/collectives/device_group.h"

namespace pipetwin {

/// Algorithm by which replicas sum their gradients.
enum class AllReduceKind {
    Ring,      ///< reduce-scatter and all-gather around a ring of all replicas
    Tree,      ///< to the root of a binomial tree, and back from it
    TwoLevel,  ///< reduce-scatter inside a node, a ring between nodes, all-gather inside
    Rings,    ///< as many rings at once as a node has replicas, each with its own way between nodes
    Fastest,  ///< whichever of these takes the least time
};

/// The words of the kinds in scenarios and output, in their order.
inline constexpr std::array<std::string_view, 5> all_reduce_words{
    "ring", "tree", "two-level", "rings", "fastest"};

/// The kind's word.
constexpr std::string_view to_string(AllReduceKind kind) {
    return all_reduce_words[static_cast<std::size_t>(kind)];
}

/// Time in which `bytes` of gradients are summed over all replicas, until each has the sums. With g
/// = min(D, per_node) replicas in a full node, N = ceil(D / g) nodes, and t(n) = latency + (n +
/// half_bandwidth) / rate the time of a message over one link:
///
///     ring        2 (D - 1) t(bytes / D), over the slower link where N > 1; alone between nodes
///     tree        2 (ceil(log2 g) t_inside(bytes) + ceil(log2 N) t_between(bytes))
///     two-level   2 (g - 1) t_inside(bytes / g) + 2 (N - 1) t_between(bytes / (g N))
///     rings       2 (D - 1) max(t_inside(bytes / D), t_between(bytes / (g D)))
///
/// Ring and tree: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations
/// in MPICH", IJHPCA 2005, sections 4.4 and 4.5; the time of the sums themselves is left out, and
/// the tree is not pipelined. Two-level: every replica of a node has a link of its own to the next
/// node, and all g of them reduce their shares at once. Rings: the same links, as NCCL uses them.
/// Where the group has latencies of its own, t(n) = n / rate, and a sum of so many buckets takes
///
///     2 buckets (fixed + per_device g + per_node (N - 1))
///
/// more; a tree has 1 + ceil(log2 g) and ceil(log2 N) in place of g and N - 1.
/// D = 1 takes no time. Rounded up to a
/// nanosecond. Throws Error(BadInput) if it lasts longer than a step may.
Duration all_reduce_time(AllReduceKind kind,
                         const DeviceGroup& group,
                         Bytes bytes,
                         int buckets = 1);

}  // namespace pipetwin
