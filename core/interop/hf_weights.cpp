// SPDX-License-Identifier: Apache-2.0
#include "core/interop/hf_weights.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/word_list.h"
#include "core/interop/hf_folder.h"
#include "core/interop/hf_names.h"
#include "core/interop/safetensors.h"
#include "core/model/model.h"
#include "core/text/input_file.h"

namespace pipetwin {

namespace {

using std::string_view;

bool skip(string_view& text, string_view begin) {
    if (!text.starts_with(begin)) {
        return false;
    }
    text.remove_prefix(begin.size());
    return true;
}

/// Whether the text begins with one of the words, which are apart by blanks.
bool begins(string_view text, string_view words) {
    return std::ranges::any_of(words_in(words),
                               [text](string_view word) { return text.starts_with(word); });
}

/// The layer and the part of it that a tensor belongs to.
struct Home {
    enum class Kind { Layer, None, Unknown } kind = Kind::Unknown;
    std::size_t layer = 0;
};

Home home_in(std::size_t layer) {
    return {.kind = Home::Kind::Layer, .layer = layer};
}

constexpr Home nowhere{.kind = Home::Kind::None};

/// Names in an attention half, behind the block's number. The norm behind an attention has the name
/// that others give to the norm in front of the feed-forward half.
bool is_of_attention(const DecoderModel& model, string_view name) {
    constexpr string_view of_attention =
        ".self_attn. .attn. .attention. .self_attention. .linear_attn. .input_layernorm. "
        ".ln_1. .ln_attn. .norm_1. .norm_attn_norm.attn. .norm_attn_norm.norm_1. "
        ".attention_norm. .self_attn_layer_norm. .post_self_attn_layernorm. .attn_norm. .attn_hc. "
        ".hc_attn_ .self_attention_res_norm. .self_attention_res_proj.";
    return begins(name, of_attention) ||
           (model.norm_behind_attention && name.starts_with(".post_attention_layernorm."));
}

bool is_of_feed_forward(string_view name) {
    constexpr string_view words =
        ".mlp. .block_sparse_moe. .feed_forward. .shared_mlp. .ffn. .fc1. .fc2. "
        ".post_attention_layernorm. .pre_feedforward_layernorm. .post_feedforward_layernorm. "
        ".post_mlp_layernorm. .feedforward_layernorm. .ln_2. .ln_mlp. .norm_2. "
        ".norm_attn_norm.norm_2. .ffn_norm. .final_layer_norm. .pre_feedforward_layernorm_2. "
        ".post_feedforward_layernorm_1. .post_feedforward_layernorm_2. .router. .experts. "
        ".layer_scalar .moe. .share_expert. .ffn_hc. .hc_ffn_ .mlp_res_norm. .mlp_res_proj.";
    return begins(name, words);
}

/// "layers.12.self_attn.q_proj.weight" and the like, without what stands before "layers." or "h.".
Home home_in_block(const DecoderModel& model, string_view name) {
    int block = -1;
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), block);
    if (error != std::errc{} || block < 0) {
        return {};
    }
    name.remove_prefix(static_cast<std::size_t>(rest - name.data()));
    const std::size_t attention = 1 + 2 * as_index(block);
    if (block < model.blocks) {
        if (!has_attention(model, block) || !has_feed_forward(model, block)) {
            const bool is_known = begins(name, ".norm. .mixer.");
            return is_known ? home_in(attention + (has_attention(model, block) ? 0 : 1)) : Home{};
        }
        return is_of_attention(model, name) ? home_in(attention)
               : is_of_feed_forward(name)   ? home_in(attention + 1)
                                            : Home{};
    }
    if (block < model.blocks + model.prediction_blocks) {
        // Embedding and head are those of the model.
        const bool shared = begins(name, ".embed_tokens. .shared_head.head.");
        const int prediction = block - model.blocks;
        return shared ? nowhere : home_in(1 + 2 * as_index(model.blocks) + as_index(prediction));
    }
    return block < model.blocks + model.further_blocks ? nowhere : Home{};
}

/// The name without the modules around the text model.
string_view inside(string_view name) {
    constexpr string_view around =
        "model. transformer. language_model. gpt_neox. decoder. encoder. backbone.";
    for (bool more = true; more;) {
        more = std::ranges::any_of(words_in(around),
                                   [&name](string_view word) { return skip(name, word); });
    }
    return name;
}

Home home_of(const DecoderModel& model, string_view name) {
    constexpr string_view outside =
        "vision_tower. vision_model. visual. vision_encoder. audio_tower. "
        "multi_modal_projector. mm_projector. patch_merger.";
    constexpr string_view embedding =
        "embed_tokens. wte. wpe. word_embeddings. word_embeddings_layernorm. embedding. "
        "embed_in. embed_positions. tok_embeddings. project_in. embeddings. embed.";
    constexpr string_view head =
        "norm. ln_f. norm_f. final_layer_norm. final_layernorm. project_out. lm_head. "
        "embed_out. output head. hc_head";
    if (is_hf_buffer(name)) {
        return nowhere;
    }
    name = inside(name);
    const std::size_t first_prediction = 1 + 2 * as_index(model.blocks);
    if (model.is_part && begins(name, outside)) {
        return nowhere;
    }
    if (name.starts_with("mtp.")) {
        return model.prediction_blocks > 0 ? home_in(first_prediction) : nowhere;
    }
    if (begins(name, embedding)) {
        return home_in(0);
    }
    const bool is_matrix = begins(name, "lm_head. embed_out. output");
    if (is_matrix && model.tied && !name.ends_with(".bias")) {
        return nowhere;
    }
    if (begins(name, head)) {
        return home_in(first_prediction + as_index(model.prediction_blocks));
    }
    return skip(name, "layers.") || skip(name, "h.") || skip(name, "blocks.")
               ? home_in_block(model, name)
               : Home{};
}

