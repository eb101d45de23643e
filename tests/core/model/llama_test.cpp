// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/model/layer_spec.h"
#include "core/model/model.h"
#include "core/model/transformers.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace llama_test {

using testing::error_of;

const LlamaSizes small{.layers = 2,
                       .d_model = 16,
                       .heads = 4,
                       .key_value_heads = 2,
                       .context = 8,
                       .vocabulary = 32,
                       .feed_forward = 24};

std::int64_t parameters_of(const LlamaSizes& sizes) {
    const Model model = llama_model(sizes);
    std::int64_t sum = -model.tied_count();
    for (int i = 0; i < model.layer_count(); ++i) {
        sum += model.layer(i).parameter_count;
    }
    return sum;
}

TEST(LlamaModel, HasTheUnitsOfAGpt) {
    const Model model = llama_model(small);
    std::vector<std::string> names;
    for (int i = 0; i < model.layer_count(); ++i) {
        names.push_back(model.layer(i).spec.name);
    }
    EXPECT_EQ(names,
              (std::vector<std::string>{"embedding",
                                        "block0.attention",
                                        "block0.feed_forward",
                                        "block1.attention",
                                        "block1.feed_forward",
                                        "head"}));
}

// The numbers of the models' cards at Hugging Face.
TEST(LlamaModel, HasThePublishedNumbersOfParameters) {
    LlamaSizes llama2_7b{.layers = 32,
                         .d_model = 4096,
                         .heads = 32,
                         .context = 4096,
                         .vocabulary = 32'000,
                         .feed_forward = 11'008};
    EXPECT_EQ(parameters_of(llama2_7b), 6'738'415'616);
    LlamaSizes llama3_8b = llama2_7b;
    llama3_8b.key_value_heads = 8;
    llama3_8b.vocabulary = 128'256;
    llama3_8b.feed_forward = 14'336;
    EXPECT_EQ(parameters_of(llama3_8b), 8'030'261'248);
    const LlamaSizes tiny_llama{.layers = 22,
                                .d_model = 2048,
                                .heads = 32,
                                .key_value_heads = 4,
                                .context = 2048,
                                .vocabulary = 32'000,
                                .feed_forward = 5632};
    EXPECT_EQ(parameters_of(tiny_llama), 1'100'048'384);
    const LlamaSizes llama32_1b{.layers = 16,
                                .d_model = 2048,
                                .heads = 32,
                                .key_value_heads = 8,
                                .head_size = 64,
                                .context = 8192,
                                .vocabulary = 128'256,
                                .feed_forward = 8192,
                                .tied = true};
    EXPECT_EQ(parameters_of(llama32_1b), 1'235'814'400);
    const LlamaSizes mistral_nemo{.layers = 40,  // heads narrower than d_model / heads
                                  .d_model = 5120,
                                  .heads = 32,
                                  .key_value_heads = 8,
                                  .head_size = 128,
                                  .context = 1024,
                                  .vocabulary = 131'072,
                                  .feed_forward = 14'336};
    EXPECT_EQ(parameters_of(mistral_nemo), 12'247'782'400);
}

std::string fault_of(const LlamaSizes& sizes) {
    return error_of([&] { llama_model(sizes); }).text();
}

TEST(LlamaModel, RefusesHeadsThatGroupsDoNotDivide) {
    LlamaSizes sizes = small;
    sizes.key_value_heads = 3;
    const Error error = error_of([&] { llama_model(sizes); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "model, layer 'block0.attention.attention'");
    EXPECT_EQ(error.text(), "3 key_value_heads do not divide 4 heads, expected groups of one size");
    sizes.key_value_heads = 8;
    EXPECT_EQ(fault_of(sizes),
              "8 key_value_heads do not divide 4 heads, expected groups of one size");
    sizes = small;
    sizes.heads = 3;
    sizes.key_value_heads = 1;
    EXPECT_EQ(fault_of(sizes), "3 heads do not divide the width 16");
    sizes.head_size = 6;  // then they need not
    EXPECT_NO_THROW(llama_model(sizes));
}

TEST(LlamaModel, RefusesRotaryPositionsThatThereAreNot) {
    LlamaSizes sizes = small;
    sizes.head_size = 5;
    EXPECT_EQ(fault_of(sizes),
              "rotary positions turn pairs of numbers, but a head has 5, expected an even number");
    sizes = small;
    sizes.rotary.base = 1;
    EXPECT_EQ(fault_of(sizes), "rotary_base = 1, expected more than 1");
    sizes.rotary = {.base = 0, .factor = 8};
    EXPECT_EQ(fault_of(sizes), "rotary positions are scaled, but rotary_base is not there");
    sizes.rotary = {.base = 10'000, .factor = 8, .context = 64, .low_frequency = 4};
    EXPECT_EQ(fault_of(sizes),
              "rotary_low_frequency = 4 and rotary_high_frequency = 4, expected the second above "
              "the first");
    sizes = small;
    sizes.epsilon = 0;
    EXPECT_EQ(fault_of(sizes), "epsilon = 0, expected more than 0");
}

TEST(LlamaModel, RefusesSizesOfNoModel) {
    for (int LlamaSizes::*member : {&LlamaSizes::layers,
                                    &LlamaSizes::d_model,
                                    &LlamaSizes::heads,
                                    &LlamaSizes::key_value_heads,
                                    &LlamaSizes::context,
                                    &LlamaSizes::vocabulary,
                                    &LlamaSizes::feed_forward}) {
        LlamaSizes sizes = small;
        sizes.*member = -1;
        EXPECT_EQ(error_of([&] { llama_model(sizes); }).kind(), ErrorKind::BadInput);
    }
    for (int LlamaSizes::*member : {&LlamaSizes::layers,
                                    &LlamaSizes::d_model,
                                    &LlamaSizes::head_size,
                                    &LlamaSizes::feed_forward}) {
        LlamaSizes sizes = small;
        sizes.*member = 2'147'483'646;
        EXPECT_EQ(error_of([&] { llama_model(sizes); }).kind(), ErrorKind::BadInput);
    }
}

TEST(SwiGlu, NeedsAsManyValuesAsGates) {
    EXPECT_EQ(error_of([] {
                  Model::chain({.positions = 1, .width = 7}, {{.type = LayerType::SwiGlu}});
              }).text(),
              "swiglu reads 1 x 7, expected an even width: gates, then as many values");
}

TEST(RotaryFrequency, FallsGeometricallyFromOneRadian) {
    const Rotary rotary{.base = 10'000};
    EXPECT_DOUBLE_EQ(rotary_frequency(rotary, 0, 8), 1);
    EXPECT_DOUBLE_EQ(rotary_frequency(rotary, 1, 8), 0.1);
    EXPECT_DOUBLE_EQ(rotary_frequency(rotary, 3, 8), 0.001);
    EXPECT_DOUBLE_EQ(rotary_frequency({.base = 10'000, .factor = 4}, 3, 8), 0.00025);
}

// Llama 3.1's rule, as wave lengths: longer than context / low: divided; shorter than context /
// high: as they are; between them a mean weighed by context / length.
TEST(RotaryFrequency, OfLongContextsIsScaledByItsWaveLength) {
    const Rotary rotary{.base = 500'000, .factor = 32, .context = 8192};
    constexpr int size = 64;
    int kept = 0;
    int divided = 0;
    int between = 0;
    for (int pair = 0; pair < size / 2; ++pair) {
        const double plain = std::pow(500'000.0, -2.0 * pair / size);
        const double length = 2 * std::numbers::pi / plain;
        const double found = rotary_frequency(rotary, pair, size);
        if (length < 8192.0 / 4) {
            EXPECT_DOUBLE_EQ(found, plain);
            ++kept;
        } else if (length > 8192.0) {
            EXPECT_DOUBLE_EQ(found, plain / 32);
            ++divided;
        } else {
            const double smooth = (8192 / length - 1) / (4 - 1);
            EXPECT_NEAR(found, (1 - smooth) * plain / 32 + smooth * plain, 1e-18);
            ++between;
        }
    }
    EXPECT_GT(kept, 0);
    EXPECT_GT(divided, 0);
    EXPECT_GT(between, 0);
}

}  // namespace llama_test
}  // namespace pipetwin
