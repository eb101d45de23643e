// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/cluster.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/stack.h"
#include "core/scenario/choices.h"
#include "core/scenario/division.h"
#include "core/scenario/scenario.h"
#include "core/scenario/settled_scenario.h"
#include "core/scenario/shard_group.h"

namespace pipetwin {

namespace {

/// Devices that share a layer sit on one node, or in one domain of fast links, or fill several.
void require_whole_ranks(const SettledScenario& scenario, int tensor) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    const bool in_order = is_in_order(cluster.placement);
    const int per_node = std::max(1, cluster.per_node);
    const int joined = in_order ? cluster.domain_devices() : per_node;
    const bool fills = tensor % joined == 0 && in_order;
    if (tensor > 1 && joined % tensor != 0 && !fills) {
        const bool is_node = joined == per_node;
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("pipeline.tensor_parallel = {}, but {} has {} (cluster.{}), "
                                "expected a divisor or a multiple of that",
                                tensor,
                                is_node ? "a node" : "an NVLink domain",
                                counted(joined, "device"),
                                is_node ? "per_node" : "nvlink_domain"),
                    is_node ? "devices that share every layer have to sit on one node, or fill "
                              "several"
                            : "devices that share every layer have to sit in one domain, or fill "
                              "several")
            .about("pipeline.tensor_parallel");
    }
    const int context = scenario.pipeline.context_parallel;
    if (context > 1 && per_node % (tensor * context) != 0 &&
        !is_in_order(scenario.cluster.placement)) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("pipeline.context_parallel = {} with cluster.placement, but a node "
                                "has {}, and a rank's devices have to sit on one",
                                context,
                                counted(per_node, "device")),
                    "leave cluster.placement out: then nodes take devices in order")
            .about("cluster.placement");
    }
}

}  // namespace

Cluster::Cluster(const SettledScenario& scenario,
                 const Profile& profile,
                 int ranks,
                 const LinkFactors& factors)
    : scenario_(scenario),
      stack_(stack_of(scenario, profile)),
      fp32_gradients_(has_fp32_gradients(scenario, profile, stack_.get())),
      ranks_(ranks),
      replicas_(scenario.pipeline.data_parallel),
      tensor_(scenario.pipeline.tensor_parallel),
      rank_devices_(scenario.pipeline.rank_devices()),
      grid_({.tensor = tensor_,
             .context = scenario.pipeline.context_parallel,
             .data = replicas_,
             .pipeline = ranks},
            axis_order(scenario)),
      expert_rules_(expert_rules(scenario, profile)),
      factors_{.inside = factors.inside / profile.messages_inside,
               .between = factors.between / profile.messages_between},
      devices_(rank_devices(scenario, profile, ranks)),
      written_inside_(written_link(
          scenario.cluster.link, scenario.cluster.link_gbps, scenario.cluster.link_latency_us)),
      written_between_(written_link(scenario.cluster.node_link,
                                    scenario.cluster.node_link_gbps,
                                    scenario.cluster.node_link_latency_us)) {
    require_whole_ranks(scenario, tensor_);
    require_division(scenario, profile, ranks);
    const bool profiles_links =
        std::ranges::none_of(devices_, [](const RankDevice& device) { return device.scaled; });
    if (profiles_links && !profile.links.empty()) {
        profiled_inside_ = profiled_link(profile, "ranks").value_or(profile.links.front());
        profiled_between_ = profiled_link(profile, "nodes");
        profiled_devices_ = profiled_link(profile, "devices");
        profiled_replicas_ = profiled_link(profile, "replicas");
    }
    if (profiles_links) {
        measured_groups_ = profile.groups;
    }
    const std::size_t all = as_index(ranks) * as_index(replicas_);
    if (scenario.cluster.placement == Placement::Written && scenario.cluster.nodes.size() != all) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("cluster.placement has {} for {}",
                                counted(scenario.cluster.nodes.size(), "entry"),
                                counted(all, "device")),
                    "give the node of each rank, replica after replica")
            .about("cluster.placement");
    }
    know_uplinks();
    know_shares();
    know_divided(profile);
}

const Scenario::ClusterPart& Cluster::part() const {
    return scenario_.cluster;
}

