// SPDX-License-Identifier: Apache-2.0
#include "core/interop/hf_names.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/word_list.h"

namespace pipetwin {

namespace {

/// Adds the parameters of a model in the order in which it has them.
class HfNamesMaker {
  public:
    explicit HfNamesMaker(HfNames& names) : names_(names) {}

    /// A row of numbers, such as a bias or the gain of a norm.
    void row(const std::string& name, const std::string& tensor, std::int64_t size) {
        add(name, 1, size, {{.tensor = tensor, .shape = {size}}});
    }
    /// A matrix that the files have as it is ours.
    void matrix(const std::string& name,
                const std::string& tensor,
                std::int64_t rows,
                std::int64_t columns,
                HfSlice::Rows free = HfSlice::Rows::Fixed) {
        add(name, rows, columns, {{.tensor = tensor, .shape = {rows, columns}, .rows = free}});
    }
    /// Parts of a matrix, each (outputs, inputs) in the files, side by side in ours.
    struct Part {
        std::string tensor{};
        std::int64_t outputs = 0;
        HfSlice::Rows rows = HfSlice::Rows::Fixed;
    };
    void transposed(const std::string& name, std::int64_t inputs, const std::vector<Part>& parts) {
        std::vector<HfSlice> slices;
        std::int64_t columns = 0;
        for (const Part& part : parts) {
            slices.push_back({.tensor = part.tensor,
                              .shape = {part.outputs, inputs},
                              .transposed = true,
                              .first_column = columns,
                              .rows = part.rows});
            columns += part.outputs;
        }
        add(name, inputs, columns, std::move(slices));
    }

    /// The matrix of the head, unless it is the embedding's.
    void head(std::int64_t vocabulary, std::int64_t width, bool tied) {
        if (!tied) {
            transposed("head.projection.weight",
                       width,
                       {{.tensor = std::string(names_.head),
                         .outputs = vocabulary,
                         .rows = HfSlice::Rows::Vocabulary}});
        }
    }

  private:
    void add(std::string name,
             std::int64_t rows,
             std::int64_t columns,
             std::vector<HfSlice> slices) {
        names_.parameters.push_back({.name = std::move(name),
                                     .rows = rows,
                                     .columns = columns,
                                     .slices = std::move(slices)});
    }

