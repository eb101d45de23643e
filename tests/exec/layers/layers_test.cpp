// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/model/inner_layers.h"
#include "exec/layers/image/windows.h"
#include "exec/layers/layer.h"
#include "tests/exec/cpu/windows/naive_windows.h"
#include "tests/exec/layers/layer_run.h"
#include "tests/exec/layers/naive_layers.h"
#include "tests/support/compare_tensors.h"
#include "tests/support/finite_difference.h"

namespace pipetwin::exec {
namespace layers_test {

using testing::agree;
using testing::finite_difference;
using testing::LayerRun;
using testing::Numbers;
using testing::numbers_of;
using testing::random_numbers;

/// One layer in one size; every test below runs over all of them.
struct Case {
    std::string name;
    LayerSpec spec;
    SampleShape input;
    int samples = 1;
    SampleShape output;
    /// The same in plain loops, from x and the parameters in order; none for layers made of others.
    std::function<Numbers(const testing::NaiveInput&)> naive{};
};

void PrintTo(const Case& c, std::ostream* out) {
    *out << c.name;
}

LayerSpec linear_spec(int outputs, bool bias = true) {
    return {.name = {}, .type = LayerType::Linear, .outputs = outputs, .bias = bias};
}
LayerSpec dropping(LayerSpec spec) {
    spec.dropout = 0.3;
    return spec;
}
LayerSpec simple(LayerType type) {
    return {.name = {}, .type = type};
}
LayerSpec experts_spec(int inner_width, const Routing& routing) {
    return {.name = {}, .type = LayerType::Experts, .routing = routing, .inner_width = inner_width};
}
LayerSpec attention_spec(int heads) {
    return {.name = {}, .type = LayerType::Attention, .heads = heads};
}
/// Heads as Llama has them: `groups` of keys and values, turned by their positions, no biases.
LayerSpec rotary_spec(int heads, int groups, int head_size) {
    LayerSpec spec = attention_spec(heads);
    spec.key_value_heads = groups;
    spec.head_size = head_size;
    spec.rotary.base = 100;
    spec.bias = false;
    return spec;
}
/// An attention that sees all positions before the sample's length.
LayerSpec seeing_all(LayerSpec attention) {
    attention.causal = false;
    return attention;
}
LayerSpec cross_spec(int heads, int head_size) {
    return {.name = {}, .type = LayerType::CrossAttention, .heads = heads, .head_size = head_size};
}
LayerSpec positions_spec(int begin, int count) {
    return {.name = {}, .type = LayerType::Positions, .begin = begin, .positions = count};
}
/// The embedding of two positions of a source, and of a target behind them.
LayerSpec of_pairs(LayerSpec embedding, bool sinusoids) {
    embedding.scaled = true;
    embedding.sinusoids = sinusoids;
    embedding.learned_positions = !sinusoids;
    embedding.source_positions = 2;
    embedding.source_table = sinusoids;
    return embedding;
}
LayerSpec without_places(LayerSpec embedding) {
    embedding.learned_positions = false;
    return embedding;
}
LayerSpec embedding_spec(int vocabulary, int outputs, int context) {
    return {.name = {},
            .type = LayerType::Embedding,
            .outputs = outputs,
            .vocabulary = vocabulary,
            .context = context};
}
LayerSpec group(LayerType type, std::vector<LayerSpec> inner) {
    return {.name = {}, .type = type, .inner = std::move(inner)};
}
LayerSpec not_deferred() {
    LayerSpec spec = simple(LayerType::BatchNorm);
    spec.deferred = false;
    return spec;
}
LayerSpec grouped(LayerType type, int groups) {
    LayerSpec spec = simple(type);
    spec.groups = groups;
    return spec;
}
LayerSpec padded(int outputs) {
    LayerSpec spec = simple(LayerType::PadChannels);
    spec.outputs = outputs;
    return spec;
}
LayerSpec named(std::string name, LayerSpec spec, std::vector<std::string> inputs = {}) {
    spec.name = std::move(name);
    spec.inputs = std::move(inputs);
    return spec;
}
SampleShape numbers(int positions, int width) {
    return {.token_ids = false, .positions = positions, .width = width};
}
const SampleShape no_output{.token_ids = false, .positions = 1, .width = 0};

/// One layer whose window moves over images of 5 x 7 pixels and 3 channels.
LayerSpec window_spec(LayerType type, Pixels kernel, Pixels stride, Margins padding) {
    LayerSpec spec = simple(type);
    spec.outputs = type == LayerType::Conv2d ? 4 : 0;
    spec.kernel = kernel;
    spec.stride = stride;
    spec.padding = padding;
    return spec;
}

Case image_case(const std::string& name, const LayerSpec& spec, const SampleShape& output) {
    const SampleShape input = image_shape({5, 7}, 3);
    const auto naive = [spec, input](const testing::NaiveInput& in) -> Numbers {
        if (spec.type == LayerType::Upsample) {
            const UpsampleShape shape{
                .in = input.image, .factor = spec.factor, .bilinear = spec.bilinear};
            return testing::naive_upsample(shape, in.samples, input.width, in.x);
        }
        LayerSpec whole = spec;
        if (spec.type == LayerType::GlobalAvgPool) {
            whole.type = LayerType::AvgPool;
            whole.kernel = input.image;
        }
        if (spec.type == LayerType::Pad) {
            whole.type = LayerType::AvgPool;  // of one pixel, zero outside
            whole.kernel = {1, 1};
            WindowShape pixel{.in = input.image,
                              .channels = input.width,
                              .outputs = input.width,
                              .padding = spec.padding};
            return testing::naive_average_pool(testing::with_output(pixel), in.samples, in.x);
        }
        const WindowShape window = window_of(whole, input);
        switch (whole.type) {
            case LayerType::Conv2d:
                return testing::naive_convolution(window,
                                                  in.samples,
                                                  in.x,
                                                  in.parameters[0],
                                                  spec.bias ? in.parameters[1] : Numbers{});
            case LayerType::MaxPool:
                return testing::naive_max_pool(window, in.samples, in.x).values;
            default:
                return testing::naive_average_pool(window, in.samples, in.x);
        }
    };
    return {name, spec, input, 2, output, naive};
}

std::vector<Case> image_cases() {
    constexpr Margins one{1, 1, 1, 1};
    const SampleShape half = image_shape({3, 4}, 4);
    LayerSpec plain = window_spec(LayerType::Conv2d, {3, 3}, {2, 2}, one);
    plain.bias = false;
    LayerSpec dilated = window_spec(LayerType::Conv2d, {3, 3}, {2, 2}, one);
    dilated.dilation = {2, 2};
    LayerSpec depthwise = window_spec(LayerType::Conv2d, {3, 3}, {2, 2}, one);
    depthwise.outputs = depthwise.groups = 3;
    LayerSpec moved = window_spec(LayerType::Conv2d, {1, 1}, {2, 2}, {-1, -1, 1, 1});
    LayerSpec real_mean = window_spec(LayerType::AvgPool, {3, 3}, {2, 2}, one);
    real_mean.count_padding = false;
    LayerSpec nearest = simple(LayerType::Upsample);
    LayerSpec bilinear = nearest;
    bilinear.bilinear = true;
    bilinear.factor = 3;
    LayerSpec padded = simple(LayerType::Pad);
    padded.padding = {2, -1, 0, 3};
    return {
        image_case("Conv2d", window_spec(LayerType::Conv2d, {3, 3}, {2, 2}, one), half),
        image_case("Conv2dWithoutBias", plain, half),
        image_case("Conv2dDilated", dilated, image_shape({2, 3}, 4)),
        image_case("Conv2dDepthwise", depthwise, image_shape({3, 4}, 3)),
        image_case("Conv2dMoved", moved, half),
        image_case("Conv2dPointwise",
                   window_spec(LayerType::Conv2d, {1, 1}, {}, {}),
                   image_shape({5, 7}, 4)),
        image_case("MaxPool",
                   window_spec(LayerType::MaxPool, {3, 3}, {2, 2}, one),
                   image_shape({3, 4}, 3)),
        image_case("MaxPoolApart",
                   window_spec(LayerType::MaxPool, {2, 3}, {}, {}),
                   image_shape({2, 2}, 3)),
        image_case("AveragePool",
                   window_spec(LayerType::AvgPool, {3, 3}, {2, 2}, one),
                   image_shape({3, 4}, 3)),
        image_case("AveragePoolOfRealPixels", real_mean, image_shape({3, 4}, 3)),
        image_case("GlobalAveragePool", simple(LayerType::GlobalAvgPool), image_shape({1, 1}, 3)),
        image_case("UpsampleNearest", nearest, image_shape({10, 14}, 3)),
        image_case("UpsampleBilinear", bilinear, image_shape({15, 21}, 3)),
        image_case("Pad", padded, image_shape({7, 9}, 3)),
    };
}

std::vector<Case> text_cases() {
    const LayerSpec norm = simple(LayerType::LayerNorm);
    const LayerSpec gelu = simple(LayerType::Gelu);
    LayerSpec tanh_gelu = gelu;
    tanh_gelu.gelu = GeluForm::Tanh;
    const LayerSpec loss = simple(LayerType::CrossEntropy);
    const SampleShape ids{.token_ids = true, .positions = 5, .width = 0};
    return {
        {"EmbeddingWithPlaces",
         embedding_spec(7, 4, 6),
         ids,
         3,
         numbers(5, 4),
         testing::naive_embedding},
        {"EmbeddingWithoutPlaces",
         embedding_spec(7, 4, 0),
         ids,
         3,
         numbers(5, 4),
         testing::naive_embedding},
        {"EmbeddingWithoutLearnedPlaces",
         without_places(embedding_spec(7, 4, 6)),
         ids,
         3,
         numbers(5, 4),
         testing::naive_embedding},
        {"EmbeddingOfPairs",
         of_pairs(embedding_spec(7, 3, 5), true),
         ids,
         3,
         numbers(5, 3),
         testing::naive_embedding},
        {"EmbeddingOfPairsWithLearnedPlaces",
         of_pairs(embedding_spec(7, 4, 5), false),
         ids,
         3,
         numbers(5, 4),
         testing::naive_embedding},
        {"AttentionToAllPositions",
         seeing_all(attention_spec(2)),
         numbers(5, 8),
         3,
         numbers(5, 8),
         testing::naive_attention},
        {"AttentionToAllPositionsOfNarrowHeads",
         seeing_all(dropping(attention_spec(2))),
         numbers(3, 4),
         2,
         numbers(3, 4)},
        {"EncoderBlock",
         group(LayerType::Residual, {norm, seeing_all(attention_spec(2))}),
         numbers(5, 8),
         2,
         numbers(5, 8)},
        {"Positions", positions_spec(1, 3), numbers(5, 2), 2, numbers(3, 2)},
        {"PositionsOfAll", positions_spec(0, 5), numbers(5, 2), 2, numbers(5, 2)},
        // Queries and keys of other numbers, the memory read twice.
        {"CrossAttention",
         group(LayerType::Sequence,
               {named("x", positions_spec(0, 2)),
                named("wide", linear_spec(6), {"x"}),
                named("m", positions_spec(1, 4), {"input0"}),
                named("four", cross_spec(2, 4), {"wide", "m"}),
                named("two", cross_spec(3, 2), {"wide", "m"}),
                named("sum", simple(LayerType::Add), {"four", "two", "wide"})}),
         numbers(5, 3),
         2,
         numbers(2, 6)},
        {"CrossAttentionWithDropout",
         group(LayerType::Sequence,
               {named("norm", norm),
                named("cross", dropping(cross_spec(2, 0)), {"norm", "input0"}),
                named("sum", simple(LayerType::Add), {"cross", "input0"})}),
         numbers(3, 4),
         2,
         numbers(3, 4)},
        {"RmsNorm",
         simple(LayerType::RmsNorm),
         numbers(3, 21),
         2,
         numbers(3, 21),
         testing::naive_rms_norm},
        {"RmsNormOfTwo",
         simple(LayerType::RmsNorm),
         numbers(1, 2),
         2,
         numbers(1, 2),
         testing::naive_rms_norm},
        {"SwiGlu",
         simple(LayerType::SwiGlu),
         numbers(2, 38),
         2,
         numbers(2, 19),
         testing::naive_swiglu},
        {"ExpertsAsMixtral",
         experts_spec(5, {.experts = 4, .per_row = 2}),
         numbers(3, 6),
         4,
         numbers(3, 6),
         testing::naive_experts},
        {"ExpertsWithoutNormalisation",  // and more of them than rows
         experts_spec(2, {.experts = 9, .per_row = 1, .normalised = false, .scale = 1.5}),
         numbers(2, 3),
         1,
         numbers(2, 3),
         testing::naive_experts},
        {"ExpertsInGroups",
         experts_spec(3, {.experts = 6, .per_row = 2, .groups = 3, .chosen_groups = 2}),
         numbers(5, 4),
         2,
         numbers(5, 4),
         testing::naive_experts},
        {"ExpertsAsDeepSeek",
         experts_spec(4,
                      {.experts = 8,
                       .per_row = 3,
                       .scores = RouterScores::Sigmoid,
                       .groups = 4,
                       .chosen_groups = 2,
                       .scale = 2.5}),
         numbers(4, 5),
         3,
         numbers(4, 5),
         testing::naive_experts},
        {"EveryRowInEveryExpert",
         experts_spec(4, {.experts = 2, .per_row = 2}),
         numbers(2, 3),
         2,
         numbers(2, 3),
         testing::naive_experts},
        {"ExpertsBesideASharedOne",
         group(LayerType::Sequence,
               {named("norm", simple(LayerType::RmsNorm)),
                named("experts", experts_spec(4, {.experts = 4, .per_row = 2}), {"norm"}),
                named("up", linear_spec(6, false), {"norm"}),
                named("swiglu", simple(LayerType::SwiGlu)),
                named("down", linear_spec(4, false)),
                named("sum", simple(LayerType::Add), {"input0", "experts", "down"})}),
         numbers(3, 4),
         2,
         numbers(3, 4)},
        {"AttentionRotary",
         rotary_spec(2, 2, 4),
         numbers(5, 8),
         2,
         numbers(5, 8),
         testing::naive_attention},
        {"AttentionGrouped",
         rotary_spec(4, 2, 2),
         numbers(5, 8),
         2,
         numbers(5, 8),
         testing::naive_attention},
        {"AttentionOfOneKey",
         rotary_spec(3, 1, 6),
         numbers(4, 5),
         2,
         numbers(4, 5),
         testing::naive_attention},
        {"AttentionGroupedManyPositions",
         rotary_spec(4, 2, 2),
         numbers(70, 4),
         1,
         numbers(70, 4),
         testing::naive_attention},
        // More pairs than sines and cosines are found for at a time.
        {"AttentionOfLongHeads",
         rotary_spec(1, 1, 150),
         numbers(3, 4),
         1,
         numbers(3, 4),
         testing::naive_attention},
        {"LayerNorm", norm, numbers(3, 21), 2, numbers(3, 21), testing::naive_layer_norm},
        {"LayerNormOfTwo", norm, numbers(1, 2), 2, numbers(1, 2), testing::naive_layer_norm},
        {"Linear", linear_spec(5), numbers(4, 3), 2, numbers(4, 5), testing::naive_linear},
        {"LinearWithoutBias",
         linear_spec(5, false),
         numbers(4, 3),
         2,
         numbers(4, 5),
         testing::naive_linear},
        {"Gelu", gelu, numbers(2, 19), 2, numbers(2, 19), testing::naive_gelu},
        {"GeluByTanh", tanh_gelu, numbers(2, 19), 2, numbers(2, 19), testing::naive_gelu},
        {"AttentionOneHead",
         attention_spec(1),
         numbers(4, 3),
         2,
         numbers(4, 3),
         testing::naive_attention},
        {"AttentionFourHeads",
         attention_spec(4),
         numbers(5, 8),
         2,
         numbers(5, 8),
         testing::naive_attention},
        // More than one block of rows, and a last one that is not full.
        {"AttentionManyPositions",
         attention_spec(2),
         numbers(70, 4),
         1,
         numbers(70, 4),
         testing::naive_attention},
        {"AttentionOnePosition",
         attention_spec(2),
         numbers(1, 4),
         2,
         numbers(1, 4),
         testing::naive_attention},
        {"FeedForwardOfLlama",
         group(LayerType::Residual,
               {simple(LayerType::RmsNorm),
                linear_spec(12, false),
                simple(LayerType::SwiGlu),
                linear_spec(4, false)}),
         numbers(2, 4),
         3,
         numbers(2, 4)},
        {"CrossEntropy", loss, numbers(3, 9), 4, no_output, testing::naive_cross_entropy},
        {"Sequence",
         group(LayerType::Sequence, {linear_spec(6), gelu, norm, linear_spec(3)}),
         numbers(2, 4),
         3,
         numbers(2, 3)},
        {"RectifiersThatReadWhatTheyHaveMade",  // but for the last one
         group(LayerType::Sequence,
               {simple(LayerType::Relu),
                linear_spec(6),
                simple(LayerType::LeakyRelu),
                norm,
                simple(LayerType::Relu),
                linear_spec(5),
                simple(LayerType::Relu)}),
         numbers(2, 4),
         3,
         numbers(2, 5)},
        {"InputsThatNoBackwardReads",  // one behind the other, in front of a W and behind one
         group(LayerType::Sequence,
               {linear_spec(6),
                dropping(simple(LayerType::Dropout)),
                simple(LayerType::Relu),
                linear_spec(5),
                dropping(simple(LayerType::Dropout)),
                dropping(simple(LayerType::Dropout)),
                norm,
                simple(LayerType::Relu),
                dropping(simple(LayerType::Dropout)),
                linear_spec(3),
                dropping(simple(LayerType::Dropout))}),
         numbers(2, 4),
         3,
         numbers(2, 3)},
        {"RectifiersInBranches",
         group(LayerType::Sequence,
               {named("a", linear_spec(4)),
                named("relu", simple(LayerType::Relu)),
                named("b", linear_spec(4)),
                named("again", simple(LayerType::LeakyRelu)),
                named("c", norm),
                named("end", simple(LayerType::Relu), {"relu"}),
                named("sum", simple(LayerType::Add), {"c", "end", "relu"}),
                named("last", simple(LayerType::Relu))}),
         numbers(2, 3),
         2,
         numbers(2, 4)},
        {"Branches",
         group(LayerType::Sequence,
               {named("stem", linear_spec(6)),
                named("left", gelu, {"stem"}),
                named("right", linear_spec(4), {"stem"}),
                named("both", simple(LayerType::Concat), {"right", "stem", "left"}),
                norm,
                linear_spec(3)}),
         numbers(2, 4),
         3,
         numbers(2, 3)},
        {"BranchesThatAreAddedLast",
         group(LayerType::Sequence,
               {named("stem", linear_spec(6)),
                named("left", norm),
                named("right", linear_spec(6), {"stem"}),
                named("sum", simple(LayerType::Add), {"left", "right", "stem"})}),
         numbers(2, 4),
         3,
         numbers(2, 6)},
        {"BranchesOfTheInput",  // a residual with a projection, and a reader that adds
         group(LayerType::Sequence,
               {named("a", norm),
                named("b", linear_spec(5)),
                named("c", linear_spec(5), {"input0"}),
                named("wide", simple(LayerType::Concat), {"b", "input0"}),
                named("d", linear_spec(5), {"wide"}),
                named("sum", simple(LayerType::Add), {"c", "d"})}),
         numbers(2, 4),
         3,
         numbers(2, 5)},
        {"BranchesThatNoWeightReads",  // so that a gradient may lie where the input was
         group(LayerType::Sequence,
               {named("a", gelu),
                named("b", norm, {"input0"}),
                named("c", gelu, {"b"}),
                named("sum", simple(LayerType::Add), {"a", "c", "input0"})}),
         numbers(2, 4),
         3,
         numbers(2, 4)},
        {"BranchesOfSumsOfSums",
         group(LayerType::Sequence,
               {named("a", linear_spec(4)),
                named("b", gelu),
                named("c", linear_spec(4), {"a"}),
                named("sum", simple(LayerType::Add), {"b", "c"}),
                named("d", linear_spec(4), {"input0"}),
                named("all", simple(LayerType::Add), {"sum", "d"}),
                named("e", dropping(simple(LayerType::Dropout))),
                named("last", simple(LayerType::Add), {"all", "e"})}),
         numbers(2, 3),
         2,
         numbers(2, 4)},
        {"BranchesListedInAnyOrder",
         group(LayerType::Sequence,
               {named("a", linear_spec(4)),
                named("end", linear_spec(2), {"both"}),
                named("both", simple(LayerType::Concat), {"left", "a"}),
                named("left", attention_spec(2), {"a"})}),
         numbers(3, 5),
         2,
         numbers(3, 2)},
        {"BranchesInsideOfBranches",
         group(
             LayerType::Sequence,
             {named("a", linear_spec(4)),
              named("b", group(LayerType::Residual, {norm, linear_spec(3), gelu, linear_spec(4)})),
              named("cell",
                    group(LayerType::Sequence,
                          {named("left", gelu),
                           named("right", linear_spec(4), {"input1"}),
                           named("two", simple(LayerType::Add), {"left", "right", "input0"}),
                           named("out", simple(LayerType::Concat), {"two", "input1"})}),
                    {"a", "b"}),
              named("last", simple(LayerType::Concat), {"cell", "a"})}),
         numbers(2, 3),
         2,
         numbers(2, 12)},
        {"BranchesInAResidual",
         group(LayerType::Residual,
               {group(LayerType::Sequence,
                      {named("a", linear_spec(4)),
                       named("b", dropping(linear_spec(4))),
                       named("sum", simple(LayerType::Add), {"a", "b", "input0"})})}),
         numbers(2, 4),
         3,
         numbers(2, 4)},
        {"BranchesThatEndWithTheLoss",
         group(LayerType::Sequence,
               {named("a", linear_spec(4)),
                named("b", linear_spec(5)),
                named("both", simple(LayerType::Concat), {"a", "b"}),
                loss}),
         numbers(3, 4),
         2,
         no_output},
        {"ResidualGelu", group(LayerType::Residual, {gelu}), numbers(2, 4), 3, numbers(2, 4)},
        {"ResidualLinear",
         group(LayerType::Residual, {linear_spec(4)}),
         numbers(2, 4),
         3,
         numbers(2, 4)},
        {"ResidualInResidual",
         group(LayerType::Residual,
               {norm, group(LayerType::Residual, {linear_spec(4), gelu}), norm}),
         numbers(2, 4),
         3,
         numbers(2, 4)},
        {"GptAttention",
         group(LayerType::Residual, {norm, attention_spec(2)}),
         numbers(5, 8),
         2,
         numbers(5, 8)},
        {"GptFeedForward",
         group(LayerType::Residual, {norm, linear_spec(32), tanh_gelu, linear_spec(8)}),
         numbers(5, 8),
         2,
         numbers(5, 8)},
        {"Dropout", dropping(simple(LayerType::Dropout)), numbers(3, 7), 3, numbers(3, 7)},
        {"DropoutInResidual",
         group(LayerType::Residual, {gelu, dropping(simple(LayerType::Dropout))}),
         numbers(2, 4),
         3,
         numbers(2, 4)},
        {"EmbeddingWithDropout", dropping(embedding_spec(7, 4, 6)), ids, 3, numbers(5, 4)},
        {"GptAttentionWithDropout",
         group(LayerType::Residual, {norm, dropping(attention_spec(2))}),
         numbers(5, 8),
         2,
         numbers(5, 8)},
        {"GptFeedForwardWithDropout",
         group(LayerType::Residual, {norm, linear_spec(32), gelu, dropping(linear_spec(8))}),
         numbers(5, 8),
         2,
         numbers(5, 8)},
        {"BatchNorm",
         simple(LayerType::BatchNorm),
         image_shape({5, 7}, 3),
         2,
         image_shape({5, 7}, 3),
         testing::naive_batch_norm},
        // More columns than a tile of the CPU's loops; more rows than one of their slabs.
        {"BatchNormOfManyColumns",
         simple(LayerType::BatchNorm),
         numbers(3, 515),
         2,
         numbers(3, 515),
         testing::naive_batch_norm},
        {"BatchNormOfManyRows",
         simple(LayerType::BatchNorm),
         numbers(150, 2),
         2,
         numbers(150, 2),
         testing::naive_batch_norm},
        {"BatchNormNotDeferred",
         not_deferred(),
         image_shape({5, 7}, 3),
         2,
         image_shape({5, 7}, 3),
         testing::naive_batch_norm},
        {"InstanceNorm",
         simple(LayerType::InstanceNorm),
         image_shape({5, 7}, 3),
         3,
         image_shape({5, 7}, 3),
         testing::naive_instance_norm},
        {"GroupNorm",
         grouped(LayerType::GroupNorm, 3),
         image_shape({3, 5}, 6),
         2,
         image_shape({3, 5}, 6),
         testing::naive_norm_of_three_groups},
        {"Relu",
         simple(LayerType::Relu),
         image_shape({5, 7}, 3),
         2,
         image_shape({5, 7}, 3),
         testing::naive_relu},
        {"LeakyRelu",
         simple(LayerType::LeakyRelu),
         image_shape({5, 7}, 3),
         2,
         image_shape({5, 7}, 3),
         testing::naive_leaky_relu},
        {"Identity",
         simple(LayerType::Identity),
         numbers(4, 3),
         2,
         numbers(4, 3),
         testing::naive_identity},
        {"Flatten",
         simple(LayerType::Flatten),
         image_shape({5, 7}, 3),
         2,
         numbers(1, 105),
         testing::naive_identity},
        {"PadChannels",
         padded(5),
         image_shape({5, 7}, 3),
         2,
         image_shape({5, 7}, 5),
         testing::naive_pad_channels},
        {"ChannelDropout",
         dropping(simple(LayerType::ChannelDropout)),
         image_shape({5, 7}, 3),
         3,
         image_shape({5, 7}, 3)},
        {"DropPath",
         dropping(simple(LayerType::DropPath)),
         image_shape({5, 7}, 3),
         3,
         image_shape({5, 7}, 3)},
        {"NormsInAResidual",
         group(LayerType::Residual,
               {simple(LayerType::BatchNorm),
                simple(LayerType::Relu),
                grouped(LayerType::GroupNorm, 2),
                dropping(simple(LayerType::DropPath))}),
         image_shape({3, 5}, 4),
         3,
         image_shape({3, 5}, 4)},
        {"GptHead",
         group(LayerType::Sequence, {norm, linear_spec(11, false), loss}),
         numbers(5, 8),
         2,
         no_output},
    };
}

std::vector<Case> cases() {
    std::vector<Case> all = text_cases();
    std::ranges::copy(image_cases(), std::back_inserter(all));
    return all;
}

class EveryLayer : public ::testing::TestWithParam<Case> {
  protected:
    static LayerRun run(DType type) {
        const Case& c = GetParam();
        return {c.spec, c.input, c.samples, type};
    }
};

/// Those with a formula of their own; those whose input has a gradient.
class EveryFormula : public EveryLayer {};
class EveryRealInput : public EveryLayer {};

std::vector<Case> cases_where(const std::function<bool(const Case&)>& condition) {
    std::vector<Case> chosen = cases();
    std::erase_if(chosen, [&](const Case& c) { return !condition(c); });
    return chosen;
}

/// Of results beside exact ones from the same operands. A number of bf16 is off by up to 1/512 of
/// itself; and an attention's softmax turns the rounding of its scores, which are up to 30 here,
/// into a relative error of its result.
double bound_of(DType type) {
    switch (type) {
        case DType::F64:
            return 1e-13;
        case DType::BF16:
            return 2e-2;
        default:
            return 2e-6;
    }
}

const auto case_name = [](const auto& chosen) { return chosen.param.name; };
INSTANTIATE_TEST_SUITE_P(Layers, EveryLayer, ::testing::ValuesIn(cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Layers,
                         EveryFormula,
                         ::testing::ValuesIn(cases_where([](const Case& c) {
                             return c.naive != nullptr;
                         })),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Layers,
                         EveryRealInput,
                         ::testing::ValuesIn(cases_where([](const Case& c) {
                             return !c.input.token_ids;
                         })),
                         case_name);

/// What a loss layer would make of y: the sum of y * weights; for a loss, the loss itself.
double objective(LayerRun& run, const Numbers& weights) {
    const Tensor y = run.forward();
    if (y.empty()) {
        return run.loss;
    }
    const Numbers values = numbers_of(y);
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        sum += values[i] * weights[i];
    }
    return sum;
}

/// The gradient that belongs to `objective`.
Tensor output_gradient(LayerRun& run, const Numbers& weights) {
    Tensor dy = run.output_like();
    if (!dy.empty()) {
        LayerRun::set(dy, weights);
    }
    return dy;
}

Numbers output_weights(LayerRun& run) {
    return random_numbers(static_cast<std::size_t>(run.output_like().size()), 2);
}

TEST_P(EveryLayer, HasTheShapeThatTheModelTells) {
    const LayerRun run = EveryLayer::run(DType::F32);
    EXPECT_EQ(run.layer->input(), GetParam().input);
    EXPECT_EQ(run.layer->output(), GetParam().output);
}

TEST_P(EveryFormula, ComputesWhatItsFormulaSays) {
    for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
        LayerRun run = EveryLayer::run(type);
        const Tensor y = run.forward();
        const Numbers found = y.empty() ? Numbers{run.loss} : numbers_of(y);
        const Numbers expected = GetParam().naive(testing::naive_input(run, GetParam().spec));
        EXPECT_TRUE(agree<double>(found, expected, bound_of(type))) << to_string(type);
    }
}

/// A binomial share of the numbers, and what is left keeps the mean: within 5 deviations.
TEST(Dropout, DropsTheShareThatItShouldAndKeepsTheMean) {
    constexpr double p = 0.3;
    constexpr int n = 3 * 64 * 500;
    LayerRun run(dropping(simple(LayerType::Dropout)), numbers(64, 500), 3, DType::F64);
    LayerRun::set(run.x, Numbers(n, 1.0));
    const Numbers y = numbers_of(run.forward());
    int dropped = 0;
    for (const double value : y) {
        ASSERT_TRUE(value == 0 || value == 1 / (1 - p)) << value;
        dropped += value == 0 ? 1 : 0;
    }
    EXPECT_NEAR(dropped, p * n, 5 * std::sqrt(n * p * (1 - p)));
    // Neighbours are independent, and so are the same numbers of two samples.
    int both = 0;
    int in_both_samples = 0;
    for (std::size_t i = 0; i + 1 < y.size(); i += 2) {
        both += y[i] == 0 && y[i + 1] == 0 ? 1 : 0;
    }
    for (std::size_t i = 0; i < y.size() / 3; ++i) {
        in_both_samples += y[i] == 0 && y[i + y.size() / 3] == 0 ? 1 : 0;
    }
    EXPECT_NEAR(both, p * p * n / 2, 5 * std::sqrt(p * p * n / 2));
    EXPECT_NEAR(in_both_samples, p * p * n / 3, 5 * std::sqrt(p * p * n / 3));
}

TEST_P(EveryLayer, GradientsEqualFiniteDifferences) {
    constexpr double step = 3e-4;
    constexpr double bound = 1e-8;
    LayerRun run = EveryLayer::run(DType::F64);
    const Numbers weights = output_weights(run);
    const auto value = [&] { return objective(run, weights); };

    value();
    run.zero_gradients();
    const Tensor dy = output_gradient(run, weights);
    Tensor dx = run.input_gradient_like();
    LayerCall call = run.call();
    run.layer->backward(call, run.kept, run.x, dy, {}, dx);

    if (!dx.empty()) {
        const std::span<double> x(run.x.as<double>(), static_cast<std::size_t>(run.x.size()));
        EXPECT_TRUE(agree<double>(numbers_of(dx), finite_difference(value, x, step), bound)) << "x";
    }
    for (Parameter* const parameter : run.layer->parameters()) {
        const std::span<double> w(parameter->value.as<double>(),
                                  static_cast<std::size_t>(parameter->value.size()));
        const Numbers found = numbers_of(parameter->gradient);
        EXPECT_TRUE(agree<double>(found, finite_difference(value, w, step), bound))
            << parameter->name;
    }
}

/// Both gradients, in B or in I and W, after one forward with and without a skip.
struct Gradients {
    Numbers input;
    std::vector<Numbers> weights;
    bool operator==(const Gradients&) const = default;
};

Gradients gradients(LayerRun& run, bool split, ConstView skip) {
    run.forward();
    run.zero_gradients();
    const Tensor dy = output_gradient(run, output_weights(run));
    Tensor dx = run.input_gradient_like();
    LayerCall call = run.call();
    if (split) {
        run.layer->backward_input(call, run.kept, run.x, dy, skip, dx);
        run.layer->free_unread(run.kept);
        run.layer->backward_weight(call, run.kept, run.x, dy);
    } else {
        run.layer->backward(call, run.kept, run.x, dy, skip, dx);
    }
    Gradients all{.input = dx.empty() ? Numbers{} : numbers_of(dx), .weights = {}};
    for (Parameter* const parameter : run.layer->parameters()) {
        all.weights.push_back(numbers_of(parameter->gradient));
    }
    return all;
}

TEST_P(EveryLayer, InputAndWeightGradientsInTwoActionsHaveTheBitsOfOne) {
    for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
        LayerRun run = EveryLayer::run(type);
        EXPECT_EQ(gradients(run, false, {}), gradients(run, true, {}));
    }
}

