// SPDX-License-Identifier: Apache-2.0
#include "core/grid/parameter_groups.h"

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/as_index.h"

namespace pipetwin {
namespace parameter_groups_test {

constexpr std::array trained_kinds{
    ParameterKind::Matrix, ParameterKind::Whole, ParameterKind::HeadNorm, ParameterKind::Expert};

/// All layouts that fit on `devices` devices, with two stages or one.
std::vector<ParallelSizes> layouts_of(int devices) {
    std::vector<ParallelSizes> layouts;
    for (const int pipeline : {1, 2}) {
        const int stage = devices / pipeline;
        for (int tensor = 1; tensor <= stage; tensor *= 2) {
            for (int context = 1; tensor * context <= stage; context *= 2) {
                for (int expert_tensor = 1; expert_tensor <= stage; expert_tensor *= 2) {
                    for (int expert = 1; expert_tensor * expert <= stage; expert *= 2) {
                        layouts.push_back({.tensor = tensor,
                                           .context = context,
                                           .data = stage / tensor / context,
                                           .pipeline = pipeline,
                                           .expert_tensor = expert_tensor,
                                           .expert = expert});
                    }
                }
            }
        }
    }
    return layouts;
}

/// A number for each device of a stage, as if it were what all of its own tokens give.
std::int64_t tokens_gradient(const Coordinates& at) {
    return 64 * (1 + at.data * 31 + at.context * 7);
}

/// [device]: the gradient that it computes of one number of a parameter: `tokens_gradient` of the
/// tokens that passed through it. Devices of TP with sequence parallelism have seen a part.
std::vector<std::int64_t> own_gradients(const ParallelGrids& grids,
                                        ParameterKind kind,
                                        bool sequence_parallel) {
    const int tensor = grids.dense.sizes().tensor;
    std::vector<std::int64_t> gradients;
    for (int device = 0; device < grids.dense.devices(); ++device) {
        const std::int64_t all = tokens_gradient(grids.dense.coordinates_of(device));
        switch (kind) {
            case ParameterKind::Matrix:
            case ParameterKind::RouterBias:
                gradients.push_back(all);
                break;
            case ParameterKind::Whole:
                gradients.push_back(sequence_parallel ? all / tensor : all);
                break;
            case ParameterKind::HeadNorm:
                gradients.push_back(all / tensor);
                break;
            case ParameterKind::Expert: {
                // The tokens of all devices that send to this one.
                std::int64_t sum = 0;
                for (const int peer : grids.expert.group_of(device, Axis::Tensor | Axis::Expert)) {
                    sum += tokens_gradient(grids.dense.coordinates_of(peer)) / tensor;
                }
                gradients.push_back(sum);
                break;
            }
        }
    }
    return gradients;
}

/// [device]: the sum over its group of these axes.
std::vector<std::int64_t> summed(const DeviceGrid& grid,
                                 AxisSet axes,
                                 const std::vector<std::int64_t>& numbers) {
    std::vector<std::int64_t> sums;
    for (int device = 0; device < grid.devices(); ++device) {
        std::int64_t& sum = sums.emplace_back(0);
        for (const int member : grid.group_of(device, axes)) {
            sum += numbers[as_index(member)];
        }
    }
    return sums;
}

/// Each token is in each sum once, for every kind and layout: so no degree changes a gradient.
TEST(ParameterGroups, SumTheGradientsOfAllTokensOnceAndDivideByTheReplicas) {
    for (const ParallelSizes& sizes : layouts_of(16)) {
        const ParallelGrids grids = parallel_grids(sizes);
        std::int64_t all = 0;
        for (int data = 0; data < sizes.data; ++data) {
            for (int context = 0; context < sizes.context; ++context) {
                all += tokens_gradient({.context = context, .data = data});
            }
        }
        EXPECT_EQ(gradient_divisor(grids), sizes.data * sizes.context);
        for (const ParameterKind kind : trained_kinds) {
            for (const bool sequence_parallel : {false, true}) {
                const ParameterGroups groups = groups_of(kind, sequence_parallel);
                const DeviceGrid& grid = grid_of(grids, groups);
                const auto own = own_gradients(grids, kind, sequence_parallel);
                const auto sums =
                    summed(grid, groups.summed, summed(grid, groups.summed_first, own));
                EXPECT_EQ(sums, std::vector<std::int64_t>(sums.size(), all));
            }
        }
    }
}

/// A published fault divided gradients of experts by their own replicas: EP times too large.
TEST(ParameterGroups, DivideGradientsOfExpertsAsAllOthers) {
    const ParallelSizes sizes{.tensor = 2, .context = 2, .data = 4, .expert = 8};
    const ParallelGrids grids = parallel_grids(sizes);
    EXPECT_EQ(gradient_divisor(grids), 8);
    EXPECT_EQ(shard_devices(grids, groups_of(ParameterKind::Expert, true)), 2);
    for (int ParallelSizes::*const size :
         {&ParallelSizes::tensor, &ParallelSizes::pipeline, &ParallelSizes::expert_tensor}) {
        ParallelSizes doubled = sizes;
        doubled.*size *= 2;
        EXPECT_EQ(gradient_divisor(parallel_grids(doubled)), 8);
    }
    for (int ParallelSizes::*const size : {&ParallelSizes::context, &ParallelSizes::data}) {
        ParallelSizes doubled = sizes;
        doubled.*size *= 2;
        EXPECT_EQ(gradient_divisor(parallel_grids(doubled)), 16);
    }
}

/// With gradients of 1 the norm is the root of the number of parameters: for every TP, ETP, EP of 8
/// devices, also EP 1 with ETP unlike TP.
TEST(ParameterGroups, CountEveryNumberOfTheNormOnce) {
    for (const ParallelSizes& sizes : layouts_of(8)) {
        const ParallelGrids grids = parallel_grids(sizes);
        for (const ParameterKind kind : trained_kinds) {
            const ParameterGroups groups = groups_of(kind, true);
            constexpr int numbers = 64;  // of each stage
            int counted = 0;
            for (int device = 0; device < grids.dense.devices(); ++device) {
                counted +=
                    counts_in_norm(grids, groups, device) ? numbers / cut_parts(grids, groups) : 0;
            }
            EXPECT_EQ(counted, numbers * sizes.pipeline);
        }
        EXPECT_FALSE(counts_in_norm(grids, groups_of(ParameterKind::RouterBias, true), 0));
    }
}

/// A published fault took experts for dense layers where EP is 1.
TEST(ParameterGroups, OfAnExpertFollowFromItsLayerNotFromTheDegrees) {
    const ParallelGrids grids = parallel_grids({.tensor = 4, .data = 2, .expert_tensor = 1});
    const ParameterGroups expert = groups_of(ParameterKind::Expert, true);
    EXPECT_EQ(cut_parts(grids, expert), 1);
    EXPECT_EQ(grid_of(grids, expert).groups(expert.summed),
              (DeviceGroups{{0, 1, 2, 3, 4, 5, 6, 7}}));
    const ParameterGroups matrix = groups_of(ParameterKind::Matrix, true);
    EXPECT_EQ(grid_of(grids, matrix).groups(matrix.summed),
              (DeviceGroups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

/// Routers and norms drift apart over TP if what each device saw of the sequence is not summed.
TEST(ParameterGroups, OfWholeParametersAreSummedOverTensorWhereEachSawAPart) {
    EXPECT_EQ(groups_of(ParameterKind::Whole, true).summed_first, AxisSet(Axis::Tensor));
    EXPECT_TRUE(groups_of(ParameterKind::Whole, false).summed_first.empty());
    EXPECT_EQ(groups_of(ParameterKind::HeadNorm, false).summed_first, AxisSet(Axis::Tensor));
    EXPECT_TRUE(groups_of(ParameterKind::Matrix, true).summed_first.empty());
    EXPECT_TRUE(groups_of(ParameterKind::RouterBias, true).summed.empty());
}

/// Copies and parts of a parameter are all devices of a stage.
TEST(ParameterGroups, CopiesTimesPartsAreTheDevicesOfAStage) {
    for (const ParallelSizes& sizes : layouts_of(16)) {
        const ParallelGrids grids = parallel_grids(sizes);
        for (const ParameterKind kind : trained_kinds) {
            const ParameterGroups groups = groups_of(kind, true);
            const DeviceGrid& grid = grid_of(grids, groups);
            EXPECT_EQ(cut_parts(grids, groups) * grid.members(groups.copies), 16 / sizes.pipeline);
        }
    }
}

/// 16 devices, TP 2, CP 2, DP 2, PP 2.
TEST(ParameterGroups, CountTokensOverReplicasWithContextAndLoadOverTensorWithContext) {
    const ParallelGrids grids =
        parallel_grids({.tensor = 2, .context = 2, .data = 2, .pipeline = 2, .expert = 4});
    EXPECT_EQ(grids.dense.groups(loss_axes),
              (DeviceGroups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
    EXPECT_EQ(grids.dense.groups(load_axes),
              (DeviceGroups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
    // Valid tokens of each device of context and data, and their summed losses: 1 a token, then 3.
    std::map<int, int> tokens{{0, 10}, {2, 30}, {4, 20}, {6, 40}};
    std::map<int, int> losses{{0, 10}, {2, 90}, {4, 20}, {6, 120}};
    int all = 0;
    int sum = 0;
    for (const int device : grids.dense.group_of(0, loss_axes)) {
        all += tokens.at(device);
        sum += losses.at(device);
    }
    EXPECT_EQ(all, 100);
    EXPECT_EQ(sum, 240);
}

/// First and last stage exchange the gradient of a tied table between equal parts of it.
TEST(ParameterGroups, EndsOfAPipelineHaveTheSamePartOfATiedTable) {
    for (const ParallelSizes& sizes : layouts_of(16)) {
        const DeviceGrid grid = parallel_grids(sizes).dense;
        for (const std::vector<int>& pipeline : grid.groups(Axis::Pipeline)) {
            Coordinates first = grid.coordinates_of(pipeline.front());
            const Coordinates last = grid.coordinates_of(pipeline.back());
            first.pipeline = last.pipeline;
            EXPECT_EQ(first, last);
        }
    }
}

/// Megatron-LM's instances and torchtitan's dp_replicate: copies of the state among replicas;
/// torchtitan's fsdp has dp_shard x CP devices, efsdp dp_shard x CP x TP / EP.
TEST(ParameterGroups, CopiesOfTheStateDivideTheDevicesThatShardIt) {
    const ParallelSizes sizes{.tensor = 2, .context = 2, .data = 8, .expert = 8, .shard_group = 4};
    ASSERT_TRUE(grid_fits({.sizes = sizes}));
    const ParallelGrids grids = parallel_grids(sizes);
    EXPECT_EQ(shard_devices(grids, groups_of(ParameterKind::Matrix, true), 2), 4 * 2);
    EXPECT_EQ(shard_devices(grids, groups_of(ParameterKind::Expert, true), 2), 4 * 2 * 2 / 8);
    EXPECT_EQ(shard_devices(grids, groups_of(ParameterKind::RouterBias, true), 2), 1);
}

/// GiB of weights, gradients and optimizer state of a device whose weights have two bytes,
/// gradients four, and the optimizer, sharded, twelve (or others).
struct State {
    double dense = 0;    ///< parameters on the device
    double experts = 0;  ///< the same
    double kept = 6;     ///< bytes a parameter that are not sharded
    double sharded = 12;

    double gib(const ParallelSizes& sizes) const {
        const ParallelGrids grids = parallel_grids(sizes);
        const auto bytes = [&](double numbers, ParameterKind kind) {
            return numbers * (kept + sharded / shard_devices(grids, groups_of(kind, true)));
        };
        return (bytes(dense, ParameterKind::Matrix) + bytes(experts, ParameterKind::Expert)) /
               (1 << 30);
    }
};

/// Parameters of Mixtral 8x7B: attention, norms and router of a layer; all its experts; a table.
constexpr double mixtral_layer = 2 * 4096. * 4096 + 2 * 4096. * 1024 + 2 * 4096 + 8 * 4096;
constexpr double mixtral_experts = 8 * 3 * 4096. * 14336;
constexpr double mixtral_table = 32000 * 4096.;

TEST(StateOfGroups, IsThatOfMixtralOn32And64Devices) {
    EXPECT_NEAR(
        (State{.dense = 8 * mixtral_layer + mixtral_table, .experts = 8 * mixtral_experts / 8}.gib(
            {.data = 8, .pipeline = 4, .expert = 8})),
        26.89,
        0.005);
    EXPECT_NEAR(
        (State{.dense = 32 * mixtral_layer + 2 * mixtral_table, .experts = 32 * mixtral_experts / 8}
             .gib({.data = 64, .expert = 8})),
        48.63,
        0.005);
}

/// Llama 3 70B with 12 layers.
TEST(StateOfGroups, IsThatOfLlamaInEveryLayoutOfEightDevices) {
    constexpr double layer = 2 * 8192. * 8192 + 2 * 8192. * 1024 + 3 * 8192. * 28672 + 2 * 8192;
    constexpr double all = 12 * layer + 2 * 128256. * 8192;
    EXPECT_NEAR(State{.dense = all / 2}.gib({.tensor = 2, .data = 4}), 51.84, 0.005);
    EXPECT_NEAR(State{.dense = all / 2}.gib({.data = 4, .pipeline = 2}), 51.84, 0.005);
    EXPECT_NEAR(State{.dense = all / 4}.gib({.tensor = 4, .data = 2}), 34.56, 0.005);
    EXPECT_NEAR(State{.dense = all / 8}.gib({.tensor = 8}), 25.92, 0.005);
    EXPECT_NEAR(State{.dense = all / 2}.gib({.tensor = 2, .context = 4}), 51.84, 0.005);
    EXPECT_NEAR(State{.dense = all}.gib({.context = 8}), 86.40, 0.005);
}

/// DeepSeek-V2's first four layers on 8 devices, from counts in thousands of millions; experts of
/// DeepSeek-V3 on 1,024 with weights in fp8 and moments in bf16.
TEST(StateOfGroups, IsThatOfDeepSeek) {
    EXPECT_NEAR(
        (State{.dense = 1.978e9, .experts = 1.416e9}.gib({.data = 8, .expert = 8})), 37.55, 0.02);
    EXPECT_NEAR((State{.experts = 1.277e9, .kept = 5, .sharded = 8}.gib(
                    {.tensor = 2, .data = 64, .pipeline = 8, .expert = 64})),
                10.7,
                0.05);
}

}  // namespace parameter_groups_test
}  // namespace pipetwin
