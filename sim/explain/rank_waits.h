// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/timeline/timeline.h"
#include "sim/explain/causes.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

/// What each rank of a step waits for, in numbers and in a sentence.
namespace pipetwin::sim {

/// Something that a rank waits for, and for how long in the whole step.
struct WaitedFor {
    /// Compute: actions of kind `op` on rank `rank`, whether the rank made what was needed or was
    /// busy with what its row puts first. Transfer: the link from `rank` to `to`, its latency and
    /// other messages on it included. BackPressure: rank `rank` to take a message. Reduction:
    /// gradients of rank `rank`. HostCopy: stashes of rank `rank`.
    Reason reason{};
    Op op{};
    int rank = 0;
    int to = -1;  ///< Transfer: the receiver's rank; -1: none
    Duration time{};
    /// Transfer: the shared link that held the messages up, of whatever ranks they are. Empty:
    /// none.
    std::string shared_link{};
};

/// The waits of one rank in a step.
struct RankWaits {
    int rank = 0;
    Duration step{};                 ///< step time
    Duration wait{};                 ///< sum of all waits of the rank
    Duration before_first{};         ///< part of `wait` before its first action that takes time
    Duration after_last{};           ///< part of `wait` after its last action that takes time
    std::vector<WaitedFor> reasons;  ///< longest first; they sum to `wait`
};

/// Explains every rank's waits of a simulated step. `timeline` is that of `simulate(plan)` or
/// `replay(plan, conditions)`. O(actions), some microseconds for each.
std::vector<RankWaits> rank_waits(const Plan& plan, const Timeline& timeline);

/// Words for what was waited for: "backwards of rank 3", "the link from rank 1 to rank 2".
std::string words_of(const WaitedFor& waited_for);

/// "Rank 2 waits 9.00 ms of 21.0 ms (42.9 %): 5.00 ms for backwards of rank 3, 4.00 ms for forwards
/// of rank 1. It waits 3.00 ms before its first action and 2.00 ms after its last." Names the
/// `most` longest reasons, and sums up the others where they are several.
std::string rank_wait_sentence(const RankWaits& waits, std::size_t most = 3);

}  // namespace pipetwin::sim
