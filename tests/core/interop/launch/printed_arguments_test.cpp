// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/printed_arguments.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/megatron_flags.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace printed_arguments_test {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view begin = "------------------------ arguments ------------------------\n";
constexpr std::string_view end = "-------------------- end of arguments ---------------------\n";

/// A line as Megatron-LM prints it: the value stands 49 characters behind the begin of the name.
std::string line(std::string_view name, std::string_view value) {
    const std::size_t dots = name.size() < 48 ? 48 - name.size() : 0;
    return fmt::format("  {} {} {}\n", name, std::string(dots, '.'), value);
}

/// The lines of a small run in four stages on eight devices.
std::string small_run(std::string_view hidden = "512") {
    return line("encoder_num_layers", "24") + line("hidden_size", hidden) +
           line("num_layers", "24") + line("num_layers_per_virtual_pipeline_stage", "None") +
           line("pipeline_model_parallel_size", "4") + line("rank", "0") +
           line("recompute_modules", "['core_attn', 'mlp']") + line("seq_length", "1024") +
           line("tensor_model_parallel_size", "1") + line("world_size", "8");
}

std::string block(std::string_view lines) {
    return std::string(begin) + std::string(lines) + std::string(end);
}

MegatronFlags read(std::string_view text) {
    return parse_megatron_flags(text, "train.log");
}

TEST(PrintedArguments, AreFlagsWithTheirValues) {
    const MegatronFlags flags = read("> setting up ...\n" + block(small_run()) + "> building\n");
    EXPECT_EQ(flags.layers, 24);
    EXPECT_EQ(flags.hidden_size, 512);
    EXPECT_EQ(flags.pipeline_size, 4);
    EXPECT_EQ(flags.processes, 8);
    EXPECT_EQ(flags.per_node, std::nullopt);
    EXPECT_EQ(flags.virtual_stage_layers, std::nullopt);
    EXPECT_THAT(flags.recompute_modules, ElementsAre("core_attn", "mlp"));
    EXPECT_THAT(flags.warnings, IsEmpty());
}

/// Launchers put ranks and times in front of each line, terminals add colours, Windows a carriage
/// return; other output stands between the lines.
TEST(PrintedArguments, AreReadAsTheLogHasThem) {
    const MegatronFlags plain = read(block(small_run()));
    for (const std::string prefix : {"[rank0]: ",
                                     "3: ",
                                     "2026-01-01 00:00:01,123 INFO worker-0 ",
                                     "[default0]:",
                                     "\x1b[32m[node.1 0]\x1b[0m "}) {
        std::string text;
        std::string rest = block(small_run());
        while (!rest.empty()) {
            const std::size_t stop = rest.find('\n');
            text += prefix + rest.substr(0, stop) + "\r\nUserWarning: something ... else\r\n";
            rest.erase(0, stop + 1);
        }
        EXPECT_EQ(read(text), plain) << prefix;
    }
}

/// Two ranks write into each other's lines.
TEST(PrintedArguments, OfSeveralRanksAreOneBlock) {
    std::string mixed = std::string(begin) + std::string(begin);
    std::string rest = small_run();
    while (!rest.empty()) {
        const std::string one = rest.substr(0, rest.find('\n') + 1);
        mixed += one + (one.find("  rank ") == 0 ? line("rank", "5") : one);
        rest.erase(0, one.size());
    }
    EXPECT_EQ(read(mixed + std::string(end) + std::string(end)), read(block(small_run())));
}

