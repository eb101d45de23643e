// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/as_index.h"
#include "core/costs/devices/stack.h"
#include "core/costs/estimate_source.h"
#include "core/grid/group_spread.h"
#include "core/scenario/cluster.h"
#include "core/scenario/division.h"
#include "core/scenario/settled_scenario.h"
#include "core/scenario/shard_group.h"

// The groups in which devices of a cluster send each other messages, and what these cost.

namespace pipetwin {

/// Where groups of parts of samples and of experts lie.
void Cluster::know_divided(const Profile& profile) {
    division_ = layer_division(scenario_, profile);
    modules_ = module_rules(scenario_, profile, devices_.front());
    if (grid_.sizes().context == 1 && !expert_rules_ && !shares_network()) {
        return;
    }
    if (is_in_order(scenario_.cluster.placement)) {
        node_of_number_ = nodes_in_order(grid_.devices(), std::max(1, scenario_.cluster.per_node));
    } else {
        for (int number = 0; number < grid_.devices(); ++number) {
            const Coordinates at = grid_.coordinates_of(number);
            node_of_number_.push_back(
                node_of(at.pipeline, at.data, at.tensor + tensor_ * at.context));
        }
    }
    if (scenario_.cluster.levels().nodes_of_leaf > 0) {
        replica_spread_ = spread_on_all_ranks([&](int) { return all_replicas(); });
    }
    if (expert_rules_) {
        expert_grid_ =
            parallel_grids(parallel_sizes(scenario_, ranks_), axis_order(scenario_)).expert;
        const ExpertShape& experts = profile.estimated_from.get()->model.experts;
        routed_ = {.experts = experts.count, .chosen = experts.per_token};
    }
    const GroupSpread spread =
        spread_of(groups_along(grid_, Axis::Context), node_of_number_, scenario_.cluster.levels());
    division_.context_ring = spread.nodes;
}

/// Groups of a grid, so many that they show all places that any has on nodes.
DeviceGroups Cluster::groups_along(const DeviceGrid& grid, Axis axis) const {
    if (!is_in_order(scenario_.cluster.placement)) {
        return grid.groups(axis);
    }
    const std::int64_t again = std::lcm(std::int64_t{grid.period(axis)},
                                        std::int64_t{devices_of_places(scenario_.cluster)});
    return grid.groups(axis, static_cast<int>(std::min<std::int64_t>(again, grid.devices())));
}

DeviceGroup Cluster::group_of(const DeviceGroups& lists) const {
    return group_of_devices(0, lists, node_of_number_);
}

ContextParallel Cluster::context_parallel() const {
    const int devices = grid_.sizes().context;
    if (devices == 1) {
        return {};
    }
    const ContextMethod method = scenario_.pipeline.context_method;
    const DeviceGroups groups = groups_along(grid_, Axis::Context);
    ContextParallel context{
        .devices = devices, .method = method, .in_steps = stack_ && stack_->context};
    if (method == ContextMethod::RingAllToAll) {
        DeviceGroups heads;
        DeviceGroups rings;
        for (const std::vector<int>& group : groups) {
            const DeviceGroups parts = parts_of(group, division_.context_ring);
            const DeviceGroups between_parts = across(parts);
            heads.insert(heads.end(), parts.begin(), parts.end());
            rings.insert(rings.end(), between_parts.begin(), between_parts.end());
        }
        context.heads = group_of(heads);
        context.ring = group_of(rings);
    } else {
        (method == ContextMethod::AllToAll ? context.heads : context.ring) = group_of(groups);
    }
    return context;
}

std::optional<ExpertParallel> Cluster::expert_parallel() const {
    if (!expert_rules_) {
        return std::nullopt;
    }
    return ExpertParallel{.dispatch = scenario_.pipeline.expert_dispatch,
                          .parts = group_of(groups_along(expert_grid_, Axis::Expert)),
                          .sharing = group_of(groups_along(expert_grid_, Axis::Tensor)),
                          .tokens = routed_,
                          .waits_for_counts = division_.load.capacity == 0};
}

/// [replica]: its node.
std::vector<int> Cluster::nodes_of(int rank) const {
    std::vector<int> nodes;
    const bool in_order = is_in_order(scenario_.cluster.placement);
    const int first = number_of(rank, 0, 0);
    for (int replica = 0; replica < replicas_; ++replica) {
        nodes.push_back(in_order ? (first + replica * grid_.stride(Axis::Data)) /
                                       std::max(1, scenario_.cluster.per_node)
                                 : node_of(rank, replica));
    }
    return nodes;
}

TensorParallel Cluster::tensor_parallel() const {
    if (tensor_ == 1) {
        return {};
    }
    LinkCost link = between_devices_of(0);
    for (int rank = 1; rank < ranks_; ++rank) {
        link = slower(link, between_devices_of(rank));
    }
    const int joined = scenario_.cluster.domain_devices();
    const bool crosses = tensor_ > joined;
    const auto between_domains = [&] {
        return shares_network() ? group_of(groups_along(grid_, Axis::Tensor)).between
                                : between(0, 0);
    };
    return {.devices = tensor_,
            .link = link,
            .per_node = crosses ? joined : 0,
            .between_nodes = crosses ? between_domains() : LinkCost{},
            .sequence_parallel = scenario_.pipeline.sequence_parallel,
            .latency = group_latency(crosses),
            .lanes = tensor_lanes()};
}

namespace {

/// What takes so many microseconds, on links that are `factor` times as fast.
Duration time_of(double microseconds, double factor) {
    constexpr double nanoseconds = 1e3;
    return Duration{std::llround(microseconds * nanoseconds / factor)};
}

}  // namespace

/// A latency that the scenario writes goes before the stack's.
std::optional<GroupLatency> Cluster::group_latency(bool leaves_node) const {
    if (!stack_) {
        return std::nullopt;
    }
    const Stack::Collectives& of = stack_->collectives;
    const Scenario::ClusterPart& written = scenario_.cluster;
    const double per_node =
        of.sum_us_per_hop_and_bucket ? of.sum_us_per_hop_and_bucket->value : of.per_node_us.value;
    return GroupLatency{
        .fixed = time_of(of.latency_us.value, leaves_node ? factors_.between : factors_.inside),
        .per_device =
            time_of(written.link_latency_us > 0 ? written.link_latency_us : of.per_device_us.value,
                    factors_.inside),
        .per_node =
            time_of(written.node_link_latency_us > 0 ? written.node_link_latency_us : per_node,
                    factors_.between)};
}

namespace {

/// The group with the links of both that are slower: those of the one whose members lie further
/// apart.
DeviceGroup slower(DeviceGroup one, const DeviceGroup& other) {
    if (other.per_node < one.per_node) {
        one.per_node = other.per_node;
        one.between = other.between;
        one.between_alone = other.between_alone;
        one.latency = other.latency;
    } else if (other.per_node == one.per_node && nodes_of(other) > 1) {
        one.between = slower(one.between, other.between);
        one.between_alone = other.between_alone ? slower(one.between_alone.value_or(one.between),
                                                         *other.between_alone)
                                                : one.between_alone;
    }
    one.inside = slower(one.inside, other.inside);
    return one;
}

}  // namespace

/// Whether an earlier rank has its replicas at the same places of nodes, on devices of its kind.
bool Cluster::has_places_of_earlier(int rank) const {
    if (!is_in_order(scenario_.cluster.placement) || !sum_shares_.empty()) {
        return false;
    }
    const int again = devices_of_places(scenario_.cluster);
    const auto place = [&](int of) { return number_of(of, 0, 0) % again; };
    for (int earlier = 0; earlier < rank; ++earlier) {
        if (devices_[as_index(earlier)].profile == devices_[as_index(rank)].profile &&
            place(earlier) == place(rank)) {
            return true;
        }
    }
    return false;
}

/// The groups of the rank whose replicas lie furthest apart.
ReplicaGroups Cluster::slowest_groups() const {
    ReplicaGroups slowest = replica_groups(0);
    for (int rank = 1; rank < ranks_; ++rank) {
        if (has_places_of_earlier(rank)) {
            continue;
        }
        const ReplicaGroups groups = replica_groups(rank);
        for (const auto group :
             {&ReplicaGroups::all, &ReplicaGroups::sharing, &ReplicaGroups::between}) {
            slowest.*group = slower(std::move(slowest.*group), groups.*group);
        }
    }
    return slowest;
}

/// All replicas as one list.
DeviceGroups Cluster::all_replicas() const {
    std::vector<int> all(as_index(replicas_));
    std::iota(all.begin(), all.end(), 0);
    return {all};
}

/// The replicas of one rank, where no leaf of the network is passed.
DeviceGroup Cluster::replicas_below_leaves(int rank) const {
    const GroupSpread spread =
        spread_of(all_replicas(), nodes_of(rank), scenario_.cluster.levels());
    DeviceGroup group{.members = replicas_,
                      .per_node = spread.per_node,
                      .inside = profiled_replicas_ ? written_inside_.put_over(*profiled_replicas_)
                                                   : inside(rank, rank),
                      .between = spread.nodes > 1 ? between(rank, rank) : LinkCost{},
                      .between_alone = std::nullopt,
                      .latency = group_latency(spread.nodes > 1)};
    if (!sum_shares_.empty()) {
        const SumShares& shares = sum_shares_[as_index(rank)];
        group.inside = within_share(group.inside, shares.inside);
        if (shares.between > 0) {
            group.between_alone = within_share(group.between, shares.between_alone);
            group.between = within_share(group.between, shares.between);
        }
    }
    return group;
}

DeviceGroup Cluster::replicas_of(int rank) const {
    DeviceGroup group = replicas_below_leaves(rank);
    const NodeLevels levels = scenario_.cluster.levels();
    if (levels.nodes_of_leaf > 0 && spread_of(all_replicas(), nodes_of(rank), levels).leaves > 1) {
        share_leaf(group, replica_spread_, leaf_bytes_per_second());
    }
    return group;
}

/// The spread of groups of replicas while those of all ranks send, and all devices of a rank.
GroupSpread Cluster::spread_on_all_ranks(
    const std::function<DeviceGroups(int rank)>& groups) const {
    DeviceGroups all;
    for (int rank = 0; rank < ranks_; ++rank) {
        const DeviceGroups of_rank = groups(rank);
        for (int device = 0; device < rank_devices_; ++device) {
            for (std::vector<int> group : of_rank) {
                std::ranges::transform(group, group.begin(), [&](int replica) {
                    return number_of(rank, replica, device);
                });
                all.push_back(std::move(group));
            }
        }
    }
    return spread_of(all, node_of_number_, scenario_.cluster.levels());
}

std::shared_ptr<const CollectiveTable> Cluster::measured_inside(int rank) const {
    const auto& device = devices_.at(as_index(rank)).profile;
    const bool is_devices_own =
        device && device->collectives && scenario_.cluster.link_latency_us == 0 &&
        inside(rank, rank).bytes_per_second == neighbour_link(*device).bytes_per_second;
    return is_devices_own
               ? std::shared_ptr<const CollectiveTable>(device, &device->collectives->value)
               : nullptr;
}

DeviceGroup Cluster::group_of_devices(int rank,
                                      const DeviceGroups& groups,
                                      const std::vector<int>& node_of) const {
    const GroupSpread spread = spread_of(groups, node_of, scenario_.cluster.levels());
    NodePorts ports{.inside = inside(rank, rank),
                    .latency = group_latency(spread.nodes > 1),
                    .table = measured_inside(rank)};
    const LinkCost own = spread.nodes > 1 ? between(rank, rank) : LinkCost{};
    ports.adapter = own;
    for (const NodeLink& link : node_links_) {
        if (link.kind == SharedLinkKind::Uplink && spread.nodes > 1) {
            const double rate = link.bytes_per_second * factors_.between;
            ports.adapter.bytes_per_second =
                ports.adapters == 0 ? rate : std::min(rate, ports.adapter.bytes_per_second);
            ++ports.adapters;
        }
    }
    ports.leaf_bytes_per_second = spread.leaves > 1 ? leaf_bytes_per_second() : 0;
    DeviceGroup group = group_on_nodes(static_cast<int>(groups.at(0).size()), spread, ports);
    group.between = within_share(group.between, own.bytes_per_second);
    group.between_alone = within_share(*group.between_alone, own.bytes_per_second);
    if (group.between_exchange) {
        group.between_exchange = within_share(*group.between_exchange, own.bytes_per_second);
    }
    return group;
}

ReplicaGroups Cluster::replica_groups(int rank) const {
    if (grid_.sizes().context > 1) {
        return groups_of_weights(
            groups_that_send(grid_, Axis::Context | Axis::Data, number_of(rank, 0, 0)));
    }
    ReplicaGroups groups{
        .all = replicas_of(rank), .kind = scenario_.pipeline.all_reduce, .stack = stack_};
    groups.sharing = groups.all;
    if (const int size = group_size(scenario_); size < replicas_) {
        divide(groups, rank, size);
    }
    set_broadcast(groups);
    return groups;
}

/// Groups of all devices with the same weights, of which some lists are given. Copies of the state
/// lie on neighbours in a list. All devices of a node send at the same time.
ReplicaGroups Cluster::groups_of_weights(const DeviceGroups& lists) const {
    ReplicaGroups groups{
        .all = group_of(lists), .kind = scenario_.pipeline.all_reduce, .stack = stack_};
    groups.sharing = groups.all;
    if (const int copies = replicas_ / group_size(scenario_); copies > 1) {
        DeviceGroups sharing;
        DeviceGroups between_copies;
        for (const std::vector<int>& list : lists) {
            const DeviceGroups parts = parts_of(list, copies);
            const DeviceGroups same = across(parts);
            sharing.insert(sharing.end(), parts.begin(), parts.end());
            between_copies.insert(between_copies.end(), same.begin(), same.end());
        }
        groups.sharing = group_of(sharing);
        groups.between = group_of(between_copies);
    }
    set_broadcast(groups);
    return groups;
}

std::optional<ReplicaGroups> Cluster::expert_groups(int rank) const {
    if (!expert_rules_) {
        return std::nullopt;
    }
    return groups_of_weights(
        groups_that_send(expert_grid_, Axis::Data, expert_grid_.device_at({.pipeline = rank})));
}

/// The group of a device, and where they share the network all groups that send with it.
DeviceGroups Cluster::groups_that_send(const DeviceGrid& grid, AxisSet axes, int device) const {
    return shares_network() ? grid.groups(axes) : DeviceGroups{grid.group_of(device, axes)};
}

/// Weights that replicas broadcast one after the other.
void Cluster::set_broadcast(ReplicaGroups& groups) const {
    if (stack_ && stack_->collectives.zero1 == WeightUpdates::Broadcast) {
        const bool crosses = groups.sharing.members > groups.sharing.per_node;
        const auto& each = stack_->collectives.broadcast_us_per_device;
        groups.broadcast =
            time_of(each ? each->value : 0, crosses ? factors_.between : factors_.inside);
    }
}

/// Leaves `size` of the replicas in a group.
void Cluster::divide(ReplicaGroups& groups, int rank, int size) const {
    const std::vector<int> nodes = nodes_of(rank);
    const DeviceGroup all = replicas_below_leaves(rank);
    const auto sharing = [&](int of_rank) {
        return shard_groups(
            scenario_.pipeline.shard_group, scenario_.cluster, grid_, of_rank, size);
    };
    const auto copies = [&](int of_rank) { return across(sharing(of_rank)); };
    const auto group = [&](const auto& lists_of) {
        const DeviceGroups lists = lists_of(rank);
        const GroupSpread spread = spread_of(lists, nodes, scenario_.cluster.levels());
        const bool is_as_dense = spread.per_node == all.per_node;
        DeviceGroup part{.members = static_cast<int>(lists.front().size()),
                         .per_node = spread.per_node,
                         .inside = all.inside,
                         .between = all.between,
                         .between_alone = is_as_dense ? all.between_alone : std::nullopt,
                         .latency = group_latency(spread.nodes > 1)};
        if (spread.leaves > 1) {
            share_leaf(part, spread_on_all_ranks(lists_of), leaf_bytes_per_second());
        }
        return part;
    };
    groups.sharing = group(sharing);
    groups.between = group(copies);
}

}  // namespace pipetwin
