// SPDX-License-Identifier: Apache-2.0
#pragma once

// Folders of weights as Hugging Face's libraries write them, made of random numbers: names and
// shapes are written down here a second time.

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/interop/safetensors.h"

namespace pipetwin::tests {

/// A tensor and its bytes.
struct PublishedTensor {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::string bytes{};

    bool operator==(const PublishedTensor&) const = default;
};

/// The i-th number of a tensor: whole multiples of 1/64 from -2 to 2, or 1/512 of them, which every
/// type of floating-point number has exactly, and all tensors have other ones.
inline double published_number(std::string_view name, std::int64_t i, double scale = 1.0 / 8) {
    std::uint64_t state = 14695981039346656037U;
    for (const char c : name) {
        state = (state ^ static_cast<unsigned char>(c)) * 1099511628211U;
    }
    state += static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15U;
    state = (state ^ state >> 30U) * 0xBF58476D1CE4E5B9U;
    state = (state ^ state >> 27U) * 0x94D049BB133111EBU;
    const auto steps = static_cast<int>((state ^ state >> 31U) % 255) - 127;
    return scale * steps / 64;
}

inline std::uint16_t bf16_bits(double number) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(number)) >>
                                      16U);
}

/// Bits of IEEE 754's binary16 of a number that it has exactly and that is 0 or not below 2^-14.
inline std::uint16_t half_bits(double number) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(number));
    if (number == 0) {
        return static_cast<std::uint16_t>(bits >> 16U);
    }
    return static_cast<std::uint16_t>(
        (bits >> 16U & 0x8000U) | ((bits >> 23U & 0xFFU) - 112U) << 10U | (bits >> 13U & 0x3FFU));
}

inline std::string published_bytes(const PublishedTensor& tensor) {
    std::int64_t count = 1;
    for (const std::int64_t size : tensor.shape) {
        count *= size;
    }
    std::string bytes;
    const auto add = [&bytes](auto value) {
        char chars[sizeof(value)];
        std::memcpy(chars, &value, sizeof(value));
        bytes.append(chars, sizeof(value));
    };
    const bool is_gain = tensor.name.find("ln_") != std::string::npos ||
                         tensor.name.find("norm") != std::string::npos;
    for (std::int64_t i = 0; i < count; ++i) {
        const double number = published_number(tensor.name, i) +
                              (is_gain && tensor.name.ends_with(".weight") ? 1 : 0);
        if (tensor.dtype == "F32") {
            add(static_cast<float>(number));
        } else if (tensor.dtype == "F64") {
            add(number);
        } else if (tensor.dtype == "BF16") {
            add(bf16_bits(number));
        } else {
            add(half_bits(number));
        }
    }
    return bytes;
}

/// Sizes of a published GPT-2.
struct Gpt2Sizes {
    std::int64_t layers = 2;
    std::int64_t width = 16;
    std::int64_t heads = 2;
    std::int64_t positions = 8;
    std::int64_t words = 32;
    std::int64_t inner = 48;
};

inline std::vector<PublishedTensor> with_bytes(std::vector<PublishedTensor> tensors) {
    for (PublishedTensor& tensor : tensors) {
        if (tensor.bytes.empty()) {
            tensor.bytes = published_bytes(tensor);
        }
    }
    return tensors;
}