// In half precision finite differences would drown in rounding; the gradients in double, which
// agree with them, stand in.
TEST_P(EveryLayer, GradientsInHalfPrecisionAreNearTheExactOnesOfTheSameOperands) {
    LayerRun half = EveryLayer::run(DType::BF16);
    LayerRun exact = EveryLayer::run(DType::F64);
    if (!exact.layer->input().token_ids) {
        LayerRun::set(exact.x, numbers_of(half.x));
    }
    const std::vector<Parameter*> from = half.layer->parameters();
    const std::vector<Parameter*> to = exact.layer->parameters();
    for (std::size_t i = 0; i < from.size(); ++i) {
        LayerRun::set(to[i]->value, numbers_of(from[i]->value));
    }
    const Gradients found = gradients(half, false, {});
    const Gradients expected = gradients(exact, false, {});
    // What a chain of layers has rounded on the way adds up, an attention's scores as above.
    constexpr double bound = 0.1;
    EXPECT_TRUE(agree<double>(found.input, expected.input, bound)) << "x";
    for (std::size_t i = 0; i < from.size(); ++i) {
        EXPECT_EQ(from[i]->gradient.dtype(), DType::F32) << from[i]->name;
        EXPECT_TRUE(agree<double>(found.weights[i], expected.weights[i], bound)) << from[i]->name;
    }
}

