// SPDX-License-Identifier: Apache-2.0
#include "core/interop/hf_weights.h"

#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/interop/hf_config.h"
#include "core/interop/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/support/hf_texts.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin {
namespace hf_weights_test {

using testing::error_of;
using ::testing::HasSubstr;

/// Two blocks of a Llama, 8 wide, 6 inside, 10 words, a pair of keys and values for two heads.
DecoderModel small_llama() {
    return parse_hf_config(testing::with(testing::llama_config(),
                                         {{"num_hidden_layers", 2},
                                          {"hidden_size", 8},
                                          {"intermediate_size", 6},
                                          {"num_attention_heads", 2},
                                          {"num_key_value_heads", 1},
                                          {"vocab_size", 10}})
                               .dump(),
                           "config.json");
}

struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::string dtype = "BF16";
};

std::vector<Tensor> block(int index) {
    const std::string prefix = "model.layers." + std::to_string(index);
    return {{prefix + ".input_layernorm.weight", {8}},
            {prefix + ".self_attn.q_proj.weight", {8, 8}},
            {prefix + ".self_attn.k_proj.weight", {4, 8}},
            {prefix + ".self_attn.v_proj.weight", {4, 8}},
            {prefix + ".self_attn.o_proj.weight", {8, 8}},
            {prefix + ".self_attn.rotary_emb.inv_freq", {2}, "F32"},
            {prefix + ".post_attention_layernorm.weight", {8}, "F32"},
            {prefix + ".mlp.gate_proj.weight", {6, 8}},
            {prefix + ".mlp.up_proj.weight", {6, 8}},
            {prefix + ".mlp.down_proj.weight", {8, 6}}};
}

std::vector<Tensor> ends() {
    return {{"model.embed_tokens.weight", {10, 8}},
            {"model.norm.weight", {8}},
            {"lm_head.weight", {10, 8}}};
}

class HfWeights : public ::testing::Test {
  protected:
    std::filesystem::path write(const std::string& name, std::vector<Tensor> tensors) const {
        SafetensorsHeader header;
        for (Tensor& tensor : tensors) {
            header.tensors.push_back(
                {.name = tensor.name, .dtype = tensor.dtype, .shape = std::move(tensor.shape)});
        }
        place_tensors(header);
        const std::filesystem::path file = folder_.path() / name;
        const std::int64_t bytes = header.tensors.empty() ? 0 : header.tensors.back().end;
        std::ofstream(file, std::ios::binary) << print_safetensors_header(header)
                                              << std::string(static_cast<std::size_t>(bytes), '\0');
        return file;
    }

    std::filesystem::path text(const std::string& name, const std::string& content) const {
        std::ofstream(folder_.path() / name) << content;
        return folder_.path() / name;
    }

  private:
    tests::ScratchFolder folder_;
};

/// Attention: a norm of 8, matrices of 64, 32, 32 and 64. Feed-forward: a norm of 8 in fp32 and
/// three matrices of 48. The head: a norm of 8 and a matrix of 80.
const std::vector<LayerWeights> by_hand{{Bytes{160}, 80},
                                        {Bytes{400}, 200},
                                        {Bytes{4 * 8 + 2 * 144}, 152},
                                        {Bytes{400}, 200},
                                        {Bytes{4 * 8 + 2 * 144}, 152},
                                        {Bytes{2 * 88}, 88}};

TEST_F(HfWeights, BelongToTheLayersOfTheirNames) {
    const DecoderModel model = small_llama();
    const std::vector<std::filesystem::path> files{write("1.safetensors", block(0)),
                                                   write("2.safetensors", block(1)),
                                                   write("3.safetensors", ends())};
    EXPECT_EQ(read_weights(model, files), by_hand);
    EXPECT_EQ(by_hand[1].count, attention_parameters(model));
    EXPECT_EQ(by_hand[2].count, feed_forward_parameters(model, 0));
    EXPECT_EQ(by_hand[5].count, head_parameters(model));
}