/// The tensors of GPT2LMHeadModel, whose head is the embedding.
inline std::vector<PublishedTensor> gpt2_tensors(const std::string& dtype = "F32",
                                                 const Gpt2Sizes& sizes = {},
                                                 const std::string& prefix = "transformer.") {
    const std::int64_t d = sizes.width;
    std::vector<PublishedTensor> all{{prefix + "wte.weight", dtype, {sizes.words, d}},
                                     {prefix + "wpe.weight", dtype, {sizes.positions, d}}};
    for (std::int64_t block = 0; block < sizes.layers; ++block) {
        const std::string h = prefix + "h." + std::to_string(block);
        const std::vector<PublishedTensor> of_block{
            {h + ".ln_1.weight", dtype, {d}},
            {h + ".ln_1.bias", dtype, {d}},
            {h + ".attn.c_attn.weight", dtype, {d, 3 * d}},
            {h + ".attn.c_attn.bias", dtype, {3 * d}},
            {h + ".attn.c_proj.weight", dtype, {d, d}},
            {h + ".attn.c_proj.bias", dtype, {d}},
            {h + ".ln_2.weight", dtype, {d}},
            {h + ".ln_2.bias", dtype, {d}},
            {h + ".mlp.c_fc.weight", dtype, {d, sizes.inner}},
            {h + ".mlp.c_fc.bias", dtype, {sizes.inner}},
            {h + ".mlp.c_proj.weight", dtype, {sizes.inner, d}},
            {h + ".mlp.c_proj.bias", dtype, {d}}};
        all.insert(all.end(), of_block.begin(), of_block.end());
    }
    all.push_back({prefix + "ln_f.weight", dtype, {d}});
    all.push_back({prefix + "ln_f.bias", dtype, {d}});
    return with_bytes(std::move(all));
}

/// A published GPT-2's config.json.
inline nlohmann::json gpt2_config(const Gpt2Sizes& sizes = {}) {
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"activation_function", "gelu"},
            {"n_layer", sizes.layers},
            {"n_embd", sizes.width},
            {"n_head", sizes.heads},
            {"n_positions", sizes.positions},
            {"n_inner", sizes.inner},
            {"vocab_size", sizes.words},
            {"layer_norm_epsilon", 1e-5},
            {"resid_pdrop", 0.0},
            {"embd_pdrop", 0.0},
            {"attn_pdrop", 0.0}};
}

/// Sizes of a published Llama; a head is as wide as it says, and two share keys and values.
struct LlamaTensorSizes {
    std::int64_t layers = 2;
    std::int64_t width = 16;
    std::int64_t heads = 4;
    std::int64_t key_value_heads = 2;
    std::int64_t head_width = 6;
    std::int64_t words = 32;
    std::int64_t inner = 24;
};

/// The tensors of LlamaForCausalLM.
inline std::vector<PublishedTensor> llama_tensors(const std::string& dtype = "F32",
                                                  bool tied = false,
                                                  const LlamaTensorSizes& sizes = {}) {
    const std::int64_t d = sizes.width;
    const std::int64_t queries = sizes.heads * sizes.head_width;
    const std::int64_t keys = sizes.key_value_heads * sizes.head_width;
    std::vector<PublishedTensor> all{{"model.embed_tokens.weight", dtype, {sizes.words, d}}};
    for (std::int64_t block = 0; block < sizes.layers; ++block) {
        const std::string layer = "model.layers." + std::to_string(block);
        const std::vector<PublishedTensor> of_block{
            {layer + ".input_layernorm.weight", dtype, {d}},
            {layer + ".self_attn.q_proj.weight", dtype, {queries, d}},
            {layer + ".self_attn.k_proj.weight", dtype, {keys, d}},
            {layer + ".self_attn.v_proj.weight", dtype, {keys, d}},
            {layer + ".self_attn.o_proj.weight", dtype, {d, queries}},
            {layer + ".post_attention_layernorm.weight", dtype, {d}},
            {layer + ".mlp.gate_proj.weight", dtype, {sizes.inner, d}},
            {layer + ".mlp.up_proj.weight", dtype, {sizes.inner, d}},
            {layer + ".mlp.down_proj.weight", dtype, {d, sizes.inner}}};
        all.insert(all.end(), of_block.begin(), of_block.end());
    }
    all.push_back({"model.norm.weight", dtype, {d}});
    if (!tied) {
        all.push_back({"lm_head.weight", dtype, {sizes.words, d}});
    }
    return with_bytes(std::move(all));
}