TEST_P(EveryLayer, AddsTheSkipToItsOutputAndToTheGradientOfItsInput) {
    LayerRun run = EveryLayer::run(DType::F64);
    const auto sum = [](Numbers a, const Numbers& b) {
        std::ranges::transform(a, b, a.begin(), std::plus<>());
        return a;
    };
    Tensor skip = run.output_like();
    if (!skip.empty() && GetParam().spec.type != LayerType::Embedding) {
        LayerRun::set(skip, random_numbers(static_cast<std::size_t>(skip.size()), 5));
        const Numbers plain = numbers_of(run.forward());
        EXPECT_TRUE(
            agree<double>(numbers_of(run.forward(skip)), sum(plain, numbers_of(skip)), 1e-14));
    }
    Tensor input_skip = run.input_gradient_like();
    if (!input_skip.empty()) {
        LayerRun::set(input_skip, random_numbers(static_cast<std::size_t>(input_skip.size()), 6));
        const Numbers plain = gradients(run, false, {}).input;
        const Numbers skipped = gradients(run, false, input_skip).input;
        EXPECT_TRUE(agree<double>(skipped, sum(plain, numbers_of(input_skip)), 1e-13));
    }
}

TEST_P(EveryRealInput, MayPutTheGradientIntoThePlaceOfItsInput) {
    for (const DType type : {DType::F32, DType::BF16}) {
        LayerRun run = EveryLayer::run(type);
        const Gradients apart = gradients(run, false, {});
        run.forward();
        run.zero_gradients();
        const Tensor dy = output_gradient(run, output_weights(run));
        LayerCall call = run.call();
        run.layer->backward(call, run.kept, run.x, dy, {}, run.x);
        EXPECT_EQ(numbers_of(run.x), apart.input);
        std::size_t index = 0;
        for (Parameter* const parameter : run.layer->parameters()) {
            EXPECT_EQ(numbers_of(parameter->gradient), apart.weights[index++]) << parameter->name;
        }
    }
}

