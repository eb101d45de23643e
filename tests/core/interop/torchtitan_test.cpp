// SPDX-License-Identifier: Apache-2.0
#include "core/interop/torchtitan.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/model/model.h"
#include "core/model/transformers.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace torchtitan_test {

using testing::error_of;
using ::testing::HasSubstr;
using Modules = std::vector<std::vector<std::string>>;

/// What torchtitan's own tests expect of its default split: 4 layers in 1 and in 2 stages.
TEST(TorchtitanModules, AreThoseOfTorchtitansOwnSplit) {
    EXPECT_EQ(
        torchtitan_modules(Partition({10}, 10)),
        (Modules{
            {"tok_embeddings", "layers.0", "layers.1", "layers.2", "layers.3", "norm", "output"}}));
    EXPECT_EQ(torchtitan_modules(Partition({5, 5}, 10)),
              (Modules{{"tok_embeddings", "layers.0", "layers.1"},
                       {"layers.2", "layers.3", "norm", "output"}}));
}

TEST(TorchtitanModules, EmbeddingAndHeadMayStandAlone) {
    EXPECT_EQ(torchtitan_modules(Partition({1, 4, 1}, 6)),
              (Modules{{"tok_embeddings"}, {"layers.0", "layers.1"}, {"norm", "output"}}));
}

TEST(TorchtitanModules, ACutThroughABlockIsRefusedByName) {
    const Error error = error_of([] { torchtitan_modules(Partition({4, 2}, 6)); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_THAT(error.text(), HasSubstr("stage 1 begins with block1.feed_forward"));
    EXPECT_THAT(error.hint(), HasSubstr("--whole-blocks"));
}

TEST(TorchtitanModules, ThePrintedListIsJson) {
    const Modules modules = torchtitan_modules(Partition({1, 4, 1}, 6));
    EXPECT_EQ(nlohmann::json::parse(print_torchtitan_modules(modules)).get<Modules>(), modules);
}

TEST(TransformerBlocks, AreCountedWhereTheLayersAreThoseOfAGpt) {
    const Model model =
        gpt_model({.layers = 3, .d_model = 8, .heads = 2, .context = 4, .vocabulary = 9});
    std::vector<std::string> names;
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        names.push_back(model.layer(layer).spec.name);
    }
    EXPECT_EQ(transformer_blocks(names), 3);
    names[2] = "block0.experts";
    EXPECT_EQ(error_of([&] { transformer_blocks(names); }).text(),
              "layer 2 is 'block0.experts', expected 'block0.feed_forward'");
    for (const std::vector<std::string>& few : {std::vector<std::string>{},
                                                {"embedding"},
                                                {"embedding", "head"},
                                                {"embedding", "block0.attention", "head"}}) {
        EXPECT_EQ(error_of([&] { transformer_blocks(few); }).kind(), ErrorKind::Infeasible);
    }
}

}  // namespace torchtitan_test
}  // namespace pipetwin
