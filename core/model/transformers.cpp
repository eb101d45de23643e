// SPDX-License-Identifier: Apache-2.0
#include "core/model/transformers.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/layer_placement.h"
#include "core/model/model.h"

namespace pipetwin {
namespace {

/// Two matrices in, side by side, and one out.
std::vector<LayerSpec> gated_layers(const LlamaSizes& sizes, int inner_width) {
    return {
        {.name = "gate_up", .type = LayerType::Linear, .outputs = 2 * inner_width, .bias = false},
        {.name = "swiglu", .type = LayerType::SwiGlu},
        {.name = "down", .type = LayerType::Linear, .outputs = sizes.d_model, .bias = false}};
}

LayerSpec dense_half(const LlamaSizes& sizes, const LayerSpec& norm, int inner_width) {
    LayerSpec half{.type = LayerType::Residual, .inner = {norm}};
    std::ranges::move(gated_layers(sizes, inner_width), std::back_inserter(half.inner));
    return half;
}

/// x + experts(norm(x)), or x + experts(norm(x)) + shared(norm(x)).
LayerSpec half_of_experts(const LlamaSizes& sizes, const LayerSpec& norm) {
    LayerSpec experts{.name = "experts",
                      .type = LayerType::Experts,
                      .routing = sizes.routing,
                      .inner_width = sizes.expert_feed_forward};
    if (sizes.shared_feed_forward == 0) {
        return {.type = LayerType::Residual, .inner = {norm, experts}};
    }
    experts.inputs = {"norm"};
    LayerSpec half{.type = LayerType::Sequence, .inner = {norm, experts}};
    std::vector<LayerSpec> shared = gated_layers(sizes, sizes.shared_feed_forward);
    shared.front().inputs = {"norm"};
    std::ranges::move(shared, std::back_inserter(half.inner));
    half.inner.push_back(
        {.name = "sum", .type = LayerType::Add, .inputs = {"input0", "experts", "down"}});
    return half;
}

}  // namespace

namespace {

/// Throws Error(BadInput) where blocks with experts and those without do not add up.
void expect_blocks_of_experts(const LlamaSizes& sizes) {
    if (sizes.dense_layers >= sizes.layers) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"model.dense_layers", fmt::to_string(sizes.dense_layers)},
                    fmt::format("leaves none of {} blocks with experts, expected at most {}",
                                sizes.layers,
                                sizes.layers - 1),
                    "lower it, or set model.kind = \"llama\"");
    }
    if (sizes.dense_layers == 0 && sizes.feed_forward > 0) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"model.feed_forward", fmt::to_string(sizes.feed_forward)},
                    "is the width of blocks without experts, and there are none",
                    "the experts' width is model.expert_feed_forward; or set model.dense_layers");
    }
    if (sizes.dense_layers > 0 && sizes.feed_forward == 0) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"model.feed_forward"},
                    fmt::format("is missing, and model.dense_layers = {} needs it: the inner width "
                                "of these blocks",
                                sizes.dense_layers),
                    "set model.feed_forward, or leave model.dense_layers out");
    }
}

}  // namespace

Model llama_model(const LlamaSizes& sizes) {
    expect_blocks(sizes.layers);
    if (sizes.routing.experts > 0) {
        expect_blocks_of_experts(sizes);
    }
    constexpr int widest = std::numeric_limits<int>::max() / 2;
    if (sizes.dense_blocks() > 0 && (sizes.feed_forward < 1 || sizes.feed_forward > widest)) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"model.feed_forward"},
                    fmt::format("{}, expected 1 to {}", sizes.feed_forward, widest),
                    "Llama has about 8/3 of d_model, or 7/2");
    }
    const LayerSpec norm{
        .name = "norm", .type = LayerType::RmsNorm, .epsilon = sizes.epsilon, .inner = {}};
    std::vector<LayerSpec> units;
    units.reserve(2 * static_cast<std::size_t>(sizes.layers) + 2);
    units.push_back({.name = "embedding",
                     .type = LayerType::Embedding,
                     .outputs = sizes.d_model,
                     .vocabulary = sizes.vocabulary,
                     .context = sizes.context,
                     .learned_positions = false,
                     .tied = sizes.tied});
    for (int block = 0; block < sizes.layers; ++block) {
        units.push_back({.name = fmt::format("block{}.attention", block),
                         .type = LayerType::Residual,
                         .inner = {norm,
                                   {.name = "attention",
                                    .type = LayerType::Attention,
                                    .heads = sizes.heads,
                                    .key_value_heads = sizes.key_value_heads,
                                    .head_size = sizes.head_size,
                                    .rotary = sizes.rotary,
                                    .bias = false}}});
        units.push_back(block < sizes.dense_blocks() ? dense_half(sizes, norm, sizes.feed_forward)
                                                     : half_of_experts(sizes, norm));
        units.back().name = fmt::format("block{}.feed_forward", block);
    }
    units.push_back(language_head(norm, sizes.vocabulary, sizes.tied));
    return Model::chain({.token_ids = true, .positions = sizes.context}, std::move(units));
}

namespace {

/// A list of layers of a translation model, and its parts.
class TranslationUnits {
  public:
    explicit TranslationUnits(const TranslationSizes& sizes) : sizes_(sizes) {}

    /// x + attention(norm(x)).
    void self_attention(const std::string& block, bool causal, std::vector<std::string> inputs) {
        units_.push_back({.name = block + ".attention",
                          .type = LayerType::Residual,
                          .inner = {norm_, attention("attention", LayerType::Attention, causal)},
                          .inputs = std::move(inputs)});
    }