/// Inside of a unit with branches such an input is gone when the backward comes.
TEST_P(EveryRealInput, NeedsNoInputInItsBackwardWhereItsKindSaysSo) {
    const Case& c = GetParam();
    if (inputs_read_again(c.spec, std::vector{c.input}).front()) {
        return;
    }
    for (const bool split : {false, true}) {
        LayerRun run = EveryLayer::run(DType::F32);
        const Gradients expected = gradients(run, split, {});
        run.forward();
        run.zero_gradients();
        const Tensor dy = output_gradient(run, output_weights(run));
        Tensor dx = run.input_gradient_like();
        LayerCall call = run.call();
        const ConstView gone(nullptr, DType::F32, run.x.rows(), run.x.columns());
        if (split) {
            run.layer->backward_input(call, run.kept, gone, dy, {}, dx);
            run.layer->backward_weight(call, run.kept, gone, dy);
        } else {
            run.layer->backward(call, run.kept, gone, dy, {}, dx);
        }
        EXPECT_EQ(numbers_of(dx), expected.input);
        std::size_t index = 0;
        for (Parameter* const parameter : run.layer->parameters()) {
            EXPECT_EQ(numbers_of(parameter->gradient), expected.weights[index++]);
        }
    }
}

TEST_P(EveryLayer, TrainsItsWeightsWhenNobodyWantsTheGradientOfItsInput) {
    LayerRun run = EveryLayer::run(DType::F32);
    const Gradients wanted = gradients(run, false, {});
    run.forward();
    run.zero_gradients();
    const Tensor dy = output_gradient(run, output_weights(run));
    LayerCall call = run.call();
    run.layer->backward(call, run.kept, run.x, dy, {}, {});
    std::size_t index = 0;
    for (Parameter* const parameter : run.layer->parameters()) {
        EXPECT_EQ(numbers_of(parameter->gradient), wanted.weights[index++]) << parameter->name;
    }
}

