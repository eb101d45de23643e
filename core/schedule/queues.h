// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "core/schedule/schedule.h"

namespace pipetwin {

/// Which messages share a queue. A queue leads from one rank to another, and its messages carry no
/// name: the k-th that is received is the k-th that was sent.
enum class MessageQueues {
    PerStages,  ///< one for each edge (core/schedule/edge.h)
    PerRanks,   ///< one from each rank to each other rank, as in PyTorch's runtime
};

/// The queue of every edge: [edge], queues counted from 0 without gaps.
std::vector<std::size_t> queues_of_edges(const Schedule& schedule, MessageQueues queues);

/// Puts the receives of every rank into the order in which the messages are sent to it, each behind
/// what the rank has done by then if a backward takes 2, another compute action 1 and a message no
/// time; at a tie the lower rank is first. Any two ranks then have the messages between them in one
/// order, both ways together: a queue from each to the other is enough, and no message needs room.
/// A receive begins at its place; a rank waits where the tensor is used.
///
///     rank 0   0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 ...
///     rank 1   1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 ...
///
/// The schedule must be valid. Behind a deadlock of its rows the order stays as it is.
Schedule receive_in_order_of_sends(Schedule schedule);

}  // namespace pipetwin
