// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/costs/layer_bytes.h"
#include "core/costs/layer_estimator.h"

/// What stands in the place of queries, keys and values that come straight from the row.
namespace pipetwin {

/// Projections, a convolution over the tokens, the rule, a norm with a gate, and a projection.
LayerEstimate LayerEstimator::linear_attention(const LinearAttentionShape& shape) const {
    const double keys = part(shape.key_heads) * shape.key_width;
    const double values = part(shape.value_heads) * shape.value_width;
    const double convolved = 2 * keys + values;
    const double rates = 2 * part(shape.value_heads);
    LayerWork work = new_work();
    LayerBytes bytes;
    norms(work, bytes, model_.attention_norms);
    work.product({.rows = tokens_,
                  .inputs = width(),
                  .outputs = convolved + values + rates,
                  .has_whole_input = true});
    work.pass(2 * tokens_ * convolved, 3 * tokens_ * convolved);
    work.delta_rule(shape, part(tokens_));
    work.pass(3 * tokens_ * values, 5 * tokens_ * values);
    work.product({.rows = tokens_, .inputs = values, .outputs = width(), .has_sums = true});
    residual(work);
    save_whole(bytes, tokens_ * width());
    bytes.saved_values += tokens_ * (2 * convolved + 3 * values + rates);
    save_mask(bytes);
    bytes.workspace_values = bytes.split_values = tokens_ * (convolved + values + rates);
    return finished(work, bytes);
}

/// A projection, a convolution over the tokens, the state space, a norm with a gate, and a
/// projection. What is kept is what the fused kernel of mamba_ssm keeps
/// (mamba_split_conv1d_scan_combined): what the first projection made, and what the state space
/// did; the convolution is done again.
LayerEstimate LayerEstimator::mamba(const MambaShape& shape) const {
    const double inner = part(shape.heads) * shape.width;
    const double convolved = inner + 2 * part(shape.groups) * shape.state;
    const double outputs = inner + convolved + part(shape.heads);
    LayerWork work = new_work();
    LayerBytes bytes;
    norms(work, bytes, model_.attention_norms);
    work.product({.rows = tokens_, .inputs = width(), .outputs = outputs, .has_whole_input = true});
    work.pass(2 * tokens_ * convolved, 5 * tokens_ * convolved);
    work.state_space(shape, part(tokens_));
    work.pass(3 * tokens_ * inner, 5 * tokens_ * inner);
    work.product({.rows = tokens_, .inputs = inner, .outputs = width(), .has_sums = true});
    residual(work);
    save_whole(bytes, tokens_ * width());
    bytes.saved_values += tokens_ * (outputs + 2 * inner);
    save_mask(bytes);
    bytes.workspace_values = bytes.split_values = tokens_ * outputs;
    return finished(work, bytes);
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