/// The numbers of parameters of the layers of a profile.
std::vector<std::int64_t> counts_of(const DecoderModel& model) {
    std::vector<std::int64_t> counts{embedding_parameters(model)};
    for (int block = 0; block < model.blocks; ++block) {
        if (has_attention(model, block)) {
            counts.push_back(attention_parameters(model, block));
        }
        if (has_feed_forward(model, block)) {
            counts.push_back(feed_forward_parameters(model, block));
        }
    }
    counts.push_back(head_parameters(model));
    return counts;
}

std::vector<std::int64_t> counts_of(const std::vector<LayerWeights>& layers) {
    std::vector<std::int64_t> counts;
    for (const LayerWeights& layer : layers) {
        counts.push_back(layer.count);
    }
    return counts;
}

/// Tensors of a Nemotron-H as its files have them: 6 heads of 5 numbers with states of 3 in two
/// groups, of which the convolution sees 30 + 2 x 6 numbers.
TEST_F(HfWeights, ABlockOfOneHalfHasOneLayer) {
    const nlohmann::json config{{"model_type", "nemotron_h"},
                                {"hidden_size", 16},
                                {"layers_block_type", {"mamba", "attention", "mlp", "moe"}},
                                {"num_attention_heads", 4},
                                {"num_key_value_heads", 2},
                                {"head_dim", 8},
                                {"intermediate_size", 24},
                                {"vocab_size", 10},
                                {"mamba_num_heads", 6},
                                {"mamba_head_dim", 5},
                                {"ssm_state_size", 3},
                                {"n_groups", 2},
                                {"conv_kernel", 4},
                                {"n_routed_experts", 2},
                                {"num_experts_per_tok", 1},
                                {"moe_intermediate_size", 12},
                                {"moe_latent_size", 4},
                                {"moe_shared_expert_intermediate_size", 20}};
    const DecoderModel model = parse_hf_config(config.dump(), "config.json");
    std::vector<Tensor> tensors{{"backbone.embeddings.weight", {10, 16}},
                                {"backbone.norm_f.weight", {16}},
                                {"lm_head.weight", {10, 16}}};
    const auto add = [&tensors](int block, std::vector<Tensor> of) {
        const std::string prefix = "backbone.layers." + std::to_string(block) + ".";
        tensors.push_back({prefix + "norm.weight", {16}});
        for (Tensor& one : of) {
            tensors.push_back({prefix + "mixer." + one.name, one.shape});
        }
    };
    add(0,
        {{"in_proj.weight", {30 + 42 + 6, 16}},
         {"conv1d.weight", {42, 1, 4}},
         {"conv1d.bias", {42}},
         {"dt_bias", {6}},
         {"A_log", {6}},
         {"D", {6}},
         {"norm.weight", {30}},
         {"out_proj.weight", {16, 30}}});
    add(1,
        {{"q_proj.weight", {32, 16}},
         {"k_proj.weight", {16, 16}},
         {"v_proj.weight", {16, 16}},
         {"o_proj.weight", {16, 32}}});
    add(2, {{"up_proj.weight", {24, 16}}, {"down_proj.weight", {16, 24}}});
    add(3,
        {{"gate.weight", {2, 16}},
         {"gate.e_score_correction_bias", {2}},
         {"fc1_latent_proj.weight", {4, 16}},
         {"fc2_latent_proj.weight", {16, 4}},
         {"experts.0.up_proj.weight", {12, 4}},
         {"experts.0.down_proj.weight", {4, 12}},
         {"experts.1.up_proj.weight", {12, 4}},
         {"experts.1.down_proj.weight", {4, 12}},
         {"shared_experts.up_proj.weight", {20, 16}},
         {"shared_experts.down_proj.weight", {16, 20}}});
    EXPECT_EQ(counts_of(read_weights(model, {write("n.safetensors", tensors)})), counts_of(model));
}

