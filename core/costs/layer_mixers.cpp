// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/costs/layer_bytes.h"
#include "core/costs/layer_estimator.h"

/// What stands in the place of queries, keys and values that come straight from the row.
namespace pipetwin {

/// Projections, a convolution over the tokens, the rule, a norm with a gate, and a projection.
LayerEstimate LayerEstimator::linear_attention(const LinearAttentionShape& shape,
                                               ResidualRows rows) const {
    const double keys = part(shape.key_heads) * shape.key_width;
    const double values = part(shape.value_heads) * shape.value_width;
    const double convolved = 2 * keys + values;
    const double heads = part(shape.value_heads);
    // A number per head for what is written, and one per head or per number of a key for what
    // stays.
    const double decay = shape.decay_rank > 0 ? keys : heads;
    const double rates = heads + decay;
    const double narrow = shape.decay_rank + shape.gate_rank;  // whole on every device
    const double from_row = (shape.gate_rank > 0 ? 0 : values) + (shape.decay_rank > 0 ? 0 : decay);
    LayerWork work = new_work();
    LayerBytes bytes;
    read_residual(work, bytes, rows.before);
    norms(work, bytes, model_.attention_norms);
    work.product({.rows = tokens_,
                  .inputs = width(),
                  .outputs = convolved + heads + from_row,
                  .has_whole_input = true});
    if (narrow > 0) {
        work.product(tokens_, width(), narrow);
        save_whole(bytes, tokens_ * narrow);
    }
    if (shape.decay_rank > 0) {
        work.product(tokens_, shape.decay_rank, decay);
    }
    if (shape.gate_rank > 0) {
        work.product(tokens_, shape.gate_rank, values);
    }
    work.pass(2 * tokens_ * convolved, 3 * tokens_ * convolved);
    work.delta_rule(shape, part(tokens_));
    work.pass(3 * tokens_ * values, 5 * tokens_ * values);
    work.product({.rows = tokens_, .inputs = values, .outputs = width(), .has_sums = true});
    residual(work, rows);
    save_whole(bytes, tokens_ * width());
    bytes.saved_values += tokens_ * (2 * convolved + 3 * values + rates);
    save_mask(bytes);
    bytes.workspace_values = bytes.split_values = tokens_ * (convolved + values + rates);
    return with_rows(finished(work, bytes), rows.behind);
}

/// A projection, a convolution over the tokens, the state space, a norm with a gate, and a
/// projection. What is kept is what the fused kernel of mamba_ssm keeps
/// (mamba_split_conv1d_scan_combined): what the first projection made, and what the state space
/// did; the convolution is done again.
LayerEstimate LayerEstimator::mamba(const MambaShape& shape, ResidualRows rows) const {
    const double inner = part(shape.heads) * shape.width;
    const double convolved = inner + 2 * part(shape.groups) * shape.state;
    const double outputs = inner + convolved + part(shape.heads);
    LayerWork work = new_work();
    LayerBytes bytes;
    read_residual(work, bytes, rows.before);
    norms(work, bytes, model_.attention_norms);
    work.product({.rows = tokens_, .inputs = width(), .outputs = outputs, .has_whole_input = true});
    work.pass(2 * tokens_ * convolved, 5 * tokens_ * convolved);
    work.state_space(shape, part(tokens_));
    work.pass(3 * tokens_ * inner, 5 * tokens_ * inner);
    work.product({.rows = tokens_, .inputs = inner, .outputs = width(), .has_sums = true});
    residual(work, rows);
    save_whole(bytes, tokens_ * width());
    bytes.saved_values += tokens_ * (outputs + 2 * inner);
    save_mask(bytes);
    bytes.workspace_values = bytes.split_values = tokens_ * outputs;
    return with_rows(finished(work, bytes), rows.behind);
}

/// Queries through a narrow row, one row that is key and value, the rows that stand for several
/// tokens, attention over both, and two products of its outputs, the first group by group.
LayerEstimate LayerEstimator::compressed_attention(const AttentionShape& heads,
                                                   const CompressedShape& shape,
                                                   ResidualRows rows) const {
    const double own = part(heads.heads);
    const double queries = own * heads.key_width;
    const double row = heads.key_width;
    const double groups = std::max(1.0, part(shape.output_groups));
    const double narrow = groups * shape.output_rank;
    LayerWork work = new_work();
    LayerBytes bytes;
    read_residual(work, bytes, rows.before);
    norms(work, bytes, model_.attention_norms);
    save_whole(bytes, tokens_ * width());
    work.product(tokens_, width(), shape.query_rank);
    work.whole_norm(tokens_, shape.query_rank);
    work.product(tokens_, shape.query_rank, queries);
    work.norm(tokens_, queries);
    work.product(tokens_, width(), row);
    work.whole_norm(tokens_, row);
    work.rotation(tokens_ * (2 * own + 1) * shape.rotary_width);  // and the outputs back
    save_whole(bytes, 2 * tokens_ * (shape.query_rank + row));
    const double further = compressed_keys(shape, work, bytes);
    const double most =
        std::floor(static_cast<double>(options_.sequence) / std::max(1, shape.ratio));
    const double chosen = shape.ratio == 0 ? 0
                          : shape.indexer  ? std::min<double>(shape.indexer->keys, most)
                                           : most;
    const double near = causal_pairs(heads.window, options_.sequence) / options_.sequence;
    core_attention(work,
                   bytes,
                   divided_context({.samples = static_cast<double>(size_),
                                    .sequence = static_cast<double>(options_.sequence),
                                    .seen = near + further,
                                    .window = heads.window + chosen,
                                    .heads = own,
                                    .key_value_heads = 1,
                                    .key_width = row,
                                    .value_width = row},
                                   work,
                                   bytes));
    work.product({.rows = tokens_ * groups,
                  .inputs = queries / groups,
                  .outputs = static_cast<double>(shape.output_rank),
                  .matrices = groups});
    work.product({.rows = tokens_, .inputs = narrow, .outputs = width()});
    residual(work, rows);
    save_mask(bytes);
    bytes.saved_values += tokens_ * (3 * queries + narrow);
    bytes.workspace_values = bytes.split_values = tokens_ * (queries + row);
    return with_rows(finished(work, bytes), rows.behind);
}

/// Makes the rows that stand for several tokens, and chooses among them. Returns those that a query
/// sees in the mean: of the tokens before it, and its own, those that fill a row.
double LayerEstimator::compressed_keys(const CompressedShape& shape,
                                       LayerWork& work,
                                       LayerBytes& bytes) const {
    if (shape.ratio == 0) {
        return 0;
    }
    const double tokens = options_.sequence;
    const double ratio = shape.ratio;
    make_further_rows(shape, model_.attention.key_width, work, bytes);
    // Query t, from 1 on, sees t / ratio of them, without the remainder.
    const auto seen_of = [tokens, ratio](double most) {
        const double last = std::floor(tokens / ratio);
        const double rows = std::min(last, most);
        const double growing = ratio * rows * (rows - 1) / 2;  // while there are fewer
        return (growing + rows * (tokens - ratio * rows + 1)) / tokens;
    };
    if (!shape.indexer) {
        return seen_of(tokens);
    }
    const IndexerShape& indexer = *shape.indexer;
    const double scores = static_cast<double>(indexer.heads) * indexer.width;
    work.product(tokens_, shape.query_rank, scores);
    work.product(tokens_, width(), indexer.heads);
    make_further_rows(shape, indexer.width, work, bytes);
    work.choose_keys(indexer, tokens_ * seen_of(tokens), tokens_);
    save_whole(bytes, tokens_ * (scores + indexer.heads));
    return seen_of(indexer.keys);
}

/// A product to values and their weights, and sums of several tokens' values, which are normalized.
void LayerEstimator::make_further_rows(const CompressedShape& shape,
                                       double row,
                                       LayerWork& work,
                                       LayerBytes& bytes) const {
    const double made = 2 * row * (shape.overlaps ? 2 : 1);
    const double rows = tokens_ / shape.ratio;
    work.product(tokens_, width(), made);
    work.whole_pass(tokens_ * made + rows * row, 2 * tokens_ * made + rows * row);
    work.whole_norm(rows, row);
    save_whole(bytes, tokens_ * made + 2 * rows * row);
}

/// A block that keeps what the residual has become does so in front of its attention.
LayerEstimator::ResidualRows LayerEstimator::rows_of_attention(int block) const {
    const double behind = residual_rows(model_, block);
    return {.before = model_.residual_blocks == 0 ? behind
                      : block == 0                ? 1
                                                  : residual_rows(model_, block - 1) * 1.0,
            .behind = behind};
}

LayerEstimator::ResidualRows LayerEstimator::rows_of_feed_forward(int block) const {
    const double rows = residual_rows(model_, block);
    return {.before = rows, .behind = rows};
}

/// The row that a half reads out of several. Of streams: a norm of all of their numbers without a
/// gain, a product that makes the weights of what is read, written and mixed, and the mixture. Of
/// attention residuals: a norm and a score of each row, and the mean that these weigh.
void LayerEstimator::read_residual(LayerWork& work,
                                   LayerBytes& bytes,
                                   double rows,
                                   bool in_half) const {
    if (rows == 1) {
        return;
    }
    const double all = tokens_ * rows * width();
    const double one = tokens_ * width();
    if (model_.streams > 1) {
        work.whole_pass(all, 2 * all);
        work.half_product(tokens_, rows * width(), in_half ? (2 + rows) * rows : rows);
        // What the half makes, for the gradient of its weights.
        save_whole(bytes, in_half ? one : 0);
    }
    work.whole_pass(all + one, 2 * (all + one));
    save_whole(bytes, all);
}

/// With so many rows for each token in what the next layer reads.
LayerEstimate LayerEstimator::with_rows(LayerEstimate estimate, double rows) const {
    estimate.sample.output = Bytes{whole_number(value() * rows * tokens_ * width())};
    return estimate;
}

/// Seconds of the forward of a block's products to narrow rows, with their norms.
double LayerEstimator::down_seconds(const LatentShape& latent) const {
    LayerWork work = new_work();
    if (latent.query_rank > 0) {
        work.product(tokens_, width(), latent.query_rank);
        work.whole_norm(tokens_, latent.query_rank);
    }
    work.product(tokens_, width(), latent.key_value_rank + latent.rotary_width);
    work.whole_norm(tokens_, latent.key_value_rank);
    return work.forward_seconds();
}

/// To queries, keys and values through narrow rows, each of which is normalized and whole on
/// every device. Returns the keys that a query sees in the mean: an indexer leaves fewer.
double LayerEstimator::latent_projections(const AttentionShape& shape,
                                          const LatentShape& latent,
                                          double seen,
                                          LayerWork& work,
                                          LayerBytes& bytes) const {
    const double queries = part(shape.heads) * shape.key_width;
    const double keys_and_values =
        part(shape.heads) * (shape.key_width - latent.rotary_width + shape.value_width);
    if (latent.query_rank == 0) {
        work.product(tokens_, width(), queries);
    } else {
        work.product(tokens_, width(), latent.query_rank);
        work.whole_norm(tokens_, latent.query_rank);
        work.product(tokens_, latent.query_rank, queries);
    }
    work.product(tokens_, width(), latent.key_value_rank + latent.rotary_width);
    work.whole_norm(tokens_, latent.key_value_rank);
    work.product(tokens_, latent.key_value_rank, keys_and_values);
    save_whole(bytes, 2 * tokens_ * (latent.query_rank + latent.key_value_rank));
    if (!latent.indexer) {
        return seen;
    }
    const IndexerShape& indexer = *latent.indexer;
    if (!indexer.shared) {
        const double rows = static_cast<double>(indexer.heads) * indexer.width;
        work.product(tokens_, latent.query_rank, rows);
        work.product(tokens_, width(), indexer.width + indexer.heads);
        work.choose_keys(indexer, tokens_ * seen, tokens_);
        save_whole(bytes, tokens_ * (rows + indexer.width + indexer.heads));
    }
    return chosen_of(indexer, seen);
}

/// Keys that a query sees in the mean, of `seen` among which an indexer chooses.
double LayerEstimator::chosen_of(const IndexerShape& indexer, double seen) const {
    return std::min(seen, causal_pairs(indexer.keys, options_.sequence) / options_.sequence);
}

/// Queries and a key out of the row, their norms, and the choice of keys. Returns those that a
/// query sees in the mean.
double LayerEstimator::key_indexer(const IndexerShape& indexer,
                                   double seen,
                                   LayerWork& work,
                                   LayerBytes& bytes) const {
    if (!indexer.shared) {
        const double rows = (static_cast<double>(indexer.heads) + 1) * indexer.width;
        work.product(tokens_, width(), rows);
        work.whole_norm(tokens_, rows);
        work.choose_keys(indexer, tokens_ * seen, tokens_);
        save_whole(bytes, 2 * tokens_ * rows);
    }
    return chosen_of(indexer, seen);
}

}  // namespace pipetwin
