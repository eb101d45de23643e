// SPDX-License-Identifier: Apache-2.0
#include "core/model/decoder_model.h"

#include "core/base/as_index.h"

namespace pipetwin {

namespace {

std::int64_t matrix(std::int64_t inputs, std::int64_t outputs, bool bias = false) {
    return inputs * outputs + (bias ? outputs : 0);
}

std::int64_t norm(const DecoderModel& model, std::int64_t width) {
    return !model.norm_gain ? 0 : model.norm_bias ? 2 * width : width;
}

/// The matrices of a feed-forward half that reads and writes rows of `row` numbers.
std::int64_t feed_forward(const DecoderModel& model,
                          std::int64_t row,
                          std::int64_t inner,
                          bool bias) {
    return (model.gated ? 2 : 1) * matrix(row, inner, bias) + matrix(inner, row, bias);
}

/// Scores of queries against keys, apart from those of the attention itself. Its norm is a layer
/// norm with a bias.
std::int64_t indexer(const DecoderModel& model, const LatentShape& latent) {
    if (!latent.indexer || latent.indexer->shared) {
        return 0;
    }
    const IndexerShape& shape = *latent.indexer;
    const std::int64_t queries = std::int64_t{shape.heads} * shape.width;
    return matrix(latent.query_rank, queries) + matrix(model.width, shape.width) +
           2 * std::int64_t{shape.width} + matrix(model.width, shape.heads);
}

/// From a row to the queries, keys and values of all heads, through narrow rows.
std::int64_t latent_projections(const DecoderModel& model,
                                const AttentionShape& shape,
                                const LatentShape& latent) {
    const std::int64_t queries = std::int64_t{shape.heads} * shape.key_width;
    const std::int64_t values = std::int64_t{shape.key_value_heads} * shape.value_width;
    const std::int64_t to_queries = latent.query_rank == 0
                                        ? matrix(model.width, queries)
                                        : matrix(model.width, latent.query_rank, shape.input_bias) +
                                              norm(model, latent.query_rank) +
                                              matrix(latent.query_rank, queries);
    const std::int64_t keys_without_position =
        std::int64_t{shape.heads} * (shape.key_width - latent.rotary_width);
    const std::int64_t gate =
        shape.gated ? matrix(model.width, std::int64_t{shape.heads} * shape.value_width) : 0;
    return to_queries + gate +
           matrix(model.width, latent.key_value_rank + latent.rotary_width, shape.input_bias) +
           norm(model, latent.key_value_rank) +
           matrix(latent.key_value_rank, keys_without_position + values) + indexer(model, latent);
}

/// Queries and a key of an indexer, out of the whole row, and their norms.
std::int64_t key_indexer(const DecoderModel& model, const IndexerShape& shape) {
    return shape.shared ? 0
                        : matrix(model.width, (std::int64_t{shape.heads} + 1) * shape.width) +
                              2 * norm(model, shape.width);
}

/// From a row to the queries, keys and values of all heads.
std::int64_t projections_in(const DecoderModel& model, const AttentionShape& shape) {
    if (shape.latent) {
        return latent_projections(model, shape, *shape.latent);
    }
    const std::int64_t queries = std::int64_t{shape.heads} * shape.key_width;
    const std::int64_t keys = std::int64_t{shape.key_value_heads} * shape.key_width;
    const std::int64_t values =
        shape.values_are_keys ? 0 : std::int64_t{shape.key_value_heads} * shape.value_width;
    return matrix(model.width, (shape.gated ? 2 : 1) * queries + keys + values, shape.input_bias) +
           (shape.head_gate ? matrix(model.width, shape.heads) : 0) +
           (shape.indexer ? key_indexer(model, *shape.indexer) : 0);
}

std::int64_t head_norms(const DecoderModel& model, const AttentionShape& shape) {
    const std::int64_t shared = shape.head_norms ? 2 * norm(model, shape.key_width) : 0;
    const std::int64_t own =
        shape.own_norms ? (std::int64_t{shape.heads} + shape.key_value_heads) * shape.key_width : 0;
    return shared + own;
}

/// What makes a further row of several tokens: values, their weights, and weights by position.
std::int64_t compressor(const DecoderModel& model, const CompressedShape& shape, int row) {
    const std::int64_t made = std::int64_t{row} * (shape.overlaps ? 2 : 1);
    return matrix(model.width, 2 * made) + matrix(shape.ratio, made) + norm(model, row);
}

std::int64_t compressed_attention(const DecoderModel& model,
                                  const AttentionShape& heads,
                                  const CompressedShape& shape) {
    const std::int64_t queries = std::int64_t{heads.heads} * heads.key_width;
    const std::int64_t narrow = std::int64_t{shape.output_groups} * shape.output_rank;
    std::int64_t sum = matrix(model.width, shape.query_rank) + norm(model, shape.query_rank) +
                       matrix(shape.query_rank, queries) + matrix(model.width, heads.key_width) +
                       norm(model, heads.key_width) +
                       matrix(queries / shape.output_groups, narrow) + matrix(narrow, model.width) +
                       (heads.sinks ? heads.heads : 0);
    if (shape.ratio > 0) {
        sum += compressor(model, shape, heads.key_width);
    }
    if (shape.indexer) {
        const IndexerShape& indexer = *shape.indexer;
        sum += matrix(shape.query_rank, std::int64_t{indexer.heads} * indexer.width) +
               matrix(model.width, indexer.heads) + compressor(model, shape, indexer.width);
    }
    return sum;
}

/// Numbers with which a half reads its row out of several, and writes these back.
std::int64_t residual_numbers(const DecoderModel& model) {
    const std::int64_t streams = model.streams;
    const std::int64_t made = (2 + streams) * streams;
    return (streams > 1 ? matrix(streams * model.width, made, true) + 3 : 0) +
           (model.residual_blocks > 0 ? 2 * std::int64_t{model.width} : 0);
}

/// Numbers with which a head reads one row out of several.
std::int64_t last_residual_numbers(const DecoderModel& model) {
    const std::int64_t streams = model.streams;
    return (streams > 1 ? matrix(streams * model.width, streams, true) + 1 : 0) +
           (model.residual_blocks > 0 ? 2 * std::int64_t{model.width} : 0);
}

/// One attention: its projections, and what belongs to its heads.
std::int64_t attention(const DecoderModel& model, const AttentionShape& shape) {
    return projections_in(model, shape) + head_norms(model, shape) +
           (shape.sinks ? shape.heads : 0) +
           matrix(std::int64_t{shape.heads} * shape.value_width, model.width, shape.output_bias);
}

/// Queries, keys, values, a gate as wide as the values, two numbers per value head, a convolution,
/// the rule's rate and its bias per head, and a norm over a head's values.
std::int64_t linear_attention(const DecoderModel& model, const LinearAttentionShape& shape) {
    const std::int64_t keys = std::int64_t{shape.key_heads} * shape.key_width;
    const std::int64_t values = std::int64_t{shape.value_heads} * shape.value_width;
    const std::int64_t heads = shape.value_heads;
    const std::int64_t gate =
        shape.gate_rank > 0 ? matrix(model.width, shape.gate_rank) + matrix(shape.gate_rank, values)
                            : matrix(model.width, values);
    const std::int64_t decay = shape.decay_rank > 0 ? matrix(model.width, shape.decay_rank) +
                                                          matrix(shape.decay_rank, keys) + keys
                                                    : matrix(model.width, heads) + heads;
    return matrix(model.width, 2 * keys + values) + gate + decay + matrix(model.width, heads) +
           (2 * keys + values) * shape.convolution + heads + shape.value_width +
           matrix(values, model.width);
}

/// Both projections, the convolution, per head a rate, its bias and a weight of what goes past the
/// state space, and a norm.
std::int64_t mamba(const DecoderModel& model, const MambaShape& shape) {
    const std::int64_t inner = std::int64_t{shape.heads} * shape.width;
    const std::int64_t convolved = inner + 2 * std::int64_t{shape.groups} * shape.state;
    return matrix(model.width, inner + convolved + shape.heads, shape.bias) +
           matrix(shape.convolution, convolved, shape.convolution_bias) +
           3 * std::int64_t{shape.heads} + inner + matrix(inner, model.width, shape.bias);
}

std::int64_t distances(const DecoderModel& model, int block) {
    const AttentionShape& shape = model.attention;
    return block == 0 || shape.distances_in_every_block
               ? std::int64_t{shape.distance_buckets} * shape.heads
               : 0;
}

}  // namespace

bool has_experts(const DecoderModel& model, int block) {
    return !model.has_experts.empty() && model.has_experts.at(as_index(block));
}

bool has_attention(const DecoderModel& model, int block) {
    return model.attention_kinds.empty() || model.attention_kinds.at(as_index(block)) != no_half;
}

bool has_feed_forward(const DecoderModel& model, int block) {
    return model.feed_forward_widths.empty() || has_experts(model, block) ||
           model.feed_forward_widths.at(as_index(block)) != no_half;
}

const AttentionShape& attention_in(const DecoderModel& model, int block) {
    const int kind = model.attention_kinds.empty() ? 1 : model.attention_kinds.at(as_index(block));
    return kind <= 1 ? model.attention : model.other_attentions.at(as_index(kind - 2));
}

int feed_forward_width(const DecoderModel& model, int block) {
    return model.feed_forward_widths.empty() ? model.feed_forward
                                             : model.feed_forward_widths.at(as_index(block));
}

bool has_linear_attention(const DecoderModel& model, int block) {
    const AttentionShape& shape = attention_in(model, block);
    return shape.linear && (shape.linear_blocks.empty() || shape.linear_blocks.at(as_index(block)));
}

int residual_rows(const DecoderModel& model, int block) {
    return model.residual_blocks > 0 ? 2 + block / model.residual_blocks : model.streams;
}

int expert_row(const DecoderModel& model) {
    return model.experts.latent_width > 0 ? model.experts.latent_width : model.width;
}

int prediction_attention(const DecoderModel& model) {
    return model.prediction_attention < 0 ? model.blocks - 1 : model.prediction_attention;
}

int prediction_feed_forward(const DecoderModel& model) {
    return model.prediction_feed_forward < 0 ? model.blocks - 1 : model.prediction_feed_forward;
}

int window_of(const DecoderModel& model, int block) {
    const AttentionShape& shape = attention_in(model, block);
    const bool windowed = shape.window_blocks.empty() ? block >= shape.first_window_block
                                                      : shape.window_blocks.at(as_index(block));
    return windowed ? shape.window : 0;
}

std::int64_t embedding_parameters(const DecoderModel& model) {
    const bool narrow = model.embedding_width > 0;
    const std::int64_t row = narrow ? model.embedding_width : model.width;
    return matrix(model.vocabulary, row) + (narrow ? matrix(row, model.width) : 0) +
           matrix(std::int64_t{model.learned_positions} + model.position_padding, model.width) +
           (model.embedding_norm ? norm(model, model.width) : 0);
}

std::int64_t attention_parameters(const DecoderModel& model, int block) {
    if (!has_attention(model, block)) {
        return 0;
    }
    const AttentionShape& shape = attention_in(model, block);
    const std::int64_t norms =
        model.attention_norms * norm(model, model.width) + residual_numbers(model);
    if (has_linear_attention(model, block)) {
        return norms + linear_attention(model, *shape.linear);
    }
    if (shape.mamba) {
        return norms + mamba(model, *shape.mamba);
    }
    if (shape.compressed) {
        return norms + compressed_attention(model, shape, *shape.compressed);
    }
    const std::int64_t other =
        model.encoder_blocks > 0 ? norm(model, model.width) + attention(model, shape) : 0;
    return norms + attention(model, shape) + distances(model, block) + other;
}

std::int64_t encoder_attention_parameters(const DecoderModel& model, int block) {
    return model.attention_norms * norm(model, model.width) + attention(model, model.attention) +
           distances(model, block);
}

std::int64_t encoder_norm_parameters(const DecoderModel& model) {
    return norm(model, model.width);
}

std::int64_t feed_forward_parameters(const DecoderModel& model, int block) {
    if (!has_feed_forward(model, block)) {
        return 0;
    }
    const std::int64_t norms = model.feed_forward_norms * norm(model, model.width) +
                               model.block_numbers + residual_numbers(model);
    if (!has_experts(model, block)) {
        return norms + model.activation_parameters +
               feed_forward(
                   model, model.width, feed_forward_width(model, block), model.feed_forward_bias);
    }
    const ExpertShape& experts = model.experts;
    const bool bias = experts.bias || model.feed_forward_bias;
    const std::int64_t shared =
        experts.shared_width > 0 ? feed_forward(model, model.width, experts.shared_width, bias) : 0;
    const bool has_bias = experts.router_bias && block >= experts.fixed_blocks;
    const std::int64_t gains = experts.router_gain ? std::int64_t{model.width} + experts.count : 0;
    return norms + matrix(model.width, experts.count) + (has_bias ? experts.count : 0) + gains +
           routed_parameters(model, block) + shared + (experts.shared_gate ? model.width : 0) +
           matrix(model.width, experts.latent_width, bias) +
           (experts.latent_width > 0 ? matrix(experts.latent_width, model.width, bias) : 0) +
           (experts.latent_norm ? norm(model, experts.latent_width) : 0);
}

std::int64_t routed_parameters(const DecoderModel& model, int block) {
    if (!has_experts(model, block)) {
        return 0;
    }
    const bool bias = model.experts.bias || model.feed_forward_bias;
    return model.experts.count * feed_forward(model, expert_row(model), model.experts.width, bias);
}

namespace {

/// Numbers of an adapter beside a matrix of so many inputs and outputs.
std::int64_t adapter(const DecoderModel& model, bool is_there, std::int64_t ends) {
    return is_there ? model.adapters->rank * ends : 0;
}

/// Numbers of the adapters of a feed-forward half of such a row and inner width.
std::int64_t inner_adapters(const DecoderModel& model, std::int64_t row, std::int64_t inner) {
    const int ins = model.gated ? 2 : 1;
    return adapter(model, model.adapters->inner, row + ins * inner) +
           adapter(model, model.adapters->outer, inner + row);
}

}  // namespace

std::int64_t attention_adapters(const DecoderModel& model, int block) {
    if (!model.adapters || !has_attention(model, block)) {
        return 0;
    }
    const AttentionShape& shape = attention_in(model, block);
    const std::int64_t queries = std::int64_t{shape.heads} * shape.key_width;
    const std::int64_t outputs = std::int64_t{shape.heads} * shape.value_width;
    const std::int64_t made =
        queries + (shape.gated ? outputs : 0) +
        std::int64_t{shape.key_value_heads} * (shape.key_width + shape.value_width);
    return adapter(model, model.adapters->inputs, model.width + made) +
           adapter(model, model.adapters->outputs, outputs + model.width);
}

std::int64_t routed_adapters(const DecoderModel& model, int block) {
    return model.adapters && has_experts(model, block)
               ? model.experts.count * inner_adapters(model, expert_row(model), model.experts.width)
               : 0;
}

std::int64_t feed_forward_adapters(const DecoderModel& model, int block) {
    if (!model.adapters || !has_feed_forward(model, block)) {
        return 0;
    }
    if (!has_experts(model, block)) {
        return inner_adapters(model, model.width, feed_forward_width(model, block));
    }
    const int shared = model.experts.shared_width;
    return routed_adapters(model, block) +
           (shared > 0 ? inner_adapters(model, model.width, shared) : 0);
}

std::int64_t prediction_parameters(const DecoderModel& model) {
    return 3 * norm(model, model.width) + matrix(2 * std::int64_t{model.width}, model.width) +
           attention_parameters(model, prediction_attention(model)) +
           feed_forward_parameters(model, prediction_feed_forward(model)) +
           last_residual_numbers(model);
}

std::int64_t head_parameters(const DecoderModel& model) {
    const bool narrow = model.embedding_width > 0;
    const std::int64_t row = narrow ? model.embedding_width : model.width;
    return (model.final_norm ? norm(model, model.width) : 0) + last_residual_numbers(model) +
           (narrow ? matrix(model.width, row) : 0) +
           (model.tied ? 0 : matrix(row, model.vocabulary)) +
           (model.head_bias ? model.vocabulary : 0);
}

std::int64_t trained_parameters(const DecoderModel& model) {
    if (!model.adapters) {
        return parameter_count(model);
    }
    std::int64_t sum =
        model.adapters->ends ? embedding_parameters(model) + head_parameters(model) : 0;
    for (int block = 0; block < model.blocks; ++block) {
        sum += attention_adapters(model, block) + feed_forward_adapters(model, block);
    }
    return sum;
}

std::int64_t parameter_count(const DecoderModel& model) {
    std::int64_t sum = embedding_parameters(model) + head_parameters(model);
    for (int block = 0; block < model.encoder_blocks; ++block) {
        sum += encoder_attention_parameters(model, block) + feed_forward_parameters(model, block);
    }
    sum += model.encoder_blocks > 0 ? encoder_norm_parameters(model) : 0;
    for (int block = 0; block < model.blocks; ++block) {
        sum += attention_parameters(model, block) + feed_forward_parameters(model, block);
    }
    return sum;
}

std::int64_t shared_embedding_parameters(const DecoderModel& model) {
    const std::int64_t row = model.embedding_width > 0 ? model.embedding_width : model.width;
    return model.tied || model.prediction_blocks > 0 ? model.vocabulary * row : 0;
}

}  // namespace pipetwin