int Cluster::node_of(int rank, int replica, int device) const {
    return pipetwin::node_of(scenario_.cluster, grid_, rank, replica, device);
}

DevicePlace Cluster::place_of(int rank, int replica, int device) const {
    const Scenario::ClusterPart& part = scenario_.cluster;
    const int per_node = std::max(1, part.per_node);
    const int node = node_of(rank, replica);
    const int first = grid_.device_at({.data = replica, .pipeline = rank});
    const int in_order = first / rank_devices_;
    switch (part.placement) {
        case Placement::ReplicasFirst:
        case Placement::Fill:
            return {.node = node_of(rank, replica, device),
                    .device = number_of(rank, replica, device) % per_node};
        case Placement::RoundRobin: {
            const int nodes = (grid_.devices() + per_node - 1) / per_node;
            return {.node = node, .device = rank_devices_ * (in_order / nodes) + device};
        }
        case Placement::Written: {
            const auto before = std::count(part.nodes.begin(), part.nodes.begin() + in_order, node);
            return {.node = node, .device = rank_devices_ * static_cast<int>(before) + device};
        }
    }
    PIPETWIN_EXPECT(false, "placement out of range");
}

int Cluster::domain_of(int rank, int replica, int device) const {
    return scenario_.cluster.levels().domain_of(node_of(rank, replica, device));
}

NodeLinks Cluster::node_links(double scale) const {
    return {
        node_links_, scale * factors_.inside, scale * factors_.between, scenario_.cluster.levels()};
}

bool Cluster::has_uplinks() const {
    return std::ranges::find(node_links_, SharedLinkKind::Uplink, &NodeLink::kind) !=
           node_links_.end();
}

/// Whether what a device can send to other nodes depends on what others send.
bool Cluster::shares_network() const {
    return has_uplinks() || scenario_.cluster.levels().nodes_of_leaf > 0;
}

/// Neighbouring devices share a network adapter where a node has fewer of these.
void Cluster::know_uplinks() {
    const Scenario::ClusterPart& cluster = scenario_.cluster;
    node_links_ = cluster.shared_links;
    const bool knows_network =
        profiled_between_ || written_between_.is_anything() || devices_.front().profile == nullptr;
    if (cluster.nics_per_node == 0 || cluster.nics_per_node >= cluster.per_node || !knows_network) {
        return;
    }
    const double rate = known_between(0, 0).bytes_per_second;
    const int sharing = cluster.per_node / cluster.nics_per_node;
    for (int first = 0; first < cluster.per_node && rate > 0; first += sharing) {
        NodeLink nic{.bytes_per_second = rate, .kind = SharedLinkKind::Uplink};
        nic.devices.resize(as_index(sharing));
        std::iota(nic.devices.begin(), nic.devices.end(), first);
        node_links_.push_back(std::move(nic));
    }
}

/// Rate of the uplinks of a leaf, of what the adapters of its nodes carry; 0: as much as these do.
double Cluster::leaf_bytes_per_second() const {
    const Scenario::ClusterPart& cluster = scenario_.cluster;
    const NodeLevels levels = cluster.levels();
    const double of_device = levels.nodes_of_leaf > 0 ? between(0, 0).bytes_per_second : 0;
    if (of_device == 0) {
        return 0;
    }
    int alone = cluster.per_node;  // devices with an adapter of their own
    double of_node = 0;
    for (const NodeLink& link : node_links_) {
        if (link.kind == SharedLinkKind::Uplink) {
            alone -= static_cast<int>(link.devices.size());
            of_node += link.bytes_per_second * factors_.between;
        }
    }
    return levels.nodes_of_leaf * (of_node + alone * of_device) / cluster.oversubscription;
}

/// What each device of a rank has of the uplinks of a leaf while all send to the other rank.
LinkCost Cluster::over_leaves(LinkCost link, int rank, int other) const {
    const NodeLevels levels = scenario_.cluster.levels();
    std::map<int, int> senders;  // [leaf]
    for (int replica = 0; replica < replicas_ && levels.nodes_of_leaf > 0; ++replica) {
        for (int device = 0; device < rank_devices_; ++device) {
            const int from = levels.leaf_of(node_of(rank, replica, device));
            if (from != levels.leaf_of(node_of(other, replica, device))) {
                ++senders[from];
            }
        }
    }
    if (senders.empty()) {
        return link;
    }
    const auto most = std::ranges::max_element(senders, {}, &std::pair<const int, int>::second);
    return within_share(std::move(link), leaf_bytes_per_second() / most->second);
}

