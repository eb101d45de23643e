// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/cluster.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/costs/estimate_source.h"
#include "core/grid/group_spread.h"
#include "core/scenario/choices.h"
#include "core/scenario/division.h"
#include "core/scenario/scenario.h"
#include "core/scenario/settled_scenario.h"
#include "core/scenario/shard_group.h"
#include "core/schedule/edge.h"

namespace pipetwin {

namespace {

std::optional<LinkCost> profiled_link(const Profile& profile, std::string_view between) {
    const auto found = std::ranges::find(profile.links, between, &LinkCost::between);
    return found == profile.links.end() ? std::nullopt : std::optional(*found);
}

WrittenLink written_link(const std::string& name, double gigabits_per_second, double latency_us) {
    return {.of_class = name.empty() ? std::nullopt : std::optional(link_cost(find_link(name))),
            .gigabits_per_second = gigabits_per_second,
            .latency_us = latency_us};
}

/// Whichever carries a large message more slowly; 0 stands for an instant one.
LinkCost slower(const LinkCost& a, const LinkCost& b) {
    if ((a.bytes_per_second == 0) != (b.bytes_per_second == 0)) {
        return a.bytes_per_second == 0 ? b : a;
    }
    if (a.bytes_per_second != b.bytes_per_second) {
        return a.bytes_per_second < b.bytes_per_second ? a : b;
    }
    return a.latency < b.latency ? b : a;
}

/// Whether nodes take devices by their numbers.
bool is_in_order(Placement placement) {
    return placement == Placement::ReplicasFirst || placement == Placement::Fill;
}

/// Devices that share a layer sit on one node, or fill several.
void require_whole_ranks(const SettledScenario& scenario, int tensor) {
    const int per_node = std::max(1, scenario.cluster.per_node);
    const bool fills_nodes = tensor % per_node == 0 && is_in_order(scenario.cluster.placement);
    if (tensor > 1 && per_node % tensor != 0 && !fills_nodes) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("pipeline.tensor_parallel = {}, but a node has {} "
                                "(cluster.per_node), expected a divisor or a multiple of that",
                                tensor,
                                counted(per_node, "device")),
                    "devices that share every layer have to sit on one node, or fill several")
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

/// A link that is `factor` times as fast.
LinkCost faster_link(LinkCost link, double factor) {
    if (std::isinf(factor)) {
        return {.between = std::move(link.between)};
    }
    // Rounded down, as in sim/explain/sensitivity.h.
    link.latency =
        Duration{static_cast<std::int64_t>(static_cast<double>(link.latency.count()) / factor)};
    link.bytes_per_second *= factor;
    return link;
}

}  // namespace

LinkCost WrittenLink::put_over(LinkCost link) const {
    if (of_class) {
        const std::string between = link.between;
        link = *of_class;
        link.between = between;
    }
    if (gigabits_per_second > 0) {
        link.bytes_per_second = gigabits_per_second * 1e9 / 8;
        link.half_bandwidth = {};
    }
    if (latency_us > 0) {
        link.latency = from_milliseconds(latency_us / 1e3, "link latency");
    }
    return link;
}

Cluster::Cluster(const SettledScenario& scenario,
                 const Profile& profile,
                 int ranks,
                 const LinkFactors& factors)
    : scenario_(scenario),
      stack_(stack_of(scenario, profile)),
      fp32_gradients_(has_fp32_gradients(scenario, profile)),
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
    know_shares();
    know_divided(profile);
}

int Cluster::node_of(int rank, int replica, int device) const {
    return pipetwin::node_of(scenario_.cluster, grid_, rank, replica, device);
}

