// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/base/units.h"
#include "core/costs/collectives/collective_table.h"
#include "core/costs/collectives/device_group.h"

namespace pipetwin {

/// How a collective goes over the links. An all-to-all goes straight from device to device, unless
/// it is hierarchical.
enum class CollectiveAlgorithm {
    Ring,          ///< around as many rings as a node has members, each with its own adapter
    Tree,          ///< to the root of a binomial tree, and back from it
    Hierarchical,  ///< inside each node, between nodes, and inside each node
    InSwitch,      ///< the switch of a node adds and copies (NVLink SHARP)
    Auto,          ///< as measured where a table is known; else whichever is fastest without help
                   ///< of a switch
};

/// Experts to which tokens go. Each takes as many tokens as any other.
struct RoutedTokens {
    int experts = 1;     ///< E, of one layer, in equal parts on the members
    int chosen = 1;      ///< k, of a token
    int most_nodes = 0;  ///< a token's experts are on so many nodes at most; 0: on any
};

/// Places, of so many that have equal numbers of E experts, that have one of k experts chosen
/// uniformly: places (1 - C(E - E / places, k) / C(E, k)), where a part of an expert counts as
/// such.
double expected_places(double experts, double places, int chosen);

/// Time of a collective of `bytes` M (see Collective; of a deduplicated one k rows for each token)
/// among n = g N devices, g on each of N nodes. With t(x) = latency + (x + half_bandwidth) / rate
/// of a link:
///
///     all-gather, reduce-scatter, all-reduce
///         ring, tree, hierarchical   half of all_reduce_time (rings, tree, two-level); all of it
///         in-switch, one node        t(M (n - 1) / n); an all-reduce latency + t(M), as each
///         device
///                                    sends once what is to be summed, and gets the sums
///         in-switch, several nodes   the shares of a node in the switch, a ring of M / g between
///                                    nodes, the gathering in the switch
///     all-to-all
///         between nodes   t(M (N - 1) / N) over each device's part of the adapters
///         inside          t(M (g - 1) / n); both at the same time: the longer
///         hierarchical    first t(M (g - 1) / g) inside, then t(M (N - 1) / N) between nodes
///     all-to-all, deduplicated, D = expected_places of nodes, d = of devices
///         between nodes   t(M / k D (N - 1) / N)
///         inside          t(M / k d (g - 1) / g)
///
/// `Auto` with a table has the table's times inside a node, and over several nodes the faster of
/// rings, the slower of the table's n members and the network, and of the hierarchy: the table's
/// reduce-scatter and all-gather of g members, and the fastest way between nodes. Latencies of the
/// group (DeviceGroup::latency) take the place of the links' own; a table has its own inside.
///
/// One member or no bytes take no time. Rounded up to a nanosecond. Throws Error(BadInput) if it
/// lasts longer than a step may.
Duration collective_time(Collective kind,
                         CollectiveAlgorithm algorithm,
                         const DeviceGroup& group,
                         Bytes bytes,
                         const RoutedTokens& tokens = {});

/// Bytes that one member sends to others in a collective of `bytes` M: (n - 1) / n of M, of an
/// all-reduce twice that (rings), and of a deduplicated all-to-all M / k d (n - 1) / n, with d as
/// above. Rounded to a byte.
Bytes sent_bytes(Collective kind,
                 const DeviceGroup& group,
                 Bytes bytes,
                 const RoutedTokens& tokens = {});

}  // namespace pipetwin