/// [domain]: the places of one device of a rank in the replicas there, in their order.
std::vector<std::vector<DevicePlace>> Cluster::replicas_in_domains(int rank, int device) const {
    std::vector<std::vector<DevicePlace>> domains;
    std::map<int, std::size_t> known;
    for (int replica = 0; replica < replicas_; ++replica) {
        const DevicePlace place = place_of(rank, replica, device);
        const auto [domain, is_new] =
            known.emplace(scenario_.cluster.levels().domain_of(place.node), domains.size());
        if (is_new) {
            domains.emplace_back();
        }
        domains[domain->second].push_back(place);
    }
    return domains;
}

namespace {

/// Every one sends to the next of a ring, if there are several.
void add_ring(NodeLinks& links, const std::vector<DevicePlace>& ring, NodeLinks::Passes& passes) {
    for (std::size_t i = 0; i < ring.size(); ++i) {
        links.add_message(ring[i], ring[(i + 1) % ring.size()], passes);
    }
}

void add_passes(const NodeLinks::Passes& more, NodeLinks::Passes& passes) {
    for (const auto& [link, times] : more) {
        passes[link] += times;
    }
}

}  // namespace

/// All ranks sum at the same time: the devices of a rank in every layer, and its replicas around
/// rings through the nodes that they are on.
void Cluster::know_shares() {
    NodeLinks links = node_links();
    if (links.none()) {
        return;
    }
    if (tensor_ > 1) {
        NodeLinks::Passes all;
        for (int first = 0; first + tensor_ <= scenario_.cluster.per_node; first += tensor_) {
            std::vector<DevicePlace> ring;
            for (int device = 0; device < tensor_; ++device) {
                ring.push_back({.node = 0, .device = first + device});
            }
            add_ring(links, ring, all);
        }
        tensor_share_ = links.share(all, all);
    }
    if (replicas_ == 1) {
        return;
    }
    struct Passed {
        NodeLinks::Passes inside;
        NodeLinks::Passes between;
        NodeLinks::Passes between_alone;
    };
    Passed all;
    std::vector<Passed> of_ranks(as_index(ranks_));
    for (int rank = 0; rank < ranks_; ++rank) {
        Passed& own = of_ranks[as_index(rank)];
        for (int device = 0; device < rank_devices_; ++device) {
            const auto nodes = replicas_in_domains(rank, device);
            for (std::size_t node = 0; node < nodes.size(); ++node) {
                const std::vector<DevicePlace>& here = nodes[node];
                const std::vector<DevicePlace>& next = nodes[(node + 1) % nodes.size()];
                add_ring(links, here, own.inside);
                if (nodes.size() > 1) {
                    links.add_message(here.back(), next.front(), own.between_alone);
                    for (std::size_t i = 0; i < here.size(); ++i) {
                        links.add_message(here[i], next[std::min(i, next.size() - 1)], own.between);
                    }
                }
            }
        }
        add_passes(own.inside, all.inside);
        add_passes(own.between, all.between);
        add_passes(own.between_alone, all.between_alone);
    }
    for (const Passed& own : of_ranks) {
        sum_shares_.push_back({.inside = links.share(own.inside, all.inside),
                               .between = links.share(own.between, all.between),
                               .between_alone = links.share(own.between_alone, all.between_alone)});
    }
}

LinkCost Cluster::inside(int rank, int other) const {
    return faster_link(known_inside(rank, other), factors_.inside);
}

LinkCost Cluster::between(int rank, int other) const {
    const Scenario::ClusterPart& cluster = scenario_.cluster;
    LinkCost link = faster_link(known_between(rank, other), factors_.between);
    if (cluster.nics_per_node > cluster.per_node) {  // each device has several
        link.bytes_per_second *= cluster.nics_per_node / cluster.per_node;
    }
    return link;
}

