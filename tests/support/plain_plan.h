#pragma once

#include <chrono>
#include <random>

#include "core/plan.h"

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

}  // namespace pipetwin::testing
