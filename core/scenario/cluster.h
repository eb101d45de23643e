// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/costs/collectives/all_reduce.h"
#include "core/costs/contention.h"
#include "core/costs/profile.h"
#include "core/costs/replica_sums.h"
#include "core/grid/device_grid.h"
#include "core/plan/divided_layers.h"
#include "core/plan/gathered_weights.h"
#include "core/plan/layer_modules.h"
#include "core/plan/stage_costs.h"
#include "core/plan/tensor_parallel.h"
#include "core/scenario/cluster/link_choice.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/scenario.h"
#include "core/schedule/recompute.h"
#include "core/schedule/schedule.h"

namespace pipetwin {

struct SettledScenario;
struct Stack;

/// How many times as fast links are as a scenario and a profile say, in latency and rate.
struct LinkFactors {
    double inside = 1;   ///< of a node; infinity: messages take no time
    double between = 1;  ///< nodes; infinity: messages take no time
};

/// How the devices of a rank share its layers, and what the layers compute again.
struct LayerRules {
    LayerDivision division{};
    TensorParallel tensor{};
    ContextParallel context{};
    std::optional<ExpertParallel> experts{};
    LayerRecomputeRules recompute{};
    ModuleRules modules{};
    GatheredWeights gathered{};
    bool accumulates = false;    ///< kernels of their own add up gradients over micro-batches
    bool fp32_gradients = true;  ///< as GatheredWeights
    int offloaded_blocks = 0;    ///< whose activations are in host memory
};

/// The machine that a scenario describes: the device of every rank, which node it is on, and the
/// way from any rank to any other. A rank with T devices has T neighbours on one node. Nodes take
/// the devices in order, `per_node` to each: all replicas of a rank before those of the next, as
/// Megatron-LM, DeepSpeed and torchtitan number them, or all ranks of a replica; or they take these
/// in turn. Two replicas, a and b, of four ranks, per_node = 2:
///
///     replicas-first   | a0 - b0 | - - | a1 - b1 | - - | a2 - b2 | - - | a3 - b3 |
///     fill             | a0 - a1 | - - | a2 - a3 | - - | b0 - b1 | - - | b2 - b3 |
///     round-robin      | a0 - b0 | - - | a1 - b1 | - - ...        (device k to node k mod nodes)
///                        inside   between
///
/// Where fast links join several nodes (cluster.nvlink_domain), messages inside of such a domain go
/// over the links inside of a node. Where the network is oversubscribed, what leaves the nodes
/// below a leaf shares its uplinks.
class Cluster {
  public:
    /// What the scenario says about a link goes before what the profile measured, and that before
    /// what is known of the device. Throws as `rank_devices`.
    Cluster(const SettledScenario& scenario,
            const Profile& profile,
            int ranks,
            const LinkFactors& factors = {});

    /// What the scenario says about the machine.
    const Scenario::ClusterPart& part() const;
    const std::vector<RankDevice>& devices() const { return devices_; }
    int replicas() const { return replicas_; }
    /// Index of the node that a device of the rank is on, from 0.
    int node_of(int rank, int replica, int device = 0) const;
    /// Index of the domain of fast links that a device of the rank is in, from 0.
    int domain_of(int rank, int replica, int device = 0) const;
    /// The place of one of the rank's devices.
    DevicePlace place_of(int rank, int replica, int device) const;
    /// Devices of a rank: all that share its layers, in all parts of its samples.
    int devices_of_rank() const { return rank_devices_; }
    /// Devices that have the same weights of a rank: of all replicas and parts of a sample.
    int weight_holders() const { return replicas_ * grid_.sizes().context; }

    /// The links that devices of each node share, with rates multiplied by `scale`.
    NodeLinks node_links(double scale = 1) const;
    /// Whether devices of a node share its network adapters.
    bool has_uplinks() const;

    /// The slowest over the replicas. Throws Error(BadInput) if nothing says what connects two
    /// nodes of devices that have a profile.
    LinkCost link(int rank, int other) const;

    /// From rank to rank, for what passes between their stages: where the devices of a rank each
    /// send a part, as fast as all of them together, and then the parts are gathered on each.
    LinkCost boundary_link(int rank, int other) const;

    /// Whether each device of a rank sends its part of a message.
    bool scatters() const;

    /// For the gradients of tied weights: the devices of the ranks of all replicas send at once.
    LinkCost hand_over_link(int rank, int other) const;

    /// Messages beside work, as the stack has them on the first rank's device; none without a
    /// stack.
    std::optional<MessageLanes> message_lanes() const;

    /// The devices of one rank, where there are several.
    TensorParallel tensor_parallel() const;

    /// Whether the stack hands activations of blocks to host memory where they do not fit.
    bool offloads_as_needed() const;

    /// Buffers of messages beside products on each device, in inputs of a block; 0: no messages are
    /// beside products, or nothing is known of them.
    double tensor_buffers() const;

    /// Whether the profile has what messages take of as many devices of a rank, or of replicas that
    /// divide the same (`Profile::groups`), and the scenario says nothing else about links.
    bool has_measured_devices() const;
    bool has_measured_replicas() const;