/// The tensors of MixtralForCausalLM: those of a Llama with experts in place of its feed-forwards.
inline std::vector<PublishedTensor> mixtral_tensors(const std::string& dtype,
                                                    std::int64_t experts,
                                                    const LlamaTensorSizes& sizes = {}) {
    std::vector<PublishedTensor> all = llama_tensors(dtype, false, sizes);
    std::erase_if(all, [](const PublishedTensor& tensor) {
        return tensor.name.find(".mlp.") != std::string::npos;
    });
    for (std::int64_t block = 0; block < sizes.layers; ++block) {
        const std::string moe = "model.layers." + std::to_string(block) + ".block_sparse_moe.";
        all.push_back({moe + "gate.weight", dtype, {experts, sizes.width}});
        for (std::int64_t expert = 0; expert < experts; ++expert) {
            const std::string name = moe + "experts." + std::to_string(expert);
            all.push_back({name + ".w1.weight", dtype, {sizes.inner, sizes.width}});
            all.push_back({name + ".w2.weight", dtype, {sizes.width, sizes.inner}});
            all.push_back({name + ".w3.weight", dtype, {sizes.inner, sizes.width}});
        }
    }
    return with_bytes(std::move(all));
}

/// A published Llama's config.json, with the positions of Llama 3.1.
inline nlohmann::json small_llama_config(bool tied = false, const LlamaTensorSizes& sizes = {}) {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"hidden_act", "silu"},
            {"num_hidden_layers", sizes.layers},
            {"hidden_size", sizes.width},
            {"num_attention_heads", sizes.heads},
            {"num_key_value_heads", sizes.key_value_heads},
            {"head_dim", sizes.head_width},
            {"intermediate_size", sizes.inner},
            {"vocab_size", sizes.words},
            {"max_position_embeddings", 64},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 500000.0},
            {"rope_scaling",
             {{"rope_type", "llama3"},
              {"factor", 8.0},
              {"low_freq_factor", 1.0},
              {"high_freq_factor", 4.0},
              {"original_max_position_embeddings", 16}}},
            {"tie_word_embeddings", tied}};
}

inline void write_bytes(const std::filesystem::path& file, std::string_view bytes) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
}

/// Writes a safetensors file.
inline void write_safetensors(const std::filesystem::path& file,
                              const std::vector<PublishedTensor>& tensors) {
    SafetensorsHeader header;
    header.metadata = {{"format", "pt"}};
    std::string bytes;
    for (const PublishedTensor& tensor : tensors) {
        header.tensors.push_back(
            {.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
        bytes += tensor.bytes;
    }
    place_tensors(header);
    write_bytes(file, print_safetensors_header(header) + bytes);
}

/// Writes a folder with config.json and one file of weights.
inline void write_published(const std::filesystem::path& folder,
                            const std::vector<PublishedTensor>& tensors,
                            const nlohmann::json& config) {
    write_safetensors(folder / "model.safetensors", tensors);
    write_bytes(folder / "config.json", config.dump());
}

/// Writes the tensors into so many files, in turn, and an index of them.
inline void write_shards(const std::filesystem::path& folder,
                         const std::vector<PublishedTensor>& tensors,
                         std::size_t count) {
    nlohmann::json map;
    for (std::size_t shard = 0; shard < count; ++shard) {
        std::vector<PublishedTensor> part;
        const std::string name = "shard-" + std::to_string(shard) + ".safetensors";
        for (std::size_t i = shard; i < tensors.size(); i += count) {
            part.push_back(tensors[i]);
            map[tensors[i].name] = name;
        }
        write_safetensors(folder / name, part);
    }
    write_bytes(folder / "model.safetensors.index.json",
                nlohmann::json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
}

/// [name] The tensors of all safetensors files in a folder.
inline std::map<std::string, PublishedTensor> read_published(const std::filesystem::path& folder) {
    std::map<std::string, PublishedTensor> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() != ".safetensors") {
            continue;
        }
        const SafetensorsHeader header = read_safetensors_header(entry.path());
        std::ifstream file(entry.path(), std::ios::binary);
        for (const SafetensorsEntry& tensor : header.tensors) {
            std::string bytes(static_cast<std::size_t>(tensor.end - tensor.begin), '\0');
            file.seekg(header.data_begin + tensor.begin);
            file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
            all[tensor.name] = {tensor.name, tensor.dtype, tensor.shape, bytes};
        }
    }
    return all;
}

}  // namespace pipetwin::tests
