// SPDX-License-Identifier: Apache-2.0
#include "core/costs/profile.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace pipetwin {
namespace profile_test {

using testing::error_of;

LayerSample sample(int size, int forward, int bytes) {
    return {.micro_batch_size = size,
            .forward = Duration{forward},
            .backward_input = Duration{forward + 1},
            .backward_weight = Duration{forward + 2},
            .input = Bytes{bytes},
            .output = Bytes{2 * bytes},
            .saved = Bytes{3 * bytes},
            .workspace = Bytes{4 * bytes},
            .spread = size / 100.0};
}

/// Forward 100 at 2 samples and 200 at 8: a fixed part and a part per sample. Bytes in proportion.
LayerCost two_samples() {
    return {.name = "linear0", .samples = {sample(2, 100, 20), sample(8, 200, 80)}};
}

TEST(CostAt, IsTheSampleItselfWhereThereIsOne) {
    EXPECT_EQ(cost_at(two_samples(), 2), sample(2, 100, 20));
    EXPECT_EQ(cost_at(two_samples(), 8), sample(8, 200, 80));
}

TEST(CostAt, LiesOnTheLineBetweenNeighbours) {
    const LayerSample cost = cost_at(two_samples(), 5);
    EXPECT_EQ(cost.micro_batch_size, 5);
    EXPECT_EQ(cost.forward, Duration{150});
    EXPECT_EQ(cost.backward_input, Duration{151});
    EXPECT_EQ(cost.backward_weight, Duration{152});
    EXPECT_EQ(cost.input, Bytes{50});
    EXPECT_EQ(cost.output, Bytes{100});
    EXPECT_EQ(cost.saved, Bytes{150});
    EXPECT_EQ(cost.workspace, Bytes{200});
    EXPECT_EQ(cost.spread, 0.08);  // the less certain neighbour's
}

TEST(CostAt, RoundsToTheNearestNanosecond) {
    // 100 + 100 * 1/6 = 116.67; a falling line is rounded alike: 200 - 16.67 = 183.33.
    EXPECT_EQ(cost_at(two_samples(), 3).forward, Duration{117});
    const LayerCost falling{.name = "x", .samples = {sample(2, 200, 0), sample(8, 100, 0)}};
    EXPECT_EQ(cost_at(falling, 3).forward, Duration{183});
}

TEST(CostAt, IsProportionalUpToTwiceOutsideTheSamples) {
    EXPECT_EQ(cost_at(two_samples(), 1).forward, Duration{50});
    EXPECT_EQ(cost_at(two_samples(), 16).forward, Duration{400});
    EXPECT_EQ(cost_at(two_samples(), 12).output, Bytes{240});
    const LayerCost odd{.name = "x", .samples = {sample(5, 100, 5)}};
    EXPECT_EQ(cost_at(odd, 3).forward, Duration{60});
}

TEST(CostAt, RefusesWhatLiesFurtherNamingLayerAndRange) {
    const Error error = error_of([] { cost_at(two_samples(), 17); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "profile, layer 'linear0'");
    EXPECT_EQ(error.text(),
              "costs are known for micro-batches of 2 to 8 samples, but these have 17");
    EXPECT_EQ(error.hint(), "profile it at that size, or choose a size from 1 to 16");
    EXPECT_THROW(cost_at(two_samples(), 0), Error);
    EXPECT_THROW(cost_at(two_samples(), -2), Error);
    EXPECT_THROW(cost_at(LayerCost{.name = "x", .samples = {sample(5, 1, 1)}}, 2), Error);
}

/// Every size of the range has costs, and those around it have none.
TEST(CostAt, AnswersForTheSizesWithCosts) {
    Profile profile{.layers = {two_samples(), {.name = "x", .samples = {sample(5, 100, 5)}}}};
    const SizesWithCosts sizes = sizes_with_costs(profile);
    EXPECT_EQ(sizes.smallest, 3);  // half of 5, while 2 to 8 have costs from 1
    EXPECT_EQ(sizes.largest, 10);  // twice 5
    for (const LayerCost& layer : profile.layers) {
        EXPECT_NO_THROW(cost_at(layer, 3));
        EXPECT_NO_THROW(cost_at(layer, 10));
    }
    for (const int outside : {2, 11}) {
        const Error error = error_of([&] { cost_at(profile.layers[1], outside); });
        EXPECT_EQ(error.reason(), ErrorReason::NoCosts);
    }
}

TEST(CostAt, DoesNotOverflowAtTheLargestNumbersOfAProfile) {
    LayerSample low = sample(1, 0, 0);
    LayerSample high = sample(65'536, 0, 0);
    high.forward = Duration{std::int64_t{1} << 53};
    const LayerCost layer{.name = "x", .samples = {low, high}};
    EXPECT_EQ(cost_at(layer, 131'072).forward, Duration{std::int64_t{1} << 54});
    const Duration expected{
        static_cast<std::int64_t>(std::llround(std::ldexp(1.0L, 53) * 32'768.0L / 65'535.0L))};
    EXPECT_LE(std::chrono::abs(cost_at(layer, 32'769).forward - expected), Duration{1});
}

Profile valid() {
    return {.layers = {{.name = "a", .samples = {sample(1, 10, 8)}},
                       {.name = "b", .inputs = {"a"}, .samples = {sample(1, 10, 8)}},
                       {.name = "c", .inputs = {"a", "b"}, .samples = {sample(1, 1, 1)}}},
            .links = {{.latency = Duration{5}, .bytes_per_second = 1e9}}};
}

TEST(WithLaunches, NoPartIsShorterThanItsLaunches) {
    const LayerSample sample{.forward = Duration(100),
                             .backward_input = Duration(100),
                             .backward_weight = Duration(100),
                             .forward_kernels = 3,
                             .backward_input_kernels = 12,
                             .backward_weight_kernels = 10};
    const LayerSample bound = with_launches(sample, Duration(10));
    EXPECT_EQ(bound.forward, Duration(100));         // 3 launches take 30
    EXPECT_EQ(bound.backward_input, Duration(120));  // 12 take 120
    EXPECT_EQ(bound.backward_weight, Duration(100));
    EXPECT_EQ(with_launches(sample, Duration{}), sample);
}

TEST(CostAt, KernelsDoNotGrowWithTheMicroBatch) {
    LayerCost layer{.name = "a", .samples = {{}}};
    layer.samples[0] = {.micro_batch_size = 4, .forward = Duration(100), .forward_kernels = 7};
    EXPECT_EQ(cost_at(layer, 8).forward, Duration(200));
    EXPECT_EQ(cost_at(layer, 8).forward_kernels, 7);
    EXPECT_TRUE(is_outside_samples(layer, 8));
    EXPECT_FALSE(is_outside_samples(layer, 4));
}

TEST(CheckProfile, AcceptsWhatKeepsEveryRule) {
    EXPECT_NO_THROW(check_profile(valid(), "x.json"));
}

struct Breach {
    std::string pointer;
    std::function<void(Profile&)> commit;
};

TEST(CheckProfile, RefusesEveryBreachWithItsPointer) {
    const std::vector<Breach> breaches{
        {"/layers", [](Profile& p) { p.layers.clear(); }},
        {"/dispatch_ns", [](Profile& p) { p.dispatch = Duration{-1}; }},
        {"/layers/1/name", [](Profile& p) { p.layers[1].name = "a"; }},
        {"/layers/1/name", [](Profile& p) { p.layers[1].name = ""; }},
        {"/layers/1/inputs/0", [](Profile& p) { p.layers[1].inputs = {"c"}; }},
        {"/layers/1/inputs/0", [](Profile& p) { p.layers[1].inputs = {"b"}; }},
        {"/layers/2/inputs/1",
         [](Profile& p) {
             p.layers[2].inputs = {"a", "z"};
         }},
        {"/layers/2/inputs/1",
         [](Profile& p) {
             p.layers[2].inputs = {"a", "a"};
         }},
        {"/layers/0/parameter_count", [](Profile& p) { p.layers[0].parameter_count = -1; }},
        {"/layers/0/parameter_bytes", [](Profile& p) { p.layers[0].parameter_bytes = Bytes{-1}; }},
        {"/layers/0/optimizer_ns", [](Profile& p) { p.layers[0].optimizer = Duration{-1}; }},
        {"/layers/0/operations_per_sample", [](Profile& p) { p.layers[0].operations = -1; }},
        {"/layers/0/masked_operations_per_sample",
         [](Profile& p) {
             p.layers[0].operations = 1;
             p.layers[0].masked_operations = 2;
         }},
        {"/tokens_per_sample", [](Profile& p) { p.tokens_per_sample = -1; }},
        {"/layers/0/samples", [](Profile& p) { p.layers[0].samples.clear(); }},
        {"/layers/0/samples/1/micro_batch_size",
         [](Profile& p) { p.layers[0].samples.push_back(sample(1, 10, 8)); }},
        {"/layers/0/samples/0/micro_batch_size",
         [](Profile& p) { p.layers[0].samples[0].micro_batch_size = 0; }},
        {"/layers/0/samples/0/forward_ns",
         [](Profile& p) { p.layers[0].samples[0].forward = Duration{-5}; }},
        {"/layers/0/samples/0/backward_input_ns",
         [](Profile& p) { p.layers[0].samples[0].backward_input = Duration{-5}; }},
        {"/layers/0/samples/0/backward_weight_ns",
         [](Profile& p) { p.layers[0].samples[0].backward_weight = Duration{-5}; }},
        {"/layers/0/samples/0/input_bytes",
         [](Profile& p) { p.layers[0].samples[0].input = Bytes{-5}; }},
        {"/layers/0/samples/0/output_bytes",
         [](Profile& p) { p.layers[0].samples[0].output = Bytes{-5}; }},
        {"/layers/0/samples/0/saved_bytes",
         [](Profile& p) { p.layers[0].samples[0].saved = Bytes{(1LL << 53) + 1}; }},
        {"/layers/0/samples/0/workspace_bytes",
         [](Profile& p) { p.layers[0].samples[0].workspace = Bytes{-5}; }},
        {"/layers/0/samples/0/spread",
         [](Profile& p) { p.layers[0].samples[0].spread = std::nan(""); }},
        {"/links/0/latency_ns", [](Profile& p) { p.links[0].latency = Duration{-1}; }},
        {"/links/0/bytes_per_second", [](Profile& p) { p.links[0].bytes_per_second = -1; }},
        {"/links/0/bytes_per_second",
         [](Profile& p) { p.links[0].bytes_per_second = std::numeric_limits<double>::infinity(); }},
        {"/links/0/half_bandwidth_bytes",
         [](Profile& p) { p.links[0].half_bandwidth = Bytes{-1}; }},
        {"/layers/1/forward_ns",
         [](Profile& p) {  // each alone would do, not their sum
             p.layers[0].samples[0].forward = Duration{1LL << 52};
             p.layers[1].samples[0].forward = Duration{1LL << 52};
         }},
    };
    for (const Breach& breach : breaches) {
        Profile profile = valid();
        breach.commit(profile);
        const Error error = error_of([&] { check_profile(profile, "x.json"); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(error.place(), "x.json: " + breach.pointer);
    }
}

TEST(CostSource, HasTheWordsOfTheFile) {
    EXPECT_EQ(to_string(CostSource::Measured), "measured");
    EXPECT_EQ(to_string(CostSource::Imported), "imported");
    EXPECT_EQ(to_string(CostSource::Datasheet), "datasheet");
    EXPECT_EQ(to_string(CostSource::Estimated), "estimated");
}

}  // namespace profile_test
}  // namespace pipetwin
