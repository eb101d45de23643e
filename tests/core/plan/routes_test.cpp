// SPDX-License-Identifier: Apache-2.0
#include "core/plan/routes.h"

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/model/model.h"
#include "core/plan/stage_costs.h"
#include "core/schedule/generators/generate.h"

/// The ways of outputs between stages, against counts made by hand and torchgpipe's U-Net.
namespace pipetwin {
namespace routes_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Layers that are known by their outputs alone.
struct Known {
    std::vector<Model::Named> layers;
    LayerSamples samples;

    int add(std::string name, std::int64_t output_bytes, std::vector<std::string> inputs = {}) {
        layers.push_back({.name = std::move(name), .inputs = std::move(inputs)});
        samples.push_back({.output = Bytes{output_bytes}});
        return static_cast<int>(layers.size()) - 1;
    }
    Model model() const { return Model::opaque(layers); }
};

Partition cut(const std::vector<int>& sizes) {
    int layers = 0;
    for (const int size : sizes) {
        layers += size;
    }
    return {sizes, layers};
}

/// Stages in order, one to a rank.
Schedule one_to_a_rank(int stages) {
    return generate(ScheduleKind::GPipe, {.ranks = stages, .micro_batches = 1});
}

Bytes sum(const std::vector<Bytes>& bytes, std::size_t first, std::size_t end) {
    Bytes total;
    for (std::size_t i = first; i < end; ++i) {
        total += bytes.at(i);
    }
    return total;
}

TEST(Routes, OfAChainLeadToTheNextStage) {
    Known chain;
    for (const char* name : {"a", "b", "c", "d"}) {
        chain.add(name, 8);
    }
    EXPECT_THAT(
        routes_of(chain.model(), cut({1, 2, 1})),
        ElementsAre(Route{.stages = {0, 1}, .layer = 0}, Route{.stages = {1, 2}, .layer = 2}));
}

/// a is read by b, c and d, each in a stage of its own: it goes from reader to reader.
TEST(Routes, OfAnOutputWithSeveralReadersGoFromReaderToReader) {
    Known fan;
    fan.add("a", 8);
    fan.add("b", 4);
    fan.add("c", 2, {"a", "b"});
    fan.add("d", 1, {"c", "a"});
    EXPECT_THAT(routes_of(fan.model(), cut({1, 1, 1, 1})),
                ElementsAre(Route{.stages = {0, 1}, .layer = 0},
                            Route{.stages = {1, 2}, .layer = 0},
                            Route{.stages = {1, 2}, .layer = 1},
                            Route{.stages = {2, 3}, .layer = 0},
                            Route{.stages = {2, 3}, .layer = 2}));
}

/// C23: a skip tensor goes from its producing stage to its consuming stage once, not through the
/// stages between; skips within a stage are not copied.
TEST(Routes, LeadStraightToTheReaderAndNowhereInsideOfAStage) {
    Known skips;
    skips.add("stem", 16);
    skips.add("a", 8);
    skips.add("b", 4, {"stem"});
    skips.add("c", 2);
    skips.add("d", 1, {"c", "a"});
    skips.add("e", 1, {"d", "c"});
    const Model model = skips.model();
    const std::vector<Route> routes = routes_of(model, cut({2, 1, 1, 2}));
    EXPECT_THAT(routes,
                ElementsAre(Route{.stages = {0, 1}, .layer = 0},
                            Route{.stages = {0, 3}, .layer = 1},
                            Route{.stages = {1, 2}, .layer = 2},
                            Route{.stages = {2, 3}, .layer = 3}));
    Schedule order = one_to_a_rank(4);
    order.skips = skips_of(routes, order);
    EXPECT_THAT(order.skips, ElementsAre(StagePair{0, 3}));
    EXPECT_THAT(message_bytes(routes, order, skips.samples),
                ElementsAre(Bytes{16}, Bytes{4}, Bytes{2}, Bytes{8}));
    const StageCosts costs(model, skips.samples);
    EXPECT_EQ(costs.of(2, 3).input, Bytes{16});  // of the stem; a does not come along
    EXPECT_EQ(costs.of(2, 3).output, Bytes{4});
    EXPECT_EQ(costs.of(0, 2).output, Bytes{16 + 8});
    EXPECT_EQ(costs.of(4, 6).input, Bytes{2 + 8});
}

/// A stage that reads an output and hands it on is sent it once and sends it once.
TEST(Routes, OfARelayCountInItsInputAndItsOutput) {
    Known relay;
    relay.add("a", 8);
    relay.add("b", 4, {"a"});
    relay.add("c", 2, {"b", "a"});
    const Model model = relay.model();
    const StageCosts costs(model, relay.samples);
    EXPECT_EQ(costs.of(1, 2).input, Bytes{8});
    EXPECT_EQ(costs.of(1, 2).output, Bytes{4 + 8});
}

TEST(Routes, BetweenStagesOfOneRankAreNoSkips) {
    Known skips;
    skips.add("stem", 8);
    skips.add("a", 8);
    skips.add("b", 8, {"stem"});
    skips.add("c", 8);
    skips.add("d", 8, {"c", "a"});  // a goes from the first stage to the last
    const std::vector<Route> routes = routes_of(skips.model(), cut({2, 1, 1, 1}));
    const Schedule v = generate(ScheduleKind::ZbV, {.ranks = 2, .chunks = 2, .micro_batches = 4});
    ASSERT_EQ(v.rank_of_stage.front(), v.rank_of_stage.back());
    EXPECT_THAT(skips_of(routes, v), IsEmpty());
}

/// torchgpipe's U-Net of depth 5 with `blocks` convolutions a level and `channels`, at 192 x 192:
/// its units as its benchmark cuts them.
Known unet(int blocks, int channels) {
    Known net;
    std::vector<int> stashed;
    std::int64_t size = 192;
    const auto bytes = [&size](std::int64_t of_pixel) { return 4 * of_pixel * size * size; };
    const auto convolutions = [&](const std::string& name, std::int64_t inner, std::int64_t last) {
        for (int block = 0; block < blocks; ++block) {
            for (const char* part : {"conv", "dropout", "norm", "relu"}) {
                net.add(name + std::to_string(block) + part,
                        bytes(block + 1 == blocks ? last : inner));
            }
        }
    };
    constexpr int depth = 5;
    for (int level = 0; level < depth; ++level) {
        const std::int64_t out = std::int64_t{channels} << level;
        convolutions("down" + std::to_string(level) + "_", out, out);
        stashed.push_back(net.add("stash" + std::to_string(level), bytes(out)));
        size /= 2;
        net.add("pool" + std::to_string(level), bytes(out));
    }
    convolutions("bottom", std::int64_t{channels} << depth, std::int64_t{channels} << (depth - 1));
    for (int level = depth - 1; level >= 0; --level) {
        const std::int64_t skip = std::int64_t{channels} << level;
        size *= 2;
        const std::string up = "up" + std::to_string(level);
        net.add(up, bytes(skip));
        net.add(
            "pop" + std::to_string(level), bytes(2 * skip), {up, "stash" + std::to_string(level)});
        convolutions(up + "_", skip / 2, skip / 2);
    }
    net.add("segment", bytes(1));
    return net;
}

/// Skips leave at units 20, 42, 64, 86, 108 and are read at 219, 197, 175, 153, 131.
TEST(Routes, OfTheUnetLeaveAndArriveAtTorchgpipesUnits) {
    const Model model = unet(5, 64).model();
    ASSERT_EQ(model.layer_count(), 241);
    constexpr std::array stashed{20, 42, 64, 86, 108};
    constexpr std::array popped{219, 197, 175, 153, 131};
    for (std::size_t skip = 0; skip < stashed.size(); ++skip) {
        EXPECT_EQ(model.readers_of(stashed[skip]).back(), popped[skip]);
    }
}

struct Balance {
    std::vector<int> sizes;
    std::vector<StagePair> skips;
    double boundary_megabytes;
    double skip_megabytes;  ///< sent directly, whatever lies between
};

void PrintTo(const Balance& balance, std::ostream* out) {
    *out << balance.sizes.size() << " stages";
}

class UnetRoutes : public ::testing::TestWithParam<Balance> {};

/// Bytes of a sample over all boundaries and over all skips with torchgpipe's balances, as counted
/// by hand from the sizes of its tensors. A skip to the next stage is part of the boundary's
/// message.
TEST_P(UnetRoutes, CarryTheBytesThatWereCounted) {
    const Balance& balance = GetParam();
    const Known net = unet(5, 64);
    const Model model = net.model();
    const int stages = static_cast<int>(balance.sizes.size());
    const std::vector<Route> routes = routes_of(model, cut(balance.sizes));
    Schedule order = one_to_a_rank(stages);
    order.skips = skips_of(routes, order);
    EXPECT_EQ(order.skips, balance.skips);
    const std::vector<Bytes> bytes = message_bytes(routes, order, net.samples);
    Bytes of_last_layers;  // what a chain would send
    for (int stage = 0; stage + 1 < stages; ++stage) {
        const int last = cut(balance.sizes).first_layer(stage + 1) - 1;
        of_last_layers += net.samples.at(static_cast<std::size_t>(last)).output;
    }
    const Bytes all = sum(bytes, 0, bytes.size());
    const auto megabytes = [](Bytes count) { return static_cast<double>(count.count) / 1e6; };
    EXPECT_NEAR(megabytes(of_last_layers), balance.boundary_megabytes, 0.05);
    EXPECT_NEAR(megabytes(all - of_last_layers), balance.skip_megabytes, 0.05);
}

INSTANTIATE_TEST_SUITE_P(Torchgpipe,
                         UnetRoutes,
                         ::testing::Values(Balance{{104, 137}, {}, 0.6, 17.7},
                                           Balance{{30, 66, 84, 61}, {{0, 3}, {1, 3}}, 6.5, 17.7},
                                           Balance{{16, 27, 31, 44, 22, 57, 27, 17},
                                                   {{1, 6}, {2, 5}, {2, 6}, {3, 5}},
                                                   25.4,
                                                   18.3}));

}  // namespace routes_test
}  // namespace pipetwin