TEST_P(EveryLayer, AddsToTheGradientsOfItsWeights) {
    LayerRun run = EveryLayer::run(DType::F64);
    const Gradients once = gradients(run, false, {});
    run.forward();
    const Tensor dy = output_gradient(run, output_weights(run));
    LayerCall call = run.call();
    Tensor dx = run.input_gradient_like();
    run.layer->backward(call, run.kept, run.x, dy, {}, dx);
    std::size_t index = 0;
    for (Parameter* const parameter : run.layer->parameters()) {
        Numbers twice = once.weights[index++];
        std::ranges::transform(twice, twice.begin(), [](double g) { return 2 * g; });
        EXPECT_TRUE(agree<double>(numbers_of(parameter->gradient), twice, 1e-14))
            << parameter->name;
    }
}

TEST_P(EveryLayer, KeepsTheBytesItTells) {
    const Case& c = GetParam();
    for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
        LayerRun run = EveryLayer::run(type);
        const Bytes before = run.arena.live()[MemoryKind::Stash];
        const Tensor y = run.forward();
        EXPECT_EQ(run.arena.live()[MemoryKind::Stash] - before, run.layer->kept_bytes(c.samples));
        EXPECT_EQ(y.bytes(), run.layer->output_bytes(c.samples));
        EXPECT_EQ(run.x.bytes(), run.layer->input_bytes(c.samples));
        EXPECT_EQ(run.arena.live()[MemoryKind::Workspace], run.layer->workspace_bytes(c.samples));

        const Tensor dy = run.output_like();
        Tensor dx = run.input_gradient_like();
        LayerCall call = run.call();
        run.layer->backward_input(call, run.kept, run.x, dy, {}, dx);
        EXPECT_EQ(run.arena.live()[MemoryKind::Stash] - before,
                  run.layer->kept_bytes(c.samples) + run.layer->split_bytes(c.samples));
        run.layer->free_unread(run.kept);
        EXPECT_EQ(run.arena.live()[MemoryKind::Stash] - before,
                  run.layer->kept_bytes(c.samples) + run.layer->split_bytes(c.samples) -
                      run.layer->unread_bytes(c.samples));
    }
}

