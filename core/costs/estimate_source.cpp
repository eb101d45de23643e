// SPDX-License-Identifier: Apache-2.0
#include "core/costs/estimate_source.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/costs/cost_factors.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/costs/whole_blocks.h"
#include "core/text/json_object.h"

namespace pipetwin {

std::vector<std::string> words_of(const RecomputeModules& modules) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < recompute_module_words.size(); ++i) {
        const int blocks = modules.blocks(static_cast<RecomputeModule>(i));
        if (blocks > 0) {
            words.push_back(blocks == RecomputeModules::all_blocks
                                ? std::string(recompute_module_words.at(i))
                                : fmt::format("{}:{}", recompute_module_words.at(i), blocks));
        }
    }
    return words;
}

std::vector<std::string> words_of(const OffloadModules& modules) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < offload_module_words.size(); ++i) {
        if (modules.has(static_cast<OffloadModule>(i))) {
            words.emplace_back(offload_module_words.at(i));
        }
    }
    return words;
}

bool EstimatedFrom::operator==(const EstimatedFrom& other) const {
    return source_ == other.source_ || (source_ && other.source_ && *source_ == *other.source_);
}

EstimateSource source_of(DecoderModel model, EstimateOptions options, std::string_view device) {
    const DecoderModel none;
    for (const auto text : {&DecoderModel::family,
                            &DecoderModel::blocks_key,
                            &DecoderModel::positions_key,
                            &DecoderModel::precision_key,
                            &DecoderModel::precision_word,
                            &DecoderModel::precision_value,
                            &DecoderModel::quantization}) {
        (model.*text).clear();
    }
    model.remarks.clear();
    model.precision.reset();
    model.further_blocks = none.further_blocks;
    model.norm_behind_attention = none.norm_behind_attention;
    model.is_part = none.is_part;
    if (model.experts.count == 0) {
        model.experts = none.experts;
    }
    std::shared_ptr<const Stack> stack = std::exchange(options.stack, nullptr);
    return {.model = std::move(model),
            .options = std::move(options),
            .device = std::string(device),
            .stack = std::move(stack)};
}

EstimatedFrom of_whole_blocks(const EstimatedFrom& source) {
    if (!source) {
        return {};
    }
    EstimateSource changed = *source.get();
    changed.whole_blocks = true;
    return EstimatedFrom(std::make_shared<const EstimateSource>(std::move(changed)));
}

void require_source(const Profile& profile) {
    if (profile.estimated_from) {
        return;
    }
    throw Error(ErrorKind::BadInput,
                "profile",
                profile.source == CostSource::Estimated
                    ? "its costs are those of whole samples and of all experts of a layer, and it "
                      "does not say which model they were estimated for"
                    : "its costs are those of whole samples and of all experts of a layer",
                "costs that 'pipetwin import hf' and 'import megatron' write are known of every "
                "division");
}

namespace {

/// Factors of all measured runs that corrected layers of the profile.
CostFactors factors_of(const Profile& profile) {
    CostFactors all;
    for (const RunCalibration& by : profile.run_calibrations) {
        all.compute *= by.compute_factor;
        all.memory *= by.memory_factor.value_or(1);
    }
    return all;
}

}  // namespace

Profile divided_profile(const Profile& profile, const LayerDivision& division) {
    if (!division.needs_estimate()) {
        return profile;
    }
    require_source(profile);
    const EstimateSource* const source = profile.estimated_from.get();
    EstimateOptions options = source->options;
    if (!profile.stack.empty()) {
        const bool is_same = source->stack && source->stack->name == profile.stack;
        options.stack = is_same ? source->stack : find_stack(profile.stack);
    }
    Profile of_one =
        estimated_profile(source->model, *shared_device(source->device), options, division);
    if (source->whole_blocks) {
        of_one = with_whole_blocks(of_one);
    }
    if (const CostFactors factors = factors_of(profile); factors != CostFactors{}) {
        of_one = with_factors(of_one, factors);
    }
    PIPETWIN_EXPECT(of_one.layers.size() == profile.layers.size(),
                    "a profile has the layers that it was estimated for");
    Profile result = profile;
    for (std::size_t i = 0; i < result.layers.size(); ++i) {
        LayerCost& layer = result.layers[i];
        LayerCost& divided = of_one.layers[i];
        layer.tensor_sums = divided.tensor_sums;
        layer.shared = std::move(divided.shared);
        if (division.tensor == 1) {
            layer.samples = std::move(divided.samples);
        }
    }
    return result;
}

