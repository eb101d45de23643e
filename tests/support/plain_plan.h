// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <random>

#include "core/plan/plain_plan.h"
#include "core/plan/plan.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin::testing {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Equal stages without communication time: forward 1 ms, backward 2 ms, recompute (where asked) 1
/// ms.
PlainCosts plain(ScheduleKind schedule, int ranks, int micro_batches);

/// The same with forward, backward and recompute of every stage drawn from 1..9 ms, and links of
/// their own.
PlainCosts random_costs(ScheduleKind schedule, int ranks, int micro_batches, std::mt19937& random);

/// All messages over one link of 1 GB/s, between as many stages as `boundaries` join.
Contention one_link(std::size_t boundaries, LinkSharing sharing = LinkSharing::Fifo);

/// On one rank, gpipe: forward 2 ms, backward 3 ms, recompute (where asked) 2 ms, of which every
/// micro-batch keeps 4 MB, over a link to host memory that takes `copy` ms for that and `latency`
/// ms more. With (3, 4, 1), one column per millisecond:
///
///     row     001122ccc.......bbb..aaa    the stash of 2 is needed at once and stays
///     out     ..00001111
///     in      ...........1111.0000
Plan one_rank_with_host_link(int micro_batches,
                             int copy,
                             int latency,
                             Recompute recompute = Recompute::None);

}  // namespace pipetwin::testing
