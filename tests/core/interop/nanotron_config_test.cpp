// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/launch/tokenizers.h"
#include "core/interop/launch/yaml_settings.h"
#include "core/interop/megatron_model.h"
#include "core/interop/program_flags.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace nanotron_config_test {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

/// A Llama of `layers` blocks in `stages` stages.
std::string nanotron(int layers, int stages, int words, const std::string& more = "") {
    return fmt::format(
               "model:\n  dtype: bfloat16\n  make_vocab_size_divisible_by: 1\n  model_config:\n"
               "    hidden_act: silu\n    hidden_size: 1024\n    intermediate_size: 4096\n"
               "    is_llama_config: true\n    max_position_embeddings: 2048\n"
               "    num_attention_heads: 16\n    num_hidden_layers: {}\n"
               "    num_key_value_heads: 4\n    rope_scaling: null\n"
               "    tie_word_embeddings: false\n    vocab_size: {}\n"
               "optimizer:\n  accumulate_grad_in_fp32: true\n  clip_grad: 1.0\n  zero_stage: 1\n"
               "  optimizer_factory:\n    name: adamW\n"
               "tokens:\n  batch_accumulation_per_replica: 16\n  micro_batch_size: 2\n"
               "  sequence_length: 2048\n"
               "parallelism:\n  dp: 2\n  pp: {}\n  pp_engine: 1f1b\n  tp: 2\n"
               "  tp_mode: REDUCE_SCATTER\n",
               layers,
               words,
               stages) +
           more;
}

MegatronFlags read(const std::string& text, LeaveOut leave_out = LeaveOut::Nothing) {
    return nanotron_flags(parse_yaml_settings(text, "x.yaml"), leave_out);
}

