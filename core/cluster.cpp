#include "core/cluster.h"

#include <algorithm>

namespace pipetwin {

namespace {

LinkCost profiled_link(const Profile& profile,
                       std::string_view between,
                       const LinkCost& otherwise) {
    const auto found = std::ranges::find(profile.links, between, &LinkCost::between);
    return found == profile.links.end() ? otherwise : *found;
}

LinkCost overridden(LinkCost link, double gigabits_per_second, double latency_us) {
    if (gigabits_per_second > 0) {
        link.bytes_per_second = gigabits_per_second * 1e9 / 8;
        link.half_bandwidth = {};
    }
    if (latency_us > 0) {
        link.latency = from_milliseconds(latency_us / 1e3, "link latency");
    }
    return link;
}

}  // namespace

Cluster::Cluster(const Scenario::ClusterPart& part, const Profile& profile)
    : per_node_(std::max(1, part.per_node)) {
    const LinkCost first = profile.links.empty() ? LinkCost{} : profile.links.front();
    inside_ =
        overridden(profiled_link(profile, "ranks", first), part.link_gbps, part.link_latency_us);
    between_ = overridden(
        profiled_link(profile, "nodes", inside_), part.node_link_gbps, part.node_link_latency_us);
}

const LinkCost& Cluster::link(int rank, int other) const {
    return node_of(rank) == node_of(other) ? inside_ : between_;
}

std::vector<LinkCost> boundary_links(const Cluster& cluster, const Schedule& order) {
    std::vector<LinkCost> result;
    for (std::size_t stage = 0; stage + 1 < order.rank_of_stage.size(); ++stage) {
        result.push_back(cluster.link(order.rank_of_stage[stage], order.rank_of_stage[stage + 1]));
    }
    return result;
}

std::vector<LinkCost> reduction_links(const Cluster& cluster, const Schedule& order) {
    std::vector<LinkCost> result;
    for (int stage = 0; stage < order.stage_count(); ++stage) {
        if (const auto twin = twin_of(order, stage)) {
            result.push_back(cluster.link(order.rank_of_stage[static_cast<std::size_t>(stage)],
                                          order.rank_of_stage[static_cast<std::size_t>(*twin)]));
        }
    }
    return result;
}

}  // namespace pipetwin