/// Tensors of a DeepSeek-V4 as its files have them: a residual of two rows, a block whose further
/// rows stand for 4 tokens, and one for 128; the first says its experts by the token.
TEST_F(HfWeights, RowsOfAResidualHaveTensorsOfTheirOwn) {
    const nlohmann::json config{{"model_type", "deepseek_v4"},
                                {"hidden_size", 16},
                                {"num_hidden_layers", 2},
                                {"compress_ratios", {4, 128}},
                                {"num_attention_heads", 4},
                                {"num_key_value_heads", 1},
                                {"head_dim", 8},
                                {"q_lora_rank", 6},
                                {"qk_rope_head_dim", 4},
                                {"o_groups", 2},
                                {"o_lora_rank", 3},
                                {"sliding_window", 16},
                                {"index_n_heads", 2},
                                {"index_head_dim", 4},
                                {"index_topk", 8},
                                {"hc_mult", 2},
                                {"num_hash_layers", 1},
                                {"vocab_size", 10},
                                {"n_routed_experts", 1},
                                {"n_shared_experts", 1},
                                {"num_experts_per_tok", 1},
                                {"moe_intermediate_size", 5}};
    const DecoderModel model = parse_hf_config(config.dump(), "config.json");
    std::vector<Tensor> tensors{{"embed.weight", {10, 16}},
                                {"norm.weight", {16}},
                                {"head.weight", {10, 16}},
                                {"hc_head_fn", {2, 32}},
                                {"hc_head_base", {2}},
                                {"hc_head_scale", {1}}};
    for (const int block : {0, 1}) {
        const std::string prefix = "layers." + std::to_string(block) + ".";
        for (const Tensor& one : std::vector<Tensor>{{"attn_norm.weight", {16}},
                                                     {"ffn_norm.weight", {16}},
                                                     {"attn.wq_a.weight", {6, 16}},
                                                     {"attn.q_norm.weight", {6}},
                                                     {"attn.wq_b.weight", {32, 6}},
                                                     {"attn.wkv.weight", {8, 16}},
                                                     {"attn.kv_norm.weight", {8}},
                                                     {"attn.wo_a.weight", {6, 16}},
                                                     {"attn.wo_b.weight", {16, 6}},
                                                     {"attn.attn_sink", {4}},
                                                     {"ffn.gate.weight", {1, 16}},
                                                     {"ffn.experts.0.w1.weight", {5, 16}},
                                                     {"ffn.experts.0.w2.weight", {16, 5}},
                                                     {"ffn.experts.0.w3.weight", {5, 16}},
                                                     {"ffn.shared_experts.w1.weight", {5, 16}},
                                                     {"ffn.shared_experts.w2.weight", {16, 5}},
                                                     {"ffn.shared_experts.w3.weight", {5, 16}},
                                                     {"hc_attn_fn", {8, 32}},
                                                     {"hc_attn_base", {8}},
                                                     {"hc_attn_scale", {3}},
                                                     {"hc_ffn_fn", {8, 32}},
                                                     {"hc_ffn_base", {8}},
                                                     {"hc_ffn_scale", {3}}}) {
            tensors.push_back({prefix + one.name, one.shape});
        }
    }
    const auto add_compressor = [&tensors](
                                    const std::string& prefix, int made, int row, int ratio) {
        tensors.push_back({prefix + ".wkv.weight", {made, 16}});
        tensors.push_back({prefix + ".wgate.weight", {made, 16}});
        tensors.push_back({prefix + ".ape", {ratio, made}});
        tensors.push_back({prefix + ".norm.weight", {row}});
    };
    add_compressor("layers.0.attn.compressor", 16, 8, 4);
    add_compressor("layers.0.attn.indexer.compressor", 8, 4, 4);
    add_compressor("layers.1.attn.compressor", 8, 8, 128);
    tensors.push_back({"layers.0.attn.indexer.wq_b.weight", {8, 6}});
    tensors.push_back({"layers.0.attn.indexer.weights_proj.weight", {2, 16}});
    tensors.push_back({"layers.0.ffn.gate.tid2eid", {10, 1}, "I64"});
    tensors.push_back({"layers.1.ffn.gate.bias", {1}});
    EXPECT_EQ(counts_of(read_weights(model, {write("v4.safetensors", tensors)})), counts_of(model));
}

