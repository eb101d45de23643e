// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/launch/yaml_settings.h"
#include "core/interop/program_flags.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace nemo_config_test {

using testing::error_of;
using ::testing::HasSubstr;

MegatronFlags read_nemo(const std::string& text, LeaveOut leave_out = LeaveOut::Nothing) {
    return nemo_flags(parse_yaml_settings(text, "x.yaml"), leave_out);
}

/// A model with keys of its own, in a trainer with keys of its own.
std::string nemo_file(const std::string& trainer, const std::string& model) {
    return "trainer:\n  num_nodes: 2\n" + trainer + "model:\n  num_layers: 8\n" + model;
}

/// nemo/collections/nlp/parts/megatron_trainer_builder.py reads cfg.get('megatron_amp_O2', False).
TEST(Nemo, HalfPrecisionNeedsWeightsOfTwoBytes) {
    const std::string half = "  precision: bf16-mixed\n";
    EXPECT_TRUE(read_nemo(nemo_file(half, "  megatron_amp_O2: True\n")).bf16);
    for (const std::string model : {"", "  megatron_amp_O2: false\n"}) {
        const Error error = error_of([&] { read_nemo(nemo_file(half, model)); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.text(), HasSubstr("weights have four bytes"));
        EXPECT_EQ(read_nemo(nemo_file(half, model), LeaveOut::All).left_out.size(), 1U);
    }
    EXPECT_FALSE(read_nemo(nemo_file("  precision: 32\n", "")).bf16);
    EXPECT_FALSE(read_nemo(nemo_file("  precision: 32\n", "  megatron_amp_O2: false\n")).bf16);
}

/// Trainer(gradient_clip_val=None) of Lightning clips nothing.
TEST(Nemo, WithoutANormNothingIsClipped) {
    EXPECT_EQ(read_nemo(nemo_file("", "")).clip_norm, 0);
    EXPECT_EQ(read_nemo(nemo_file("  gradient_clip_val: null\n", "")).clip_norm, 0);
    EXPECT_EQ(read_nemo(nemo_file("  gradient_clip_val: 0.5\n", "")).clip_norm, 0.5);
}

TEST(Nemo, ValuesThatChangeTheRunAreRefused) {
    for (const std::string off : {"  activations_checkpoint_layers_per_pipeline: null\n",
                                  "  activations_checkpoint_layers_per_pipeline: 0\n",
                                  "  ffn_dropout: 0.0\n",
                                  "  ffn_dropout: 0\n"}) {
        EXPECT_EQ(read_nemo(nemo_file("", off)).layers, 8) << off;
    }
    for (const std::string on :
         {"  activations_checkpoint_layers_per_pipeline: 3\n", "  ffn_dropout: 0.1\n"}) {
        EXPECT_EQ(error_of([&] { read_nemo(nemo_file("", on)); }).kind(), ErrorKind::BadInput)
            << on;
    }
}

/// The converter of Llama's weights sets it where rotations are scaled, as in Llama 3.1; it is true
/// in the launcher's files of these.
TEST(Nemo, ScaledRotationsAreTheSameModel) {
    EXPECT_EQ(read_nemo(nemo_file("", "  scale_positional_embedding: true\n")).layers, 8);
}

/// Lightning: a number of devices, the numbers of some, or -1 and "auto" for all.
TEST(Nemo, DevicesOfANodeAreANumberOrAList) {
    const auto processes = [](const std::string& devices) {
        return read_nemo(nemo_file("  devices: " + devices + "\n", "")).processes;
    };
    EXPECT_EQ(processes("8"), 16);
    EXPECT_EQ(processes("[4, 5]"), 4);
    EXPECT_EQ(processes("[4]"), 2);
    EXPECT_EQ(processes("\"0,1,2\""), 6);
    EXPECT_EQ(processes("-1"), std::nullopt);
    EXPECT_EQ(processes("auto"), std::nullopt);
    EXPECT_EQ(error_of([&] { processes("0"); }).kind(), ErrorKind::BadInput);
}

TEST(Nemo, AFileHasKeysOfTheProgram) {
    const auto has_keys = [](const std::string& text) {
        return has_nemo_keys(parse_yaml_settings(text, "x.yaml"));
    };
    EXPECT_TRUE(has_keys("model:\n  encoder_seq_length: 8\n"));
    EXPECT_TRUE(has_keys("cfg:\n  model:\n    num_layers: 8\n"));
    EXPECT_TRUE(has_keys("trainer:\n  devices: 8\n"));
    EXPECT_FALSE(has_keys("name: x\nnum_layers: 8\n"));
    EXPECT_FALSE(has_keys(""));
}

}  // namespace nemo_config_test
}  // namespace pipetwin