LinkCost Cluster::known_inside(int rank, int other) const {
    LinkCost link = profiled_inside_.value_or(LinkCost{});
    const auto& one = devices_.at(as_index(rank)).profile;
    const auto& two = devices_.at(as_index(other)).profile;
    if (!profiled_inside_ && (one || two)) {
        const LinkCost first = one ? neighbour_link(*one) : LinkCost{};
        link = slower(first, two ? neighbour_link(*two) : first);
    }
    return written_inside_.put_over(link);
}

LinkCost Cluster::known_between(int rank, int other) const {
    if (profiled_between_) {
        return written_between_.put_over(*profiled_between_);
    }
    const bool has_profile = devices_.at(as_index(rank)).profile != nullptr;
    if (has_profile && !written_between_.is_anything()) {
        throw Error(ErrorKind::BadInput,
                    scenario_.file.string(),
                    rank == other
                        ? fmt::format("replicas of rank {} are on two nodes, but nothing says what "
                                      "connects nodes",
                                      rank)
                        : fmt::format("ranks {} and {} are on two nodes, but nothing says what "
                                      "connects nodes",
                                      rank,
                                      other),
                    {"set cluster.node_link = \"infiniband-ndr\", or another of its kind, or "
                     "per_node so that all ranks fit on one node",
                     {{"cluster.node_link", "\"infiniband-ndr\""}}})
            .about("cluster.node_link")
            .because(ErrorReason::NoNetwork);
    }
    return written_between_.put_over(known_inside(rank, other));
}

LinkCost Cluster::link(int rank, int other) const {
    const int apart = std::abs(number_of(other, 0, 0) - number_of(rank, 0, 0));
    const bool all_cross =
        is_in_order(scenario_.cluster.placement) && apart >= scenario_.cluster.domain_devices();
    bool crosses = all_cross;
    bool stays = false;
    for (int replica = 0; replica < replicas_ && !all_cross; ++replica) {
        const bool one_domain = domain_of(rank, replica) == domain_of(other, replica);
        stays = stays || one_domain;
        crosses = crosses || !one_domain;
    }
    if (!crosses) {
        return inside(rank, other);
    }
    const LinkCost across = over_leaves(between(rank, other), rank, other);
    return stays ? slower(across, inside(rank, other)) : across;
}

bool Cluster::scatters() const {
    // Parts of a sequence are divided already.
    return scenario_.pipeline.scatter_boundaries && !scenario_.pipeline.sequence_parallel;
}

LinkCost Cluster::hand_over_link(int rank, int other) const {
    NodeLinks links = node_links();
    NodeLinks::Passes all;
    for (int replica = 0; replica < replicas_ && !links.none(); ++replica) {
        for (int device = 0; device < rank_devices_; ++device) {
            links.add_message(
                place_of(rank, replica, device), place_of(other, replica, device), all);
        }
    }
    return within_share(link(rank, other), links.share(all, all));
}

LinkCost Cluster::between_devices_of(int rank) const {
    if (profiled_devices_) {
        return written_inside_.put_over(*profiled_devices_);
    }
    return within_share(inside(rank, rank), tensor_share_);
}

LinkCost Cluster::boundary_link(int rank, int other) const {
    LinkCost link = this->link(rank, other);
    if (scatters()) {
        const LinkCost between_devices = between_devices_of(other);
        const double sent = link.bytes_per_second > 0 ? 1 / (tensor_ * link.bytes_per_second) : 0;
        const double gathered = between_devices.bytes_per_second > 0
                                    ? (tensor_ - 1) / (tensor_ * between_devices.bytes_per_second)
                                    : 0;
        link.bytes_per_second = sent + gathered > 0 ? 1 / (sent + gathered) : 0;
        link.half_bandwidth = link.half_bandwidth * tensor_;
    }
    return link;
}

std::optional<MessageLanes> Cluster::message_lanes() const {
    const std::shared_ptr<const DeviceProfile>& device = devices_.front().profile;
    return stack_ ? std::optional(stack_->lanes(device ? *device : DeviceProfile{})) : std::nullopt;
}

std::optional<MessageLanes> Cluster::shard_lanes() const {
    if (profiled_replicas_ && !stack_) {
        constexpr MessageLane alone{.share = 0, .chunks = 1};
        return MessageLanes{.gradients = alone, .weights = alone};
    }
    return message_lanes();
}