TEST_F(HfWeights, AnIndexNamesItsFiles) {
    write("1.safetensors", block(0));
    write("2.safetensors", block(1));
    write("3.safetensors", ends());
    nlohmann::json map;
    for (const auto& [file, tensors] : {std::pair("1.safetensors", block(0)),
                                        std::pair("2.safetensors", block(1)),
                                        std::pair("3.safetensors", ends())}) {
        for (const Tensor& tensor : tensors) {
            map[tensor.name] = file;
        }
    }
    const nlohmann::json index{{"metadata", {{"total_size", 1}}}, {"weight_map", map}};
    EXPECT_EQ(read_weights(small_llama(), {text("model.safetensors.index.json", index.dump())}),
              by_hand);
    map["model.more"] = "1.safetensors";
    const auto wrong = text("wrong.json", nlohmann::json{{"weight_map", map}}.dump());
    EXPECT_THAT(error_of([&] { read_weights(small_llama(), {wrong}); }).what(),
                HasSubstr("/weight_map/model.more: \"1.safetensors\", expected a file that holds"));
}

/// Indexes that name the files of a small Llama, which lie in different places.
class HfWeightIndex : public HfWeights {
  protected:
    /// An index of "1.safetensors" to "3.safetensors", with another name in place of the first.
    static std::string index_with(const std::string& first) {
        nlohmann::json map;
        for (const auto& [file, tensors] : {std::pair(first, block(0)),
                                            std::pair(std::string("2.safetensors"), block(1)),
                                            std::pair(std::string("3.safetensors"), ends())}) {
            for (const Tensor& tensor : tensors) {
                map[tensor.name] = file;
            }
        }
        return nlohmann::json{{"weight_map", map}}.dump();
    }

    std::vector<LayerWeights> read(
        const std::string& first, const std::string& index = "model.safetensors.index.json") const {
        return read_weights(small_llama(), {text(index, index_with(first))});
    }

    void make_folder(const std::string& name) const {
        std::filesystem::create_directories(path(name));
    }
    std::filesystem::path path(const std::string& name) const {
        return text("unused", "").parent_path() / name;
    }
};

TEST_F(HfWeightIndex, NamesFilesBeneathItsFolder) {
    make_folder("parts");
    write("parts/1.safetensors", block(0));
    write("2.safetensors", block(1));
    write("3.safetensors", ends());
    EXPECT_EQ(read("parts/1.safetensors"), by_hand);
    std::filesystem::create_symlink("parts/1.safetensors", path("linked.safetensors"));
    EXPECT_EQ(read("linked.safetensors"), by_hand);
}