/// Memory of one tensor.
struct Piece {
    void* data = nullptr;
    std::size_t bytes = 0;
    DType type{};

    bool operator==(const Piece&) const = default;

    /// Overwrites the numbers with NaN; ids of tokens, which are places, with 0.
    void spoil() const { std::memset(data, type == DType::I32 ? 0 : 0xff, bytes); }
};

Piece piece_of(Tensor& tensor) {
    return {.data = tensor.data(),
            .bytes = static_cast<std::size_t>(tensor.bytes().count),
            .type = tensor.dtype()};
}

/// Every tensor that a layer keeps, without its input.
std::vector<Piece> pieces_of(Kept& kept) {
    std::vector<Piece> all;
    const auto add = [&all](Tensor& tensor) {
        if (!tensor.empty()) {
            all.push_back(piece_of(tensor));
        }
    };
    std::ranges::for_each(kept.tensors, add);
    for (Kept& inner : kept.inner) {
        add(inner.input);
        add(inner.gradient);
        std::ranges::copy(pieces_of(inner), std::back_inserter(all));
    }
    return all;
}

/// Runs F and I, and lets the layer free what its W does not read.
class BetweenInputAndWeight {
  public:
    explicit BetweenInputAndWeight(LayerRun& run) : run_(run) {
        run.forward();
        run.zero_gradients();
        dy_ = output_gradient(run, output_weights(run));
        Tensor dx = run.input_gradient_like();
        LayerCall call = run.call();
        run.layer->backward_input(call, run.kept, run.x, dy_, {}, dx);
        freed = pieces_of(run.kept);
        run.layer->free_unread(run.kept);
        kept = pieces_of(run.kept);
        std::erase_if(freed,
                      [this](const Piece& piece) { return std::ranges::count(kept, piece) > 0; });
        (run.layer->weight_reads_input() ? kept : freed).push_back(piece_of(run.x));
        if (!dy_.empty()) {
            (run.layer->weight_reads_gradient() ? kept : freed).push_back(piece_of(dy_));
        }
    }

