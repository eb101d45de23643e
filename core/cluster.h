#pragma once

#include <vector>

#include "core/profile.h"
#include "core/scenario.h"
#include "core/schedule.h"

namespace pipetwin {

/// The machine that a scenario describes: which node each rank is on, and the way from any rank to
/// any other. Ranks fill the nodes in order, `per_node` to each:
///
///     | rank 0 - rank 1 | - - | rank 2 - rank 3 |      per_node = 2
///           inside       between       inside
class Cluster {
  public:
    /// What the scenario says about a link takes the place of what the profile measured.
    Cluster(const Scenario::ClusterPart& part, const Profile& profile);

    int node_of(int rank) const { return rank / per_node_; }
    const LinkCost& link(int rank, int other) const;

  private:
    int per_node_;
    LinkCost inside_;
    LinkCost between_;
};

/// [boundary]: the link between the ranks of two neighbouring stages.
std::vector<LinkCost> boundary_links(const Cluster& cluster, const Schedule& order);

/// [stage]: the link to the stage with the same weights; empty where all weights are their own.
std::vector<LinkCost> reduction_links(const Cluster& cluster, const Schedule& order);

}  // namespace pipetwin
