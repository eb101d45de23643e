// SPDX-License-Identifier: Apache-2.0
#include "core/costs/collectives/collective_time.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace collective_time_test {

using testing::error_of;
using ::testing::HasSubstr;
using enum Collective;

constexpr CollectiveAlgorithm automatic = CollectiveAlgorithm::Auto;
constexpr std::array<CollectiveAlgorithm, 5> algorithms{CollectiveAlgorithm::Ring,
                                                        CollectiveAlgorithm::Tree,
                                                        CollectiveAlgorithm::Hierarchical,
                                                        CollectiveAlgorithm::InSwitch,
                                                        automatic};
constexpr std::array<Collective, 5> collectives{
    AllGather, ReduceScatter, AllReduce, AllToAll, AllToAllDeduplicated};

/// 1 ns per byte and 100 ns inside; 4 ns per byte and 1000 ns between nodes.
DeviceGroup group(int members, int per_node) {
    return {.members = members,
            .per_node = per_node,
            .inside = {.latency = Duration(100), .bytes_per_second = 1e9},
            .between = {.latency = Duration(1000), .bytes_per_second = 0.25e9}};
}

TEST(CollectiveTime, OneMemberAndNoBytesTakeNoTime) {
    for (const Collective kind : collectives) {
        for (const CollectiveAlgorithm algorithm : algorithms) {
            EXPECT_EQ(collective_time(kind, algorithm, group(1, 8), Bytes{1000}), Duration{});
            EXPECT_EQ(collective_time(kind, algorithm, group(8, 8), Bytes{}), Duration{});
        }
    }
}

