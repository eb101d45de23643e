// SPDX-License-Identifier: Apache-2.0
#include "core/partition/graph.h"

#include "bench/support/graphs.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "core/partition/ideals.h"
#include "core/partition/layer_order.h"
#include "tests/core/partition/brute_force.h"
#include "tests/support/error_of.h"
#include "tests/support/nanoseconds.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace graph_test {

using bench::parallel_arms;
using testing::Dice;
using testing::error_of;
using testing::nanoseconds_of;

std::string name_of(int layer) {
    return fmt::format("n{}", layer);
}

/// Layer 0 is a source; every other reads one or two earlier ones.
Model random_graph(Dice& dice, int layers) {
    std::vector<Model::Named> named{{.name = name_of(0)}};
    for (int layer = 1; layer < layers; ++layer) {
        const int nearest = std::max(0, layer - dice.between(1, 4));
        std::vector<std::string> inputs{name_of(dice.between(nearest, layer - 1))};
        const std::string second = name_of(dice.below(layer));
        if (dice.below(2) == 0 && second != inputs.front()) {
            inputs.push_back(second);
        }
        named.push_back({.name = name_of(layer), .inputs = inputs});
    }
    return Model::opaque(named);
}

/// The definition: each layer on a stage, none in front of a layer that it reads.
class Assignments {
  public:
    Assignments(const Model& model, const std::vector<Duration>& work, int stages)
        : model_(model), work_(work), stages_(stages) {
        assign(0);
    }

    std::int64_t largest() const { return testing::the(best_).first; }
    const std::vector<std::vector<int>>& layers_of_stage() const {
        return testing::the(best_).second;
    }

  private:
    using Stages = std::vector<std::vector<int>>;

    void assign(int layer) {
        if (layer == model_.layer_count()) {
            compare();
            return;
        }
        int earliest = 0;
        for (const int input : model_.inputs_of(layer)) {
            earliest = std::max(earliest, stage_of_[static_cast<std::size_t>(input)]);
        }
        for (int stage = earliest; stage < stages_; ++stage) {
            stage_of_.push_back(stage);
            assign(layer + 1);
            stage_of_.pop_back();
        }
    }

    std::vector<std::int64_t> stage_costs() const {
        std::vector<std::int64_t> costs(static_cast<std::size_t>(stages_));
        for (std::size_t layer = 0; layer < stage_of_.size(); ++layer) {
            costs[static_cast<std::size_t>(stage_of_[layer])] += work_[layer].count();
        }
        return costs;
    }

    /// Smaller; then fewer layers in the first stage, then earlier ones, and so on.
    void compare() {
        Stages layers(static_cast<std::size_t>(stages_));
        for (std::size_t layer = 0; layer < stage_of_.size(); ++layer) {
            layers[static_cast<std::size_t>(stage_of_[layer])].push_back(static_cast<int>(layer));
        }
        if (std::ranges::any_of(layers, [](const auto& stage) { return stage.empty(); })) {
            return;
        }
        const std::int64_t largest = std::ranges::max(stage_costs());
        const auto comes_first = [&] {
            for (std::size_t stage = 0; stage < layers.size(); ++stage) {
                const auto& ours = layers[stage];
                const auto& theirs = best_->second[stage];
                if (ours != theirs) {
                    return ours.size() != theirs.size() ? ours.size() < theirs.size()
                                                        : ours < theirs;
                }
            }
            return false;
        };
        if (!best_ || largest < best_->first || (largest == best_->first && comes_first())) {
            best_ = {largest, std::move(layers)};
        }
    }

    const Model& model_;
    const std::vector<Duration>& work_;
    int stages_;
    std::vector<int> stage_of_;
    std::optional<std::pair<std::int64_t, Stages>> best_;
};

std::vector<std::vector<int>> stages_of(const GraphSplit& split) {
    std::vector<std::vector<int>> stages;
    for (int stage = 0; stage < split.partition.stage_count(); ++stage) {
        const auto first = split.order.begin() + split.partition.first_layer(stage);
        stages.emplace_back(first, first + split.partition.layers_in(stage));
    }
    return stages;
}

TEST(GraphPartition, EqualsBruteForceOnRandomGraphsOfTwelveLayers) {
    Dice dice(tests::seed());
    for (int round = 0; round < tests::soaked(8); ++round) {
        const Model model = random_graph(dice, 12);
        const int stages = dice.between(1, 3);
        const auto work = dice.several<Duration>(12, dice.between(2, 40));
        const GraphSplit split = graph_partition(model, work, stages);
        const Assignments expected(model, work, stages);
        SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}, round {}", tests::seed(), round));
        ASSERT_TRUE(split.is_exact);
        ASSERT_EQ(split.largest.count(), expected.largest());
        ASSERT_EQ(stages_of(split), expected.layers_of_stage());
    }
}

TEST(GraphPartition, EqualsBruteForceOnSmallGraphsInManyStages) {
    Dice dice(tests::seed());
    for (int round = 0; round < tests::soaked(20); ++round) {
        const int layers = dice.between(1, 7);
        const Model model = random_graph(dice, layers);
        const int stages = dice.between(1, layers);
        const auto work = dice.several<Duration>(layers, 20);
        const GraphSplit split = graph_partition(model, work, stages);
        const Assignments expected(model, work, stages);
        ASSERT_EQ(split.largest.count(), expected.largest()) << round;
        ASSERT_EQ(stages_of(split), expected.layers_of_stage()) << round;
    }
}

