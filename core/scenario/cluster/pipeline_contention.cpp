// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/cluster/pipeline_contention.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/scenario/cluster/link_choice.h"
#include "core/schedule/edge.h"

namespace pipetwin {

std::vector<LinkCost> pair_links(const Cluster& cluster, const Schedule& order) {
    std::vector<LinkCost> result;
    for (std::size_t pair = 0; pair < pair_count(order); ++pair) {
        const StagePair stages = stages_of_pair(order, pair);
        result.push_back(cluster.boundary_link(order.rank_of_stage[as_index(stages.from)],
                                               order.rank_of_stage[as_index(stages.to)]));
    }
    return result;
}

namespace {

/// Two links for each node, for what leaves it and for what enters it, as fast as the fastest
/// message's own.
///
///     | 0 - 1 | --leaves 0--> --enters 1--> | 2 - 3 |
class NodeNetwork {
  public:
    NodeNetwork(const Cluster& cluster, Contention& contention)
        : cluster_(cluster), contention_(contention) {}

    /// The way from rank to rank; empty inside a node, and where the link takes no time. Replicas
    /// send at the same time, so one has its share of a link that several of them take.
    std::vector<int> way(int from, int to) {
        const double rate = cluster_.boundary_link(from, to).bytes_per_second;
        std::map<std::pair<int, int>, int> crossing;  // from node to node: replicas
        for (int replica = 0; replica < cluster_.replicas(); ++replica) {
            const int first = cluster_.node_of(from, replica);
            const int second = cluster_.node_of(to, replica);
            if (cluster_.domain_of(from, replica) != cluster_.domain_of(to, replica)) {
                ++crossing[{first, second}];
            }
        }
        if (crossing.empty() || rate <= 0) {
            return {};
        }
        const auto most =
            std::ranges::max_element(crossing, {}, [](const auto& nodes) { return nodes.second; });
        const auto [first, second] = most->first;
        const double share = rate / most->second;
        return {link({first, false}, share), link({second, true}, share)};
    }

  private:
    int link(std::pair<int, bool> end, double rate) {
        const auto [known, is_new] =
            links_.emplace(end, static_cast<int>(contention_.shared_links.size()));
        if (is_new) {
            contention_.shared_links.push_back(rate);
            contention_.link_names.push_back(
                fmt::format("network {} node {}", end.second ? "into" : "out of", end.first));
        }
        double& capacity = contention_.shared_links[as_index(known->second)];
        capacity = std::max(capacity, rate);
        return known->second;
    }

    const Cluster& cluster_;
    Contention& contention_;
    std::map<std::pair<int, bool>, int> links_;  ///< node, and whether it is entered
};

/// [rank][other], of so many ranks; empty where none was slowed.
std::vector<std::vector<double>> measured_interference(
    const std::vector<RankInterference>& measured, std::size_t ranks) {
    double sum = 0;
    for (const RankInterference& rank : measured) {
        sum += rank.interference;
    }
    if (sum <= 0 || ranks < 2) {
        return {};
    }
    const double mean = sum / static_cast<double>(measured.size());
    std::vector<std::vector<double>> shares(ranks, std::vector<double>(ranks));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t other = 0; other < ranks; ++other) {
            if (other == rank) {
                continue;
            }
            if (measured.size() != ranks) {
                shares[rank][other] = mean;
            } else if (measured[rank].device == measured[other].device) {
                shares[rank][other] = measured[rank].interference;
            }
        }
    }
    return shares;
}

/// All replicas send at the same time, and so do the devices of a rank.
NodeLinks::Passes passes_of_messages(const Cluster& cluster, NodeLinks& links, int from, int to) {
    NodeLinks::Passes passes;
    for (int replica = 0; replica < cluster.replicas(); ++replica) {
        for (int device = 0; device < cluster.devices_of_rank(); ++device) {
            links.add_message(cluster.place_of(from, replica, device),
                              cluster.place_of(to, replica, device),
                              passes);
        }
    }
    return passes;
}