namespace {

using nlohmann::ordered_json;

/// Calls `visit(key, member)` for every whole number, flag and list of a shape.
template <class Shape, class Visit>
    requires std::same_as<std::remove_const_t<Shape>, AttentionShape>
void each_value(Shape& of, Visit visit) {
    visit("heads", of.heads);
    visit("key_value_heads", of.key_value_heads);
    visit("key_width", of.key_width);
    visit("value_width", of.value_width);
    visit("input_bias", of.input_bias);
    visit("output_bias", of.output_bias);
    visit("head_norms", of.head_norms);
    visit("window", of.window);
    visit("first_window_block", of.first_window_block);
    visit("window_blocks", of.window_blocks);
    visit("own_norms", of.own_norms);
    visit("rotary", of.rotary);
    visit("gated", of.gated);
    visit("sinks", of.sinks);
    visit("linear_blocks", of.linear_blocks);
    visit("distance_buckets", of.distance_buckets);
    visit("distances_in_every_block", of.distances_in_every_block);
    visit("values_are_keys", of.values_are_keys);
    visit("value_norms", of.value_norms);
    visit("head_gate", of.head_gate);
}

template <class Shape, class Visit>
    requires std::same_as<std::remove_const_t<Shape>, LatentShape>
void each_value(Shape& of, Visit visit) {
    visit("query_rank", of.query_rank);
    visit("key_value_rank", of.key_value_rank);
    visit("rotary_width", of.rotary_width);
}

template <class Shape, class Visit>
    requires std::same_as<std::remove_const_t<Shape>, IndexerShape>
void each_value(Shape& of, Visit visit) {
    visit("heads", of.heads);
    visit("width", of.width);
    visit("keys", of.keys);
    visit("shared", of.shared);
}

template <class Shape, class Visit>
    requires std::same_as<std::remove_const_t<Shape>, LinearAttentionShape>
void each_value(Shape& of, Visit visit) {
    visit("key_heads", of.key_heads);
    visit("key_width", of.key_width);
    visit("value_heads", of.value_heads);
    visit("value_width", of.value_width);
    visit("convolution", of.convolution);
    visit("decay_rank", of.decay_rank);
    visit("gate_rank", of.gate_rank);
}

template <class Shape, class Visit>
    requires std::same_as<std::remove_const_t<Shape>, CompressedShape>
void each_value(Shape& of, Visit visit) {
    visit("query_rank", of.query_rank);
    visit("rotary_width", of.rotary_width);
    visit("output_groups", of.output_groups);
    visit("output_rank", of.output_rank);
    visit("ratio", of.ratio);
    visit("overlaps", of.overlaps);
}

template <class Shape, class Visit>
    requires std::same_as<std::remove_const_t<Shape>, MambaShape>
void each_value(Shape& of, Visit visit) {
    visit("heads", of.heads);
    visit("width", of.width);
    visit("state", of.state);
    visit("groups", of.groups);
    visit("convolution", of.convolution);
    visit("chunk", of.chunk);
    visit("bias", of.bias);
    visit("convolution_bias", of.convolution_bias);
}

template <class Shape, class Visit>
    requires std::same_as<std::remove_const_t<Shape>, ExpertShape>
void each_value(Shape& of, Visit visit) {
    visit("count", of.count);
    visit("per_token", of.per_token);
    visit("width", of.width);
    visit("latent_width", of.latent_width);
    visit("latent_norm", of.latent_norm);
    visit("shared_width", of.shared_width);
    visit("shared_gate", of.shared_gate);
    visit("bias", of.bias);
    visit("router_bias", of.router_bias);
    visit("fixed_blocks", of.fixed_blocks);
    visit("router_gain", of.router_gain);
}

template <class Shape, class Visit>
    requires std::same_as<std::remove_const_t<Shape>, AdapterShape>
void each_value(Shape& of, Visit visit) {
    visit("rank", of.rank);
    visit("inputs", of.inputs);
    visit("outputs", of.outputs);
    visit("inner", of.inner);
    visit("outer", of.outer);
    visit("dropout", of.dropout);
    visit("ends", of.ends);
}

template <class Shape, class Visit>
    requires std::same_as<std::remove_const_t<Shape>, DecoderModel>
void each_value(Shape& of, Visit visit) {
    visit("blocks", of.blocks);
    visit("width", of.width);
    visit("vocabulary", of.vocabulary);
    visit("context", of.context);
    visit("learned_positions", of.learned_positions);
    visit("attention_kinds", of.attention_kinds);
    visit("feed_forward", of.feed_forward);
    visit("feed_forward_widths", of.feed_forward_widths);
    visit("gated", of.gated);
    visit("feed_forward_bias", of.feed_forward_bias);
    visit("has_experts", of.has_experts);
    visit("norm_bias", of.norm_bias);
    visit("dropout", of.dropout);
    visit("tied", of.tied);
    visit("norm_gain", of.norm_gain);
    visit("attention_norms", of.attention_norms);
    visit("feed_forward_norms", of.feed_forward_norms);
    visit("embedding_norm", of.embedding_norm);
    visit("final_norm", of.final_norm);
    visit("head_bias", of.head_bias);
    visit("embedding_width", of.embedding_width);
    visit("position_padding", of.position_padding);
    visit("encoder_blocks", of.encoder_blocks);
    visit("prediction_blocks", of.prediction_blocks);
    visit("prediction_attention", of.prediction_attention);
    visit("prediction_feed_forward", of.prediction_feed_forward);
    visit("activation_parameters", of.activation_parameters);
    visit("streams", of.streams);
    visit("residual_blocks", of.residual_blocks);
    visit("block_numbers", of.block_numbers);
}

template <class Value>
ordered_json value_json(const Value& value) {
    return value;
}

/// One number for each block: 1 where it has what the list says.
ordered_json value_json(const std::vector<bool>& list) {
    return std::vector<int>(list.begin(), list.end());
}

/// What differs from the value that a shape has on its own.
template <class Shape>
ordered_json shape_json(const Shape& of) {
    ordered_json object = ordered_json::object();
    each_value(of,
               [&object](const char* key, const auto& value) { object[key] = value_json(value); });
    const Shape usual;
    each_value(usual, [&object](const char* key, const auto& value) {
        if (object[key] == value_json(value)) {
            object.erase(key);
        }
    });
    return object;
}

int entry_of(const JsonObject& object, std::string_view key, std::int64_t number) {
    if (number > std::numeric_limits<int>::max()) {
        object.refuse(key, "a number below 2^31");
    }
    return static_cast<int>(number);
}

/// Reads the values of a shape; `more`: further keys of its object.
template <class Shape>
Shape read_shape(const JsonObject& object, const std::vector<std::string_view>& more = {}) {
    Shape shape;
    std::vector<std::string_view> known = more;
    each_value(shape, [&known](const char* key, const auto&) { known.emplace_back(key); });
    object.expect_keys(known);
    each_value(shape, [&object]<class Value>(const char* key, Value& value) {
        if (!object.has(key)) {
            return;
        }
        if constexpr (std::same_as<Value, int>) {
            value = entry_of(object, key, object.whole(key));
        } else if constexpr (std::same_as<Value, bool>) {
            value = object.flag(key);
        } else {
            value.clear();
            for (const std::int64_t entry : object.wholes(key)) {
                if constexpr (std::same_as<Value, std::vector<bool>>) {
                    value.push_back(entry != 0);
                } else {
                    value.push_back(entry_of(object, key, entry));
                }
            }
        }
    });
    return shape;
}

constexpr std::array<std::string_view, 2> selective_words{"usual", "core-attention"};

template <class Enum, std::size_t Count>
Enum read_word(const JsonObject& object,
               std::string_view key,
               const std::array<std::string_view, Count>& words) {
    const std::string word = object.text(key);
    const auto found = std::ranges::find(words, word);
    if (found == words.end()) {
        object.refuse(key, "a word that 'pipetwin import' writes there");
    }
    return static_cast<Enum>(found - words.begin());
}

template <class Enum, std::size_t Count>
std::string_view word_of(Enum value, const std::array<std::string_view, Count>& words) {
    return words.at(static_cast<std::size_t>(value));
}

int read_positive(const JsonObject& object, std::string_view key) {
    const std::int64_t number = object.whole(key);
    if (number < 1 || number > std::numeric_limits<int>::max()) {
        object.refuse(key, "a number from 1 to 2^31 - 1");
    }
    return static_cast<int>(number);
}

ordered_json attention_json(const AttentionShape& shape) {
    ordered_json attention = shape_json(shape);
    if (shape.latent) {
        attention["latent"] = shape_json(*shape.latent);
        if (shape.latent->indexer) {
            attention["latent"]["indexer"] = shape_json(*shape.latent->indexer);
        }
    }
    if (shape.linear) {
        attention["linear"] = shape_json(*shape.linear);
    }
    if (shape.mamba) {
        attention["mamba"] = shape_json(*shape.mamba);
    }
    if (shape.indexer) {
        attention["indexer"] = shape_json(*shape.indexer);
    }
    if (shape.compressed) {
        attention["compressed"] = shape_json(*shape.compressed);
        if (shape.compressed->indexer) {
            attention["compressed"]["indexer"] = shape_json(*shape.compressed->indexer);
        }
    }
    return attention;
}

ordered_json model_json(const DecoderModel& model) {
    ordered_json object = shape_json(model);
    object["attention"] = attention_json(model.attention);
    for (const AttentionShape& other : model.other_attentions) {
        object["other_attentions"].push_back(attention_json(other));
    }
    if (model.experts.count > 0) {
        object["experts"] = shape_json(model.experts);
    }
    if (model.adapters) {
        object["adapters"] = shape_json(*model.adapters);
    }
    return object;
}

/// Rules that keep an estimate from dividing by zero, or from leaving a list.
void check_attention(const AttentionShape& shape,
                     const DecoderModel& model,
                     const JsonObject& object) {
    for (const int value : {shape.heads, shape.key_value_heads, shape.key_width}) {
        if (value < 1) {
            object.refuse("attention", "sizes of at least 1");
        }
    }
    for (const std::vector<bool>* list : {&shape.window_blocks, &shape.linear_blocks}) {
        if (!list->empty() && std::ssize(*list) != model.blocks) {
            object.refuse("attention", "lists with an entry for each block");
        }
    }
    if (std::ranges::find(shape.linear_blocks, true) != shape.linear_blocks.end() &&
        !shape.linear) {
        object.refuse("attention", "the shape of linear attention where blocks have it");
    }
    if (shape.compressed && shape.compressed->output_groups < 1) {
        object.refuse("attention", "sizes of at least 1");
    }
    if (shape.mamba && (shape.mamba->chunk < 1 || shape.mamba->groups < 1)) {
        object.refuse("attention", "sizes of at least 1");
    }
}

void check_model(const DecoderModel& model, const JsonObject& object) {
    for (const auto& [key, value] : {std::pair("blocks", model.blocks),
                                     std::pair("width", model.width),
                                     std::pair("vocabulary", model.vocabulary),
                                     std::pair("streams", model.streams)}) {
        if (value < 1) {
            object.refuse(key, "sizes of at least 1");
        }
    }
    if (model.adapters && model.adapters->rank < 1) {
        object.refuse("adapters", "a rank of at least 1");
    }
    check_attention(model.attention, model, object);
    for (const AttentionShape& other : model.other_attentions) {
        check_attention(other, model, object);
    }
    constexpr const char* each_block = "lists with an entry for each block";
    const auto blocks = static_cast<std::size_t>(model.blocks);
    if (!model.has_experts.empty() && model.has_experts.size() != blocks) {
        object.refuse("has_experts", each_block);
    }
    if (!model.feed_forward_widths.empty() && model.feed_forward_widths.size() != blocks) {
        object.refuse("feed_forward_widths", each_block);
    }
    const std::vector<int>& kinds = model.attention_kinds;
    // One more is the kind of a prediction block that no block has.
    if (!kinds.empty() && kinds.size() != blocks && kinds.size() != blocks + 1) {
        object.refuse("attention_kinds", each_block);
    }
    const auto others = std::ssize(model.other_attentions);
    if (std::ranges::any_of(kinds, [&](int kind) { return kind > others + 1; })) {
        object.refuse("attention_kinds", "0, 1, or places in other_attentions counted from 2");
    }
    for (const auto& [key, block] :
         {std::pair("prediction_attention", model.prediction_attention),
          std::pair("prediction_feed_forward", model.prediction_feed_forward)}) {
        const std::size_t most = std::max(blocks, kinds.size());
        if (block >= 0 && static_cast<std::size_t>(block) >= most) {
            object.refuse(key, "a block of the model");
        }
    }
    const bool routes = std::ranges::find(model.has_experts, true) != model.has_experts.end();
    if (routes && model.experts.count < 1) {
        object.refuse("experts", "at least one expert where blocks have them");
    }
}

AttentionShape read_attention_json(const JsonObject& attention) {
    auto shape = read_shape<AttentionShape>(attention,
                                            {"latent", "linear", "mamba", "indexer", "compressed"});
    if (attention.has("latent")) {
        const JsonObject latent = attention.object("latent");
        shape.latent = read_shape<LatentShape>(latent, {"indexer"});
        if (latent.has("indexer")) {
            shape.latent->indexer = read_shape<IndexerShape>(latent.object("indexer"));
        }
    }
    if (attention.has("linear")) {
        shape.linear = read_shape<LinearAttentionShape>(attention.object("linear"));
    }
    if (attention.has("mamba")) {
        shape.mamba = read_shape<MambaShape>(attention.object("mamba"));
    }
    if (attention.has("compressed")) {
        const JsonObject compressed = attention.object("compressed");
        shape.compressed = read_shape<CompressedShape>(compressed, {"indexer"});
        if (compressed.has("indexer")) {
            shape.compressed->indexer = read_shape<IndexerShape>(compressed.object("indexer"));
        }
    }
    if (attention.has("indexer")) {
        shape.indexer = read_shape<IndexerShape>(attention.object("indexer"));
    }
    return shape;
}

DecoderModel read_model(const JsonObject& object) {
    auto model =
        read_shape<DecoderModel>(object, {"attention", "other_attentions", "experts", "adapters"});
    model.attention = read_attention_json(object.object("attention"));
    if (object.has("other_attentions")) {
        for (const JsonObject& other : object.objects("other_attentions")) {
            model.other_attentions.push_back(read_attention_json(other));
        }
    }
    if (object.has("experts")) {
        model.experts = read_shape<ExpertShape>(object.object("experts"));
    }
    if (object.has("adapters")) {
        model.adapters = read_shape<AdapterShape>(object.object("adapters"));
    }
    check_model(model, object);
    return model;
}

}  // namespace