    /// x + attention of norm(x) to the memory.
    void cross_attention(const std::string& block, const std::string& x) {
        LayerSpec cross = attention("attention", LayerType::CrossAttention, true);
        cross.inputs = {"norm", "input1"};
        units_.push_back(
            {.name = block + ".cross_attention",
             .type = LayerType::Sequence,
             .inner = {norm_,
                       cross,
                       {.name = "sum", .type = LayerType::Add, .inputs = {"input0", "attention"}}},
             .inputs = {x, "memory"}});
    }

    /// x + linear(activation(linear(norm(x)))).
    void feed_forward(const std::string& block) {
        const bool relu = sizes_.activation == FeedForwardActivation::Relu;
        units_.push_back(
            {.name = block + ".feed_forward",
             .type = LayerType::Residual,
             .inner = {norm_,
                       {.name = "up", .type = LayerType::Linear, .outputs = inner_width()},
                       {.name = relu ? "relu" : "gelu",
                        .type = relu ? LayerType::Relu : LayerType::Gelu,
                        .gelu = sizes_.gelu},
                       {.name = "down",
                        .type = LayerType::Linear,
                        .outputs = sizes_.d_model,
                        .dropout = sizes_.dropout}}});
    }

    /// The embedding of source and target, and the parts of its output.
    void embedding() {
        units_.push_back({.name = "embedding",
                          .type = LayerType::Embedding,
                          .outputs = sizes_.d_model,
                          .vocabulary = sizes_.vocabulary,
                          .context = sizes_.source_context + sizes_.target_context,
                          .learned_positions = sizes_.learned_positions,
                          .sinusoids = !sizes_.learned_positions,
                          .scaled = true,
                          .source_positions = sizes_.source_context,
                          .source_table = sizes_.tables != TranslationTables::Shared,
                          .tied = sizes_.tables != TranslationTables::Separate,
                          .dropout = sizes_.dropout});
        part("target", sizes_.source_context, sizes_.target_context);
        part("source", 0, sizes_.source_context);
    }

    /// The encoder's output.
    void memory() { units_.push_back({.name = "memory", .type = LayerType::LayerNorm}); }

    void head() {
        units_.push_back(
            language_head(norm_, sizes_.vocabulary, sizes_.tables != TranslationTables::Separate));
        units_.back().inner.back().label_smoothing = smoothing();
    }

    std::vector<LayerSpec> take() { return std::move(units_); }

  private:
    void part(const char* name, int begin, int positions) {
        units_.push_back({.name = name,
                          .type = LayerType::Positions,
                          .begin = begin,
                          .positions = positions,
                          .inputs = {"embedding"}});
    }

    LayerSpec attention(const char* name, LayerType type, bool causal) const {
        return {.name = name,
                .type = type,
                .heads = sizes_.heads,
                .head_size = sizes_.head_size,
                .causal = causal,
                .dropout = sizes_.dropout};
    }

    int inner_width() const {
        constexpr std::int64_t widest = std::numeric_limits<int>::max();
        return sizes_.feed_forward > 0
                   ? sizes_.feed_forward
                   : static_cast<int>(std::min(4 * std::int64_t{sizes_.d_model}, widest));
    }

    /// e / (V - 1) for each of the others is s / V for all with s = e V / (V - 1): the target then
    /// has 1 - s + s / V = 1 - e.
    double smoothing() const {
        const double classes = std::max(sizes_.vocabulary, 2);
        return sizes_.smoothing == Smoothing::All
                   ? sizes_.label_smoothing
                   : sizes_.label_smoothing * classes / (classes - 1);
    }

    TranslationSizes sizes_;
    LayerSpec norm_{.name = "norm", .type = LayerType::LayerNorm};
    std::vector<LayerSpec> units_;
};

}  // namespace

Model translation_model(const TranslationSizes& sizes) {
    constexpr int most_blocks = (static_cast<int>(most_layers) - 5) / 5;
    if (sizes.layers < 1 || sizes.layers > most_blocks) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"model.layers"},
                    fmt::format("{}, expected 1 to {}", sizes.layers, most_blocks),
                    "is there a digit too many?");
    }
    for (const auto& [key, context] : {std::pair{"source_context", sizes.source_context},
                                       std::pair{"target_context", sizes.target_context}}) {
        constexpr int longest = std::numeric_limits<int>::max() / 2;
        if (context < 1 || context > longest) {
            throw Error(ErrorKind::BadInput,
                        KeyValue{fmt::format("model.{}", key)},
                        fmt::format("{}, expected 1 to {}", context, longest),
                        "it is the number of tokens of the longest sequence");
        }
    }
    TranslationUnits units(sizes);
    units.embedding();
    for (int block = 0; block < sizes.layers; ++block) {
        const std::string name = fmt::format("encoder{}", block);
        units.self_attention(name, false, {});
        units.feed_forward(name);
    }
    units.memory();
    std::string before = "target";
    for (int block = 0; block < sizes.layers; ++block) {
        const std::string name = fmt::format("decoder{}", block);
        units.self_attention(name, true, {before});
        units.cross_attention(name, name + ".attention");
        units.feed_forward(name);
        before = name + ".feed_forward";
    }
    units.head();
    return Model::graph(
        {.token_ids = true, .positions = sizes.source_context + sizes.target_context},
        units.take());
}

}  // namespace pipetwin
