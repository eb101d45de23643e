#include "core/model/decoder_model.h"

#include "core/base/as_index.h"

namespace pipetwin {

namespace {

std::int64_t matrix(std::int64_t inputs, std::int64_t outputs, bool bias = false) {
    return inputs * outputs + (bias ? outputs : 0);
}

std::int64_t norm(const DecoderModel& model, std::int64_t width) {
    return model.norm_bias ? 2 * width : width;
}

std::int64_t feed_forward(const DecoderModel& model, std::int64_t inner) {
    return (model.gated ? 2 : 1) * matrix(model.width, inner, model.feed_forward_bias) +
           matrix(inner, model.width, model.feed_forward_bias);
}

/// From a row to the queries, keys and values of all heads.
std::int64_t projections_in(const DecoderModel& model) {
    const AttentionShape& shape = model.attention;
    const std::int64_t queries = std::int64_t{shape.heads} * shape.key_width;
    const std::int64_t values = std::int64_t{shape.key_value_heads} * shape.value_width;
    if (!shape.latent) {
        const std::int64_t keys = std::int64_t{shape.key_value_heads} * shape.key_width;
        return matrix(model.width, queries + keys + values, shape.input_bias);
    }
    const LatentShape& latent = *shape.latent;
    const std::int64_t to_queries = latent.query_rank == 0
                                        ? matrix(model.width, queries)
                                        : matrix(model.width, latent.query_rank, shape.input_bias) +
                                              norm(model, latent.query_rank) +
                                              matrix(latent.query_rank, queries);
    const std::int64_t keys_without_position =
        std::int64_t{shape.heads} * (shape.key_width - latent.rotary_width);
    return to_queries +
           matrix(model.width, latent.key_value_rank + latent.rotary_width, shape.input_bias) +
           norm(model, latent.key_value_rank) +
           matrix(latent.key_value_rank, keys_without_position + values);
}

}  // namespace

bool has_experts(const DecoderModel& model, int block) {
    return !model.has_experts.empty() && model.has_experts.at(as_index(block));
}

std::int64_t embedding_parameters(const DecoderModel& model) {
    return matrix(model.vocabulary, model.width) + matrix(model.learned_positions, model.width);
}

std::int64_t attention_parameters(const DecoderModel& model) {
    const AttentionShape& shape = model.attention;
    return norm(model, model.width) + projections_in(model) +
           (shape.head_norms ? 2 * norm(model, shape.key_width) : 0) +
           matrix(std::int64_t{shape.heads} * shape.value_width, model.width, shape.output_bias);
}

std::int64_t feed_forward_parameters(const DecoderModel& model, int block) {
    const std::int64_t before = norm(model, model.width);
    if (!has_experts(model, block)) {
        return before + feed_forward(model, model.feed_forward);
    }
    const ExpertShape& experts = model.experts;
    return before + matrix(model.width, experts.count) +
           experts.count * feed_forward(model, experts.width) +
           (experts.shared_width > 0 ? feed_forward(model, experts.shared_width) : 0) +
           (experts.shared_gate ? model.width : 0);
}

std::int64_t head_parameters(const DecoderModel& model) {
    return norm(model, model.width) + (model.tied ? 0 : matrix(model.width, model.vocabulary));
}

}  // namespace pipetwin