/// Tensors of all files, by name.
class Weights {
  public:
    explicit Weights(const DecoderModel& model)
        : model_(model),
          layers_(2 + 2 * as_index(model.blocks) + as_index(model.prediction_blocks)) {}

    void add(const std::filesystem::path& file) { add(file, InputFile(file)); }

    void add(const std::filesystem::path& file, InputFile opened) {
        const SafetensorsHeader header = read_safetensors_header(opened, file.string());
        for (const SafetensorsEntry& tensor : header.tensors) {
            const std::string place = fmt::format("{}: tensor '{}'", file.string(), tensor.name);
            const auto [other, is_new] = file_of_.emplace(tensor.name, file.string());
            if (!is_new) {
                throw Error(ErrorKind::BadInput,
                            place,
                            fmt::format("{} contains it, too", other->second),
                            "name each file of the model once");
            }
            const Home home = home_of(model_, tensor.name);
            if (home.kind == Home::Kind::Unknown) {
                throw Error(ErrorKind::BadInput,
                            place,
                            fmt::format("no part of a {} of {}, expected such as "
                                        "model.layers.0.mlp.up_proj.weight",
                                        model_.family,
                                        counted(model_.blocks, "block")),
                            "do the weights belong to this config.json?");
            }
            if (home.kind == Home::Kind::Layer) {
                layers_[home.layer].bytes += Bytes{tensor.end - tensor.begin};
                layers_[home.layer].count += value_count(tensor, place);
            }
        }
    }

    void add_index(const std::filesystem::path& index) {
        constexpr const char* hint = "name the files themselves with --weights";
        const auto tensors_of_file = read_hf_index(index, hint);
        for (const auto& [file, tensors] : tensors_of_file) {
            const std::filesystem::path path = index.parent_path() / file;
            add(path, open_named_by_index(index, path, hint));
        }
        for (const auto& [file, tensors] : tensors_of_file) {
            for (const std::string& tensor : tensors) {
                if (!file_of_.contains(tensor)) {
                    refuse_index_entry(index, tensor, file);
                }
            }
        }
    }

    /// The layers that the model has.
    std::vector<LayerWeights> take(const std::filesystem::path& last) {
        std::vector<LayerWeights> result;
        for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
            if (!is_there(static_cast<int>(layer))) {
                continue;
            }
            if (layers_[layer].count == 0) {
                throw Error(ErrorKind::BadInput,
                            last.string(),
                            fmt::format("no weights of layer '{}' in this or the other files",
                                        name_of(static_cast<int>(layer))),
                            "name every file with --weights, or the index.json that lists them");
            }
            result.push_back(layers_[layer]);
        }
        return result;
    }

  private:
    /// False for a half that its block does not have.
    bool is_there(int layer) const {
        const int in_blocks = layer - 1;
        const int block = in_blocks / 2;
        return layer == 0 || block >= model_.blocks ||
               (in_blocks % 2 == 0 ? has_attention(model_, block)
                                   : has_feed_forward(model_, block));
    }

    std::string name_of(int layer) const {
        const int in_blocks = layer - 1;
        const int behind = in_blocks - 2 * model_.blocks;
        return layer == 0                          ? "embedding"
               : behind < 0                        ? fmt::format("block{}.{}",
                                          in_blocks / 2,
                                          in_blocks % 2 == 0 ? "attention" : "feed_forward")
               : behind < model_.prediction_blocks ? fmt::format("mtp{}", behind)
                                                   : "head";
    }

    const DecoderModel& model_;
    std::vector<LayerWeights> layers_;
    std::map<std::string, std::string> file_of_;
};

}  // namespace

std::vector<LayerWeights> read_weights(const DecoderModel& model,
                                       const std::vector<std::filesystem::path>& files) {
    PIPETWIN_EXPECT(!files.empty(), "weights of a model without a file");
    if (model.encoder_blocks > 0) {
        throw Error(ErrorKind::BadInput,
                    files.front().string(),
                    fmt::format("weights of a {}: those of a model with an encoder cannot be read "
                                "yet",
                                model.family),
                    "leave --weights out: the sizes follow from the config.json");
    }
    Weights weights(model);
    for (const std::filesystem::path& file : files) {
        if (file.extension() == ".json") {
            weights.add_index(file);
        } else {
            weights.add(file);
        }
    }
    return weights.take(files.back());
}

}  // namespace pipetwin