NodeLinks::Passes passes_of_stashes(const Cluster& cluster, NodeLinks& links, int rank, bool back) {
    // Where each device sends a part of a message, rates count for all parts together.
    const int times = cluster.scatters() ? cluster.devices_of_rank() : 1;
    NodeLinks::Passes passes;
    for (int replica = 0; replica < cluster.replicas(); ++replica) {
        for (int device = 0; device < cluster.devices_of_rank(); ++device) {
            for (int i = 0; i < times; ++i) {
                links.add_copy(cluster.place_of(rank, replica, device), back, passes);
            }
        }
    }
    return passes;
}

void share_node_links(const Cluster& cluster,
                      const Schedule& order,
                      const std::optional<LinkCost>& host_link,
                      Contention& contention) {
    NodeLinks links = cluster.node_links(cluster.scatters() ? cluster.devices_of_rank() : 1);
    if (links.none()) {
        return;
    }
    std::vector<NodeLinks::Passes> edges;
    std::vector<NodeLinks::Passes> copies;
    std::vector<double> most;
    for (std::size_t pair = 0; pair < pair_count(order); ++pair) {
        const StagePair stages = stages_of_pair(order, pair);
        const int rank = order.rank_of_stage[as_index(stages.from)];
        const int next = order.rank_of_stage[as_index(stages.to)];
        edges.push_back(passes_of_messages(cluster, links, rank, next));
        edges.push_back(passes_of_messages(cluster, links, next, rank));
        most.insert(most.end(), 2, cluster.boundary_link(rank, next).bytes_per_second);
    }
    for (int rank = 0; host_link && rank < order.rank_count(); ++rank) {
        for (const bool back : {false, true}) {
            copies.push_back(passes_of_stashes(cluster, links, rank, back));
            most.push_back(host_link->bytes_per_second);
        }
    }
    links.put_into(contention, edges, copies, most);
}

}  // namespace

Contention contention(const Cluster& cluster,
                      const Scenario::ClusterPart& part,
                      const Schedule& order,
                      const std::vector<RankInterference>& measured,
                      const std::optional<LinkCost>& host_link) {
    Contention result;
    result.cores = part.cores;
    const auto ranks = static_cast<std::size_t>(order.rank_count());
    if (part.interference) {
        if (*part.interference > 0) {
            result.interference.assign(ranks, std::vector<double>(ranks, *part.interference));
        }
    } else if (!part.pair_interference.empty()) {
        result.interference = part.pair_interference;
    } else {
        result.interference = measured_interference(measured, ranks);
    }
    result.sharing = part.link_sharing.value_or(LinkSharing::Fair);
    share_node_links(cluster, order, host_link, result);
    if (part.link_sharing && !cluster.has_uplinks()) {
        NodeNetwork network(cluster, result);
        result.way_of_edge.resize(2 * pair_count(order));
        for (std::size_t pair = 0; pair < pair_count(order); ++pair) {
            const StagePair stages = stages_of_pair(order, pair);
            const int rank = order.rank_of_stage[as_index(stages.from)];
            const int next = order.rank_of_stage[as_index(stages.to)];
            std::ranges::copy(network.way(rank, next),
                              std::back_inserter(result.way_of_edge[2 * pair]));
            std::ranges::copy(network.way(next, rank),
                              std::back_inserter(result.way_of_edge[2 * pair + 1]));
        }
    }
    return result;
}

std::optional<LinkCost> host_link(const Scenario::ClusterPart& part, const Profile& profile) {
    const WrittenLink written =
        written_link(part.host_link, part.host_link_gbps, part.host_link_latency_us);
    const std::optional<LinkCost> profiled = profiled_link(profile, "host");
    return written.of_class || written.gigabits_per_second > 0 || profiled
               ? std::optional(written.put_over(profiled.value_or(LinkCost{.between = "host"})))
               : std::nullopt;
}

std::vector<LinkCost> reduction_links(const Cluster& cluster, const Schedule& order) {
    std::vector<LinkCost> result;
    bool any = false;
    for (int stage = 0; stage < order.stage_count(); ++stage) {
        const int rank = order.rank_of_stage[as_index(stage)];
        const auto other = gradient_source(order, stage);
        const int there = other ? order.rank_of_stage[as_index(*other)] : rank;
        result.push_back(there == rank ? LinkCost{} : cluster.hand_over_link(rank, there));
        any = any || other;
    }
    return any ? result : std::vector<LinkCost>{};
}

}  // namespace pipetwin