std::optional<MessageLanes> Cluster::tensor_lanes() const {
    const std::optional<MessageLanes> lanes = message_lanes();
    if (!scenario_.pipeline.tensor_overlap.value_or(lanes && lanes->hides_tensor)) {
        return std::nullopt;
    }
    const bool has_parts = lanes && lanes->tensor_gather.chunks > 1;
    return has_parts ? lanes : MessageLanes{};
}

bool Cluster::offloads_as_needed() const {
    const SettledScenario::PipelinePart& pipeline = scenario_.pipeline;
    return stack_ && stack_->stored.offloads_as_needed && pipeline.stages == 1 && replicas_ > 1 &&
           divided_all_step(scenario_, stack_.get()) == Shard::Weights &&
           pipeline.layer_recompute == LayerRecompute::None &&
           devices_.front().memory_limit.has_value();
}

double Cluster::tensor_buffers() const {
    const bool has_any =
        stack_ && tensor_ > 1 && scenario_.pipeline.sequence_parallel && tensor_lanes();
    return has_any ? stack_->memory.tensor_buffers.value : 0;
}

/// Whether the devices of each rank, with those of so many of its replicas, are on one node.
bool Cluster::are_on_one_node(int replicas) const {
    for (int rank = 0; rank < ranks_; ++rank) {
        for (int device = 0; device < replicas * rank_devices_; ++device) {
            const int replica = device / rank_devices_;
            if (node_of(rank, replica, device % rank_devices_) != node_of(rank, 0)) {
                return false;
            }
        }
    }
    return true;
}

bool Cluster::has_measured_devices() const {
    const bool has_own_links = stack_ != nullptr || written_inside_.is_anything();
    return measured_groups_ && !has_own_links && measured_groups_->devices == tensor_ &&
           are_on_one_node(1);
}

bool Cluster::has_measured_replicas() const {
    return has_measured_devices() && measured_groups_->replicas == replicas_ && replicas_ > 1 &&
           scenario_.pipeline.shard_group.is_all() &&
           measured_groups_->shard == to_string(divided_all_step(scenario_, stack_.get())) &&
           are_on_one_node(replicas_);
}

LayerRules Cluster::layer_rules() const {
    const SettledScenario::PipelinePart& pipeline = scenario_.pipeline;
    LayerRules rules{.division = division_,
                     .tensor = tensor_parallel(),
                     .context = context_parallel(),
                     .experts = expert_parallel(),
                     .recompute = {.mode = pipeline.layer_recompute,
                                   .blocks = pipeline.recompute_blocks,
                                   .stops_early = pipeline.recompute_early_stop},
                     .modules = modules_,
                     .offloaded_blocks = pipeline.offload_blocks.value_or(0)};
    rules.tensor.is_measured = has_measured_devices() && measured_groups_->sequence_parallel ==
                                                             rules.tensor.sequence_parallel;
    const Shard divided = divided_all_step(scenario_, stack_.get());
    if (weight_holders() > 1 && divided >= Shard::Gradients) {
        ReplicaGroups groups = slowest_groups();
        const std::optional<ReplicaGroups> experts = expert_groups(0);
        if (experts) {
            rules.gathered.experts = GatheredExperts{.devices = expert_rules_->devices,
                                                     .replicas = experts->sharing,
                                                     .between = experts->between};
        }
        rules.gathered = {.experts = std::move(rules.gathered.experts),
                          .replicas = std::move(groups.sharing),
                          .between = std::move(groups.between),
                          .all_reduce = pipeline.all_reduce,
                          .weights = divided == Shard::Weights,
                          .fp32_gradients = fp32_gradients_,
                          .prefetch = pipeline.prefetch > 0,
                          .lanes = shard_lanes(),
                          .is_measured = has_measured_replicas()};
    } else {
        rules.accumulates = scenario_.pipeline.micro_batches > 1 &&
                            scenario_.training.accumulation == Accumulation::Separate;
        rules.fp32_gradients = fp32_gradients_;
    }
    return rules;
}

int Cluster::number_of(int rank, int replica, int device) const {
    return grid_.device_at({.tensor = device % tensor_,
                            .context = device / tensor_,
                            .data = replica,
                            .pipeline = rank});
}

}  // namespace pipetwin