/// Where groups of parts of samples and of experts lie.
void Cluster::know_divided(const Profile& profile) {
    division_ = layer_division(scenario_, profile);
    if (grid_.sizes().context == 1 && !expert_rules_) {
        return;
    }
    node_of_number_.resize(as_index(grid_.devices()));
    for (int number = 0; number < grid_.devices(); ++number) {
        const Coordinates at = grid_.coordinates_of(number);
        node_of_number_[as_index(number)] =
            node_of(at.pipeline, at.data, at.tensor + tensor_ * at.context);
    }
    if (expert_rules_) {
        expert_grid_ =
            parallel_grids(parallel_sizes(scenario_, ranks_), axis_order(scenario_)).expert;
        const ExpertShape& experts = profile.estimated_from.get()->model.experts;
        routed_ = {.experts = experts.count, .chosen = experts.per_token};
    }
    const GroupSpread spread = spread_of(grid_.groups(Axis::Context), node_of_number_);
    division_.context_ring = spread.nodes;
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
    const DeviceGroups groups = grid_.groups(Axis::Context);
    ContextParallel context{.devices = devices, .method = method};
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
                          .parts = group_of(expert_grid_.groups(Axis::Expert)),
                          .sharing = group_of(expert_grid_.groups(Axis::Tensor)),
                          .tokens = routed_,
                          .waits_for_counts = division_.load.capacity == 0};
}

/// [replica]: its node.
std::vector<int> Cluster::nodes_of(int rank) const {
    std::vector<int> nodes;
    for (int replica = 0; replica < replicas_; ++replica) {
        nodes.push_back(node_of(rank, replica));
    }
    return nodes;
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

NodeLinks Cluster::node_links(double scale) const {
    return {scenario_.cluster.shared_links, scale * factors_.inside, scale * factors_.between};
}

/// [node]: the places of one device of a rank in the replicas there, in their order.
std::vector<std::vector<DevicePlace>> Cluster::replicas_on_nodes(int rank, int device) const {
    std::vector<std::vector<DevicePlace>> nodes;
    std::map<int, std::size_t> known;
    for (int replica = 0; replica < replicas_; ++replica) {
        const DevicePlace place = place_of(rank, replica, device);
        const auto [node, is_new] = known.emplace(place.node, nodes.size());
        if (is_new) {
            nodes.emplace_back();
        }
        nodes[node->second].push_back(place);
    }
    return nodes;
}

namespace {

/// Every one sends to the next of a ring, if there are several.
void add_ring(NodeLinks& links, const std::vector<DevicePlace>& ring, NodeLinks::Passes& passes) {
    for (std::size_t i = 0; i < ring.size(); ++i) {
        links.add_message(ring[i], ring[(i + 1) % ring.size()], passes);
    }
}

/// Where shared links give less.
LinkCost within_share(LinkCost link, double bytes_per_second) {
    if (bytes_per_second > 0 &&
        (link.bytes_per_second == 0 || bytes_per_second < link.bytes_per_second)) {
        link.bytes_per_second = bytes_per_second;
    }
    return link;
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
            const auto nodes = replicas_on_nodes(rank, device);
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
    return faster_link(known_between(rank, other), factors_.between);
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
    bool crosses = false;
    bool stays = false;
    for (int replica = 0; replica < replicas_; ++replica) {
        const bool one_node = node_of(rank, replica) == node_of(other, replica);
        stays = stays || one_node;
        crosses = crosses || !one_node;
    }
    if (!crosses) {
        return inside(rank, other);
    }
    return stays ? slower(between(rank, other), inside(rank, other)) : between(rank, other);
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

TensorParallel Cluster::tensor_parallel() const {
    if (tensor_ == 1) {
        return {};
    }
    LinkCost link = between_devices_of(0);
    for (int rank = 1; rank < ranks_; ++rank) {
        link = slower(link, between_devices_of(rank));
    }
    const int per_node = std::max(1, scenario_.cluster.per_node);
    const bool crosses = tensor_ > per_node;
    return {.devices = tensor_,
            .link = link,
            .per_node = crosses ? per_node : 0,
            .between_nodes = crosses ? between(0, 0) : LinkCost{},
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
    }
    one.inside = slower(one.inside, other.inside);
    return one;
}

}  // namespace

/// The groups of the rank whose replicas lie furthest apart.
ReplicaGroups Cluster::slowest_groups() const {
    ReplicaGroups slowest = replica_groups(0);
    for (int rank = 1; rank < ranks_; ++rank) {
        const ReplicaGroups groups = replica_groups(rank);
        for (const auto group :
             {&ReplicaGroups::all, &ReplicaGroups::sharing, &ReplicaGroups::between}) {
            slowest.*group = slower(std::move(slowest.*group), groups.*group);
        }
    }
    return slowest;
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
                     .offloaded_blocks = pipeline.offload_blocks.value_or(0)};
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
                          .lanes = message_lanes()};
    } else {
        rules.accumulates = scenario_.pipeline.micro_batches > 1 &&
                            scenario_.training.accumulation == Accumulation::Separate;
        rules.fp32_gradients = fp32_gradients_;
    }
    return rules;
}

