// SPDX-License-Identifier: Apache-2.0
#include "core/costs/layer_estimator.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/kernel_rates.h"
#include "core/costs/layer_bytes.h"

namespace pipetwin {

namespace {

/// Layer `a`, and then `b`, as one: `b` reads what `a` makes.
LayerSample one_after_other(const LayerSample& a, const LayerSample& b) {
    LayerSample sum = b;
    sum.input = a.input;
    sum.forward += a.forward;
    sum.backward_input += a.backward_input;
    sum.backward_weight += a.backward_weight;
    sum.accumulation += a.accumulation;
    sum.saved += a.saved;
    sum.workspace = std::max(a.workspace, b.workspace);
    // The gradient between the two waits for W, too.
    sum.split += a.split + a.output - a.unread_gradient;
    sum.forward_kernels += a.forward_kernels;
    sum.backward_input_kernels += a.backward_input_kernels;
    sum.backward_weight_kernels += a.backward_weight_kernels;
    sum.input_saved += a.input_saved;
    sum.core_forward += a.core_forward;
    sum.core_saved += a.core_saved;
    sum.whole_forward += a.whole_forward;
    sum.whole_backward += a.whole_backward;
    sum.whole_saved += a.whole_saved;
    sum.first_forward += a.first_forward;
    sum.first_input += a.first_input;
    sum.first_weight += a.first_weight;
    sum.last_forward += a.last_forward;
    sum.last_input += a.last_input;
    sum.modules = LayerModules(a.modules) += b.modules;
    for (const auto time : times_of_traffic) {
        sum.traffic.*time += a.traffic.*time;
    }
    for (const auto size : sizes_of_traffic) {
        sum.traffic.*size += a.traffic.*size;
    }
    return sum;
}

LayerEstimate one_after_other(const LayerEstimate& a, const LayerEstimate& b) {
    return {.sample = one_after_other(a.sample, b.sample),
            .operations = a.operations + b.operations,
            .masked_operations = a.masked_operations + b.masked_operations,
            .weight_cast = a.weight_cast + b.weight_cast,
            .weight_copies = a.weight_copies + b.weight_copies};
}

}  // namespace

LayerModules LayerEstimator::LayerBytes::as_sample() const {
    LayerModules result;
    for (std::size_t i = 0; i < modules.made.size(); ++i) {
        if (modules.made[i] > 0) {
            result.made.push_back({.module = i,
                                   .bytes = Bytes{whole_number(modules.made[i])},
                                   .forward = Duration{whole_number(1e9 * modules.seconds[i])}});
        }
    }
    for (std::size_t i = 0; i < modules.inputs.size(); ++i) {
        if (modules.inputs[i] > 0) {
            result.inputs.push_back({.module = i, .bytes = Bytes{whole_number(modules.inputs[i])}});
        }
    }
    return result;
}

LayerEstimate LayerEstimator::embedding() const {
    LayerWork work = end_work();
    const double row = model_.embedding_width > 0 ? model_.embedding_width : width();
    work.lookup(tokens_, row);
    LayerBytes bytes;
    if (model_.embedding_width > 0) {
        work.product(tokens_, row, width());
        save_whole(bytes, tokens_ * row);
    }
    if (model_.learned_positions > 0) {
        work.lookup(tokens_, width());
    }
    if (model_.streams > 1) {  // as many copies
        work.pass((model_.streams + 1) * tokens_ * width(),
                  (model_.streams + 1) * tokens_ * width());
    }
    if (model_.embedding_norm) {
        work.whole_norm(tokens_, width());
        save_whole(bytes, tokens_ * width());
    }
    constexpr double id = 8;  // a token, as frameworks keep them
    bytes.saved_bytes = id * tokens_;
    save_mask(bytes);
    LayerEstimate estimate = with_rows(finished(work, bytes), model_.streams);
    estimate.sample.input = Bytes{whole_number(id * tokens_)};
    return estimate;
}

LayerEstimate LayerEstimator::attention(int block) const {
    const AttentionShape& shape = attention_in(model_, block);
    const ResidualRows rows = rows_of_attention(block);
    if (has_linear_attention(model_, block)) {
        return linear_attention(*shape.linear, rows);
    }
    if (shape.mamba) {
        return mamba(*shape.mamba, rows);
    }
    if (shape.compressed) {
        return compressed_attention(shape, *shape.compressed, rows);
    }
    const LayerEstimate own = one_attention(
        shape, seen_in(block), window_of(model_, block), rows, has_experts(model_, block));
    return model_.encoder_blocks == 0 ? own : one_after_other(own, encoder_attention());
}

LayerEstimate LayerEstimator::encoder_norm() const {
    LayerWork work = new_work();
    LayerBytes bytes;
    norms(work, bytes, 1);
    return finished(work, bytes);
}

LayerEstimate LayerEstimator::feed_forward(int block) const {
    LayerWork work = new_work();
    if (has_experts(model_, block)) {
        work.begin_block_of_experts();
    }
    LayerBytes bytes;
    const ResidualRows residual_rows = rows_of_feed_forward(block);
    read_residual(work, bytes, residual_rows.before);
    norms(work, bytes, model_.feed_forward_norms);
    save_whole(bytes, tokens_ * width());
    if (model_.feed_forward_norms > 0) {
        reads(
            bytes, OffloadModule::FeedForwardNorm, value() * tokens_ * width() / sequence_parts());
    }
    save_mask(bytes);
    if (has_experts(model_, block)) {
        experts(work, bytes, block);
    } else {
        save_normed(bytes, model_.feed_forward_norms);
        const double before = bytes.saved_values;
        const double begin = work.forward_seconds();
        const double own_width = part(feed_forward_width(model_, block));
        inner(work,
              bytes,
              {.rows = tokens_,
               .row = width(),
               .own_width = own_width,
               .ends_what_is_read = !model_.dropout});
        makes(bytes,
              RecomputeModule::FeedForward,
              value() * (bytes.saved_values - before),
              work.forward_seconds() - begin);
        bytes.weight_values = tokens_ * (width() + own_width);
        // The last product's result, which no backward reads.
        const bool drops = options_.kernels == BlockKernels::Compiled && devices_ == 1;
        bytes.dropped_values += drops ? tokens_ * width() : 0;
    }
    residual(work, residual_rows);
    return with_rows(finished(work, bytes), residual_rows.behind);
}

LayerEstimate LayerEstimator::head() const {
    LayerEstimate estimate = logits_and_loss();
    estimate.sample.output = Bytes{};
    return estimate;
}

LayerEstimate LayerEstimator::prediction(int index) const {
    LayerWork work = new_work();
    LayerBytes bytes;
    work.lookup(tokens_, width());
    norms(work, bytes, 1 + model_.streams);
    if (model_.streams > 1) {  // of the embedding, and of each row before it
        work.product(tokens_, width(), part(width()));
        work.product(model_.streams * tokens_, width(), part(width()));
        save_whole(bytes, (1.0 + model_.streams) * tokens_ * width());
    } else {
        work.product(tokens_, 2 * width(), part(width()));
        save_whole(bytes, 2 * tokens_ * width());
    }
    const LayerEstimate joined = with_rows(finished(work, bytes), model_.streams);
    LayerEstimate estimate = one_after_other(
        joined,
        one_after_other(
            attention(prediction_attention(model_)),
            one_after_other(feed_forward(prediction_feed_forward(model_)), logits_and_loss())));
    const double rows = index + 1 < model_.prediction_blocks ? 2 : 1;
    estimate.sample.output =
        Bytes{whole_number(value() * rows * model_.streams * tokens_ * width())};
    return estimate;
}

LayerWork LayerEstimator::end_work() const {
    LayerWork work(device_, options_);
    if (has_layer_norms()) {
        work.fuse_norms();
    }
    if (model_.adapters && !model_.adapters->ends) {
        work.freeze();
    }
    return work;
}

LayerWork LayerEstimator::new_work() const {
    LayerWork work = end_work();
    if (model_.adapters) {
        work.freeze();
    }
    return work;
}

void LayerEstimator::save_adapter(LayerBytes& bytes,
                                  bool AdapterShape::*place,
                                  double rows,
                                  double inputs) const {
    const double rank = adapter_rank(place);
    bytes.saved_values += rows * rank;
    if (rank > 0 && model_.adapters->dropout) {
        bytes.saved_values += rows * inputs;
        bytes.saved_bytes += rows * inputs;
    }
}

/// Keys that a query sees in the mean.
double LayerEstimator::seen_in(int block) const {
    return causal_pairs(window_of(model_, block), options_.sequence) / options_.sequence;
}

void LayerEstimator::save_whole(LayerBytes& bytes, double values) const {
    bytes.saved_values += values;
    bytes.whole_values += values;
}

/// What a norm makes and only the product behind it reads: a part of what norms save.
void LayerEstimator::save_normed(LayerBytes& bytes, int norms) const {
    if (norms > 0) {
        bytes.product_values += tokens_ * width();
        bytes.whole_product_values += tokens_ * width();
    }
}

/// A byte for each number that goes through dropout.
void LayerEstimator::save_mask(LayerBytes& bytes) const {
    const double mask = model_.dropout ? tokens_ * width() : 0;
    bytes.saved_bytes += mask;
    bytes.whole_bytes += mask;
}

/// A module that makes so many bytes in so many seconds.
void LayerEstimator::makes(LayerBytes& of, RecomputeModule module, double bytes, double seconds) {
    of.modules.made.at(as_index(module)) += bytes;
    of.modules.seconds.at(as_index(module)) += seconds;
}

/// A module that reads so many bytes, which are kept.
void LayerEstimator::reads(LayerBytes& of, OffloadModule module, double bytes) {
    of.modules.inputs.at(as_index(module)) += bytes;
}

/// Norms as wide as the model; each keeps what it makes.
void LayerEstimator::norms(LayerWork& work, LayerBytes& bytes, int count) const {
    const double begin = work.forward_seconds();
    const double before = bytes.saved_values;
    all_norms(work, bytes, count);
    makes(bytes,
          RecomputeModule::Norms,
          value() * (bytes.saved_values - before) / sequence_parts(),
          (work.forward_seconds() - begin) / sequence_parts());
}

void LayerEstimator::all_norms(LayerWork& work, LayerBytes& bytes, int count) const {
    for (int i = 0; i < count; ++i) {
        work.whole_norm(tokens_, width());
        save_whole(bytes, tokens_ * width());
        // What several devices have whole may be divided later, and then less is dropped.
        bytes.dropped_values += devices_ == 1 ? tokens_ * width() : 0;
        if (options_.kernels == BlockKernels::Eager && !has_layer_norms()) {
            constexpr double in_fp32_and_back = 6;  // bytes: the input, and without the weight
            save_whole(bytes, in_fp32_and_back / value() * tokens_ * width());
            bytes.dropped_values +=
                devices_ == 1 ? in_fp32_and_back / value() * tokens_ * width() : 0;
        }
    }
}

/// Reads both, writes the sum; backward adds two gradients. Of several streams it reads all, mixes
/// them, adds to each its share of what the half made, and writes them.
void LayerEstimator::residual(LayerWork& work, ResidualRows rows) const {
    const double streams = model_.streams;
    const double forward = streams > 1 ? 2 * streams + 1 : 3;
    const double backward = streams > 1 ? 3 * streams + 2 : 3;
    const double kept = rows.behind > rows.before ? 2 : 0;  // a copy of the row, and its gradient
    work.whole_pass((forward + kept) * tokens_ * width(), (backward + kept) * tokens_ * width());
}

/// Scores, softmax and dropout, and what they keep.
void LayerEstimator::core_attention(LayerWork& work,
                                    LayerBytes& bytes,
                                    const LayerWork::Attention& of) const {
    if (options_.attention == AttentionKernels::Flash) {
        constexpr double log_sum = 4;  // of a query's scores, in fp32
        work.flash_attention(of);
        bytes.core_bytes += log_sum * tokens_ * of.heads;
    } else {
        work.standard_attention(of, model_.dropout);
        const double scores = of.samples * of.heads * of.sequence * of.key_count();
        bytes.core_bytes += scores * (model_.dropout ? 2 * value() + 1 : value());
    }
    bytes.saved_bytes += bytes.core_bytes;
    makes(bytes,
          RecomputeModule::CoreAttention,
          bytes.core_bytes,
          to_seconds(work.attention_forward()));
}

/// Attention of the device's part of each sample, from that of whole samples, and what the
/// parts send each other. Parts have a chunk from the front and one from the back of a sample,
/// so a query of each sees as many keys in the mean. Of several heads with the same keys each
/// device has a copy where there are more devices than keys.
LayerWork::Attention LayerEstimator::divided_context(LayerWork::Attention of,
                                                     LayerWork& work,
                                                     LayerBytes& bytes) const {
    const double parts = division_.context;
    if (parts == 1) {
        return of;
    }
    const double ring = ring_of_context();
    const double by_heads = parts / ring;
    const double whole = of.sequence;
    const Stack* const stack = options_.stack.get();
    const Stack::Context* const steps =
        stack != nullptr && stack->context && ring > 1 ? &stack->context->value : nullptr;
    const double sent_heads =
        steps != nullptr && steps->repeats_keys ? of.heads : of.key_value_heads;
    const double keys_of_all =
        of.samples * whole * sent_heads / by_heads * (of.key_width + of.value_width);
    LayerTraffic& traffic = bytes.traffic;
    if (ring > 1) {
        traffic.keys = traffic.key_gradients = in_bytes(keys_of_all);
    }
    if (steps != nullptr) {
        traffic.key_gradients = Bytes{whole_number(steps->gradient_bytes * keys_of_all)};
        merge_steps(*steps, ring, keys_of_all / ring, of, work);
    }
    if (by_heads > 1) {
        const double outputs = tokens_ * of.heads * of.value_width;
        const double others =
            (of.heads + of.key_value_heads) * of.key_width + of.key_value_heads * of.value_width;
        traffic.heads = in_bytes(tokens_ * others);
        traffic.outputs = in_bytes(outputs);
        bytes.saved_values += outputs;  // until it is back with the device's own tokens
        // Each number is laid out by receiver, and as the sample has its chunks
        // (flash_attn_a2a_communicate of TransformerEngine's context_parallel.py).
        constexpr double copies = 2;
        const double moved = 2 * copies * tokens_ * (others + of.heads * of.value_width);
        work.pass(moved, moved);
    }
    of.keys = whole;
    of.sequence = whole / ring;
    of.heads /= by_heads;
    of.key_value_heads = std::max(1.0, of.key_value_heads / by_heads);
    const bool is_whole = division_.context_method == ContextMethod::AllGather && steps == nullptr;
    of.beside = is_whole ? whole : of.sequence;
    return of;
}

/// Kernels that merge what the steps of a ring make. `keys`: numbers of keys and values of a step.
void LayerEstimator::merge_steps(const Stack::Context& steps,
                                 double ring,
                                 double keys,
                                 const LayerWork::Attention& of,
                                 LayerWork& work) const {
    const double outputs = tokens_ * of.heads * of.value_width;
    const double queries = tokens_ * of.heads * of.key_width;
    const double forward = steps.output_bytes * (ring - 1) * outputs + steps.message_bytes * keys;
    const double backward =
        ring * (steps.query_bytes * queries + steps.key_bytes * keys) + steps.message_bytes * keys;
    work.pass(forward / value(), backward / value());
}

/// Devices of a ring, or of a gather of keys: the others share heads.
double LayerEstimator::ring_of_context() const {
    switch (division_.context_method) {
        case ContextMethod::Ring:
        case ContextMethod::AllGather:
            return division_.context;
        case ContextMethod::AllToAll:
            return 1;
        case ContextMethod::RingAllToAll:
            return division_.context_ring;
    }
    PIPETWIN_EXPECT(false, "method of context parallelism out of range");
}

/// `seen`: keys that a query sees in the mean; `window`: that it may see at most, 0: all;
/// `beside_experts`: its block has some.
LayerEstimate LayerEstimator::one_attention(const AttentionShape& shape,
                                            double seen,
                                            int window,
                                            ResidualRows rows,
                                            bool beside_experts) const {
    const double heads = part(shape.heads);
    const double groups = std::max(1.0, part(shape.key_value_heads));
    const double queries = heads * shape.key_width;
    const double keys = groups * shape.key_width;
    const double values = groups * shape.value_width;
    const double outputs = heads * shape.value_width;
    const double gate = shape.gated ? outputs : 0;
    const double head_gate = shape.head_gate ? heads : 0;
    const double made_values = shape.values_are_keys ? 0 : values;
    LayerWork work = new_work();
    if (beside_experts) {
        work.begin_block_of_experts();
    }
    LayerBytes bytes;
    read_residual(work, bytes, rows.before);
    norms(work, bytes, model_.attention_norms);
    save_whole(bytes, tokens_ * width());
    save_normed(bytes, model_.attention_norms);
    bytes.saved_values += tokens_ * (queries + keys + values + outputs);
    bytes.shared_values += tokens_ * outputs;
    const double begin = work.forward_seconds();
    if (shape.latent) {
        seen = latent_projections(shape, *shape.latent, seen, work, bytes);
        if (gate > 0) {
            work.product(tokens_, width(), gate);
        }
        window = shape.latent->indexer ? shape.latent->indexer->keys : window;
    } else {
        const double outputs_of_all = queries + gate + head_gate + keys + made_values;
        work.product({.rows = tokens_,
                      .inputs = width(),
                      .outputs = outputs_of_all,
                      .again = keys / outputs_of_all,
                      .has_whole_input = true,
                      .adapter = adapter_rank(&AdapterShape::inputs)});
        save_adapter(bytes, &AdapterShape::inputs, tokens_, width());
        bytes.dropped_values += tokens_ * keys;
    }
    if (shape.head_norms || shape.own_norms) {
        const double normed = queries + keys + (shape.value_norms ? values : 0);
        work.norm(tokens_, normed);
        bytes.saved_values += tokens_ * normed;
        bytes.dropped_values += tokens_ * normed;
    }
    if (shape.indexer) {
        seen = key_indexer(*shape.indexer, seen, work, bytes);
        window = shape.indexer->keys;
    }
    if (model_.learned_positions == 0 && shape.rotary) {
        work.rotation(tokens_ * (queries + keys));
    }
    const double of_heads = value() * tokens_ * (queries + keys + values);
    if (shape.latent && division_.by_module) {
        // Down-projections and their norms stay: their narrow rows are what is read again.
        makes(bytes,
              RecomputeModule::LatentUp,
              of_heads,
              work.forward_seconds() - begin - down_seconds(*shape.latent));
    }
    reads(bytes, OffloadModule::CoreAttention, of_heads);
    reads(bytes, OffloadModule::AttentionProjection, value() * tokens_ * outputs);
    if (model_.attention_norms > 0) {
        const double own = tokens_ * width() / sequence_parts();
        reads(bytes, OffloadModule::AttentionNorm, value() * own);
        reads(bytes, OffloadModule::QkvLinear, work.kept_input_bytes() * own);
    }
    core_attention(work,
                   bytes,
                   divided_context({.samples = static_cast<double>(size_),
                                    .sequence = static_cast<double>(options_.sequence),
                                    .seen = seen,
                                    .window = static_cast<double>(window),
                                    .heads = heads,
                                    .key_value_heads = groups,
                                    .key_width = static_cast<double>(shape.key_width),
                                    .value_width = static_cast<double>(shape.value_width)},
                                   work,
                                   bytes));
    if (shape.gated) {
        work.pass(3 * tokens_ * gate, 5 * tokens_ * gate);
        bytes.saved_values += 2 * tokens_ * gate;
    }
    if (shape.head_gate) {
        work.pass(2 * tokens_ * outputs, 3 * tokens_ * outputs);
        bytes.saved_values += tokens_ * (outputs + head_gate);
    }
    work.product({.rows = tokens_,
                  .inputs = outputs,
                  .outputs = width(),
                  .again = 1,
                  .has_sums = !shape.latent,
                  .adapter = adapter_rank(&AdapterShape::outputs)});
    save_adapter(bytes, &AdapterShape::outputs, tokens_, outputs);
    residual(work, rows);
    save_mask(bytes);
    bytes.workspace_values = bytes.split_values = tokens_ * (queries + gate + keys + values);
    if (!shape.latent) {
        bytes.weight_values = tokens_ * (width() + outputs);
    }
    return with_rows(finished(work, bytes), rows.behind);
}

/// The matrices of a feed-forward half with their activation. Of a gated one, the two halves and
/// their product are kept; else what goes into the activation, and what comes out.
void LayerEstimator::inner(LayerWork& work, LayerBytes& bytes, const Inner& of) const {
    const double ins = model_.gated ? 2 : 1;
    const double values = of.rows * of.own_width;
    const double again = model_.gated && !keeps_gate_products() ? 1 : 0;
    work.product({.rows = of.rows,
                  .inputs = of.row,
                  .outputs = ins * of.own_width,
                  .matrices = of.matrices,
                  .again = model_.gated ? 0.5 : 0,
                  .has_whole_input = of.matrices == 1,
                  .adapter = adapter_rank(&AdapterShape::inner)});
    save_adapter(bytes, &AdapterShape::inner, of.rows, of.row);
    work.activation((ins + 1) * values, (2 * ins + 1 + again) * values);
    if (of.ends_what_is_read) {
        work.begin_tail();
    }
    work.product({.rows = of.rows,
                  .inputs = of.own_width,
                  .outputs = of.row,
                  .matrices = of.matrices,
                  .has_sums = of.matrices == 1,
                  .adapter = adapter_rank(&AdapterShape::outer)});
    save_adapter(bytes, &AdapterShape::outer, of.rows, of.own_width);
    // One by one, the activation's result stays beside its product with the gate.
    const bool keeps_both = keeps_gate_activations() && model_.gated;
    const double activations = keeps_both ? 1 : 0;
    bytes.saved_values += (ins + 1 - again + activations) * values;
    bytes.product_values += (1 - again) * values;
    bytes.dropped_values += (ins + activations) * values;
    bytes.workspace_values += (ins + again) * values;
    bytes.split_values += (ins + again) * values;
}

bool LayerEstimator::keeps_gate_activations() const {
    const Stack* const stack = options_.stack.get();
    const bool as_stack = stack != nullptr && options_.kernels == stack->kernels.blocks &&
                          stack->stored.gate_activations && stack->stored.gate_activations->value;
    return as_stack || options_.kernels == BlockKernels::Eager;
}

bool LayerEstimator::keeps_gate_products() const {
    const Stack* const stack = options_.stack.get();
    return stack == nullptr || options_.kernels != stack->kernels.blocks ||
           !stack->stored.gate_products || stack->stored.gate_products->value;
}

/// A router, rows sorted by expert, the experts, and back; beside them what all tokens share.
void LayerEstimator::experts(LayerWork& work, LayerBytes& bytes, int block) const {
    const ExpertShape& shape = model_.experts;
    if (!division_.is_of_tensor_alone()) {
        divided_experts(work, bytes, block);
        return;
    }
    const double rows = tokens_ * shape.per_token;
    const ExpertsBegin begin{.seconds = work.forward_seconds(),
                             .saved = value() * bytes.saved_values + bytes.saved_bytes};
    work.half_product(tokens_, width(), shape.count);
    work.pass(2 * tokens_ * shape.count, 2 * tokens_ * shape.count);
    const double row = to_expert_rows(work, bytes, tokens_);
    work.begin_experts(true);
    work.sort_rows(2 * rows * row, 2 * rows * row);
    inner(work,
          bytes,
          {.rows = rows,
           .row = row,
           .own_width = part(shape.width),
           .matrices = std::min<double>(shape.count, rows)});
    expert_modules(work, bytes, rows, part(shape.width));
    work.sort_rows((rows + tokens_) * row, 2 * rows * row);
    work.end_experts();
    from_expert_rows(work, bytes, tokens_);
    constexpr double probability = 4;  // in fp32
    bytes.saved_bytes += probability * tokens_ * shape.count;
    bytes.saved_values += 2 * rows * row;  // sorted rows, and what the experts made of them
    bytes.product_values += rows * row;
    shared_experts(work, bytes);
    make_experts(work, bytes, begin);
    work.forget_ends();  // messages of the experts' rows are beside none of these products
}

/// What every token goes through beside its experts.
void LayerEstimator::shared_experts(LayerWork& work, LayerBytes& bytes) const {
    const ExpertShape& shape = model_.experts;
    if (shape.shared_width > 0) {
        const double begin = work.forward_seconds();
        const double before = bytes.saved_values;
        inner(
            work, bytes, {.rows = tokens_, .row = width(), .own_width = part(shape.shared_width)});
        makes(bytes,
              RecomputeModule::SharedExperts,
              value() * (bytes.saved_values - before),
              work.forward_seconds() - begin);
        work.pass(3 * tokens_ * width(), 3 * tokens_ * width());
        bytes.saved_values += shape.shared_gate ? tokens_ * width() : 0;
    }
}

/// A matrix to the rows that experts read, where these are narrower than the model. Returns the
/// numbers of such a row.
double LayerEstimator::to_expert_rows(LayerWork& work, LayerBytes& bytes, double tokens) const {
    const double row = expert_row(model_);
    if (model_.experts.latent_width > 0) {
        work.product(tokens, width(), row);
        save_whole(bytes, tokens * row);
    }
    return row;
}

/// And one back from what the experts of a token made.
void LayerEstimator::from_expert_rows(LayerWork& work, LayerBytes& bytes, double tokens) const {
    if (model_.experts.latent_width > 0) {
        const double row = expert_row(model_);
        if (model_.experts.latent_norm) {
            work.norm(tokens, row);
            save_whole(bytes, tokens * row);
        }
        work.product(tokens, row, width());
        save_whole(bytes, tokens * row);
    }
}

/// Rows of one device's experts, of `sent` that each device sends out.
double LayerEstimator::expert_rows(double sent, double local_experts, double fullest) const {
    const ExpertLoad& load = division_.load;
    const double rows =
        load.capacity > 0 ? local_experts * std::ceil(sent / model_.experts.count * load.capacity) *
                                division_.expert * division_.expert_tensor
                          : sent * division_.expert_tensor * fullest;
    return rows + local_experts * (load.padding - 1) / 2;
}

/// A router of the device's own tokens, their rows sorted and sent to the experts, sorted by
/// expert there, the device's experts or its part of them, and back. The probabilities are
/// multiplied in with the activation, so no backward reads what the experts made of the rows
/// (Megatron-LM, core/transformer/moe/experts.py).
void LayerEstimator::divided_experts(LayerWork& work, LayerBytes& bytes, int block) const {
    const ExpertShape& shape = model_.experts;
    const double own = division_.sequence_parallel ? part(tokens_) : tokens_;
    const double sent = own * shape.per_token;
    const double begin = work.forward_seconds();
    const double saved_before = value() * bytes.saved_values + bytes.saved_bytes;
    const double local = static_cast<double>(shape.count) / division_.expert;
    const double rows = expert_rows(sent, local, division_.load.fullest_in(block));
    work.half_product(own, width(), shape.count);
    work.pass(2 * own * shape.count, 2 * own * shape.count);
    const double row = to_expert_rows(work, bytes, own);
    work.begin_experts(division_.load.capacity == 0);
    if (division_.dispatch == ExpertDispatch::Nccl) {
        work.sort_rows(2 * sent * row, 2 * sent * row);
        if (local > 1) {
            work.pass(2 * rows * row, 2 * rows * row);
        }
    } else {
        work.sort_rows(2 * rows * row, 2 * rows * row);
    }
    const double own_width = static_cast<double>(shape.width) / division_.expert_tensor;
    inner(work,
          bytes,
          {.rows = rows, .row = row, .own_width = own_width, .matrices = std::min(local, rows)});
    expert_modules(work, bytes, rows, own_width);
    if (division_.dispatch == ExpertDispatch::Nccl) {
        if (local > 1) {
            work.pass(2 * rows * row, 2 * rows * row);
        }
        work.sort_rows((sent + own) * row, 2 * sent * row);
    } else {
        work.sort_rows(2 * rows * row, 2 * rows * row);
    }
    work.end_experts();
    from_expert_rows(work, bytes, own);
    constexpr double probability = 4;  // in fp32
    bytes.saved_bytes += probability * (own * shape.count + rows);
    bytes.saved_values += rows * row;
    bytes.product_values += rows * row;
    const double fullest = rows / division_.expert_tensor;
    bytes.traffic.dispatch = bytes.traffic.combine = in_bytes(fullest * row);
    if (division_.expert_tensor > 1) {
        bytes.traffic.expert_rows = in_bytes(rows * row);
    }
    shared_experts(work, bytes);
    make_experts(work, bytes, {.seconds = begin, .saved = saved_before});
    work.forget_ends();
}

/// All that a layer's experts keep.
void LayerEstimator::make_experts(const LayerWork& work,
                                  LayerBytes& bytes,
                                  const ExpertsBegin& begin) const {
    makes(bytes,
          RecomputeModule::Experts,
          value() * bytes.saved_values + bytes.saved_bytes - begin.saved,
          work.forward_seconds() - begin.seconds);
}

/// Rows of experts, of whose inner width a device has so much: what goes into their first product
/// and their activation, and what comes out of the latter.
void LayerEstimator::expert_modules(const LayerWork& work,
                                    LayerBytes& bytes,
                                    double rows,
                                    double own) const {
    if (!division_.by_module) {
        return;
    }
    const double ins = model_.gated ? 2 : 1;
    LayerWork activation = new_work();
    activation.activation((ins + 1) * rows * own, 0);
    makes(bytes,
          RecomputeModule::ExpertActivation,
          value() * rows * own,
          activation.forward_seconds());
    reads(bytes, OffloadModule::ExpertFirst, work.kept_input_bytes() * rows * expert_row(model_));
    reads(bytes, OffloadModule::ExpertActivation, value() * ins * rows * own);
}

LayerEstimate LayerEstimator::logits_and_loss() const {
    const double logits = tokens_ * part(model_.vocabulary);
    LayerWork work = end_work();
    LayerBytes bytes;
    read_residual(work, bytes, residual_rows(model_, model_.blocks - 1), false);
    norms(work, bytes, model_.final_norm ? 1 : 0);
    double row = width();
    if (model_.embedding_width > 0) {
        save_whole(bytes, tokens_ * row);
        row = model_.embedding_width;
        work.half_product(tokens_, width(), row);
    }
    if (options_.loss == LossKernels::Standard && devices_ > 1) {
        // PyTorch's ColwiseParallel gathers the product's input, and autograd keeps it whole
        // (torch/distributed/tensor/parallel/style.py); Megatron-LM gathers it again.
        bytes.saved_values += tokens_ * row;
    } else {
        save_whole(bytes, tokens_ * row);
    }
    work.half_product(tokens_, row, part(model_.vocabulary));
    work.loss(logits, options_.loss);
    if (options_.loss == LossKernels::Standard) {
        // Logits and log-softmax stay; then the gradients of the latter and of the former.
        // Where devices share the logits, PyTorch's loss_parallel has an exponential beside
        // both (torch/distributed/tensor/parallel/loss.py).
        const double fp32_values = devices_ == 1 ? 2 : 3;
        bytes.saved_bytes = (value() + 4) * logits;
        bytes.workspace_values = 4 * fp32_values * logits / value();
    } else {
        // The fp32 logits become their gradient in place; others stand beside them.
        bytes.saved_bytes = 4 * logits;
        const Stack* const stack = options_.stack.get();
        const bool says =
            stack != nullptr && options_.loss == stack->kernels.loss && stack->stored.beside_logits;
        const double beside = says                           ? stack->stored.beside_logits->value
                              : options_.precision == "fp32" ? 0
                                                             : value();
        bytes.workspace_values = beside * logits / value();
    }
    bytes.dropped_values = 0;
    return finished(work, bytes);
}

LayerEstimate LayerEstimator::finished(const LayerWork& work, const LayerBytes& bytes) const {
    LayerSample sample = work.sample();
    sample.micro_batch_size = size_;
    sample.output = Bytes{whole_number(value() * tokens_ * width())};
    sample.traffic = bytes.traffic;
    if (division_.by_module) {
        sample.modules = bytes.as_sample();
    }
    if (division_.context > 1) {
        sample.traffic.attention_forward = work.attention_forward();
        sample.traffic.attention_backward = work.attention_backward();
    }
    const double input_bytes = work.kept_input_bytes();
    const double narrower = value() - input_bytes;
    const double copies = narrower > 0 ? input_bytes * bytes.shared_values : 0;
    sample.saved = Bytes{whole_number(value() * bytes.saved_values + bytes.saved_bytes -
                                      narrower * bytes.product_values + copies)};
    sample.workspace = Bytes{whole_number(value() * bytes.workspace_values)};
    sample.split = Bytes{whole_number(value() * bytes.split_values)};
    if (options_.recomputes_operators()) {
        sample.core_saved = Bytes{whole_number(value() * bytes.dropped_values)};
        // What every device has whole is kept where devices share a layer, and not done again.
        const Duration whole = devices_ == 1 ? Duration{} : work.whole_passes();
        sample.core_forward = bytes.dropped_values == 0
                                  ? Duration{}
                                  : std::max(Duration{}, sample.core_forward - whole);
    } else {
        sample.core_saved = Bytes{whole_number(bytes.core_bytes)};
    }
    if (bytes.weight_values >= 0) {
        sample.input_saved = sample.saved - Bytes{whole_number(input_bytes * bytes.weight_values)};
    }
    if (devices_ == 1) {
        sample.whole_forward = sample.whole_backward = Duration{};
        sample.first_forward = sample.first_input = sample.first_weight = Duration{};
        sample.last_forward = sample.last_input = Duration{};
    } else {
        sample.whole_saved = Bytes{whole_number(value() * bytes.whole_values + bytes.whole_bytes -
                                                narrower * bytes.whole_product_values)};
    }
    return {.sample = sample,
            .operations = work.operations(),
            .masked_operations = work.masked_operations(),
            .weight_cast = work.weight_cast(),
            .weight_copies = work.weight_copies()};
}

}  // namespace pipetwin