TEST_F(HfWeightIndex, NamesNoFileElsewhere) {
    make_folder("model");
    const std::filesystem::path outside = write("1.safetensors", block(0));
    write("model/2.safetensors", block(1));
    write("model/3.safetensors", ends());
    const std::string index = "model/model.safetensors.index.json";
    std::filesystem::create_symlink("../1.safetensors", path("model/linked.safetensors"));
    std::filesystem::create_symlink(outside, path("model/absolute.safetensors"));
    std::filesystem::create_directory_symlink("..", path("model/up"));
    for (const std::string& name : {std::string("../1.safetensors"),
                                    outside.string(),
                                    std::string("parts/../../1.safetensors"),
                                    std::string(".."),
                                    std::string("")}) {
        const Error error = error_of([&] { read(name, index); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.what(), HasSubstr("/weight_map/")) << name;
        EXPECT_THAT(error.what(), HasSubstr("without '..' and no absolute one")) << name;
    }
    for (const char* const name :
         {"linked.safetensors", "absolute.safetensors", "up/1.safetensors"}) {
        const Error error = error_of([&] { read(name, index); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.what(), HasSubstr("expected a file beneath the folder of")) << name;
        EXPECT_THAT(error.hint(), HasSubstr("--weights")) << name;
    }
}

/// A cache of the hub has the files of a revision as links into the blobs of the model.
TEST_F(HfWeightIndex, FollowsTheLinksOfAHubCache) {
    make_folder("models--a--b/snapshots/0123abcd");
    make_folder("models--a--b/blobs");
    make_folder("models--c--d/blobs");
    const std::string snapshot = "models--a--b/snapshots/0123abcd/";
    write("models--a--b/blobs/f1", block(0));
    write("models--a--b/blobs/f2", block(1));
    write("models--a--b/blobs/f3", ends());
    write("models--c--d/blobs/f1", block(0));
    for (const char* const number : {"1", "2", "3"}) {
        std::filesystem::create_symlink(std::string("../../blobs/f") + number,
                                        path(snapshot + number + ".safetensors"));
    }
    EXPECT_EQ(read("1.safetensors", snapshot + "model.safetensors.index.json"), by_hand);
    // The blobs of another model are not this one's.
    std::filesystem::create_symlink("../../../models--c--d/blobs/f1",
                                    path(snapshot + "other.safetensors"));
    EXPECT_THAT(error_of([&] {
                    read("other.safetensors", snapshot + "model.safetensors.index.json");
                }).what(),
                HasSubstr("expected a file beneath the folder of"));
}

/// GPT-2's own files have no "transformer." in front, a mask per block and no head.
TEST_F(HfWeights, OfGpt2AreFoundUnderTheirShortNames) {
    const DecoderModel model = parse_hf_config(
        testing::with(testing::small_gpt2(), {{"n_layer", 1}}).dump(), "config.json");
    for (const std::string prefix : {"", "transformer."}) {
        const auto file = write("gpt2.safetensors",
                                {{prefix + "wte.weight", {100, 16}},
                                 {prefix + "wpe.weight", {32, 16}},
                                 {prefix + "h.0.ln_1.weight", {16}},
                                 {prefix + "h.0.ln_1.bias", {16}},
                                 {prefix + "h.0.attn.bias", {1, 1, 32, 32}},
                                 {prefix + "h.0.attn.c_attn.weight", {16, 48}},
                                 {prefix + "h.0.attn.c_attn.bias", {48}},
                                 {prefix + "h.0.attn.c_proj.weight", {16, 16}},
                                 {prefix + "h.0.attn.c_proj.bias", {16}},
                                 {prefix + "h.0.ln_2.weight", {16}},
                                 {prefix + "h.0.ln_2.bias", {16}},
                                 {prefix + "h.0.mlp.c_fc.weight", {16, 64}},
                                 {prefix + "h.0.mlp.c_fc.bias", {64}},
                                 {prefix + "h.0.mlp.c_proj.weight", {64, 16}},
                                 {prefix + "h.0.mlp.c_proj.bias", {16}},
                                 {prefix + "ln_f.weight", {16}},
                                 {prefix + "ln_f.bias", {16}},
                                 {"lm_head.weight", {100, 16}}});
        const std::vector<LayerWeights> weights = read_weights(model, {file});
        ASSERT_EQ(weights.size(), 4U);
        EXPECT_EQ(weights[0].count, embedding_parameters(model));
        EXPECT_EQ(weights[1].count, attention_parameters(model));
        EXPECT_EQ(weights[2].count, feed_forward_parameters(model, 0));
        EXPECT_EQ(weights[3].count, 32);  // the head's matrix is the embedding's
    }
}

/// The norm behind an attention has the name that others have for the one in front of the next
/// half; a text model has others around it, and its prediction block copies of embedding and head.
TEST_F(HfWeights, BelongToTheHalfThatTheFamilyMeans) {
    const nlohmann::json small = testing::with(testing::llama_config(),
                                               {{"num_hidden_layers", 1},
                                                {"hidden_size", 8},
                                                {"intermediate_size", 6},
                                                {"num_attention_heads", 2},
                                                {"num_key_value_heads", 1},
                                                {"vocab_size", 10},
                                                {"tie_word_embeddings", nullptr}});
    const DecoderModel gemma = parse_hf_config(
        nlohmann::json{
            {"model_type", "gemma3"},
            {"text_config", testing::with(small, {{"model_type", "gemma3_text"}, {"head_dim", 4}})}}
            .dump(),
        "config.json");
    const std::string at = "language_model.model.layers.0";
    const auto file = write("gemma.safetensors",
                            {{"language_model.model.embed_tokens.weight", {10, 8}},
                             {"vision_tower.blocks.0.attn.weight", {3, 3}},
                             {"multi_modal_projector.weight", {3}},
                             {at + ".input_layernorm.weight", {8}},
                             {at + ".self_attn.all", {8 * (8 + 4 + 4) + 64 + 2 * 4}},
                             {at + ".post_attention_layernorm.weight", {8}},
                             {at + ".pre_feedforward_layernorm.weight", {8}},
                             {at + ".mlp.all", {144}},
                             {at + ".post_feedforward_layernorm.weight", {8}},
                             {"language_model.model.norm.weight", {8}}});
    const std::vector<LayerWeights> weights = read_weights(gemma, {file});
    ASSERT_EQ(weights.size(), 4U);
    EXPECT_EQ(weights[1].count, attention_parameters(gemma, 0));
    EXPECT_EQ(weights[2].count, feed_forward_parameters(gemma, 0));
    EXPECT_EQ(weights[3].count, head_parameters(gemma));

    const DecoderModel mimo = parse_hf_config(
        testing::with(small, {{"model_type", "mimo"}, {"num_nextn_predict_layers", 1}}).dump(),
        "config.json");
    std::vector<Tensor> tensors = ends();
    tensors.push_back({"model.layers.0.self_attn.all", {attention_parameters(mimo, 0)}});
    tensors.push_back({"model.layers.0.mlp.all", {feed_forward_parameters(mimo, 0)}});
    tensors.push_back({"model.layers.1.everything", {prediction_parameters(mimo)}});
    tensors.push_back({"model.layers.1.embed_tokens.weight", {10, 8}});
    tensors.push_back({"model.layers.1.shared_head.head.weight", {10, 8}});
    const std::vector<LayerWeights> further =
        read_weights(mimo, {write("mimo.safetensors", tensors)});
    ASSERT_EQ(further.size(), 5U);
    EXPECT_EQ(further[3].count, prediction_parameters(mimo));
    EXPECT_EQ(further[4].count, head_parameters(mimo));
    tensors.erase(tensors.end() - 3, tensors.end());
    EXPECT_THAT(error_of([&] { read_weights(mimo, {write("less.safetensors", tensors)}); }).text(),
                HasSubstr("no weights of layer 'mtp0'"));
}

TEST_F(HfWeights, OfAnotherModelAreRefused) {
    const auto refusal = [](const std::vector<std::filesystem::path>& files) {
        return error_of([&] { read_weights(small_llama(), files); });
    };
    const auto first = write("1.safetensors", block(0));
    const Error third = refusal({write("3.safetensors", block(2))});
    EXPECT_THAT(third.place(),
                HasSubstr("3.safetensors: tensor 'model.layers.2.input_layernorm.weight'"));
    EXPECT_THAT(third.text(), HasSubstr("no part of a llama of 2 blocks"));
    EXPECT_THAT(refusal({write("4.safetensors", {{"bert.pooler.weight", {1}}})}).place(),
                HasSubstr("tensor 'bert.pooler.weight'"));
    EXPECT_THAT(refusal({first, first}).text(), HasSubstr("contains it, too"));
    EXPECT_THAT(refusal({first}).text(), HasSubstr("no weights of layer 'embedding'"));
    EXPECT_THAT(refusal({first, write("5.safetensors", ends())}).text(),
                HasSubstr("no weights of layer 'block1.attention'"));
}

}  // namespace hf_weights_test
}  // namespace pipetwin