DeviceGroup Cluster::replicas_of(int rank) const {
    std::vector<int> all(as_index(replicas_));
    std::iota(all.begin(), all.end(), 0);
    const GroupSpread spread = spread_of({all}, nodes_of(rank));
    DeviceGroup group{.members = replicas_,
                      .per_node = spread.per_node,
                      .inside = inside(rank, rank),
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
    const GroupSpread spread = spread_of(groups, node_of);
    NodePorts ports{.inside = inside(rank, rank),
                    .latency = group_latency(spread.nodes > 1),
                    .table = measured_inside(rank)};
    const LinkCost own = spread.nodes > 1 ? between(rank, rank) : LinkCost{};
    ports.adapter = own;
    for (const NodeLink& link : scenario_.cluster.shared_links) {
        if (link.kind == SharedLinkKind::Uplink && spread.nodes > 1) {
            const double rate = link.bytes_per_second * factors_.between;
            ports.adapter.bytes_per_second =
                ports.adapters == 0 ? rate : std::min(rate, ports.adapter.bytes_per_second);
            ++ports.adapters;
        }
    }
    DeviceGroup group = group_on_nodes(static_cast<int>(groups.at(0).size()), spread, ports);
    group.between = within_share(group.between, own.bytes_per_second);
    group.between_alone = within_share(*group.between_alone, own.bytes_per_second);
    return group;
}

ReplicaGroups Cluster::replica_groups(int rank) const {
    if (grid_.sizes().context > 1) {
        return groups_of_weights(
            {grid_.group_of(number_of(rank, 0, 0), Axis::Context | Axis::Data)});
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

int Cluster::number_of(int rank, int replica, int device) const {
    return grid_.device_at({.tensor = device % tensor_,
                            .context = device / tensor_,
                            .data = replica,
                            .pipeline = rank});
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
        {expert_grid_.group_of(expert_grid_.device_at({.pipeline = rank}), Axis::Data)});
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
    const auto group = [&](const DeviceGroups& lists) {
        const GroupSpread spread = spread_of(lists, nodes);
        const bool is_as_dense = spread.per_node == groups.all.per_node;
        return DeviceGroup{.members = static_cast<int>(lists.front().size()),
                           .per_node = spread.per_node,
                           .inside = groups.all.inside,
                           .between = groups.all.between,
                           .between_alone = is_as_dense ? groups.all.between_alone : std::nullopt,
                           .latency = group_latency(spread.nodes > 1)};
    };
    const DeviceGroups sharing =
        shard_groups(scenario_.pipeline.shard_group, scenario_.cluster, grid_, rank, size);
    groups.sharing = group(sharing);
    groups.between = group(across(sharing));
}

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
            if (first != second) {
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
    const bool knows_uplinks =
        std::ranges::find(part.shared_links, SharedLinkKind::Uplink, &NodeLink::kind) !=
        part.shared_links.end();
    if (part.link_sharing && !knows_uplinks) {
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