TEST(Nanotron, SaysASplitABatchAndAModel) {
    const MegatronFlags flags = read(nanotron(16, 4, 32'000));
    EXPECT_EQ(flags.pipeline_size, 4);
    EXPECT_EQ(flags.tensor_size, 2);
    EXPECT_EQ(flags.processes, 16);
    EXPECT_EQ(flags.global_batch_size, 64);
    EXPECT_EQ(flags.micro_batch_size, 2);
    EXPECT_TRUE(flags.sequence_parallel);
    EXPECT_TRUE(flags.shard_optimizer);
    EXPECT_TRUE(flags.gradients_fp32);
    EXPECT_FALSE(flags.all_forwards_first);
    // By hand: 16 blocks of 2 x 1024^2 + 2 x 1024 x 256 + 3 x 1024 x 4096 + 2 x 1024, two
    // matrices of 32000 x 1024, and a norm.
    const std::int64_t block = 2LL * 1024 * 1024 + 2LL * 1024 * 256 + 3LL * 1024 * 4096 + 2 * 1024;
    EXPECT_EQ(parameter_count(megatron_model(flags, "x.yaml")),
              16 * block + 2LL * 32'000 * 1024 + 1024);
}

/// nanotron/models/base.py: a stage takes blocks until the costs up to one are more than its share.
/// A block costs 4 x 1024 + 3 x 4096 = 16384 widths, the head 32000, about two blocks: of
/// 16 x 16384 + 32000 = 294144 the shares end at 73536, 147072, 220608, so that blocks 5, 9 and 14
/// (81920, 147456, 229376) are the first beyond.
TEST(Nanotron, BlocksGoToStagesByCosts) {
    EXPECT_THAT(read(nanotron(16, 4, 32'000)).layout->stages,
                ElementsAre("Ettttt", "tttt", "ttttt", "ttL"));
    // A head of no weight: the last block of a share is not beyond it, so that one more follows.
    EXPECT_THAT(read(nanotron(8, 2, 2)).layout->stages, ElementsAre("Ettttt", "tttL"));
    EXPECT_EQ(error_of([] { read(nanotron(2, 4, 2)); }).kind(), ErrorKind::Infeasible);
}

TEST(Nanotron, WhatNoFlagSaysIsRefusedByName) {
    const std::string text = nanotron(16, 4, 32'000);
    for (const std::string more : {"  expert_parallel_size: 2\n", "  my_pipeline_cuts: 3\n"}) {
        EXPECT_EQ(error_of([&] { read(text + more); }).kind(), ErrorKind::BadInput) << more;
        EXPECT_EQ(read(text + more, LeaveOut::All).left_out.size(), 1U) << more;
    }
    EXPECT_EQ(read(text + "  expert_parallel_size: 1\n").left_out.size(), 0U);
    EXPECT_TRUE(read(text + "  recompute_layer: true\n").recompute_full);
    EXPECT_EQ(read(text + "  context_parallel_size: 2\n").processes, 32);
    EXPECT_TRUE(is_nanotron(text));
}

std::string nanotron_with(const std::string& old, const std::string& other) {
    std::string text = nanotron(16, 4, 32'000);
    return text.replace(text.find(old), old.size(), other);
}

/// No count of parameters, devices or samples leaves 64 bits.
TEST(Nanotron, SizesHaveTheBoundsOfMegatronsFlags) {
    for (const std::string& text :
         {nanotron(1'000'000, 4, 32'000),
          nanotron(16, 4, 1 << 30),
          nanotron(16, 1 << 30, 32'000),
          nanotron_with("hidden_size: 1024", "hidden_size: 1073741824"),
          nanotron_with("intermediate_size: 4096", "intermediate_size: 1073741824"),
          nanotron_with("num_attention_heads: 16", "num_attention_heads: 1073741824"),
          nanotron_with("sequence_length: 2048", "sequence_length: 1073741824"),
          nanotron_with("  tp: 2", "  tp: 1073741824"),
          nanotron_with("micro_batch_size: 2", "micro_batch_size: 1073741824"),
          nanotron_with("per_replica: 16", "per_replica: 1073741824")}) {
        const Error error = error_of([&] { read(text); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput) << text;
        EXPECT_THAT(error.place(), HasSubstr("x.yaml:")) << text;
    }
}

TEST(Nanotron, ABatchNeedsItsMicroBatch) {
    const Error error = error_of([] { read(nanotron_with("  micro_batch_size: 2\n", "")); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), HasSubstr("no tokens.micro_batch_size"));
}

TEST(Nanotron, OtherKernelsAndKeptInputsAreTold) {
    EXPECT_EQ(read(nanotron(16, 4, 32'000)).warnings.size(), 0U);
    for (const std::string key : {"_fused_rms_norm", "_fused_rotary_emb"}) {
        const std::string line = "    " + key + ": ";
        const std::string at = "    hidden_act: silu\n";
        EXPECT_THAT(read(nanotron_with(at, at + line + "false\n")).warnings,
                    ElementsAre(HasSubstr(key + " = false")));
        EXPECT_EQ(read(nanotron_with(at, at + line + "true\n")).warnings.size(), 0U);
    }
    const std::string kept = "  tp_recompute_allgather: false\n";
    const std::string scattered = "  tp_mode: REDUCE_SCATTER\n";
    EXPECT_THAT(read(nanotron(16, 4, 32'000, kept)).warnings,
                ElementsAre(HasSubstr("tp_recompute_allgather = false")));
    EXPECT_EQ(read(nanotron_with(scattered, kept)).warnings.size(), 0U);  // nothing is gathered
    EXPECT_EQ(read(nanotron_with("  tp: 2\n", "  tp: 1\n" + kept)).warnings.size(), 0U);
}

TEST(Tokenizers, AreKnownByTheNamesOfModels) {
    EXPECT_EQ(tokenizer_words("meta-llama/Llama-3.1-8B"), 128'256);
    EXPECT_EQ(tokenizer_words("meta-llama/Meta-Llama-3-70B/"), 128'256);
    EXPECT_EQ(tokenizer_words("meta-llama/Llama-2-7b-hf"), 32'000);
    EXPECT_EQ(tokenizer_words("GPT2BPETokenizer"), 50'257);
    EXPECT_EQ(tokenizer_words("Qwen/Qwen2.5-7B"), 151'665);
    EXPECT_EQ(tokenizer_words("deepseek-ai/DeepSeek-V3"), 128'815);
    EXPECT_EQ(tokenizer_words("deepseek-ai/DeepSeek-R1"), 128'815);
    EXPECT_EQ(tokenizer_words("deepseek-ai/DeepSeek-V4-Flash"), 129'280);
    EXPECT_EQ(tokenizer_words("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"), std::nullopt);
    EXPECT_EQ(tokenizer_words("moonshotai/Kimi-K2-Instruct"), 163'840);
    EXPECT_EQ(tokenizer_words("openai/gpt-oss-120b"), 200'019);
    EXPECT_EQ(tokenizer_words("/data/my-tokenizer.model"), std::nullopt);
    EXPECT_EQ(tokenizer_words("openai-community/gpt2-xl"), 50'257);
    EXPECT_EQ(tokenizer_words(""), std::nullopt);
    // Others have made tokenizers of their own out of these.
    EXPECT_EQ(tokenizer_words("someone/gpt2-chinese"), std::nullopt);
    EXPECT_EQ(tokenizer_words("someone/llama-2-ko-7b"), std::nullopt);
}

}  // namespace nanotron_config_test
}  // namespace pipetwin
