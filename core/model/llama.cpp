#include "core/model/llama.h"

#include <limits>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/layer_placement.h"

namespace pipetwin {

Model llama_model(const LlamaSizes& sizes) {
    expect_blocks(sizes.layers);
    constexpr int widest = std::numeric_limits<int>::max() / 2;
    if (sizes.feed_forward < 1 || sizes.feed_forward > widest) {
        throw Error(ErrorKind::BadInput,
                    "model.feed_forward",
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
        units.push_back({.name = fmt::format("block{}.feed_forward", block),
                         .type = LayerType::Residual,
                         .inner = {norm,
                                   {.name = "gate_up",
                                    .type = LayerType::Linear,
                                    .outputs = 2 * sizes.feed_forward,
                                    .bias = false},
                                   {.name = "swiglu", .type = LayerType::SwiGlu},
                                   {.name = "down",
                                    .type = LayerType::Linear,
                                    .outputs = sizes.d_model,
                                    .bias = false}}});
    }
    units.push_back(language_head(norm, sizes.vocabulary, sizes.tied));
    return Model::chain({.token_ids = true, .positions = sizes.context}, std::move(units));
}

}  // namespace pipetwin