    /// The gradients of the weights behind W.
    std::vector<Numbers> weight_half() {
        LayerCall call = run_.call();
        run_.layer->backward_weight(call, run_.kept, run_.x, dy_);
        std::vector<Numbers> gradients;
        for (Parameter* const parameter : run_.layer->parameters()) {
            gradients.push_back(numbers_of(parameter->gradient));
        }
        return gradients;
    }

    std::vector<Piece> kept;
    std::vector<Piece> freed;

  private:
    LayerRun& run_;
    Tensor dy_;
};

TEST_P(EveryLayer, ReadsInItsWeightHalfWhatIsKeptForItAndNothingElse) {
    for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
        LayerRun whole = EveryLayer::run(type);
        const std::vector<Numbers> expected = gradients(whole, false, {}).weights;
        LayerRun spoilt = EveryLayer::run(type);
        BetweenInputAndWeight freed(spoilt);
        std::ranges::for_each(freed.freed, &Piece::spoil);
        EXPECT_EQ(freed.weight_half(), expected);
        for (std::size_t piece = 0; piece < freed.kept.size(); ++piece) {
            LayerRun run = EveryLayer::run(type);
            BetweenInputAndWeight kept(run);
            kept.kept.at(piece).spoil();
            EXPECT_NE(kept.weight_half(), expected)
                << "W does not read tensor " << piece << ", which is kept for it";
        }
    }
}