ordered_json source_json(const EstimateSource& source) {
    const EstimateOptions& options = source.options;
    ordered_json object{{"device", source.device},
                        {"precision", options.precision},
                        {"sequence", options.sequence},
                        {"micro_batch_size", options.micro_batch_size},
                        {"attention", word_of(options.attention, attention_words)},
                        {"loss", word_of(options.loss, loss_words)},
                        {"kernels", word_of(options.kernels, block_words)},
                        {"selective", word_of(options.selective, selective_words)},
                        {"most_devices", options.most_devices}};
    if (options.efficiency) {
        object["efficiency"] = *options.efficiency;
    }
    if (options.memory_efficiency) {
        object["memory_efficiency"] = *options.memory_efficiency;
    }
    if (source.whole_blocks) {
        object["whole_blocks"] = true;
    }
    object["model"] = model_json(source.model);
    return object;
}

EstimateSource read_source_json(const JsonObject& object) {
    object.expect_keys(std::array<std::string_view, 13>{"device",
                                                        "precision",
                                                        "sequence",
                                                        "micro_batch_size",
                                                        "attention",
                                                        "loss",
                                                        "kernels",
                                                        "selective",
                                                        "most_devices",
                                                        "efficiency",
                                                        "memory_efficiency",
                                                        "whole_blocks",
                                                        "model"});
    EstimateSource source{.device = object.text("device")};
    EstimateOptions& options = source.options;
    options.precision = object.text("precision");
    options.sequence = read_positive(object, "sequence");
    options.micro_batch_size = read_positive(object, "micro_batch_size");
    options.most_devices = read_positive(object, "most_devices");
    options.attention = read_word<AttentionKernels>(object, "attention", attention_words);
    options.loss = read_word<LossKernels>(object, "loss", loss_words);
    options.kernels = read_word<BlockKernels>(object, "kernels", block_words);
    options.selective = read_word<SelectiveRecompute>(object, "selective", selective_words);
    if (object.has("efficiency")) {
        options.efficiency = object.number_or("efficiency", 1);
    }
    if (object.has("memory_efficiency")) {
        options.memory_efficiency = object.number_or("memory_efficiency", 1);
    }
    source.whole_blocks = object.has("whole_blocks") && object.flag("whole_blocks");
    source.model = read_model(object.object("model"));
    return source;
}

}  // namespace pipetwin
