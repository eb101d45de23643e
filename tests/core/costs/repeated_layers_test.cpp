// SPDX-License-Identifier: Apache-2.0
#include "core/costs/repeated_layers.h"

#include <gmock/gmock.h>

#include "core/costs/profile_json.h"
#include "tests/support/error_of.h"
#include "tests/support/scenario_plans.h"

namespace pipetwin {
namespace repeated_layers_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::layer;

std::vector<std::string> names_of(const Profile& profile) {
    std::vector<std::string> names;
    for (const LayerCost& one : profile.layers) {
        names.push_back(one.name);
    }
    return names;
}

/// As a gpt is profiled: two halves to a block, times of their own.
Profile blocks(int count) {
    Profile profile;
    profile.layers.push_back(layer("embedding", 3, 8, 4));
    for (int i = 0; i < count; ++i) {
        profile.layers.push_back(layer("block" + std::to_string(i) + ".attention", 10 + i, 8, 40));
        profile.layers.push_back(layer("block" + std::to_string(i) + ".mlp", 20 - i, 8, 30));
    }
    profile.layers.push_back(layer("head", 5, 0, 9));
    for (LayerCost& one : profile.layers) {
        for (LayerSample& sample : one.samples) {
            sample.workspace = {};  // the helper's grows with its time
        }
    }
    return profile;
}

TEST(RepeatedLayers, AreTheBlocksWhoseBytesAreAlike) {
    EXPECT_EQ(repeated_layers(blocks(3), "x"),
              (RepeatedLayers{.first = 1, .group = 2, .copies = 3}));
}

TEST(RepeatedLayers, AreThoseThatCoverMostLayersOfTheModel) {
    Profile profile = blocks(2);
    for (int i = 0; i < 5; ++i) {
        profile.layers.push_back(layer("tail" + std::to_string(i), 1, 2, 3));
    }
    EXPECT_EQ(repeated_layers(profile, "x"), (RepeatedLayers{.first = 6, .group = 1, .copies = 5}));
}

TEST(RepeatedLayers, MayBeginWithTheModel) {
    Profile profile;
    for (int i = 0; i < 4; ++i) {
        profile.layers.push_back(layer("l" + std::to_string(i), 1, 2, 3));
    }
    EXPECT_EQ(repeated_layers(profile, "x"), (RepeatedLayers{.first = 0, .group = 1, .copies = 4}));
}

TEST(RepeatedLayers, OfAModelWithoutAnyAreRefusedWithTheKeyToSet) {
    const Error error = testing::error_of([] { repeated_layers(blocks(1), "x.profile.json"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "x.profile.json");
    EXPECT_THAT(error.text(), HasSubstr("none of its 4 layers is there twice in a row"));
    EXPECT_THAT(error.hint(), HasSubstr("\"repeat\": 2"));
}

TEST(RepeatedLayers, CountOnInTheirNames) {
    const Profile profile = blocks(3);
    const RepeatedLayers repeated = repeated_layers(profile, "x");
    EXPECT_EQ(names_of(with_copies(profile, repeated, 3)), names_of(profile));
    EXPECT_EQ(names_of(with_copies(profile, repeated, 12)), names_of(blocks(12)));
    EXPECT_THAT(names_of(with_copies(profile, repeated, 1)),
                ElementsAre("embedding", "block0.attention", "block0.mlp", "head"));
}

// "layer9" and "layer10" share no digit, "layer10" and "layer11" do.
TEST(RepeatedLayers, CountOnAcrossAPowerOfTen) {
    Profile profile;
    for (int i = 9; i < 12; ++i) {
        profile.layers.push_back(layer("layer" + std::to_string(i), 1, 2, 3));
    }
    EXPECT_THAT(names_of(with_copies(profile, repeated_layers(profile, "x"), 5)),
                ElementsAre("layer9", "layer10", "layer11", "layer12", "layer13"));
}

TEST(RepeatedLayers, KeepWhatTheyRead) {
    Profile profile;
    profile.layers.push_back(layer("in", 1, 2, 3));
    for (int i = 0; i < 3; ++i) {
        const std::string before = i == 0 ? "in" : "b" + std::to_string(i - 1);
        profile.layers.push_back(layer("a" + std::to_string(i), 1, 2, 3, {before}));
        profile.layers.push_back(
            layer("b" + std::to_string(i), 1, 2, 4, {before, "a" + std::to_string(i)}));
    }
    profile.layers.push_back(layer("out", 1, 0, 3, {"in", "b2"}));
    const Profile more = with_copies(profile, repeated_layers(profile, "x"), 4);
    ASSERT_EQ(more.layers.size(), 10U);
    EXPECT_EQ(more.layers[8].name, "b3");
    EXPECT_THAT(more.layers[8].inputs, ElementsAre("b2", "a3"));
    EXPECT_THAT(more.layers[9].inputs, ElementsAre("in", "b3"));
}

}  // namespace repeated_layers_test
}  // namespace pipetwin