TEST_P(EveryRealInput, MayPutTheGradientIntoThePlaceOfItsInputWhereItsWeightHalfDoesNotReadIt) {
    for (const DType type : {DType::F32, DType::BF16}) {
        LayerRun run = EveryLayer::run(type);
        if (run.layer->weight_reads_input()) {
            continue;
        }
        const Gradients apart = gradients(run, true, {});
        run.forward();
        run.zero_gradients();
        const Tensor dy = output_gradient(run, output_weights(run));
        LayerCall call = run.call();
        run.layer->backward_input(call, run.kept, run.x, dy, {}, run.x);
        EXPECT_EQ(numbers_of(run.x), apart.input);
        run.layer->free_unread(run.kept);
        run.layer->backward_weight(call, run.kept, run.x, dy);
        std::size_t index = 0;
        for (Parameter* const parameter : run.layer->parameters()) {
            EXPECT_EQ(numbers_of(parameter->gradient), apart.weights[index++]) << parameter->name;
        }
    }
}

TEST(Embedding, RefusesATokenOutsideTheVocabularyNamingItsPlace) {
    const SampleShape ids{.token_ids = true, .positions = 3, .width = 0};
    LayerRun run(embedding_spec(7, 4, 3), ids, 2, DType::F32);
    run.batch.tokens[4] = 7;
    try {
        run.forward();
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_STREQ(error.what(), "sample 1, position 1: token 7, expected 0 to 6");
    }
}

TEST(CrossEntropy, RefusesATargetThatIsNoClassNamingItsPlace) {
    LayerRun run(simple(LayerType::CrossEntropy), numbers(1, 10), 3, DType::F32);
    run.batch.targets[2] = -2;  // -1 is no target
    try {
        run.forward();
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_STREQ(error.what(), "sample 2, position 0: target -2, expected -1 to 9");
    }
}

TEST(CrossEntropy, IsExactForLogitsFarFromZero) {
    LayerRun run(simple(LayerType::CrossEntropy), numbers(1, 2), 1, DType::F32);
    run.batch.targets[0] = 0;
    LayerRun::set(run.x, {1e30, -1e30});
    run.forward();
    EXPECT_EQ(run.loss, 0.0);
}

TEST(CrossEntropy, HandsOnWhatIsNotANumber) {
    LayerRun run(simple(LayerType::CrossEntropy), numbers(1, 40), 1, DType::F32);
    Numbers logits(40, 0.5);
    logits[23] = std::nan("");
    LayerRun::set(run.x, logits);
    run.forward();
    EXPECT_TRUE(std::isnan(run.loss));
}

TEST(Attention, DoesNotLookAhead) {
    LayerRun run(attention_spec(2), numbers(70, 4), 1, DType::F32);
    const Numbers before = numbers_of(run.forward());
    Numbers x = numbers_of(run.x);
    for (std::size_t i = x.size() - 4; i < x.size(); ++i) {
        x[i] += 1;  // the last position
    }
    LayerRun::set(run.x, x);
    const Numbers after = numbers_of(run.forward());
    EXPECT_TRUE(std::equal(before.begin(), before.end() - 4, after.begin()));
    EXPECT_FALSE(std::equal(before.begin(), before.end(), after.begin()));
}

TEST(Attention, InHalfPrecisionRoundsItsProbabilitiesAndItsResultsOnly) {
    const AttentionShape shape{
        .samples = 2, .positions = 70, .heads = 2, .key_value_heads = 2, .head_size = 8};
    const Kernels& kernels = cpu_kernels();
    // By the same operands, which both types can hold.
    struct Found {
        Numbers context;
        Numbers gradients;
    };
    const auto found = [&](DType type) {
        Arena arena;
        const auto made = [&](std::int64_t rows, std::int64_t columns, std::uint64_t stream) {
            Numbers numbers = random_numbers(static_cast<std::size_t>(rows * columns), stream);
            Tensor half = arena.allocate(DType::BF16, rows, columns, MemoryKind::Stash);
            LayerRun::set(half, numbers);
            Tensor tensor = arena.allocate(type, rows, columns, MemoryKind::Stash);
            LayerRun::set(tensor, numbers_of(half));
            return tensor;
        };
        Tensor qkv = made(140, 48, 1);
        const Tensor dcontext = made(140, 16, 2);
        Tensor softmax = arena.allocate(type, 280, 70, MemoryKind::Stash);
        Tensor context = arena.allocate(type, 140, 16, MemoryKind::Stash);
        kernels.attention_forward(shape, qkv, softmax, context);
        std::byte* const scratch = arena.workspace(attention_scratch(shape, type));
        View gradients = qkv;
        kernels.attention_backward(shape, softmax, context, dcontext, gradients, scratch);
        EXPECT_EQ(gradients.data, View(qkv).data);
        return Found{numbers_of(context), numbers_of(qkv)};
    };
    const Found half = found(DType::BF16);
    const Found exact = found(DType::F64);
    EXPECT_TRUE(agree<double>(half.context, exact.context, 4e-3));
    EXPECT_TRUE(agree<double>(half.gradients, exact.gradients, 6e-3));
}

}  // namespace layers_test
}  // namespace pipetwin::exec