TEST(CollectiveTime, ARingsAllReduceIsAReduceScatterAndAnAllGather) {
    const auto ring = [](Collective kind) {
        return collective_time(kind, CollectiveAlgorithm::Ring, group(8, 8), Bytes{96'000});
    };
    EXPECT_EQ(ring(AllGather), 7 * Duration(100 + 12'000));
    EXPECT_EQ(ring(ReduceScatter), 7 * Duration(100 + 12'000));
    EXPECT_EQ(ring(AllReduce), 14 * Duration(100 + 12'000));
}

/// Walks around rings: in every step each member hands a piece to the next one. Returns the most
/// bytes that a member sends to its node, and that a member sends to the next node.
struct Sent {
    double inside = 0;
    double between = 0;
};

/// g rings, one for each member of a node; ring j leaves a node by the member j.
Sent walk_rings(int members, int per_node, double bytes, int rounds) {
    std::vector<Sent> sent(static_cast<std::size_t>(members));
    const int nodes = members / per_node;
    for (int ring = 0; ring < per_node; ++ring) {
        std::vector<int> order;  // each node's members, the one that leaves it last
        for (int node = 0; node < nodes; ++node) {
            for (int i = 1; i <= per_node; ++i) {
                order.push_back(node * per_node + (ring + i) % per_node);
            }
        }
        const double piece = bytes / per_node / members;
        for (int step = 0; step < rounds * (members - 1); ++step) {
            for (std::size_t i = 0; i < order.size(); ++i) {
                const int from = order[i];
                const int to = order[(i + 1) % order.size()];
                Sent& by = sent[static_cast<std::size_t>(from)];
                (from / per_node == to / per_node ? by.inside : by.between) += piece;
            }
        }
    }
    Sent most;
    for (const Sent& by : sent) {
        most.inside = std::max(most.inside, by.inside);
        most.between = std::max(most.between, by.between);
    }
    return most;
}

/// Sends every row of an all-to-all on its own.
Sent walk_all_to_all(int members, int per_node, double bytes) {
    Sent sent;
    for (int to = 1; to < members; ++to) {  // from the first member
        (to < per_node ? sent.inside : sent.between) += bytes / members;
    }
    return sent;
}

/// Links without latencies, so that a time is a number of bytes: 1 ns per byte on one of the two.
DeviceGroup bytes_over(int members, int per_node, bool between) {
    DeviceGroup of{.members = members, .per_node = per_node};
    (between ? of.between : of.inside).bytes_per_second = 1e9;
    return of;
}

TEST(CollectiveTime, CountsTheBytesOfEveryStepInDrawnCases) {
    std::mt19937 random(59);
    for (int drawn = 0; drawn < 200; ++drawn) {
        const int per_node = 1 + static_cast<int>(random() % 8);
        const int nodes = 1 + static_cast<int>(random() % 8);
        const int members = per_node * nodes;
        const auto bytes = static_cast<std::int64_t>(1 + random() % 1'000'000'000);
        const auto all = static_cast<double>(bytes);
        for (const bool between : {false, true}) {
            const auto counted = [&](Collective kind, CollectiveAlgorithm algorithm) {
                return static_cast<double>(
                    collective_time(
                        kind, algorithm, bytes_over(members, per_node, between), Bytes{bytes})
                        .count());
            };
            const auto expect = [&](Collective kind, const Sent& sent) {
                const auto algorithm = kind == AllToAll ? automatic : CollectiveAlgorithm::Ring;
                EXPECT_NEAR(counted(kind, algorithm), between ? sent.between : sent.inside, 2)
                    << to_string(kind) << ' ' << nodes << " x " << per_node;
            };
            expect(AllToAll, walk_all_to_all(members, per_node, all));
            if (between ||
                nodes == 1) {  // rings that leave a node are as fast as their slower link
                expect(AllGather, walk_rings(members, per_node, all, 1));
                expect(ReduceScatter, walk_rings(members, per_node, all, 1));
                expect(AllReduce, walk_rings(members, per_node, all, 2));
            }
        }
    }
}

TEST(CollectiveTime, OneSwitchSendsWhatIsSummedOnce) {
    const auto time = [](Collective kind) {
        return collective_time(kind, CollectiveAlgorithm::InSwitch, group(8, 8), Bytes{96'000});
    };
    EXPECT_EQ(time(AllReduce), Duration(2 * 100 + 96'000));
    EXPECT_EQ(time(AllGather), Duration(100 + 84'000));
    EXPECT_EQ(time(ReduceScatter), Duration(100 + 84'000));
}

/// 2 nodes of 4: three quarters inside, there and back, and a ring of a quarter between the nodes.
TEST(CollectiveTime, SwitchesOfSeveralNodesSumTheirSharesBetweenThem) {
    const auto time = [](Collective kind) {
        return collective_time(kind, CollectiveAlgorithm::InSwitch, group(8, 4), Bytes{96'000});
    };
    EXPECT_EQ(time(AllReduce), 2 * Duration(100 + 72'000) + 2 * Duration(1000 + 4 * 12'000));
    EXPECT_EQ(time(AllGather), Duration(100 + 72'000) + Duration(1000 + 4 * 12'000));
}

TEST(CollectiveTime, AnAllToAllGoesInsideAndBetweenNodesAtOnce) {
    // 2 nodes of 4: half of the bytes to the other node, three eighths inside.
    EXPECT_EQ(collective_time(AllToAll, automatic, group(8, 4), Bytes{96'000}),
              Duration(1000 + 4 * 48'000));
    EXPECT_EQ(collective_time(AllToAll, automatic, group(8, 8), Bytes{96'000}),
              Duration(100 + 84'000));
    EXPECT_EQ(
        collective_time(AllToAll, CollectiveAlgorithm::Hierarchical, group(8, 4), Bytes{96'000}),
        Duration(100 + 72'000) + Duration(1000 + 4 * 48'000));
}

TEST(CollectiveTime, LatenciesOfTheGroupTakeThePlaceOfTheLinks) {
    DeviceGroup timed = group(8, 4);
    timed.latency = GroupLatency{
        .fixed = Duration(10'000), .per_device = Duration(2000), .per_node = Duration(5000)};
    EXPECT_EQ(collective_time(AllToAll, automatic, timed, Bytes{96'000}),
              Duration(10'000 + 4 * 2000 + 5000 + 4 * 48'000));
    EXPECT_EQ(collective_time(AllGather, CollectiveAlgorithm::Ring, timed, Bytes{96'000}),
              7 * Duration(12'000) + Duration(10'000 + 4 * 2000 + 5000));
}

/// Counts the places of every choice of k of E experts.
double counted_places(int experts, int places, int chosen) {
    int choices = 0;
    int sum = 0;
    for (unsigned set = 0; set < 1U << static_cast<unsigned>(experts); ++set) {
        if (std::popcount(set) != chosen) {
            continue;
        }
        ++choices;
        for (int place = 0; place < places; ++place) {
            const auto in_place = static_cast<unsigned>(experts / places);
            sum +=
                ((set >> (in_place * static_cast<unsigned>(place))) & ((1U << in_place) - 1)) != 0;
        }
    }
    return static_cast<double>(sum) / choices;
}

TEST(CollectiveTime, PlacesOfATokenEqualTheCountOfAllChoices) {
    for (const int places : {1, 2, 3, 4, 6, 12}) {
        for (int chosen = 1; chosen <= 12; ++chosen) {
            EXPECT_NEAR(
                expected_places(12, places, chosen), counted_places(12, places, chosen), 1e-12)
                << places << ' ' << chosen;
        }
    }
}

TEST(CollectiveTime, PlacesOfATokenOfPublishedModels) {
    EXPECT_NEAR(expected_places(256, 8, 8), 5.29, 0.005);  // DeepSeek-V3 on 8 nodes
    EXPECT_NEAR(expected_places(128, 4, 8), 3.63, 0.005);  // limited to four of them; Qwen3-235B
    EXPECT_NEAR(expected_places(8, 8, 2), 2, 1e-12);       // Mixtral, one expert each
}

/// DeepSeek-V3 on 64 devices with an adapter of 50 GB/s each, 4096 tokens of 7168 numbers.
TEST(CollectiveTime, DispatchAndCombineOfDeepSeekV3) {
    const DeviceGroup devices{.members = 64,
                              .per_node = 8,
                              .inside = {.bytes_per_second = 160e9},
                              .between = {.bytes_per_second = 50e9}};
    const auto milliseconds = [&](int bytes_of_a_number, int most_nodes) {
        const Bytes rows{std::int64_t{8} * 4096 * 7168 * bytes_of_a_number};
        const RoutedTokens tokens{.experts = 256, .chosen = 8, .most_nodes = most_nodes};
        return 1e3 *
               to_seconds(collective_time(AllToAllDeduplicated, automatic, devices, rows, tokens));
    };
    EXPECT_NEAR(milliseconds(1, 4), 1.86, 0.01);
    EXPECT_NEAR(milliseconds(1, 0), 2.72, 0.005);
    EXPECT_NEAR(milliseconds(2, 4), 3.73, 0.01);
    EXPECT_NEAR(milliseconds(2, 0), 5.44, 0.01);
}

/// Draws tokens and counts their copies that leave the node, and that devices of a node hand on.
TEST(CollectiveTime, DeduplicatedBytesAreThoseOfDrawnTokens) {
    std::mt19937 random(59);
    struct Case {
        int nodes, per_node, experts, chosen;
    };
    for (const auto& [nodes, per_node, experts, chosen] :
         {Case{4, 4, 64, 6}, Case{2, 8, 16, 2}, Case{1, 8, 64, 8}, Case{8, 1, 8, 2}}) {
        const int members = nodes * per_node;
        constexpr int tokens = 20'000;
        double crossed = 0;
        double handed_on = 0;
        std::vector<int> deck(static_cast<std::size_t>(experts));
        std::iota(deck.begin(), deck.end(), 0);
        for (int token = 0; token < tokens; ++token) {
            const int source = static_cast<int>(random()) & (members - 1);
            std::ranges::shuffle(deck, random);
            std::set<int> at_nodes;
            std::set<int> at_devices;
            for (int i = 0; i < chosen; ++i) {
                const int device = deck[static_cast<std::size_t>(i)] * members / experts;
                at_nodes.insert(device / per_node);
                at_devices.insert(device);
            }
            at_nodes.erase(source / per_node);
            crossed += static_cast<double>(at_nodes.size());
            for (const int device : at_devices) {  // a node is entered by the source's number
                handed_on += device % per_node != source % per_node ? 1 : 0;
            }
        }
        for (const bool between : {false, true}) {
            const Duration time = collective_time(AllToAllDeduplicated,
                                                  automatic,
                                                  bytes_over(members, per_node, between),
                                                  Bytes{std::int64_t{tokens} * chosen * 1000},
                                                  {.experts = experts, .chosen = chosen});
            const double drawn = 1000 * (between ? crossed : handed_on);
            EXPECT_NEAR(static_cast<double>(time.count()), drawn, 0.02 * drawn) << nodes;
        }
    }
}

/// DeepEP's normal kernels on H800 with NVLink of 160 and adapters of 50 GB/s (its README): 4096
/// tokens of 7168 bytes, 8 of 256 experts, on 4 nodes at most. Rates count a token once for each
/// device, or, on several nodes, for each node that gets it, its own included. Links are the bound;
/// kernels reach most of it, whether NVLink (8 and 16 devices) or the adapter (32, 64) is the
/// slower.
TEST(CollectiveTime, LinksBoundWhatDeepEpMeasured) {
    constexpr double token = 7168;
    constexpr double tokens = 4096;
    struct Row {
        int devices;
        double dispatched;  // GB/s
    };
    for (const auto& [devices, dispatched] : {Row{8, 153}, Row{16, 43}, Row{32, 58}, Row{64, 51}}) {
        const int nodes = devices / 8;
        const DeviceGroup group{.members = devices,
                                .per_node = 8,
                                .inside = {.bytes_per_second = 160e9},
                                .between = {.bytes_per_second = 50e9}};
        const Duration time = collective_time(AllToAllDeduplicated,
                                              automatic,
                                              group,
                                              Bytes{std::int64_t{8} * 4096 * 7168},
                                              {.experts = 256, .chosen = 8, .most_nodes = 4});
        const int most = std::min(nodes, 4);
        const double copies = expected_places(256.0 * most / nodes, nodes == 1 ? devices : most, 8);
        const double bound = copies * tokens * token / static_cast<double>(time.count());
        EXPECT_LT(dispatched, bound) << devices;
        EXPECT_GT(dispatched, 0.75 * bound) << devices;
    }
}

/// A table of every collective with 2, 4 and 8 members: 5 us and 3 ns for each kilobyte that
/// leaves.
std::shared_ptr<CollectiveTable> known_table() {
    CollectiveTable table{.sizes = {Bytes{1000}, Bytes{32'000}, Bytes{1'000'000}}};
    for (auto& curves : table.times) {
        for (const int members : {2, 4, 8}) {
            for (const Bytes size : table.sizes) {
                curves[members].emplace_back(5000 +
                                             3 * size.count / 1000 * (members - 1) / members);
            }
        }
    }
    return std::make_shared<CollectiveTable>(table);
}

TEST(CollectiveTime, ATableSaysWhatHappensInsideANode) {
    DeviceGroup known = group(8, 8);
    known.table = known_table();
    for (const Collective kind : {AllGather, ReduceScatter, AllReduce, AllToAll}) {
        EXPECT_EQ(collective_time(kind, automatic, known, Bytes{32'000}), Duration(5084));
        EXPECT_EQ(collective_time(kind, CollectiveAlgorithm::Ring, known, Bytes{32'000}),
                  collective_time(kind, CollectiveAlgorithm::Ring, group(8, 8), Bytes{32'000}));
    }
}

TEST(CollectiveTime, OverNodesATableIsTheInnerPart) {
    DeviceGroup known = group(8, 4);
    known.table = known_table();
    // Two nodes of four: the table's inside and 8000 of 32,000 bytes around a ring of two nodes.
    const Duration inside{5072};
    const Duration between{1000 + 4 * 4000};
    EXPECT_EQ(collective_time(AllGather, automatic, known, Bytes{32'000}), inside + between);
    EXPECT_EQ(collective_time(AllReduce, automatic, known, Bytes{32'000}),
              2 * inside + 2 * between);
    // The way out is the longer one of an all-to-all.
    EXPECT_EQ(collective_time(AllToAll, automatic, known, Bytes{32'000}),
              Duration(1000 + 4 * 16'000));
    known.between.bytes_per_second = 0;  // infinitely fast
    known.between.latency = {};
    EXPECT_GE(collective_time(AllToAll, automatic, known, Bytes{64'000}), Duration(5072));
    // Rings whose way out takes no time are as the table says of eight members.
    EXPECT_EQ(collective_time(AllReduce, automatic, known, Bytes{32'000}), Duration(5084));
}

TEST(CollectiveTime, GrowsWithTheBytesWhateverTheWay) {
    for (const Collective kind : collectives) {
        for (const CollectiveAlgorithm algorithm : algorithms) {
            for (const int per_node : {1, 2, 8}) {
                DeviceGroup of = group(16, per_node);
                of.table = known_table();
                Duration before{};
                for (std::int64_t bytes = 1; bytes < std::int64_t{1} << 36; bytes *= 3) {
                    const Duration time = collective_time(
                        kind, algorithm, of, Bytes{bytes}, {.experts = 32, .chosen = 4});
                    EXPECT_GE(time, before) << to_string(kind) << ' ' << bytes;
                    before = time;
                }
            }
        }
    }
}

TEST(CollectiveTime, RefusesOneThatLastsLongerThanAStepMay) {
    DeviceGroup slow = group(4096, 1);
    slow.between.bytes_per_second = 1e-9;
    const Error error =
        error_of([&] { collective_time(AllToAll, automatic, slow, Bytes{1 << 20}); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.what(), HasSubstr("all-to-all"));
}

}  // namespace collective_time_test
}  // namespace pipetwin
