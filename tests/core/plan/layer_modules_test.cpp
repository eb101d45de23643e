// SPDX-License-Identifier: Apache-2.0
#include "core/plan/layer_modules.h"

#include <vector>

#include <gtest/gtest.h>

namespace pipetwin {
namespace layer_modules_test {

using std::chrono::microseconds;

ModuleBytes of(RecomputeModule module, Bytes bytes, Duration forward) {
    return {.module = static_cast<std::size_t>(module), .bytes = bytes, .forward = forward};
}

ModuleBytes of(OffloadModule module, Bytes bytes) {
    return {.module = static_cast<std::size_t>(module), .bytes = bytes};
}

/// A layer of 100 us forward and 200 us backward that keeps 1000 bytes.
LayerSample layer(LayerModules modules = {}) {
    LayerSample sample;
    sample.forward = microseconds(100);
    sample.backward_input = microseconds(120);
    sample.backward_weight = microseconds(80);
    sample.saved = Bytes{1000};
    sample.output = Bytes{50};
    sample.modules = std::move(modules);
    return sample;
}

/// An embedding, and four blocks of one layer each: with norms, and the last two with experts.
LayerSamples model() {
    LayerModules dense;
    dense.made = {of(RecomputeModule::Norms, Bytes{100}, microseconds(5)),
                  of(RecomputeModule::FeedForward, Bytes{300}, microseconds(40))};
    dense.inputs = {of(OffloadModule::AttentionNorm, Bytes{200}),
                    of(OffloadModule::QkvLinear, Bytes{100})};
    LayerModules experts;
    experts.made = {of(RecomputeModule::Norms, Bytes{100}, microseconds(5)),
                    of(RecomputeModule::ExpertActivation, Bytes{150}, microseconds(10)),
                    of(RecomputeModule::Experts, Bytes{600}, microseconds(70))};
    experts.inputs = {of(OffloadModule::AttentionNorm, Bytes{200}),
                      of(OffloadModule::ExpertFirst, Bytes{250})};
    return {layer(), layer(dense), layer(dense), layer(experts), layer(experts)};
}

const std::vector<int> block_of_layer{0, 1, 2, 3, 4};

RecomputeModules list(RecomputeModule module, int blocks = RecomputeModules::all_blocks) {
    RecomputeModules modules;
    modules.add(module, blocks);
    return modules;
}

LayerSamples under(const ModuleRules& rules, const std::vector<int>& pieces = {5}) {
    const LayerSamples samples = model();
    return with_modules(samples,
                        block_of_layer,
                        modules_of_layers(samples, block_of_layer, Partition(pieces, 5), rules),
                        rules.host_link);
}

std::vector<std::int64_t> saved(const LayerSamples& samples) {
    std::vector<std::int64_t> bytes;
    for (const LayerSample& sample : samples) {
        bytes.push_back(sample.saved.count);
    }
    return bytes;
}

TEST(Modules, OfAListAreDroppedInEveryLayerThatHasThem) {
    const LayerSamples norms = under({.recompute = {.of_piece = {list(RecomputeModule::Norms)}}});
    EXPECT_EQ(saved(norms), (std::vector<std::int64_t>{1000, 900, 900, 900, 900}));
    EXPECT_EQ(norms[1].backward_input, Duration{microseconds(125)});
    EXPECT_EQ(norms[1].rebuilt, Bytes{100});
    EXPECT_EQ(norms[0], model()[0]);
}

TEST(Modules, OfAStageAreThoseOfItsList) {
    const ModuleRules rules{.recompute = {.of_piece = {list(RecomputeModule::FeedForward),
                                                       list(RecomputeModule::ExpertActivation)}}};
    EXPECT_EQ(saved(under(rules, {2, 3})), (std::vector<std::int64_t>{1000, 700, 1000, 850, 850}));
    EXPECT_EQ(saved(under(rules, {3, 2})), (std::vector<std::int64_t>{1000, 700, 700, 850, 850}));
}

TEST(Modules, WithANumberAreThoseOfAStagesFirstBlocksThatHaveThem) {
    const ModuleRules rules{.recompute = {.of_piece = {list(RecomputeModule::Norms, 1)}}};
    EXPECT_EQ(saved(under(rules)), (std::vector<std::int64_t>{1000, 900, 1000, 1000, 1000}));
    EXPECT_EQ(saved(under(rules, {2, 3})), (std::vector<std::int64_t>{1000, 900, 900, 1000, 1000}));
}

TEST(Modules, InsideOfExpertsAreNotDroppedTwice) {
    RecomputeModules both = list(RecomputeModule::Experts);
    both.add(RecomputeModule::ExpertActivation);
    const LayerSamples samples = under({.recompute = {.of_piece = {both}}});
    EXPECT_EQ(samples[3].saved, Bytes{400});
    EXPECT_EQ(samples[3].backward_input, Duration{microseconds(190)});
}

OffloadModules offload(std::vector<OffloadModule> modules) {
    OffloadModules all;
    for (const OffloadModule module : modules) {
        all.add(module);
    }
    return all;
}

/// 450 bytes at 9 MB/s take 50 us, at 3 MB/s 150 us of a forward of 100 and a backward of 200 us.
TEST(OffloadedInputs, TakeWhatTheirCopiesTakeLongerThanTheirBlock) {
    ModuleRules rules{
        .offload = {offload({OffloadModule::AttentionNorm, OffloadModule::ExpertFirst})},
        .host_link = LinkCost{.bytes_per_second = 9e6}};
    const LayerSamples quick = under(rules);
    EXPECT_EQ(saved(quick), (std::vector<std::int64_t>{1000, 800, 800, 550, 550}));
    EXPECT_EQ(quick[3].forward, Duration{microseconds(100)});
    EXPECT_EQ(quick[3].backward(), Duration{microseconds(200)});
    rules.host_link->bytes_per_second = 3e6;
    EXPECT_EQ(under(rules)[3].forward, Duration{microseconds(150)});
    EXPECT_EQ(under(rules)[3].backward(), Duration{microseconds(200)});
    rules.host_link->bytes_per_second = 1e6;
    EXPECT_EQ(under(rules)[3].backward(), Duration{microseconds(450)});
}

TEST(OffloadedInputs, OfTwoBlocksAreOnTheDevice) {
    const LayerSamples samples = under({.offload = {offload({OffloadModule::AttentionNorm})}});
    EXPECT_EQ(samples[1].workspace + samples[1].rebuilt, Bytes{2 * 200});
    EXPECT_EQ(samples[0].workspace, Bytes{});
}

TEST(OffloadedInputs, OfAFractionAreThoseOfTheFirstBlocks) {
    ModuleRules rules{.offload = {offload({OffloadModule::AttentionNorm})},
                      .offload_fraction = 0.5};
    EXPECT_EQ(saved(under(rules)), (std::vector<std::int64_t>{1000, 800, 800, 1000, 1000}));
    EXPECT_EQ(saved(under(rules, {2, 3})), (std::vector<std::int64_t>{1000, 800, 800, 800, 1000}));
    rules.offload_fraction = 0;
    EXPECT_EQ(under(rules), model());
}

TEST(OffloadedInputs, ThatRecomputeMakesAgainStay) {
    const LayerSamples samples = under({.recompute = {.of_piece = {list(RecomputeModule::Norms)}},
                                        .offload = {offload({OffloadModule::QkvLinear})}});
    EXPECT_EQ(samples[1].saved, Bytes{900});
    EXPECT_EQ(samples[1].workspace, Bytes{});
}

}  // namespace layer_modules_test
}  // namespace pipetwin