    HfNames& names_;
};

/// GPT-2 keeps matrices as (inputs, outputs), and queries, keys and values in one.
HfNames gpt2_names(const GptSizes& sizes) {
    HfNames names{.family = "gpt2",
                  .prefix = "transformer.",
                  .table = "transformer.wte.weight",
                  .head = "lm_head.weight"};
    HfNamesMaker make(names);
    const std::int64_t width = sizes.d_model;
    const std::int64_t inner = sizes.feed_forward > 0 ? sizes.feed_forward : 4 * width;
    const auto norm = [&](const std::string& name, const std::string& tensor) {
        make.row(name + ".gain", tensor + ".weight", width);
        make.row(name + ".bias", tensor + ".bias", width);
    };
    const auto linear = [&](const std::string& name,
                            const std::string& tensor,
                            std::int64_t inputs,
                            std::int64_t outputs) {
        make.matrix(name + ".weight", tensor + ".weight", inputs, outputs);
        make.row(name + ".bias", tensor + ".bias", outputs);
    };
    make.matrix("embedding.tokens",
                std::string(names.table),
                sizes.vocabulary,
                width,
                HfSlice::Rows::Vocabulary);
    make.matrix("embedding.places",
                "transformer.wpe.weight",
                sizes.context,
                width,
                HfSlice::Rows::Positions);
    for (int block = 0; block < sizes.layers; ++block) {
        const std::string ours = fmt::format("block{}", block);
        const std::string theirs = fmt::format("transformer.h.{}", block);
        norm(ours + ".attention.norm", theirs + ".ln_1");
        linear(ours + ".attention.attention.qkv", theirs + ".attn.c_attn", width, 3 * width);
        linear(ours + ".attention.attention.out", theirs + ".attn.c_proj", width, width);
        norm(ours + ".feed_forward.norm", theirs + ".ln_2");
        linear(ours + ".feed_forward.up", theirs + ".mlp.c_fc", width, inner);
        linear(ours + ".feed_forward.down", theirs + ".mlp.c_proj", inner, width);
    }
    norm("head.norm", "transformer.ln_f");
    make.head(sizes.vocabulary, width, sizes.tied);
    return names;
}

/// Mixtral's names of a router and its experts: "w1" makes the gates, "w3" what they gate.
void add_experts(HfNamesMaker& make,
                 const std::string& name,
                 const std::string& theirs,
                 const LlamaSizes& sizes) {
    const std::string moe = theirs + ".block_sparse_moe";
    const std::int64_t width = sizes.d_model;
    const std::int64_t inner = sizes.expert_feed_forward;
    make.transposed(
        name + ".router.weight", width, {{moe + ".gate.weight", sizes.routing.experts}});
    for (int expert = 0; expert < sizes.routing.experts; ++expert) {
        const std::string own = fmt::format("{}.{}", name, expert);
        const std::string tensor = fmt::format("{}.experts.{}", moe, expert);
        make.transposed(own + ".gate_up.weight",
                        width,
                        {{tensor + ".w1.weight", inner}, {tensor + ".w3.weight", inner}});
        make.transposed(own + ".down.weight", inner, {{tensor + ".w2.weight", width}});
    }
}

/// Whether a mixture of experts is one of Mixtral's.
bool is_mixtral(const LlamaSizes& sizes) {
    const Routing& routing = sizes.routing;
    return routing.scores == RouterScores::Softmax && routing.groups == 1 && routing.normalised &&
           routing.scale == 1 && routing.bias_update == 0 && sizes.shared_feed_forward == 0 &&
           sizes.dense_layers == 0;
}

/// Llama keeps matrices as (outputs, inputs), and queries, keys, values, gates and the values that
/// they gate apart.
HfNames llama_names(const LlamaSizes& sizes) {
    HfNames names{.family = sizes.routing.experts > 0 ? "mixtral" : "llama",
                  .prefix = "model.",
                  .table = "model.embed_tokens.weight",
                  .head = "lm_head.weight"};
    HfNamesMaker make(names);
    const std::int64_t width = sizes.d_model;
    const std::int64_t head = sizes.head_size > 0 ? sizes.head_size : width / sizes.heads;
    const std::int64_t queries = head * sizes.heads;
    const std::int64_t keys =
        head * (sizes.key_value_heads > 0 ? sizes.key_value_heads : sizes.heads);
    const std::int64_t inner = sizes.feed_forward;
    make.matrix("embedding.tokens",
                std::string(names.table),
                sizes.vocabulary,
                width,
                HfSlice::Rows::Vocabulary);
    for (int block = 0; block < sizes.layers; ++block) {
        const std::string attention = fmt::format("block{}.attention", block);
        const std::string feed_forward = fmt::format("block{}.feed_forward", block);
        const std::string theirs = fmt::format("model.layers.{}", block);
        make.row(attention + ".norm.gain", theirs + ".input_layernorm.weight", width);
        make.transposed(attention + ".attention.qkv.weight",
                        width,
                        {{theirs + ".self_attn.q_proj.weight", queries},
                         {theirs + ".self_attn.k_proj.weight", keys},
                         {theirs + ".self_attn.v_proj.weight", keys}});
        make.transposed(attention + ".attention.out.weight",
                        queries,
                        {{theirs + ".self_attn.o_proj.weight", width}});
        make.row(feed_forward + ".norm.gain", theirs + ".post_attention_layernorm.weight", width);
        if (sizes.routing.experts > 0) {
            add_experts(make, feed_forward + ".experts", theirs, sizes);
            continue;
        }
        make.transposed(
            feed_forward + ".gate_up.weight",
            width,
            {{theirs + ".mlp.gate_proj.weight", inner}, {theirs + ".mlp.up_proj.weight", inner}});
        make.transposed(
            feed_forward + ".down.weight", inner, {{theirs + ".mlp.down_proj.weight", width}});
    }
    make.row("head.norm.gain", "model.norm.weight", width);
    make.head(sizes.vocabulary, width, sizes.tied);
    return names;
}

}  // namespace

HfNames hf_names(const ScenarioParts::ModelPart& model) {
    if (model.kind == ModelKind::Gpt) {
        return gpt2_names(model.gpt);
    }
    if (model.kind == ModelKind::Llama) {
        return llama_names(model.llama);
    }
    if (model.kind == ModelKind::Moe) {
        if (is_mixtral(model.llama)) {
            return llama_names(model.llama);
        }
        throw Error(
            ErrorKind::BadInput,
            KeyValue{"model.kind"},
            "\"moe\": of mixtures of experts weights of Hugging Face's are read and written "
            "for Mixtral's form alone: a softmax router without groups, experts in every "
            "block, and nothing beside them",
            "leave out router, router_groups, router_normalised, router_scale, bias_update, "
            "shared_feed_forward and dense_layers");
    }
    throw Error(ErrorKind::BadInput,
                KeyValue{"model.kind"},
                fmt::format("\"{}\": weights of Hugging Face's are read and written for gpt (their "
                            "gpt2), llama and moe (their mixtral) alone",
                            to_string(model.kind)),
                "describe the model as kind = \"gpt\", \"llama\" or \"moe\"");
}

bool is_hf_buffer(std::string_view name) {
    constexpr std::string_view ends =
        ".attn.bias .attn.masked_bias .attention.bias .attention.masked_bias "
        ".rotary_emb.inv_freq .rotary_pos_emb.inv_freq rotary_emb.inv_freq .gate.tid2eid";
    return std::ranges::any_of(words_in(ends),
                               [name](std::string_view end) { return name.ends_with(end); });
}

}  // namespace pipetwin
