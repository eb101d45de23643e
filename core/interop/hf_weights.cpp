#include "core/interop/hf_weights.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/interop/safetensors.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

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

/// Whether the text begins with one of the words.
template <std::size_t Count>
bool begins(string_view text, const std::array<string_view, Count>& words) {
    return std::ranges::any_of(words, [text](string_view word) { return text.starts_with(word); });
}

bool is_buffer(string_view name) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
           name.ends_with(".rotary_emb.inv_freq");
}

/// The layer and the part of it that a tensor belongs to.
struct Home {
    enum class Kind { Layer, None, Unknown } kind = Kind::Unknown;
    std::size_t layer = 0;
};

/// "layers.12.self_attn.q_proj.weight" and the like, without what stands before "layers." or "h.".
Home home_in_block(const DecoderModel& model, string_view name) {
    int block = -1;
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), block);
    if (error != std::errc{} || block < 0) {
        return {};
    }
    name.remove_prefix(static_cast<std::size_t>(rest - name.data()));
    if (block >= model.blocks) {
        return {.kind = block < model.blocks + model.further_blocks ? Home::Kind::None
                                                                    : Home::Kind::Unknown};
    }
    const std::size_t attention = 1 + 2 * as_index(block);
    if (begins(
            name,
            std::array<string_view, 4>{".self_attn.", ".attn.", ".input_layernorm.", ".ln_1."})) {
        return {.kind = Home::Kind::Layer, .layer = attention};
    }
    if (begins(name,
               std::array<string_view, 4>{
                   ".mlp.", ".block_sparse_moe.", ".post_attention_layernorm.", ".ln_2."})) {
        return {.kind = Home::Kind::Layer, .layer = attention + 1};
    }
    return {};
}

Home home_of(const DecoderModel& model, string_view name) {
    if (is_buffer(name)) {
        return {.kind = Home::Kind::None};
    }
    if (!skip(name, "model.")) {
        skip(name, "transformer.");
    }
    if (begins(name, std::array<string_view, 3>{"embed_tokens.", "wte.", "wpe."})) {
        return {.kind = Home::Kind::Layer, .layer = 0};
    }
    if (name.starts_with("lm_head.") && model.tied) {
        return {.kind = Home::Kind::None};
    }
    if (begins(name, std::array<string_view, 3>{"lm_head.", "norm.", "ln_f."})) {
        return {.kind = Home::Kind::Layer, .layer = 1 + 2 * as_index(model.blocks)};
    }
    return skip(name, "layers.") || skip(name, "h.") ? home_in_block(model, name) : Home{};
}

/// Tensors of all files, by name.
class Weights {
  public:
    explicit Weights(const DecoderModel& model)
        : model_(model), layers_(2 + 2 * as_index(model.blocks)) {}

    void add(const std::filesystem::path& file) {
        const SafetensorsHeader header = read_safetensors_header(file);
        for (const SafetensorsEntry& tensor : header.tensors) {
            const std::string place = fmt::format("{}: tensor '{}'", file.string(), tensor.name);
            const auto [other, is_new] = file_of_.emplace(tensor.name, file.string());
            if (!is_new) {
                throw Error(ErrorKind::BadInput,
                            place,
                            fmt::format("it stands in {}, too", other->second),
                            "name each file of the model once");
            }
            const Home home = home_of(model_, tensor.name);
            if (home.kind == Home::Kind::Unknown) {
                throw Error(ErrorKind::BadInput,
                            place,
                            fmt::format("no part of a {} of {} blocks, expected such as "
                                        "model.layers.0.mlp.up_proj.weight",
                                        model_.family,
                                        model_.blocks),
                            "do the weights belong to this config.json?");
            }
            if (home.kind == Home::Kind::Layer) {
                layers_[home.layer].bytes += Bytes{tensor.end - tensor.begin};
                layers_[home.layer].count += value_count(tensor, place);
            }
        }
    }

    void add_index(const std::filesystem::path& index) {
        const std::string place = index.string();
        const nlohmann::json root = parse_json(read_file(index, JsonLimits{}.max_bytes), place);
        const JsonObject object(root, place, "");
        const JsonObject map = object.object("weight_map");
        std::map<std::string, std::vector<std::string>> tensors_of_file;
        for (const std::string& tensor : map.keys()) {
            tensors_of_file[map.text(tensor)].push_back(tensor);
        }
        for (const auto& [file, tensors] : tensors_of_file) {
            add(index.parent_path() / file);
        }
        for (const std::string& tensor : map.keys()) {
            if (!file_of_.contains(tensor)) {
                map.refuse(tensor, "a file that holds this tensor");
            }
        }
    }

    std::vector<LayerWeights> take(const std::filesystem::path& last) {
        const auto empty = std::ranges::find(layers_, std::int64_t{0}, &LayerWeights::count);
        if (empty != layers_.end()) {
            const auto layer = static_cast<int>(empty - layers_.begin());
            throw Error(
                ErrorKind::BadInput,
                last.string(),
                fmt::format("no weights of layer '{}' in this or the other files",
                            layer == 0 ? "embedding"
                            : layer == 2 * model_.blocks + 1
                                ? "head"
                                : fmt::format("block{}.{}",
                                              (layer - 1) / 2,
                                              layer % 2 == 1 ? "attention" : "feed_forward")),
                "name every file with --weights, or the index.json that lists them");
        }
        return std::move(layers_);
    }

  private:
    const DecoderModel& model_;
    std::vector<LayerWeights> layers_;
    std::map<std::string, std::string> file_of_;
};

}  // namespace

std::vector<LayerWeights> read_weights(const DecoderModel& model,
                                       const std::vector<std::filesystem::path>& files) {
    PIPETWIN_EXPECT(!files.empty(), "weights of a model without a file");
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
