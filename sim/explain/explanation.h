// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/timeline/metrics.h"
#include "sim/explain/breakdown.h"
#include "sim/explain/sensitivity.h"
#include "sim/explain/waits.h"

namespace pipetwin::sim {

/// The numbers behind the sentences about a predicted step. Times without another word are means
/// over the ranks.
struct Explanation {
    Duration step{};
    Duration wait{};  ///< the rest of the step is work
    /// The wait by its cause: the parts of the breakdown, with copies of stashes and back-pressure
    /// on their own and, under contention, what ranks and messages lose by sharing.
    Duration fill_and_drain{};
    Duration imbalance{};
    Duration communication{};
    Duration host_copies{};
    Duration back_pressure{};
    Duration sharing{};

    /// A rank, and a time of it.
    struct RankTime {
        int rank = 0;
        Duration time{};
    };
    std::optional<RankTime> last_to_begin;    ///< when its first compute begins
    std::optional<RankTime> first_to_finish;  ///< when its last compute ends
    std::optional<RankTime> busiest;          ///< its compute; the mean is `mean_compute`
    Duration mean_compute{};
    std::optional<Duration> equal_step;  ///< the step if every action lasted the mean of its kind

    /// Time of a message between the pair of stages where it takes longest.
    struct Link {
        int pair = 0;        ///< its number (core/schedule/edge.h)
        Duration message{};  ///< latency and time on the link
        Duration latency{};
        bool all_alike = false;
    };
    std::optional<Link> slowest_link;  ///< none where no message takes time
    /// A link that several messages share, and how long it takes to carry all of them.
    struct SharedLink {
        std::string name;
        Duration carries{};
    };
    std::optional<SharedLink> busiest_link;  ///< none where no link with a name is shared
    std::optional<Duration> instant_step;    ///< the step if messages took no time
    std::optional<Duration> roomy_step;      ///< the step if no send ever waited for room
    std::optional<Duration> step_on_device;  ///< where stashes are offloaded: if they were not

    MessagesInActions messages{};  ///< part of the work

    Duration recompute{};
    std::optional<Duration> step_without_recompute;
    Duration dispatch{};
    std::optional<Duration> step_without_dispatch;

    /// The plan's pipeline with twice as many micro-batches.
    struct MoreMicroBatches {
        int micro_batches = 0;
        double bubble_share = 0;  ///< of the step
        Duration step{};
        bool same_batch = false;  ///< which they share out
    };
    std::optional<MoreMicroBatches> more;

    /// A wait, and what it waited for.
    struct ExplainedWait {
        Wait wait;
        std::vector<Cause> chain;
        /// Time by which the wait could be longer without making the step longer; none after a
        /// rank's last action, under contention, and where there are no what-ifs.
        std::optional<Duration> slack{};
    };
    std::vector<ExplainedWait> waits;  ///< the longest, longest first

    /// Twice as fast: the best of all, and those of each kind (one kind of work everywhere, one
    /// stage's, links, one rank, links between nodes, links inside of nodes), best first. Empty for
    /// plans of more than `largest_explained` actions; of a large plan not all are tried.
    std::vector<WhatIf> what_ifs;
    std::vector<std::vector<WhatIf>> best_of_kind;
};

/// Most waits, and most what-ifs, in an explanation.
constexpr std::size_t most_explained = 20;
/// Most actions of a plan for which what-ifs are tried.
constexpr std::size_t largest_explained = 1'000'000;

/// Explains a predicted step. `more` is the plan with twice as many micro-batches, where there is
/// one, and `cluster_links` are what faster links of the cluster would bring, where it is known
/// (sim/explain/cluster_links.h).
Explanation explain(const Plan& plan,
                    const Timeline& timeline,
                    const Breakdown& breakdown,
                    const std::optional<Plan>& more,
                    const std::vector<WhatIf>& cluster_links = {});

/// Number of actions of all ranks.
std::size_t action_count(const Plan& plan);

}  // namespace pipetwin::sim
