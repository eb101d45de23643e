// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/costs/collectives/collective_time.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/scenario/cluster.h"
#include "core/scenario/cluster/network_notes.h"
#include "tests/core/scenario/scenario_texts.h"
#include "tests/support/builders.h"
#include "tests/support/scenario_plans.h"

// What joins nodes: domains of NVLink, network adapters, and leaves of the network.

namespace pipetwin {
namespace topology_test {

using testing::chain_profile;
using ::testing::ElementsAre;
using testing::gpt;
using ::testing::HasSubstr;
using testing::parse;
using testing::partitioned;
using testing::plan_error_of;
using testing::plan_of;
using testing::refusal;
using testing::with;

/// Ranks of one layer each, and links of 10 GB/s inside and 1 GB/s between nodes.
SettledScenario on_nodes(int per_node, std::vector<int> partition = {1, 1, 1, 2}) {
    SettledScenario scenario = partitioned(std::move(partition));
    scenario.cluster.per_node = per_node;
    scenario.cluster.link_gbps = 80;
    scenario.cluster.node_link_gbps = 8;
    return scenario;
}

/// GB/s of the links between ranks.
std::vector<double> rates_with(const SettledScenario& scenario) {
    std::vector<double> rates;
    const Plan plan = plan_of(scenario);
    for (const LinkCost& link : plan->links) {
        rates.push_back(link.bytes_per_second / 1e9);
    }
    return rates;
}

TEST(Topology, NodesOfADomainReachEachOtherOverNvlink) {
    SettledScenario scenario = on_nodes(1);
    EXPECT_THAT(rates_with(scenario), ElementsAre(1, 1, 1));
    scenario.cluster.nvlink_domain = 2;
    EXPECT_THAT(rates_with(scenario), ElementsAre(10, 1, 10));
    scenario.cluster.nvlink_domain = 4;
    EXPECT_THAT(rates_with(scenario), ElementsAre(10, 10, 10));
    scenario.cluster.placement = Placement::Written;
    scenario.cluster.nodes = {5, 4, 3, 0};  // domains 1, 1, 0, 0
    EXPECT_THAT(rates_with(scenario), ElementsAre(10, 1, 10));
}

/// A domain of two nodes of four is as good as a node of eight.
TEST(Topology, ADomainIsWhatANodeIsForEveryGroup) {
    for (const int tensor : {1, 2, 8}) {
        for (const int replicas : {1, 2, 4}) {
            for (const Placement placement : {Placement::ReplicasFirst, Placement::Fill}) {
                SettledScenario node = on_nodes(8, {2, 3});
                node.pipeline.tensor_parallel = tensor;
                node.pipeline.data_parallel = replicas;
                node.training.batch = 2 * replicas;
                node.cluster.placement = placement;
                SettledScenario domain = node;
                domain.cluster.per_node = 4;
                domain.cluster.nvlink_domain = 8;
                const Plan one = plan_of(node);
                const Plan other = plan_of(domain);
                EXPECT_EQ(one->links, other->links);
                EXPECT_EQ(one->all_reduce, other->all_reduce);
                EXPECT_EQ(one.cost(0, 0).forward, other.cost(0, 0).forward);
                EXPECT_EQ(one.cost(0, 1).backward, other.cost(0, 1).backward);
            }
        }
    }
}

TEST(Topology, DevicesThatShareLayersFitIntoADomain) {
    SettledScenario scenario = on_nodes(4, {5});
    scenario.pipeline.tensor_parallel = 6;
    EXPECT_THAT(plan_error_of(scenario).text(),
                HasSubstr("tensor_parallel = 6, but a node has 4 devices (cluster.per_node)"));
    scenario.cluster.nvlink_domain = 12;
    EXPECT_EQ(plan_of(scenario)->tensor_parallel, 6);
    scenario.cluster.nvlink_domain = 8;
    EXPECT_THAT(
        plan_error_of(scenario).text(),
        HasSubstr("an NVLink domain has 8 devices (cluster.nvlink_domain), expected a divisor"));
}

/// Groups of 64 and of 256 experts of GB200 in nodes of four: 64 of 72 devices are in one domain,
/// and a table of measured collectives is asked for all of them.
TEST(Topology, ExpertsOfARackNeedNoNetwork) {
    SettledScenario scenario = on_nodes(4, {5});
    scenario.cluster.device = "b200";
    scenario.cluster.link_gbps = 0;
    scenario.cluster.node_link_gbps = 400;
    Profile profile = chain_profile();
    profile.device = "b200";
    profile.links.clear();
    const DeviceGrid grid({.expert = 64, .data = 2}, pipeline_last);
    const auto group = [&](int domain) {
        scenario.cluster.nvlink_domain = domain;
        return Cluster(scenario, profile, 1)
            .group_of_devices(0, grid.groups({Axis::Expert}), nodes_in_order(128, 4));
    };
    EXPECT_EQ(nodes_of(group(0)), 16);
    EXPECT_EQ(nodes_of(group(64)), 1);
    EXPECT_EQ(members_in_node(group(64)), 64);
    EXPECT_EQ(group(64).between.bytes_per_second, 0);
    ASSERT_TRUE(group(64).table);
    const Bytes sent{1 << 26};
    EXPECT_EQ(
        ns_of(collective_time(Collective::AllToAll, CollectiveAlgorithm::Auto, group(64), sent)),
        std::ceil(group(64).table->nanoseconds(Collective::AllToAll, 64, 1 << 26)));
}

/// Messages between nodes of a domain pass no network adapter, and none of the links that devices
/// of a node share.
TEST(Topology, MessagesOfADomainPassNoAdapter) {
    SettledScenario scenario = on_nodes(1);
    scenario.cluster.link_sharing = LinkSharing::Fifo;
    EXPECT_EQ(plan_of(scenario)->contention.link_names.size(), 8U)
        << "out of each node, and into it";
    scenario.cluster.nvlink_domain = 4;
    EXPECT_THAT(plan_of(scenario)->contention.link_names, ::testing::IsEmpty());
    scenario.cluster.shared_links = {
        {.devices = {0}, .bytes_per_second = 1e9, .kind = SharedLinkKind::Uplink}};
    EXPECT_THAT(plan_of(scenario)->contention.link_names, ::testing::IsEmpty());
    scenario.cluster.nvlink_domain = 2;
    EXPECT_EQ(plan_of(scenario)->contention.link_names.size(), 2U) << "out of node 1, into node 2";
}

/// Eight devices with four adapters are four pairs that share one each; with eight each has its
/// own, with 16 two.
TEST(Topology, NeighboursShareTheAdaptersOfANode) {
    SettledScenario scenario = on_nodes(8, {2, 3});
    scenario.pipeline.data_parallel = 8;
    scenario.training.batch = 16;
    scenario.pipeline.all_reduce = AllReduceKind::Rings;
    scenario.cluster.placement = Placement::RoundRobin;  // a rank of each replica on each node
    SettledScenario by_hand = scenario;
    for (const int first : {0, 2, 4, 6}) {
        by_hand.cluster.shared_links.push_back({.devices = {first, first + 1},
                                                .bytes_per_second = 1e9,
                                                .kind = SharedLinkKind::Uplink});
    }
    const Plan one_each = plan_of(scenario);
    scenario.cluster.nics_per_node = 4;
    const Plan plan = plan_of(scenario);
    const Plan expected = plan_of(by_hand);
    EXPECT_EQ(plan->all_reduce, expected->all_reduce);
    EXPECT_EQ(plan->contention.shared_links, expected->contention.shared_links);
    EXPECT_EQ(plan->contention.way_of_edge, expected->contention.way_of_edge);
    EXPECT_EQ(plan->contention.link_names, expected->contention.link_names);
    EXPECT_NE(plan->contention.shared_links, one_each->contention.shared_links);
    scenario.cluster.nics_per_node = 8;
    EXPECT_EQ(plan_of(scenario)->contention.shared_links, one_each->contention.shared_links);
    EXPECT_EQ(plan_of(scenario)->links, one_each->links);
    scenario.cluster.nics_per_node = 16;
    EXPECT_EQ(plan_of(scenario)->links.front().bytes_per_second, 2e9);
}

/// Rails: 16 H100 of two nodes, TP 8. Each of eight groups of replicas has one device at the same
/// place of both nodes, and so an adapter of its own, or with four adapters half of one.
TEST(Topology, GroupsAtOnePlaceOfTheirNodesHaveTheirOwnRail) {
    SettledScenario scenario = on_nodes(8, {5});
    scenario.pipeline.tensor_parallel = 8;
    scenario.pipeline.data_parallel = 2;
    const auto rate = [&](int nics) {
        scenario.cluster.nics_per_node = nics;
        return Cluster(scenario, chain_profile(), 1).replicas_of(0).between.bytes_per_second / 1e9;
    };
    EXPECT_EQ(rate(0), 1);
    EXPECT_EQ(rate(8), 1);
    EXPECT_EQ(rate(4), 0.5);
    EXPECT_EQ(rate(1), 0.125);
    EXPECT_EQ(rate(16), 2);
}

/// Two leaves of two nodes with a device and 1 GB/s each. Uplinks of 4 to 1 carry 0.5 GB/s: a ring
/// of four replicas passes them once. 500 bytes of gradients are six messages of 125.
TEST(Topology, ARingHasTheUplinksOfALeafForItself) {
    SettledScenario scenario = on_nodes(1, {5});
    scenario.pipeline.data_parallel = 4;
    scenario.training.batch = 8;
    scenario.pipeline.all_reduce = AllReduceKind::Ring;
    const Duration latency = 6 * Duration(800);
    const auto sum = [&](double factor, int leaf) {
        scenario.cluster.oversubscription = factor;
        scenario.cluster.nodes_per_leaf = leaf;
        return plan_of(scenario)->all_reduce.front() - latency;
    };
    EXPECT_EQ(sum(1, 2), Duration(6 * 125));
    EXPECT_EQ(sum(2, 2), Duration(6 * 125)) << "as much as one ring needs";
    EXPECT_EQ(sum(4, 2), Duration(6 * 250));
    EXPECT_EQ(sum(4, 1), Duration(6 * 500)) << "every node is a leaf of its own";
    EXPECT_EQ(sum(4, 4), Duration(6 * 125)) << "one leaf";
}

/// Two ranks with two replicas on four nodes, in leaves of two. By ranks, both replicas send to the
/// next rank through the uplinks; by replicas, both ranks sum through them.
TEST(Topology, WhatPassesLeavesSharesTheirUplinks) {
    SettledScenario scenario = on_nodes(1, {2, 3});
    scenario.pipeline.data_parallel = 2;
    scenario.training.batch = 4;
    scenario.cluster.nodes_per_leaf = 2;
    const auto rates = [&](Placement placement, double factor) {
        scenario.cluster.placement = placement;
        scenario.cluster.oversubscription = factor;
        const Cluster cluster(scenario, chain_profile(), 2);
        return std::array{cluster.link(0, 1).bytes_per_second / 1e9,
                          cluster.replicas_of(0).between.bytes_per_second / 1e9,
                          cluster.replicas_of(1).between.bytes_per_second / 1e9};
    };
    EXPECT_THAT(rates(Placement::ReplicasFirst, 1), ElementsAre(1, 1, 1));
    EXPECT_THAT(rates(Placement::ReplicasFirst, 2), ElementsAre(0.5, 1, 1));
    EXPECT_THAT(rates(Placement::ReplicasFirst, 8), ElementsAre(0.125, 1, 1));
    EXPECT_THAT(rates(Placement::Fill, 2), ElementsAre(1, 0.5, 0.5));
    EXPECT_THAT(rates(Placement::Fill, 8), ElementsAre(1, 0.125, 0.125));
    // Groups of shards stay below a leaf; what is summed between them passes it.
    scenario.pipeline.data_parallel = 4;
    scenario.pipeline.shard = Shard::Optimizer;
    scenario.pipeline.shard_group = {.replicas = 2};
    scenario.cluster.placement = Placement::ReplicasFirst;
    scenario.cluster.oversubscription = 8;
    const ReplicaGroups groups = Cluster(scenario, chain_profile(), 2).replica_groups(0);
    EXPECT_EQ(groups.sharing.between.bytes_per_second, 1e9);
    EXPECT_EQ(groups.between.between.bytes_per_second, 0.125e9) << "two rings, 0.25 GB/s";
}

/// Four devices on two nodes share a layer: two rings, with one adapter or 1 GB/s of uplinks.
TEST(Topology, TensorParallelismAcrossNodesSharesTheNetwork) {
    SettledScenario scenario = on_nodes(2, {5});
    scenario.pipeline.tensor_parallel = 4;
    const auto rate = [&] {
        return Cluster(scenario, chain_profile(), 1)
            .tensor_parallel()
            .between_nodes.bytes_per_second;
    };
    EXPECT_EQ(rate(), 1e9);
    scenario.cluster.nics_per_node = 1;
    EXPECT_EQ(rate(), 0.5e9);
    scenario.cluster.nics_per_node = 0;
    scenario.cluster.oversubscription = 2;
    EXPECT_EQ(rate(), 0.5e9);
}

/// Two ranks of four replicas on nodes of one, in domains of two and leaves of four nodes.
TEST(Topology, NotesNameTheGroupsThatLeaveADomainOrALeaf) {
    SettledScenario scenario = on_nodes(1, {2, 3});
    scenario.pipeline.data_parallel = 4;
    scenario.training.batch = 8;
    const auto notes = [&] { return network_notes(Cluster(scenario, chain_profile(), 2)); };
    EXPECT_THAT(notes(), ::testing::IsEmpty());
    scenario.cluster.nvlink_domain = 2;
    const std::string domains = "over the network, between NVLink domains of 2 devices: ";
    EXPECT_THAT(notes(), ElementsAre(domains + "replicas (2 domains), messages between stages"));
    EXPECT_THAT(plan_of(scenario)->notes,
                ::testing::Contains(domains + "replicas (2 domains), messages between stages"));
    scenario.cluster.oversubscription = 7;
    scenario.cluster.nodes_per_leaf = 4;
    EXPECT_THAT(notes(),
                ElementsAre(domains + "replicas (2 domains), messages between stages",
                            "over uplinks of leaves of 4 nodes, with 1/7 of what their adapters "
                            "carry: messages between stages"));
    scenario.cluster.placement = Placement::Fill;  // replicas are two nodes apart
    EXPECT_THAT(notes(),
                ElementsAre(domains + "replicas (4 domains)",
                            "over uplinks of leaves of 4 nodes, with 1/7 of what their adapters "
                            "carry: replicas"));
    scenario.cluster.nvlink_domain = 8;
    EXPECT_THAT(notes(), ::testing::IsEmpty());
}

TEST(Topology, IsRefusedWithTheNearestThatWouldDo) {
    struct Case {
        std::string keys;
        std::string said;
        std::string nearest;
    };
    const auto of_node = [](int devices) {
        return fmt::format("the {} devices of a node (cluster.per_node)", devices);
    };
    for (const Case& of :
         {Case{"per_node = 4\nnvlink_domain = 70",
               "nvlink_domain = 70, expected a multiple of " + of_node(4),
               "nvlink_domain = 68"},
          Case{"per_node = 4\nnvlink_domain = 71", "nvlink_domain = 71", "nvlink_domain = 72"},
          Case{"nvlink_domain = 3", "multiple of " + of_node(8), "nvlink_domain = 8"},
          Case{"nics_per_node = 3",
               "nics_per_node = 3, expected a divisor or a multiple of " + of_node(8),
               "nics_per_node = 2"},
          Case{"nics_per_node = 7", "nics_per_node = 7", "nics_per_node = 8"},
          Case{"nics_per_node = 13", "nics_per_node = 13", "nics_per_node = 16"},
          Case{"per_node = 4\nnvlink_domain = 72\nnodes_per_leaf = 32\noversubscription = 2",
               "nodes_per_leaf = 32, expected a multiple of the 18 nodes of an NVLink domain",
               "nodes_per_leaf = 36"},
          Case{"oversubscription = 0.5",
               "oversubscription = 0.5, expected at least 1",
               "oversubscription = 1, or oversubscription = 2 for uplinks that carry 0.5 of it"},
          Case{"oversubscription = 0", "expected at least 1", "set oversubscription = 1"},
          Case{"oversubscription = 1001", "from 0 to 1000", ""},
          Case{"nvlink_domain = -1", "nvlink_domain = -1", ""},
          Case{"nics_per_node = 1.5", "expected a whole number", ""},
          Case{"nics_per_node = 4\n[[cluster.shared_link]]\ndevices = [0]\nrate = \"1 GB/s\"\nkind "
               "= \"uplink\"",
               "either nics_per_node or shared_link of kind uplink",
               "nics_per_node = 0"}}) {
        SCOPED_TRACE(of.keys);
        const Error error = refusal(with(gpt, "[cluster]\n" + of.keys));
        EXPECT_THAT(error.text(), HasSubstr(of.said));
        EXPECT_THAT(error.hint(), HasSubstr(of.nearest));
    }
}

/// What is written is read again; keys that say nothing are not written.
TEST(Topology, IsWrittenWhereItIsSaid) {
    const std::string keys =
        "nvlink_domain = 72\nnics_per_node = 4\noversubscription = 2.5\nnodes_per_leaf = 36\n";
    const Scenario scenario = parse(with(gpt, "[cluster]\nper_node = 4\n" + keys));
    EXPECT_EQ(scenario.cluster.domain_devices(), 72);
    EXPECT_EQ(scenario.cluster.levels().nodes_of_domain, 18);
    EXPECT_EQ(scenario.cluster.levels().nodes_of_leaf, 36);
    EXPECT_THAT(print_scenario(scenario), HasSubstr(keys));
    EXPECT_EQ(parse(print_scenario(scenario)).cluster, scenario.cluster);
    EXPECT_THAT(print_scenario(parse(with(gpt, ""))), ::testing::Not(HasSubstr("nvlink_domain")));
}

}  // namespace topology_test
}  // namespace pipetwin