    /// What a layer's costs depend on beside the profile.
    LayerRules layer_rules() const;

    /// The replicas of one rank, and the groups in which they divide its state.
    ReplicaGroups replica_groups(int rank) const;

    /// The replicas of one rank.
    DeviceGroup replicas_of(int rank) const;

    /// One of several groups of equal size, of devices like the rank's, that send at the same time.
    /// `node_of`: [device], its node. Adapters are the uplinks of a node; without any each device
    /// has its own; the uplinks of a leaf are shared by all groups. The device's measured
    /// collectives are known unless the scenario has other links inside a node than the device.
    /// Throws Error(BadInput) if a group lies on several nodes and nothing says what connects them.
    DeviceGroup group_of_devices(int rank,
                                 const DeviceGroups& groups,
                                 const std::vector<int>& node_of) const;

    /// Groups of devices with the same routed experts of a rank; none where these are divided as
    /// all other weights.
    std::optional<ReplicaGroups> expert_groups(int rank) const;

    /// The devices that have parts of a sample.
    ContextParallel context_parallel() const;

    /// The devices that divide the experts of a layer; none where it is not divided so.
    std::optional<ExpertParallel> expert_parallel() const;

  private:
    void know_uplinks();
    bool are_on_one_node(int replicas) const;
    bool shares_network() const;
    double leaf_bytes_per_second() const;
    LinkCost over_leaves(LinkCost link, int rank, int other) const;
    DeviceGroups all_replicas() const;
    DeviceGroup replicas_below_leaves(int rank) const;
    GroupSpread spread_on_all_ranks(const std::function<DeviceGroups(int rank)>& groups) const;
    DeviceGroups groups_that_send(const DeviceGrid& grid, AxisSet axes, int device) const;
    bool has_places_of_earlier(int rank) const;
    ReplicaGroups slowest_groups() const;
    void divide(ReplicaGroups& groups, int rank, int size) const;
    int number_of(int rank, int replica, int device) const;
    void know_divided(const Profile& profile);
    DeviceGroups groups_along(const DeviceGrid& grid, Axis axis) const;
    DeviceGroup group_of(const DeviceGroups& lists) const;
    ReplicaGroups groups_of_weights(const DeviceGroups& lists) const;
    void set_broadcast(ReplicaGroups& groups) const;
    std::optional<GroupLatency> group_latency(bool leaves_node) const;
    std::vector<std::vector<DevicePlace>> replicas_in_domains(int rank, int device) const;
    std::vector<int> nodes_of(int rank) const;
    void know_shares();
    LinkCost between_devices_of(int rank) const;
    /// Lanes of sums and gathers of replicas that divide gradients: one after the other where their
    /// time was measured, which no work hides.
    std::optional<MessageLanes> shard_lanes() const;
    std::optional<MessageLanes> tensor_lanes() const;
    LinkCost known_inside(int rank, int other) const;
    LinkCost known_between(int rank, int other) const;
    LinkCost inside(int rank, int other) const;
    LinkCost between(int rank, int other) const;
    std::shared_ptr<const CollectiveTable> measured_inside(int rank) const;

    const SettledScenario& scenario_;
    std::shared_ptr<const Stack> stack_;  ///< null: none
    bool fp32_gradients_;
    int ranks_;
    int replicas_;
    int tensor_;        ///< devices that share each layer of a rank
    int rank_devices_;  ///< as many for each part of a sample
    DeviceGrid grid_;
    std::optional<ExpertRules> expert_rules_;
    RoutedTokens routed_{};
    LayerDivision division_{};
    ModuleRules modules_{};
    DeviceGrid expert_grid_{};
    std::vector<int> node_of_number_{};   ///< [device]; empty: no group of them is asked for
    GroupSpread replica_spread_{};        ///< of the replicas of all ranks, where there are leaves
    std::vector<NodeLink> node_links_{};  ///< of every node, with its shared network adapters
    LinkFactors factors_;
    std::vector<RankDevice> devices_;
    WrittenLink written_inside_;
    WrittenLink written_between_;
    std::optional<LinkCost> profiled_inside_;   ///< none: what is known of the devices
    std::optional<LinkCost> profiled_between_;  ///< none: not known
    std::optional<LinkCost> profiled_devices_;  ///< of a rank; none: as between ranks
    /// Between replicas that divide gradients or weights, with all that they wait; none: as between
    /// ranks.
    std::optional<LinkCost> profiled_replicas_;
    std::optional<MeasuredGroups> measured_groups_;  ///< none: messages follow from links

    /// Bytes per second that sums get of shared links, if all ranks sum at the same time; 0: as
    /// many as their own links carry.
    struct SumShares {
        double inside = 0;
        double between = 0;        ///< all replicas of a node send to other nodes
        double between_alone = 0;  ///< one of them does
    };
    std::vector<SumShares> sum_shares_{};  ///< [rank]; empty: nothing is shared
    double tensor_share_ = 0;              ///< the same of the devices of a rank, on a full node
};

}  // namespace pipetwin
