// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/checkpoint_json.h"

#include <cstddef>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace checkpoint_json_test {

CheckpointManifest manifest() {
    return {.steps_done = 50,
            .optimizer = "adamw",
            .precision = "bf16",
            .seed = 0xffff'ffff'ffff'ffffU,
            .batch = 32,
            .data = "text, 303076 bytes in 17 files",
            .tool_version = "0.1.0",
            .files = {{.name = "000.weights.safetensors",
                       .bytes = 1000,
                       .tensors = {{.name = "embedding.tokens",
                                    .hash = "0123456789abcdef0123456789abcdef"}}}}};
}

TEST(CheckpointJson, ReadsWhatItWrites) {
    EXPECT_EQ(parse_checkpoint(print_checkpoint(manifest()), "x"), manifest());
}

// Its own hash: a digit of the step would else be believed.
TEST(CheckpointJson, RefusesAnyOtherValue) {
    const std::string text = print_checkpoint(manifest());
    int refused = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string changed = text;
        changed[i] = changed[i] == '1' ? '2' : '1';
        if (text[i] == ' ' || text[i] == '\n') {
            continue;  // between values; within one it changes the hash, which other places show
        }
        EXPECT_THROW(parse_checkpoint(changed, "x"), Error) << i << ": " << text[i];
        ++refused;
    }
    EXPECT_GT(refused, 300);
}

TEST(CheckpointJson, SaysWhereItIsWrong) {
    const Error error = testing::error_of([] { parse_checkpoint("{\"schema_version\": 2}", "x"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "x: /schema_version");
}

}  // namespace checkpoint_json_test
}  // namespace pipetwin