TEST(GraphPartition, OrderIsTopologicalAndTheStagesAreContiguousInIt) {
    Dice dice(9);
    const Model model = random_graph(dice, 40);
    const GraphSplit split = graph_partition(model, dice.several<Duration>(40, 50), 5);
    std::vector<int> place(40, -1);
    for (std::size_t at = 0; at < split.order.size(); ++at) {
        place[static_cast<std::size_t>(split.order[at])] = static_cast<int>(at);
    }
    for (int layer = 0; layer < 40; ++layer) {
        for (const int input : model.inputs_of(layer)) {
            EXPECT_LT(place[static_cast<std::size_t>(input)],
                      place[static_cast<std::size_t>(layer)]);
        }
    }
}

TEST(GraphPartition, BranchesGoWhereTheOrderAloneWouldNotPutThem) {
    // 1 - {10 10 10 | 5 5 5} - 1. In the model's order the arms follow each other: 11 | 20 | 16.
    // Side by side: {1, 10, 5} {10, 5} {10, 5, 1}.
    const Model model = parallel_arms(2, 3);
    const auto work = nanoseconds_of({1, 10, 10, 10, 5, 5, 5, 1});
    const GraphSplit graph = graph_partition(model, work, 3);
    EXPECT_TRUE(graph.is_exact);
    EXPECT_EQ(graph.largest, Duration{16});
    const GraphSplit in_order = graph_partition(model, work, 3, 3);
    EXPECT_FALSE(in_order.is_exact);
    EXPECT_EQ(in_order.largest, Duration{20});
}

TEST(GraphPartition, AChainIsAChain) {
    Dice dice(2);
    const Model model = Model::opaque({{"a"}, {"b"}, {"c"}, {"d"}, {"e"}, {"f"}, {"g"}});
    const auto work = dice.several<Duration>(7, 9);
    for (int stages = 1; stages <= 7; ++stages) {
        const GraphSplit graph = graph_partition(model, work, stages);
        const GraphSplit chain = graph_partition(model, work, stages, 1);
        EXPECT_TRUE(graph.is_exact);
        EXPECT_EQ(graph.ideals, 8);
        EXPECT_FALSE(chain.is_exact);
        EXPECT_EQ(graph.order, chain.order);
        EXPECT_EQ(graph.partition, chain.partition);
        EXPECT_EQ(graph.largest, chain.largest);
    }
}

TEST(GraphPartition, MoreIdealsThanTheLimitFallBackToTheModelsOrderAndSaySo) {
    // Three arms of 10: 11^3 ideals between the first layer and the last, and one at either end.
    const Model model = parallel_arms(3, 10);
    EXPECT_EQ(testing::the(Ideals::of(model, 2000)).count(), 1331 + 2);
    EXPECT_EQ(testing::the(Ideals::of(model, 1333)).count(), 1333);
    EXPECT_FALSE(Ideals::of(model, 1332).has_value());
    const std::vector<Duration> work(32, Duration{1});
    const GraphSplit split = graph_partition(model, work, 4, 1332);
    EXPECT_FALSE(split.is_exact);
    EXPECT_EQ(split.largest, Duration{8});
    std::vector<int> order(32);
    std::iota(order.begin(), order.end(), 0);
    EXPECT_EQ(split.order, order);
}

TEST(GraphPartition, RefusesMoreStagesThanLayersNamingBoth) {
    const Model model = Model::opaque({{"a"}, {"b"}});
    const Error error = error_of([&] { graph_partition(model, nanoseconds_of({1, 1}), 3); });
    EXPECT_EQ(error.text(), "2 units cannot fill 3 stages");
}

/// Layers that take so many milliseconds forward, and as many backward.
Profile profile_of(const Model& model, const std::vector<int>& milliseconds) {
    Profile profile;
    for (int i = 0; i < model.layer_count(); ++i) {
        const auto time = std::chrono::milliseconds(milliseconds.at(static_cast<std::size_t>(i)));
        LayerCost layer{.name = model.layer(i).spec.name};
        for (const int input : model.inputs_of(i)) {
            layer.inputs.push_back(model.layer(input).spec.name);
        }
        layer.samples = {{.micro_batch_size = 1, .forward = time, .backward_input = time}};
        profile.layers.push_back(std::move(layer));
    }
    return profile;
}

Model model_of(const Profile& profile) {
    std::vector<Model::Named> named;
    for (const LayerCost& layer : profile.layers) {
        named.push_back({.name = layer.name, .inputs = layer.inputs});
    }
    return Model::opaque(named);
}

/// first 1, an arm of 10, 10, 1, an arm of 1, 1, 1, last 1: in that order two stages are 11 and 15
/// at best; with the second arm's layers between 10 and 10 they are 13 and 13.
TEST(LayerOrder, PutsTheOtherArmBetweenTheLongLayersOfOne) {
    const Model model = parallel_arms(2, 3);
    const Profile profile = profile_of(model, {1, 10, 10, 1, 1, 1, 1, 1});
    const std::optional<BetterOrder> better = better_order(profile, model, 2, 1);
    ASSERT_TRUE(better);
    EXPECT_EQ(better->largest_before, std::chrono::milliseconds(30));
    EXPECT_EQ(better->largest, std::chrono::milliseconds(26));
    const Model again = model_of(better->profile);
    for (int i = 0; i < again.layer_count(); ++i) {
        EXPECT_EQ(again.layer(i).spec.name,
                  better->profile.layers[static_cast<std::size_t>(i)].name);
    }
    EXPECT_FALSE(better_order(better->profile, again, 2, 1));  // it is the best one now
}

TEST(LayerOrder, OfAChainThereIsOne) {
    const Model model = parallel_arms(1, 6);
    EXPECT_FALSE(better_order(profile_of(model, {1, 2, 3, 4, 5, 6, 7, 8}), model, 3, 1));
}

}  // namespace graph_test
}  // namespace pipetwin
