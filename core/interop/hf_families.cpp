// SPDX-License-Identifier: Apache-2.0
#include "core/interop/hf_families.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/interop/hf_family_table.h"

namespace pipetwin {

namespace {

using std::string_view;

const HfFlag always{{}, true};
const HfFlag never{{}, false};

// --- What no key says alone. ---

/// GPT-2 has dropout unless the file says 0.
void finish_gpt2(const HfConfig& config, DecoderModel& model) {
    model.dropout = !config.has("resid_pdrop") || config.object().number_or("resid_pdrop", 0) > 0;
}

/// Every second block of GPT-Neo sees a window, unless the file says which do.
void finish_gpt_neo(const HfConfig& config, DecoderModel& model) {
    model.attention.window = config.size({{"window_size"}, 256}, 1 << 26);
    std::vector<bool> windows(static_cast<std::size_t>(model.blocks));
    constexpr string_view key = "attention_layers";
    const std::vector<std::string> words =
        config.has(key) ? config.object().texts(key) : std::vector<std::string>{};
    for (std::size_t block = 0; block < windows.size(); ++block) {
        windows[block] = block < words.size() ? words[block] == "local" : block % 2 == 1;
    }
    model.attention.window_blocks = std::move(windows);
    config.mark_read("attention_types");  // the same, packed
}

/// All heads may share one pair of keys and values.
void finish_bigcode(const HfConfig& config, DecoderModel& model) {
    finish_gpt2(config, model);
    if (config.flag({{"multi_query"}, true})) {
        model.attention.key_value_heads = 1;
    }
}

/// Falcon has two generations: the newer has groups of keys and values, and two norms side by side.
void finish_falcon(const HfConfig& config, DecoderModel& model) {
    const bool newer = config.flag({{"new_decoder_architecture"}, false});
    const bool parallel = config.flag({{"parallel_attn"}, true});
    if (!newer) {
        const bool one = config.flag({{"multi_query"}, true});
        model.attention.key_value_heads = one ? 1 : model.attention.heads;
    }
    const int norms = config.size({{"num_ln_in_parallel_attn"}, newer ? 2 : 1}, 2);
    model.feed_forward_norms = !parallel ? 1 : norms - 1;
    model.attention.rotary = !config.flag({{"alibi"}, false});
}

/// OPT-350M has narrow embeddings, norms behind its halves and none at the end.
void finish_opt(const HfConfig& config, DecoderModel& model) {
    const int row = config.size({{"word_embed_proj_dim"}, model.width}, model.width);
    model.embedding_width = row == model.width ? 0 : row;
    const bool before = config.flag({{"do_layer_norm_before"}, true});
    model.final_norm = before && !config.flag({{"_remove_final_layer_norm"}, false});
    model.norm_gain = config.flag({{"layer_norm_elementwise_affine"}, true});
}

/// MPT and DBRX keep the sizes of a half in an object of its own.
void finish_mpt(const HfConfig& config, DecoderModel& model) {
    const bool bias = !config.flag({{"no_bias"}, true});
    model.attention.input_bias = model.attention.output_bias = bias;
    model.feed_forward_bias = model.norm_bias = bias;
    model.feed_forward = model.width * config.size({{"expansion_ratio"}, 4}, 64);
    bool alibi = false;
    if (config.has("attn_config")) {
        const JsonObject object = config.object().object("attn_config");
        const HfConfig attention(object);
        const string_view kind = "attn_type";
        const std::string word = attention.has(kind) ? object.text(kind) : "multihead_attention";
        alibi = attention.flag({{"alibi"}, false});
        if (word == "multiquery_attention") {
            model.attention.key_value_heads = 1;
        } else if (word == "grouped_query_attention") {
            model.attention.key_value_heads =
                attention.size_at("kv_n_heads", model.attention.heads);
        } else if (word != "multihead_attention") {
            attention.refuse(kind,
                             "multihead_attention, multiquery_attention or grouped_query_attention",
                             "compare with the config.json that was published with the model");
        }
        model.attention.own_norms = attention.flag({{"qk_ln"}, false});
    }
    model.attention.rotary = false;
    if (!alibi && config.flag({{"learned_pos_emb"}, true})) {
        model.learned_positions = model.context;
        model.positions_key = "max_seq_len";
    }
}

void finish_dbrx(const HfConfig& config, DecoderModel& model) {
    const JsonObject attention = config.object().object("attn_config");
    const JsonObject inner = config.object().object("ffn_config");
    const HfConfig feed_forward(inner);
    constexpr int most = 1 << 20;
    model.attention.key_value_heads =
        HfConfig(attention).size({{"kv_n_heads"}, 1}, model.attention.heads);
    model.feed_forward = feed_forward.size_at("ffn_hidden_size", most);
    model.experts = {.count = feed_forward.size_at("moe_num_experts", 1 << 13),
                     .per_token = feed_forward.size_at("moe_top_k", 1 << 13),
                     .width = model.feed_forward};
    model.has_experts.assign(static_cast<std::size_t>(model.blocks), true);
}

void finish_stablelm(const HfConfig& config, DecoderModel& model) {
    if (config.flag({{"use_parallel_residual"}, false})) {
        model.feed_forward_norms = 0;
    }
}

/// The first generation of Qwen counts the gate in its inner width.
void finish_qwen(const HfConfig&, DecoderModel& model) {
    model.feed_forward /= 2;
}

void finish_chatglm(const HfConfig& config, DecoderModel& model) {
    if (!config.flag({{"multi_query_attention"}, false})) {
        model.attention.key_value_heads = model.attention.heads;
    }
}

/// Norms of queries and keys over all heads, and blocks that all have attention: files of the
/// family before this one have others.
void finish_minimax_m2(const HfConfig& config, DecoderModel& model) {
    constexpr string_view kinds = "attn_type_list";
    const std::vector<std::int64_t> of_block =
        config.has(kinds) ? config.object().wholes(kinds) : std::vector<std::int64_t>{};
    if (std::ranges::find(of_block, 0) != of_block.end()) {
        config.refuse(kinds,
                      "1 for every block: attention",
                      "linear attention of this family is not known yet");
    }
    constexpr string_view norms = "qk_norm_type";
    if (config.has(norms) && config.object().text(norms) != "per_layer") {
        config.refuse(norms,
                      "\"per_layer\"",
                      "compare with the config.json that was published with the model");
    }
    model.experts.router_bias = config.flag({{"use_routing_bias"}, true});
    config.mark_read("use_mtp");  // num_mtp_modules says how many
}

/// Gated halves have three matrices: "gated-gelu".
void finish_t5(const HfConfig& config, DecoderModel& model) {
    const string_view key = "feed_forward_proj";
    model.gated = config.has(key) ? config.object().text(key).starts_with("gated")
                                  : config.flag({{"is_gated_act"}, false});
    model.dropout = !config.has("dropout_rate") || config.object().number_or("dropout_rate", 0) > 0;
}

// --- The table. ---

const HfSize same_as_heads{{"num_key_value_heads"}, hf_derived};

/// One bias for all matrices of a block.
void bias_everywhere(HfFamily& f, const HfFlag& flag) {
    f.input_bias = f.output_bias = f.feed_forward_bias = flag;
}

void no_bias(HfFamily& f) {
    bias_everywhere(f, never);
}

/// Norms in front of and behind each half.
void sandwich(HfFamily& f) {
    f.attention_norms = f.feed_forward_norms = 2;
}

/// Llama and families that differ from it in little.
void add_llamas(HfFamilyTable& table, const HfFamily& llama) {
    table.add("cwm", llama, [](HfFamily& f) { f.window = {.size = {{"sliding_window"}}}; });
    table.add("arcee", llama, [](HfFamily& f) { f.gated = false; });
    table.add("helium", llama);
    table.add("minicpm", llama, [](HfFamily& f) { f.tied.otherwise = true; });
    table.add("baichuan", llama);
    table.add("nanochat", llama, [](HfFamily& f) { f.gated = f.norm_gain = false; });
    table.add("exaone", llama, [](HfFamily& f) {
        f.blocks = {{"num_layers", "num_hidden_layers"}};
    });
    table.add("exaone4", llama, [](HfFamily& f) {
        f.key_value_heads.otherwise = hf_required;
        f.head_norms = always;
        f.norm_behind_attention = true;
        f.window = {.size = {{"sliding_window"}}, .full_every = {{"sliding_window_pattern"}, 4}};
    });
    table.add("smollm3", llama, [](HfFamily& f) {
        f.key_value_heads.otherwise = hf_required;
        f.tied.otherwise = true;
        f.window = {.size = {{"sliding_window"}}, .used = {{"use_sliding_window"}, false}};
    });
    table.add("seed_oss", llama, [](HfFamily& f) {
        f.input_bias.otherwise = true;
        f.output_bias = {{"attention_out_bias"}, false};
        f.head_width.otherwise = 128;
    });
    table.add("apertus", llama, [](HfFamily& f) {
        f.gated = false;
        f.activation_parameters = 2;  // xIELU's two slopes
        f.head_norms = {{"qk_norm"}, true};
    });
    table.add("nemotron", llama, [](HfFamily& f) {
        f.gated = false;
        f.norm_bias = true;
        f.key_value_heads.otherwise = hf_required;
    });
    const HfFamily& granite = table.add("granite", llama);
    const HfFamily& granite_experts = table.add("granitemoe", granite, [](HfFamily& f) {
        f.experts = {.count = {{"num_local_experts"}}, .width = {{"intermediate_size"}}};
    });
    const HfFamily& shared = table.add("granitemoeshared", granite_experts, [](HfFamily& f) {
        f.experts.shared_width = {{"shared_intermediate_size"}, 0};
    });
    add_hf_mamba_blocks(table, llama, shared);
    table.add("internlm2", llama, [](HfFamily& f) {
        f.input_bias = f.output_bias = {{"bias"}, false};
        f.feed_forward_bias = never;
    });
    table.add("internlm3", llama, [](HfFamily& f) {
        f.input_bias = {{"qkv_bias"}, false};
        f.output_bias = f.feed_forward_bias = {{"bias"}, false};
    });
    const HfFamily& ernie = table.add("ernie4_5", llama, [](HfFamily& f) {
        bias_everywhere(f, {{"use_bias"}, false});
        f.tied.otherwise = true;
    });
    table.add("ernie4_5_moe", ernie, [](HfFamily& f) {
        f.experts = {.count = {{"moe_num_experts", "num_experts"}},
                     .per_token = {{"moe_k", "num_experts_per_tok"}},
                     .shared = {{"moe_num_shared_experts"}, 0},
                     .router_bias = true,
                     .dense_first = {{"moe_layer_start_index"}, 1},
                     .every_from_nth = {{"moe_layer_interval"}, 1}};
    });
    const HfFamily& hunyuan =
        table.add("hunyuan_v1_dense", llama, [](HfFamily& f) { f.head_norms = always; });
    table.add("hunyuan_v1_moe", hunyuan, [](HfFamily& f) {
        f.experts = {.count = {{"num_experts"}},
                     .per_token = {{"moe_topk"}},
                     .width = {{"moe_intermediate_size", "intermediate_size"}},
                     .shared = {{"num_shared_expert"}, 1}};
        f.known = {"use_mixed_mlp_moe"};  // as num_shared_expert says
    });
}

void add_mistrals(HfFamilyTable& table, const HfFamily& llama) {
    const HfFamily& mistral = table.add("mistral", llama, [](HfFamily& f) {
        no_bias(f);
        f.key_value_heads.otherwise = hf_required;
        f.window = {.size = {{"sliding_window"}}};
    });
    table.add("ministral", mistral);
    table.add("ministral3", mistral);
    const HfFamily& mixtral = table.add("mixtral", mistral, [](HfFamily& f) {
        f.experts = {.count = {{"num_local_experts"}}, .width = {{"intermediate_size"}}};
    });
    table.add("phimoe", mixtral, [](HfFamily& f) {
        f.norm_bias = true;
        f.input_bias = f.output_bias = {{"attention_bias"}, false};
        f.head_bias = {{"lm_head_bias"}, false};
    });
    table.add("minimax_m2", mixtral, [](HfFamily& f) {
        f.window = {};
        f.own_norms = {{"use_qk_norm"}, true};
        f.experts.router_bias = true;
        f.finish = finish_minimax_m2;
    });
}

void add_qwens(HfFamilyTable& table, const HfFamily& llama) {
    table.add("qwen", llama, [](HfFamily& f) {
        no_bias(f);
        f.input_bias = always;
        f.known = {"no_bias"};  // of the others
        f.context = {{"seq_length"}, 0};
        f.head_width = {{"kv_channels"}, hf_derived};
        f.finish = finish_qwen;
    });
    const HfFamily& qwen2 = table.add("qwen2", llama, [](HfFamily& f) {
        no_bias(f);
        f.input_bias = {{"qkv_bias"}, true};
        f.key_value_heads.otherwise = hf_required;
        f.window = {.size = {{"sliding_window"}},
                    .used = {{"use_sliding_window"}, false},
                    .first_block = {{"max_window_layers"}, 0}};
    });
    for (const string_view type : {"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"}) {
        table.add(type, qwen2);
    }
    table.add("mimo", qwen2, [](HfFamily& f) {
        f.input_bias = {{"attention_bias"}, true};
        f.prediction_blocks = {{"num_nextn_predict_layers"}, 0};
    });
    const HfExperts experts{.count = {{"num_experts"}},
                            .every_from_nth = {{"decoder_sparse_step"}, 1},
                            .without = "mlp_only_layers"};
    const HfFamily& qwen2_moe = table.add("qwen2_moe", qwen2, [&](HfFamily& f) {
        f.experts = experts;
        f.experts.shared_width = {{"shared_expert_intermediate_size"}, 0};
        f.experts.shared_gate = true;
    });
    const HfFamily& qwen3 = table.add("qwen3", qwen2, [](HfFamily& f) {
        f.input_bias = f.output_bias = {{"attention_bias"}, false};
        f.head_norms = always;
    });
    table.add("qwen3_vl_text", qwen3);
    const HfFamily& qwen3_moe =
        table.add("qwen3_moe", qwen3, [&](HfFamily& f) { f.experts = experts; });
    table.add("qwen3_vl_moe_text", qwen3_moe);
    table.add("qwen3_omni_moe_text", qwen3_moe);
    const HfFamily& qwen3_next = table.add("qwen3_next", qwen3, [&](HfFamily& f) {
        f.head_width.otherwise = 256;
        f.output_gate = {{"attn_output_gate"}, true};
        f.window = {};
        f.linear = {.key_heads = {{"linear_num_key_heads"}, 16},
                    .key_width = {{"linear_key_head_dim"}, 128},
                    .value_heads = {{"linear_num_value_heads"}, 32},
                    .value_width = {{"linear_value_head_dim"}, 128},
                    .convolution = {{"linear_conv_kernel_dim"}, 4},
                    .full_every = {{"full_attention_interval"}, 4}};
        f.known = {"full_attention_interval"};  // as layer_types says
        f.experts = qwen2_moe.experts;
        f.prediction_blocks = {{"num_nextn_predict_layers"}, 0};
    });
    const HfFamily& qwen35_moe = table.add("qwen3_5_moe_text", qwen3_next, [](HfFamily& f) {
        f.feed_forward.otherwise = 1;  // no block has a dense half
        f.experts.every_from_nth = {};
        f.experts.without = {};
        f.prediction_blocks = {{"mtp_num_hidden_layers", "num_nextn_predict_layers"}, 0};
    });
    table.add("qwen3_5_text", qwen35_moe, [](HfFamily& f) {
        f.feed_forward.otherwise = hf_required;
        f.experts = {};
    });
}

/// DeepSeek, and families with its experts or its attention.
void add_deepseeks(HfFamilyTable& table, const HfFamily& llama) {
    const HfFamily& deepseek = table.add("deepseek", llama, [](HfFamily& f) {
        f.experts = {.count = {{"n_routed_experts"}, 0},
                     .shared = {{"n_shared_experts"}, 0},
                     .dense_first = {{"first_k_dense_replace"}, 0},
                     .every_from_first = {{"moe_layer_freq"}, 1}};
    });
    const HfFamily& v2 = table.add("deepseek_v2", deepseek, [](HfFamily& f) { f.latent = true; });
    table.add("mistral4", v2);
    const HfFamily& v3 = table.add("deepseek_v3", v2, [](HfFamily& f) {
        f.experts.count = {{"n_routed_experts", "num_experts"}};
        f.experts.router_bias = true;
        f.experts.by_block = "mlp_layer_types";
        f.prediction_blocks = {{"num_nextn_predict_layers"}, 0};
    });
    table.add("kimi_k2", v3);
    table.add("glm4_moe_lite", v3);
    const HfFamily& v32 = table.add("deepseek_v32", v3, [](HfFamily& f) { f.indexer = true; });
    add_hf_shared_indexers(table, v32);
    add_hf_compressed(table, v3);
    const HfFamily& glm_moe = table.add("glm4_moe", v3, [](HfFamily& f) {
        f.latent = false;
        f.output_bias = f.feed_forward_bias = never;
        f.key_value_heads.otherwise = hf_required;
        f.head_norms = {{"use_qk_norm"}, false};
    });
    table.add("glm4v_moe_text", glm_moe);
    table.add("solar_open", glm_moe, [](HfFamily& f) {
        f.feed_forward.otherwise = 1;  // no block has a dense half
        f.head_norms = never;
        f.experts.dense_first = {};
    });
    table.add("dots1", glm_moe, [](HfFamily& f) {
        f.output_bias = {{"attention_bias"}, false};
        f.head_norms = always;
        f.window = {.size = {{"sliding_window"}}, .used = never};  // by layer_types alone
    });
}

/// Returns Gemma 3's.
const HfFamily& add_gemmas(HfFamilyTable& table, const HfFamily& llama) {
    const HfFamily& gemma = table.add("gemma", llama, [](HfFamily& f) {
        f.feed_forward_bias = never;
        f.head_width.otherwise = 256;
        f.key_value_heads.otherwise = hf_required;
        f.tied.otherwise = true;
    });
    const HfFamily& gemma2 = table.add("gemma2", gemma, [](HfFamily& f) {
        sandwich(f);
        f.norm_behind_attention = true;
        f.window = {.size = {{"sliding_window"}, 4096}, .full_every = {{}, 2}};
    });
    table.add("vaultgemma", gemma2, [](HfFamily& f) {
        f.attention_norms = f.feed_forward_norms = 1;
        f.norm_behind_attention = false;
        f.window.size.otherwise = 512;
    });
    // Published files leave out what is the default of the class.
    return table.add("gemma3_text", gemma2, [](HfFamily& f) {
        f.head_norms = always;
        f.heads.otherwise = 8;
        f.key_value_heads.otherwise = 4;
        f.vocabulary.otherwise = 262208;
        f.context.otherwise = 131072;
        f.window.full_every = {{"sliding_window_pattern", "_sliding_window_pattern"}, 6};
    });
}

void add_glms(HfFamilyTable& table, const HfFamily& llama) {
    table.add("chatglm", llama, [](HfFamily& f) {
        f.blocks = {{"num_layers"}};
        f.vocabulary = {{"padded_vocab_size", "vocab_size"}};
        f.context = {{"seq_length"}, 0};
        f.feed_forward = {{"ffn_hidden_size"}};
        f.key_value_heads = {{"multi_query_group_num"}, 1};
        f.head_width = {{"kv_channels"}, hf_derived};
        f.input_bias = {{"add_qkv_bias", "add_bias_linear"}, false};
        f.output_bias = f.feed_forward_bias = {{"add_bias_linear"}, false};
        f.finish = finish_chatglm;
    });
    const HfFamily& glm = table.add("glm", llama, [](HfFamily& f) {
        f.output_bias = f.feed_forward_bias = never;
        f.key_value_heads.otherwise = hf_required;
        f.head_width.otherwise = 128;
    });
    const HfFamily& glm4 = table.add("glm4", glm, sandwich);
    table.add("glm4v_text", glm4);
}

/// Families after Llama with another norm, or another place for it.
void add_further_norms(HfFamilyTable& table, const HfFamily& llama) {
    const HfFamily& olmo = table.add("olmo", llama, [](HfFamily& f) {
        f.norm_gain = false;
        f.feed_forward_bias = never;
    });
    const HfFamily& olmo2 = table.add("olmo2", olmo, [](HfFamily& f) {
        f.norm_gain = true;
        f.norm_behind_attention = true;
        f.own_norms = always;
    });
    table.add("olmo3", olmo2, [](HfFamily& f) {
        f.window = {.size = {{"sliding_window"}, 4096}, .full_every = {{}, 4}};
    });
    table.add("olmoe", olmo2, [](HfFamily& f) {
        f.norm_behind_attention = false;
        f.experts = {.count = {{"num_experts"}}, .width = {{"intermediate_size"}}};
    });
    const HfFamily& cohere = table.add("cohere", llama, [](HfFamily& f) {
        f.feed_forward_bias = never;
        f.feed_forward_norms = 0;
        f.tied.otherwise = true;
        f.own_norms = {{"use_qk_norm"}, false};
    });
    table.add("cohere2", cohere, [](HfFamily& f) {
        f.own_norms = never;
        f.window = {.size = {{"sliding_window"}, 4096},
                    .full_every = {{"sliding_window_pattern", "_sliding_window_pattern"}, 4}};
    });
    table.add("stablelm", llama, [](HfFamily& f) {
        no_bias(f);
        f.norm_bias = true;
        f.input_bias = {{"use_qkv_bias"}, false};
        f.own_norms = {{"qk_layernorm"}, false};
        f.finish = finish_stablelm;
    });
    table.add("starcoder2", llama, [](HfFamily& f) {
        bias_everywhere(f, {{"use_bias"}, true});
        f.gated = false;
        f.norm_bias = true;
        f.key_value_heads.otherwise = hf_required;
        f.tied.otherwise = true;
        f.window = {.size = {{"sliding_window"}}};
    });
    table.add("phi3", llama, [](HfFamily& f) {
        no_bias(f);
        f.window = {.size = {{"sliding_window"}}};
    });
    table.add("gpt_oss", llama, [](HfFamily& f) {
        f.feed_forward_bias = never;
        f.input_bias.otherwise = f.output_bias.otherwise = true;
        f.key_value_heads.otherwise = hf_required;
        f.head_width.otherwise = 64;
        f.sinks = true;
        f.window = {.size = {{"sliding_window"}, 128}, .full_every = {{}, 2}};
        f.experts = {.count = {{"num_local_experts", "num_experts"}},
                     .per_token = {{"num_experts_per_tok", "experts_per_token"}},
                     .width = {{"intermediate_size"}},
                     .bias = true,
                     .router_bias = true};
    });
    table.add("llama4_text", llama, [](HfFamily& f) {
        f.feed_forward = {{"intermediate_size_mlp"}, 16384};
        f.key_value_heads.otherwise = hf_required;
        f.window = {.size = {{"attention_chunk_size"}, 8192},
                    .full_every = {{"no_rope_layer_interval"}, 4}};
        f.experts = {.count = {{"num_local_experts"}},
                     .width = {{"intermediate_size"}},
                     .shared_width = {{"intermediate_size"}},
                     .every_from_nth = {{"interleave_moe_layer_step"}, 1},
                     .with = "moe_layers"};
        f.known = {"use_qk_norm"};  // without parameters
    });
}

/// GPT-2 and families after it: layer norms, biases, one matrix in and one out.
void add_gpts(HfFamilyTable& table) {
    const HfFamily gpt{.blocks = {{"n_layer", "num_hidden_layers", "num_layers"}},
                       .width = {{"n_embd", "hidden_size"}},
                       .context = {{"n_positions", "max_position_embeddings"}},
                       .feed_forward = {{"n_inner", "intermediate_size"}, hf_derived},
                       .heads = {{"n_head", "num_attention_heads", "num_heads"}},
                       .key_value_heads = {{}, hf_derived},
                       .head_width = {{}, hf_derived},
                       .input_bias = always,
                       .output_bias = always,
                       .feed_forward_bias = always,
                       .gated = false,
                       .norm_bias = true};
    const HfFamily& gpt2 = table.add("gpt2", gpt, [](HfFamily& f) {
        f.tied.otherwise = true;
        f.learned_positions = true;
        f.finish = finish_gpt2;
    });
    table.add("gpt_bigcode", gpt2, [](HfFamily& f) { f.finish = finish_bigcode; });
    table.add("gpt_neo", gpt2, [](HfFamily& f) {
        f.input_bias = never;
        f.finish = finish_gpt_neo;
    });
    const HfFamily& gptj = table.add("gptj", gpt, [](HfFamily& f) {
        f.input_bias = f.output_bias = never;
        f.head_bias = always;
        f.feed_forward_norms = 0;
    });
    table.add("codegen", gptj);
    table.add("gpt_neox", gpt, [](HfFamily& f) {
        f.known = {"use_parallel_residual"};  // with two norms either way
        f.input_bias = f.output_bias = {{"attention_bias"}, true};
    });
    table.add("phi", gpt, [](HfFamily& f) {
        f.key_value_heads = same_as_heads;
        f.feed_forward_norms = 0;
        f.head_bias = always;
        f.head_norms = {{"qk_layernorm"}, false};
    });
    table.add("persimmon", gpt, [](HfFamily& f) { f.head_norms = {{"qk_layernorm"}, true}; });
    table.add("bloom", gpt, [](HfFamily& f) {
        f.width = {{"hidden_size", "n_embed", "n_embd"}};
        f.context = {{"seq_length"}, 0};
        f.feed_forward = {{}, hf_derived};
        f.tied.otherwise = true;
        f.embedding_norm = true;
        f.rotary = false;
    });
    table.add("falcon", gpt, [](HfFamily& f) {
        bias_everywhere(f, {{"bias"}, false});
        f.width = {{"hidden_size", "n_embed"}};
        f.context = {{"max_position_embeddings"}, 0};
        f.feed_forward = {{"ffn_hidden_size"}, hf_derived};
        f.key_value_heads = {{"num_kv_heads", "n_head_kv"}, hf_derived};
        f.tied.otherwise = true;
        f.known = {"multi_query"};  // of the older generation
        f.finish = finish_falcon;
    });
    table.add("opt", gpt, [](HfFamily& f) {
        bias_everywhere(f, {{"enable_bias"}, true});
        f.context = {{"max_position_embeddings"}};
        f.feed_forward = {{"ffn_dim"}};
        f.tied.otherwise = true;
        f.learned_positions = true;
        f.position_padding = 2;
        f.dropout = {"dropout"};
        f.finish = finish_opt;
    });
    const HfFamily& mpt = table.add("mpt", gpt, [](HfFamily& f) {
        f.blocks = {{"n_layers"}};
        f.width = {{"d_model"}};
        f.heads = {{"n_heads"}};
        f.context = {{"max_seq_len"}};
        f.feed_forward = {{}, hf_derived};
        f.tied.otherwise = true;
        f.known = {"attn_config", "ffn_config", "learned_pos_emb"};
        f.finish = finish_mpt;
    });
    table.add("dbrx", mpt, [](HfFamily& f) {
        no_bias(f);
        f.gated = true;
        f.norm_bias = false;
        f.tied.otherwise = false;
        f.finish = finish_dbrx;
    });
}

void add_encoder_decoders(HfFamilyTable& table) {
    const HfFamily t5{.blocks = {{"num_decoder_layers", "num_layers"}},
                      .width = {{"d_model"}},
                      .context = {{"n_positions"}, 0},
                      .feed_forward = {{"d_ff"}},
                      .heads = {{"num_heads"}},
                      .key_value_heads = {{}, hf_derived},
                      .head_width = {{"d_kv"}},
                      .tied = {{"tie_word_embeddings"}, true},
                      .input_bias = never,
                      .output_bias = never,
                      .feed_forward_bias = never,
                      .rotary = false,
                      .distance_buckets = {{"relative_attention_num_buckets"}, 32},
                      .encoder_blocks = {{"num_layers"}},
                      .finish = finish_t5};
    table.add("t5", t5);
    table.add("mt5", t5, [](HfFamily& f) { f.tied.otherwise = false; });
    table.add("umt5", t5, [](HfFamily& f) { f.distances_in_every_block = true; });
}

std::vector<HfFamily> make_families() {
    HfFamilyTable table;
    const HfFamily& llama = table.add("llama", {}, [](HfFamily& f) {
        f.key_value_heads = same_as_heads;  // as Llama's own code has it; others have a number
    });
    add_mistrals(table, llama);
    add_qwens(table, llama);
    add_deepseeks(table, llama);
    const HfFamily& gemma3 = add_gemmas(table, llama);
    add_glms(table, llama);
    add_further_norms(table, llama);
    add_llamas(table, llama);
    add_hf_hybrids(table, llama);
    add_hf_mixed_heads(table, llama, gemma3);
    add_gpts(table);
    add_encoder_decoders(table);
    return table.take();
}

}  // namespace

const std::vector<HfFamily>& hf_families() {
    static const std::vector<HfFamily> families = make_families();
    return families;
}

std::vector<string_view> hf_keys_of(const HfFamily& family) {
    std::vector<string_view> keys = family.dropout;
    const HfWindow& window = family.window;
    const HfLinearAttention& linear = family.linear;
    const HfExperts& experts = family.experts;
    for (const HfSize* size : {&family.blocks,
                               &family.width,
                               &family.vocabulary,
                               &family.context,
                               &family.feed_forward,
                               &family.heads,
                               &family.key_value_heads,
                               &family.head_width,
                               &family.distance_buckets,
                               &family.prediction_blocks,
                               &family.encoder_blocks,
                               &window.size,
                               &window.first_block,
                               &window.full_every,
                               &linear.key_heads,
                               &linear.key_width,
                               &linear.value_heads,
                               &linear.value_width,
                               &linear.convolution,
                               &linear.full_every,
                               &experts.count,
                               &experts.per_token,
                               &experts.width,
                               &experts.shared,
                               &experts.shared_width,
                               &experts.dense_first,
                               &experts.every_from_first,
                               &experts.every_from_nth}) {
        keys.insert(keys.end(), size->keys.begin(), size->keys.end());
    }
    for (const HfFlag* flag : {&family.tied,
                               &family.input_bias,
                               &family.output_bias,
                               &family.feed_forward_bias,
                               &family.head_bias,
                               &family.head_norms,
                               &family.own_norms,
                               &family.output_gate,
                               &window.used}) {
        keys.insert(keys.end(), flag->keys.begin(), flag->keys.end());
    }
    keys.insert(keys.end(), {experts.without, experts.with, experts.by_block});
    return keys;
}

const HfFamily* find_hf_family(string_view type) {
    const auto found = std::ranges::find(hf_families(), type, &HfFamily::type);
    return found == hf_families().end() ? nullptr : &*found;
}

string_view hf_text_type(string_view type) {
    constexpr std::array<std::pair<string_view, string_view>, 18> inside{
        {{"mistral3", "mistral"},
         {"gemma4", "gemma4_text"},
         {"minimax_m3_vl", "minimax_m3_vl_text"},
         {"step3p7", "step3p5"},
         {"kimi_k3", "kimi_linear"},
         {"gemma3", "gemma3_text"},
         {"llama4", "llama4_text"},
         {"qwen2_vl", "qwen2_vl_text"},
         {"qwen2_5_vl", "qwen2_5_vl_text"},
         {"qwen3_vl", "qwen3_vl_text"},
         {"qwen3_vl_moe", "qwen3_vl_moe_text"},
         {"qwen3_5", "qwen3_5_text"},
         {"qwen3_5_moe", "qwen3_5_moe_text"},
         {"glm4v", "glm4v_text"},
         {"glm4v_moe", "glm4v_moe_text"},
         {"paligemma", "gemma"},
         {"llava", "llama"},
         {"llava_next", "llama"}}};
    const auto found = std::ranges::find(inside, type, &std::pair<string_view, string_view>::first);
    return found == inside.end() ? string_view{} : found->second;
}

}  // namespace pipetwin
