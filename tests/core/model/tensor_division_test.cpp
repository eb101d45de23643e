// SPDX-License-Identifier: Apache-2.0
#include "core/model/tensor_division.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/model/transformers.h"
#include "tests/support/error_of.h"

/// What each of several devices has of a model (Shoeybi et al., arXiv 1909.08053, section 3).
namespace pipetwin {
namespace tensor_division_test {

using ::testing::HasSubstr;

/// 8 heads of 6 numbers, `key_value_heads` of keys and values.
Model llama_with(int key_value_heads) {
    return llama_model({.layers = 1,
                        .d_model = 16,
                        .heads = 8,
                        .key_value_heads = key_value_heads,
                        .head_size = 6,
                        .context = 8,
                        .vocabulary = 24,
                        .feed_forward = 16});
}

const LayerSpec& attention_of(const Model& model) {
    return model.layer(1).spec.inner.at(1);
}

TEST(TensorDivision, DividesHeadsOfKeysAndValuesOrSharesThem) {
    struct Division {
        int key_value_heads;
        int devices;
        int of_a_device;
        int sharers;
    };
    for (const Division& each : {Division{8, 2, 4, 1},
                                 Division{4, 4, 1, 1},
                                 Division{2, 4, 1, 2},
                                 Division{2, 8, 1, 4},
                                 Division{1, 8, 1, 8}}) {
        const Model whole = llama_with(each.key_value_heads);
        const Model part = divided_among(whole, each.devices);
        const LayerSpec& attention = attention_of(part);
        EXPECT_EQ(attention.heads, 8 / each.devices);
        EXPECT_EQ(attention.key_value_heads, each.of_a_device);
        EXPECT_EQ(attention.cut.sharers, each.sharers);
        // The norm's gain, columns of queries, keys and values, and rows of the output projection.
        EXPECT_EQ(
            part.layer(1).parameter_count,
            16 + 16 * 6 * (8 / each.devices + 2 * each.of_a_device) + 6 * (8 / each.devices) * 16);
    }
}

/// 3 heads of keys and values, which neither 2 nor 4 devices can have equally; 24 heads of queries
/// and as wide a vocabulary as all of these divide.
TEST(TensorDivision, RefusesHeadsThatAreNeitherDividedNorSharedEqually) {
    const Model model = llama_model({.layers = 1,
                                     .d_model = 16,
                                     .heads = 24,
                                     .key_value_heads = 3,
                                     .head_size = 6,
                                     .context = 8,
                                     .vocabulary = 24,
                                     .feed_forward = 24});
    EXPECT_NO_THROW(divided_among(model, 3));
    EXPECT_NO_THROW(divided_among(model, 6));
    const Error error = testing::error_of([&] { divided_among(model, 4); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_THAT(error.text(),
                HasSubstr("4 devices cannot share layer 'block0.attention' equally: it has 3 heads "
                          "of keys and values"));
    EXPECT_THAT(error.hint(), HasSubstr("set pipeline.tensor_parallel = 3"));
}

}  // namespace tensor_division_test
}  // namespace pipetwin
