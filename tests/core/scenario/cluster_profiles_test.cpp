// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include <gmock/gmock.h>

#include "core/costs/devices/shipped_profiles.h"
#include "tests/core/scenario/scenario_texts.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin {
namespace cluster_profiles_test {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::error_of;
using testing::gpt;
using ::testing::HasSubstr;
using testing::parse;
using testing::refusal;
using ::testing::StartsWith;
using testing::with;

/// A scenario beside a cluster file of its own, m.toml.
class ClusterFile : public ::testing::Test {
  protected:
    Scenario scenario(std::string_view cluster_file, std::string_view own = "") const {
        std::ofstream(folder_.path() / "m.toml") << cluster_file;
        return parse_scenario(with(gpt, fmt::format("[cluster]\nprofile = \"m.toml\"\n{}", own)),
                              folder_.path() / "s.toml");
    }
    std::string place(std::string_view line_and_column) const {
        return fmt::format("{}:{}", (folder_.path() / "m.toml").string(), line_and_column);
    }

    tests::ScratchFolder folder_;
};

/// Paths of a stack's file start from the file that they stand in.
TEST_F(ClusterFile, NamesAStackByItsPath) {
    const std::filesystem::path nemo = profiles_folder() / "stacks/nemo-2024.toml";
    const std::filesystem::path beside = folder_ / "own.toml";
    std::filesystem::copy_file(nemo, beside);
    EXPECT_EQ(scenario("[cluster]\nstack = \"own.toml\"\n").cluster.stack, beside);
    EXPECT_EQ(scenario("[cluster]\n", "stack = \"./own.toml\"").cluster.stack, beside);
    EXPECT_EQ(scenario("[cluster]\n", fmt::format("stack = \"{}\"", nemo.string())).cluster.stack,
              nemo);
    const Scenario read = scenario("[cluster]\nstack = \"own.toml\"\n");
    EXPECT_EQ(parse_scenario(print_scenario(read), "/elsewhere/s.toml").cluster.stack, beside);
    const Error error = error_of([&] { scenario("[cluster]\nstack = \"other.toml\"\n"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), place("2:9"));
    EXPECT_THAT(error.text(), HasSubstr("other.toml"));
}

/// NVIDIA's DGX datasheets: 8 GPUs, NVLink of the generation, one adapter per GPU.
TEST(ShippedClusters, AreTheNodesOfTheirDatasheetsWithLinksAsMeasured) {
    EXPECT_THAT(cluster_names(),
                ElementsAre("8x-a100-sxm-80",
                            "8x-a100-sxm-80-ib-200-x4",
                            "8x-b200",
                            "8x-b300",
                            "8x-h100-sxm",
                            "8x-h100-sxm-roce-400-x4",
                            "8x-h20",
                            "8x-h200-sxm",
                            "8x-l40s",
                            "8x-mi250x",
                            "8x-mi300x",
                            "8x-mi355x",
                            "8x-p40",
                            "8x-rtx-4090",
                            "gb200-nvl72",
                            "gb300-nvl72",
                            "titan",
                            "v5p"));
    struct Node {
        std::string name;
        std::string device;
        double link = 0;       ///< bytes per second, one direction
        double node_link = 0;  ///< 0: none
        int devices = 8;
        int per_node = 8;
    };
    for (const Node& node : {Node{"8x-a100-sxm-80", "a100-sxm-80", 235e9, 25e9},
                             {"8x-h100-sxm", "h100-sxm", 365e9, 50e9},
                             {"8x-h200-sxm", "h200-sxm", 365e9, 50e9},
                             {"8x-b200", "b200", 680e9, 50e9},
                             {"8x-b300", "b300", 680e9, 100e9},
                             {"8x-h20", "h20", 365e9, 50e9},
                             {"8x-mi355x", "mi355x", 76.8e9, 50e9},
                             {"gb200-nvl72", "gb200", 680e9, 50e9, 72, 4},
                             {"gb300-nvl72", "gb300", 680e9, 100e9, 72, 4},
                             {"titan", "h100-sxm-96", 365e9, 50e9},
                             {"8x-mi300x", "mi300x", 64e9, 50e9},
                             {"8x-rtx-4090", "rtx-4090", 32e9, 0}}) {
        SCOPED_TRACE(node.name);
        const auto cluster =
            parse(with(gpt, fmt::format("[cluster]\nprofile = \"{}\"", node.name))).cluster;
        EXPECT_EQ(cluster.device, node.device);
        EXPECT_EQ(cluster.count, node.devices);
        EXPECT_EQ(cluster.per_node, node.per_node);
        EXPECT_EQ(cluster.domain_devices(), node.devices);
        EXPECT_EQ(find_link(cluster.link).facts.bytes_per_second.value, node.link);
        EXPECT_EQ(cluster.node_link.empty(), node.node_link == 0);
        if (!cluster.node_link.empty()) {
            EXPECT_EQ(find_link(cluster.node_link).facts.bytes_per_second.value, node.node_link);
        }
        EXPECT_EQ(find_device(cluster.device).host_link.bytes_per_second.value,
                  find_link(cluster.host_link).facts.bytes_per_second.value);
    }
    EXPECT_EQ(parse(with(gpt, "[cluster]\nprofile = \"this-machine\"")).cluster.device,
              this_machine);
}

/// Adapters that two devices share.
TEST(ShippedClusters, WithFewerAdaptersThanDevicesHaveUplinks) {
    for (const auto& [name, rate] : {std::pair{"8x-a100-sxm-80-ib-200-x4", 25e9},
                                     {"8x-h100-sxm-roce-400-x4", 50e9},
                                     {"8x-l40s", 25e9},
                                     {"8x-mi250x", 25e9}}) {
        SCOPED_TRACE(name);
        const auto cluster =
            parse(with(gpt, fmt::format("[cluster]\nprofile = \"{}\"", name))).cluster;
        EXPECT_EQ(find_link(cluster.node_link).facts.bytes_per_second.value, rate);
        ASSERT_EQ(cluster.shared_links.size(), 4U);
        for (const NodeLink& link : cluster.shared_links) {
            EXPECT_EQ(link.kind, SharedLinkKind::Uplink);
            EXPECT_EQ(link.bytes_per_second, rate);
            EXPECT_EQ(link.devices.size(), 2U);
        }
    }
}

/// 12.9 GB/s to host memory and 11.8 from it (Microway, Tesla P40 Up Close), one after the other,
/// over lanes of its own that each device shares among its messages.
TEST(ShippedClusters, AP40StagesItsMessagesThroughHostMemory) {
    const auto cluster = parse(with(gpt, "[cluster]\nprofile = \"8x-p40\"")).cluster;
    EXPECT_EQ(cluster.device, "p40");
    EXPECT_EQ(cluster.count, 8);
    const double staged = 1 / (1 / 12.9 + 1 / 11.8);
    EXPECT_NEAR(cluster.link_gbps / 8, staged, 0.005);
    ASSERT_EQ(cluster.shared_links.size(), 8U);
    for (int device = 0; device < 8; ++device) {
        const NodeLink& lanes = cluster.shared_links[static_cast<std::size_t>(device)];
        EXPECT_THAT(lanes.devices, ElementsAre(device));
        EXPECT_NEAR(lanes.bytes_per_second / 1e9, staged, 0.005);
    }
    EXPECT_TRUE(parse(with(gpt, "[cluster]\nprofile = \"8x-p40\"\nshared_link = []"))
                    .cluster.shared_links.empty());
}

TEST(ShippedClusters, FillInWhatTheScenarioLeavesOut) {
    const std::string_view text =
        "[pipeline]\nstages = 16\n[cluster]\nprofile = \"8x-h100-sxm\"\ncount = 64\n"
        "node_link = \"ethernet-100\"";
    const Scenario scenario = parse(with(gpt, text));
    EXPECT_EQ(scenario.cluster.count, 64);
    EXPECT_EQ(scenario.cluster.node_link, "ethernet-100");
    EXPECT_EQ(scenario.cluster.link, "nvlink-4");
    EXPECT_EQ(scenario.cluster.device, "h100-sxm");
    EXPECT_EQ(parse(print_scenario(scenario)).cluster, scenario.cluster);
    const Scenario chosen = parse(gpt, {{"cluster.profile", "8x-a100-sxm-80"}});
    EXPECT_EQ(chosen.cluster.device, "a100-sxm-80");
}

TEST(ShippedClusters, DevicesOfTheScenarioReplaceTheClusters) {
    const Scenario scenario =
        parse(with(gpt,
                   "[pipeline]\nstages = 2\n[cluster]\nprofile = \"8x-h100-sxm\"\n"
                   "devices = [\"h100-sxm\", \"a100-sxm-80\"]"));
    EXPECT_EQ(scenario.cluster.devices.size(), 2U);
    EXPECT_EQ(scenario.cluster.link, "nvlink-4");
}

TEST(ShippedClusters, AnUnknownNameListsTheKnown) {
    const Error error = refusal(with(gpt, "[cluster]\nprofile = \"8x-h100\""));
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "/home/u/scenarios/s.toml:8:11");
    EXPECT_EQ(
        error.text(),
        "no cluster '8x-h100'; known: 8x-a100-sxm-80, 8x-a100-sxm-80-ib-200-x4, "
        "8x-b200, 8x-b300, 8x-h100-sxm, 8x-h100-sxm-roce-400-x4, 8x-h20, 8x-h200-sxm, 8x-l40s, "
        "8x-mi250x, 8x-mi300x, 8x-mi355x, 8x-p40, 8x-rtx-4090, gb200-nvl72, gb300-nvl72, "
        "this-machine, titan, v5p");
    EXPECT_EQ(error.hint(), "did you mean '8x-h100-sxm'?");
    EXPECT_THAT(refusal(with(gpt, "[cluster]\nprofile = 8")).text(), HasSubstr("cluster.profile"));
}

/// Nobody looks for the mistake in a file that the program came with.
TEST(ShippedClusters, WhoAsksForMoreThanTheyHaveHasMadeTheMistake) {
    const std::string on_eight = with(gpt, "[cluster]\nprofile = \"8x-h100-sxm\"");
    const Error stages = error_of([&] { parse(on_eight, {{"pipeline.stages", "99"}}); });
    EXPECT_EQ(stages.place(), "--set pipeline.stages");
    EXPECT_THAT(stages.text(),
                AllOf(StartsWith("99, expected at most the 8 devices of the cluster"),
                      HasSubstr("8x-h100-sxm.toml:")));
    EXPECT_EQ(stages.hint(), "every rank needs a device; cluster.count = 104 is a larger cluster");
    const Error replicas = error_of([&] { parse(on_eight, {{"pipeline.data_parallel", "16"}}); });
    EXPECT_EQ(replicas.place(), "--set pipeline.data_parallel");
    EXPECT_THAT(replicas.text(),
                AllOf(HasSubstr("at most the 8 devices of the cluster"),
                      HasSubstr("but 16 are needed for the 1 stage of 16 replicas")));
    const Error count = error_of([&] {
        parse(on_eight, {{"pipeline.stages", "4"}, {"cluster.count", "2"}});
    });
    EXPECT_EQ(count.place(), "--set cluster.count");
}

TEST_F(ClusterFile, IsFoundBesideTheScenario) {
    const Scenario::ClusterPart cluster =
        scenario("[cluster]\nper_node = 3\nlink_gbps = 10\n", "link_gbps = 20\n").cluster;
    EXPECT_EQ(cluster.per_node, 3);
    EXPECT_EQ(cluster.link_gbps, 20);
}

TEST_F(ClusterFile, IsBlamedForWhatIsWrongInIt) {
    const auto error = [&](std::string_view text) {
        return error_of([&] { static_cast<void>(scenario(text)); });
    };
    EXPECT_EQ(error("[cluster]\nper_nodes = 3\n").place(), place("2:1"));
    EXPECT_EQ(error("[cluster]\nper_node = 0\n").place(), place("2:12"));
    EXPECT_THAT(error("[clusters]\n").text(), HasSubstr("unknown key 'clusters'"));
    EXPECT_THAT(error("description = \"none\"\n").text(), HasSubstr("cluster is missing"));
    EXPECT_THAT(error("[cluster]\nprofile = \"8x-h100-sxm\"\n").text(),
                HasSubstr("expected no further one"));
}

TEST_F(ClusterFile, IsNamedWhereTheScenarioAsksForMoreDevices) {
    const Error error = error_of([&] {
        static_cast<void>(
            scenario("[cluster]\ncount = 4\n", "[pipeline]\nstages = 5\nmicro_batches = 5\n"));
    });
    EXPECT_THAT(error.place(), HasSubstr("s.toml:"));
    EXPECT_EQ(error.text(),
              "pipeline.stages = 5, expected at most the 4 devices of the cluster (" +
                  place("2:9") + ")");
}

TEST(ClusterFiles, ThatAreNotThereAreErrorsOfTheirOwn) {
    const Error error = refusal(with(gpt, "[cluster]\nprofile = \"none.toml\""));
    EXPECT_EQ(error.kind(), ErrorKind::Io);
    EXPECT_THAT(error.place(), EndsWith("/home/u/scenarios/none.toml"));
}

}  // namespace cluster_profiles_test
}  // namespace pipetwin
