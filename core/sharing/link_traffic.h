// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/costs/contention.h"
#include "core/costs/profile.h"
#include "core/sharing/fair_work.h"

namespace pipetwin {

/// Messages, and stashes that are copied to host memory and back, on their way over links that
/// several of them share. Integers throughout, so a run is the same on every machine.
class LinkTraffic {
  public:
    /// `links`: the own link of each pair of edges, and `host_link` that of each rank to its
    /// memory. An owner is an edge, or, behind all edges, a way of Contention::way_of_copies.
    LinkTraffic(const Contention& contention,
                const std::vector<LinkCost>& links,
                const std::optional<LinkCost>& host_link);

    /// Whether what an owner sends passes any shared link.
    bool is_shared(int owner) const { return !users_.empty() && !way_of(owner).empty(); }
    int edges() const { return edges_; }

    /// Adds something that is ready to leave. It begins when what its owner sent before is through
    /// and, if links are used one after the other, its way is free. `tag` is the caller's.
    void add(Duration now, int owner, std::int64_t units, std::size_t tag);

    /// What a link has to carry of so many bytes, if that takes `factor` times as long as it
    /// should.
    static std::int64_t units_of(const LinkCost& link, Bytes bytes, double factor = 1);

    /// Time at which the next of them will be through, if no other comes before; none while there
    /// is none.
    std::optional<Duration> next_end() { return work_.next_end(); }

    struct Carried {
        int owner = 0;
        std::size_t tag = 0;
        std::int64_t units = 0;
        Duration begin{};
    };
    /// Removes and returns what is through at `now`.
    std::vector<Carried> take_done(Duration now);

  private:
    void start_what_can(Duration now);
    bool way_is_free(int owner, const std::vector<bool>& wanted) const;
    void start(Duration now, const Carried& message);
    const std::vector<int>& way_of(int owner) const {
        return claims_[static_cast<std::size_t>(owner)].shared;
    }

    LinkSharing sharing_;
    int edges_;
    std::vector<Claim> claims_;  ///< [owner]
    FairWork work_;
    std::deque<Carried> waiting_;  ///< in the order in which they came
    std::vector<Carried> under_way_;
    std::vector<bool> busy_;  ///< [owner]
    std::vector<int> users_;  ///< [shared link]: how often those under way pass it
};

}  // namespace pipetwin