TEST(PrintedArguments, ThatDifferAreNamedWithBothLines) {
    const Error error = error_of([] { read(block(small_run()) + block(small_run("1024"))); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "train.log:15");
    EXPECT_EQ(error.text(),
              "hidden_size = 1024, but 512 in line 3: the blocks of arguments differ");
}

TEST(PrintedArguments, OfALogThatEndsInTheMiddleAreRefused) {
    const Error error = error_of([] { read("x\n" + std::string(begin) + small_run()); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "train.log:2");
    EXPECT_THAT(error.text(), HasSubstr("ends in the middle"));
    const MegatronFlags flags =
        read(block(small_run()) + std::string(begin) + line("bf16", "False"));
    EXPECT_EQ(flags.layers, 24);
    EXPECT_THAT(flags.warnings,
                ElementsAre(HasSubstr("train.log: 1 of 2 blocks of arguments without a line")));
    EXPECT_THAT(error_of([] { read(block("")); }).text(), HasSubstr("without any"));
}

/// A block without an end hides nothing behind it, and an end without a begin ends none.
TEST(PrintedArguments, AreReadBesideBlocksThatAreCut) {
    const std::string vocabulary =
        " > padded vocab (size: 50257) with 431 dummy tokens (new size: 50688)\n";
    EXPECT_EQ(read(std::string(begin) + line("bf16", "False") + block(small_run()) + vocabulary)
                  .padded_vocabulary,
              50688);
    EXPECT_EQ(read(std::string(end) + block(small_run())).layers, 24);
    EXPECT_EQ(error_of([] { read(block(small_run() + line("hidden_size", "1024"))); }).text(),
              "hidden_size = 1024, but 512 in line 3: the block of arguments says both");
}

/// Python prints a whole number of a float with a point.
TEST(PrintedArguments, AreOffWithAnyFormOfZero) {
    const std::string off = small_run() + line("hybrid_attention_ratio", "0.0") +
                            line("hybrid_mlp_ratio", "0.0") + line("attention_sink_k", "0") +
                            line("fp8", "None") + line("fp8_reduce_amax", "True");
    EXPECT_EQ(read(block(off)).layers, 24);
    EXPECT_EQ(read(block(off)).hybrid_pattern, std::nullopt);
    EXPECT_TRUE(read(block(small_run() + line("hybrid_attention_ratio", "0.5"))).hybrid_pattern);
    EXPECT_TRUE(read(block(small_run() + line("deepspeed", "True") + line("zero_stage", "1.0")))
                    .shard_optimizer);
    EXPECT_FALSE(read(block(small_run() + line("deepspeed", "False") + line("zero_stage", "1.0")))
                     .shard_optimizer);
}

/// What other arguments switch off has numbers all the same.
TEST(PrintedArguments, SayNothingWhereTheirSwitchIsOff) {
    const std::string lines = small_run() + line("overlap_p2p_comm", "False") +
                              line("linear_num_key_heads", "16") +
                              line("experimental_attention_variant", "None") +
                              line("moe_grouped_gemm", "False") + line("num_experts", "None") +
                              line("data_cache_path", "") + line("some_new_layer_switch", "False");
    const MegatronFlags flags = read(block(lines));
    EXPECT_THAT(flags.warnings,
                ElementsAre("not known here, and off in the run: some_new_layer_switch"));
    EXPECT_EQ(
        error_of([&] { read(block(small_run() + line("some_new_layer_switch", "2"))); }).kind(),
        ErrorKind::BadInput);
    EXPECT_EQ(read(block(small_run() + line("linear_num_key_heads", "16") +
                         line("experimental_attention_variant", "gated_delta_net")))
                  .linear_key_heads,
              16);
}

TEST(PrintedArguments, ALaterLineHasThePaddedVocabulary) {
    const std::string lines = block(small_run() + line("padded_vocab_size", "None"));
    EXPECT_EQ(read(lines + " > padded vocab (size: 50257) with 431 dummy tokens (new size: "
                           "50688)\n")
                  .padded_vocabulary,
              50688);
    EXPECT_EQ(read(lines).padded_vocabulary, std::nullopt);
}

/// Blocks have all flags of their version, and so say which kernels attention had.
TEST(PrintedArguments, SayWhichVersionPrintedThem) {
    EXPECT_TRUE(read(block(small_run() + line("attention_backend", "AttnBackend.auto")))
                    .is_after_core_models);
    EXPECT_TRUE(read(block(small_run() + line("use_flash_attn", "False"))).is_before_core_models);
    const MegatronFlags old =
        read(block(small_run() + line("activations_checkpoint_method", "None") +
                   line("use_flash_attn", "False")));
    EXPECT_TRUE(old.is_before_2023);
}

/// Megatron-DeepSpeed has lists of experts, of which [1] is none, and ZeRO's stages.
TEST(PrintedArguments, OfMegatronDeepSpeedAreRead) {
    const std::string lines = small_run() + line("deepspeed", "True") + line("num_experts", "[1]") +
                              line("topk", "1") + line("normalization", "rmsnorm") +
                              line("num_attention_heads", "8") + line("num_key_value_heads", "2") +
                              line("expert_interval", "2");
    const MegatronFlags flags = read(block(lines + line("zero_stage", "1")));
    EXPECT_EQ(flags.experts, std::nullopt);
    EXPECT_TRUE(flags.rms_norm);
    EXPECT_TRUE(flags.grouped);
    EXPECT_EQ(flags.query_groups, 2);
    EXPECT_TRUE(flags.shard_optimizer);
    EXPECT_EQ(error_of([&] { read(block(lines + line("zero_stage", "3"))); }).kind(),
              ErrorKind::BadInput);
}

}  // namespace printed_arguments_test
}  // namespace pipetwin
