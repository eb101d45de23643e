#include "core/costs/estimate.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/costs/layer_work.h"

namespace pipetwin {

namespace {

/// Bytes of a layer, from the values in the model's precision and the rest in bytes.
struct LayerBytes {
    double saved_values = 0;
    double saved_bytes = 0;
    double workspace_values = 0;
    double split_values = 0;
};

/// Layer `a`, and then `b`, as one: `b` reads what `a` makes.
LayerSample one_after_other(const LayerSample& a, const LayerSample& b) {
    LayerSample sum = b;
    sum.input = a.input;
    sum.forward += a.forward;
    sum.backward_input += a.backward_input;
    sum.backward_weight += a.backward_weight;
    sum.saved += a.saved;
    sum.workspace = std::max(a.workspace, b.workspace);
    sum.split += a.split + a.output;  // the gradient between the two waits for W, too
    sum.forward_kernels += a.forward_kernels;
    sum.backward_input_kernels += a.backward_input_kernels;
    sum.backward_weight_kernels += a.backward_weight_kernels;
    return sum;
}

/// All layers of a model for one micro-batch size.
class Estimator {
  public:
    Estimator(const DecoderModel& model,
              const DeviceProfile& device,
              const EstimateOptions& options,
              int micro_batch_size)
        : model_(model),
          device_(device),
          options_(options),
          size_(micro_batch_size),
          tokens_(static_cast<double>(micro_batch_size) * options.sequence) {}

    LayerSample embedding() const {
        LayerWork work = new_work();
        const double row = model_.embedding_width > 0 ? model_.embedding_width : width();
        work.lookup(tokens_, row);
        LayerBytes bytes;
        if (model_.embedding_width > 0) {
            work.product(tokens_, row, width());
            bytes.saved_values += tokens_ * row;
        }
        if (model_.learned_positions > 0) {
            work.lookup(tokens_, width());
        }
        if (model_.embedding_norm) {
            work.norm(tokens_, width());
            bytes.saved_values += tokens_ * width();
        }
        constexpr double id = 8;  // a token, as frameworks keep them
        bytes.saved_bytes = id * tokens_ + mask();
        LayerSample sample = finished(work, bytes);
        sample.input = Bytes{whole_number(id * tokens_)};
        return sample;
    }

    /// The attention half of a block; of a decoder that reads an encoder both of its attentions.
    LayerSample attention(int block) const {
        if (has_linear_attention(model_, block)) {
            return linear_attention(*model_.attention.linear);
        }
        const LayerSample own = one_attention(pairs_of(block));
        return model_.encoder_blocks == 0 ? own : one_after_other(own, one_attention(all_pairs()));
    }

    LayerSample encoder_attention() const { return one_attention(all_pairs()); }

    LayerSample encoder_norm() const {
        LayerWork work = new_work();
        work.norm(tokens_, width());
        return finished(work, {.saved_values = tokens_ * width()});
    }

    LayerSample feed_forward(int block) const {
        LayerWork work = new_work();
        LayerBytes bytes;
        norms(work, bytes, model_.feed_forward_norms);
        bytes.saved_values += tokens_ * width();
        bytes.saved_bytes = mask();
        if (has_experts(model_, block)) {
            experts(work, bytes);
        } else {
            inner(work, bytes, tokens_, model_.feed_forward);
        }
        residual(work);
        return finished(work, bytes);
    }

    LayerSample head() const {
        LayerSample sample = logits_and_loss();
        sample.output = Bytes{};
        return sample;
    }

    /// A block that predicts a further token: two norms, a matrix that makes one row of two, a
    /// block as the last one, and the head's work. The row that the head reads goes past it.
    LayerSample prediction(int index) const {
        LayerWork work = new_work();
        work.lookup(tokens_, width());
        work.norm(tokens_, width());
        work.norm(tokens_, width());
        work.product(tokens_, 2 * width(), width());
        const LayerSample joined = finished(work, {.saved_values = 4 * tokens_ * width()});
        const int last = model_.blocks - 1;
        LayerSample sample = one_after_other(
            joined,
            one_after_other(attention(last),
                            one_after_other(feed_forward(last), logits_and_loss())));
        const double rows = index + 1 < model_.prediction_blocks ? 2 : 1;
        sample.output = Bytes{whole_number(value() * rows * tokens_ * width())};
        return sample;
    }

  private:
    double width() const { return model_.width; }
    double value() const { return static_cast<double>(bytes_per_value(options_.precision)); }
    double mask() const { return model_.dropout ? tokens_ * width() : 0; }  // a byte per number
    LayerWork new_work() const { return {device_, options_}; }

    double all_pairs() const { return tokens_ * options_.sequence; }
    double pairs_of(int block) const {
        return size_ * causal_pairs(window_of(model_, block), options_.sequence);
    }

    /// Norms as wide as the model; each keeps what it makes.
    void norms(LayerWork& work, LayerBytes& bytes, int count) const {
        for (int i = 0; i < count; ++i) {
            work.norm(tokens_, width());
            bytes.saved_values += tokens_ * width();
        }
    }

    /// Reads both, writes the sum; backward adds two gradients.
    void residual(LayerWork& work) const {
        work.pass(3 * tokens_ * width(), 3 * tokens_ * width());
    }

    LayerSample one_attention(double pairs) const {
        const AttentionShape& shape = model_.attention;
        const double queries = static_cast<double>(shape.heads) * shape.key_width;
        const double keys = static_cast<double>(shape.key_value_heads) * shape.key_width;
        const double values = static_cast<double>(shape.key_value_heads) * shape.value_width;
        const double outputs = static_cast<double>(shape.heads) * shape.value_width;
        const double gate = shape.gated ? queries : 0;
        LayerWork work = new_work();
        LayerBytes bytes;
        norms(work, bytes, model_.attention_norms);
        bytes.saved_values += tokens_ * (width() + queries + keys + values + outputs);
        if (shape.latent) {
            pairs = latent_projections(*shape.latent, pairs, work, bytes);
        } else {
            work.product(tokens_, width(), queries + gate + keys + values);
        }
        if (shape.head_norms || shape.own_norms) {
            work.norm(tokens_, queries + keys);
            bytes.saved_values += tokens_ * (queries + keys);
        }
        if (model_.learned_positions == 0 && shape.rotary) {
            work.pass(2 * tokens_ * (queries + keys), 2 * tokens_ * (queries + keys));
        }
        work.attention(shape, pairs, tokens_);
        if (shape.gated) {
            work.pass(3 * tokens_ * gate, 5 * tokens_ * gate);
            bytes.saved_values += 2 * tokens_ * gate;
        }
        work.product(tokens_, outputs, width());
        residual(work);
        constexpr double log_sum = 4;  // of a query's scores, in fp32
        bytes.saved_bytes = log_sum * tokens_ * shape.heads + mask();
        bytes.workspace_values = bytes.split_values = tokens_ * (queries + gate + keys + values);
        return finished(work, bytes);
    }

    /// Projections, a convolution over the tokens, the rule, a norm with a gate, and a projection.
    LayerSample linear_attention(const LinearAttentionShape& shape) const {
        const double keys = static_cast<double>(shape.key_heads) * shape.key_width;
        const double values = static_cast<double>(shape.value_heads) * shape.value_width;
        const double convolved = 2 * keys + values;
        const double rates = 2 * static_cast<double>(shape.value_heads);
        LayerWork work = new_work();
        LayerBytes bytes;
        norms(work, bytes, model_.attention_norms);
        work.product(tokens_, width(), convolved + values + rates);
        work.pass(2 * tokens_ * convolved, 3 * tokens_ * convolved);
        work.delta_rule(shape, tokens_);
        work.pass(3 * tokens_ * values, 5 * tokens_ * values);
        work.product(tokens_, values, width());
        residual(work);
        bytes.saved_values += tokens_ * (width() + 2 * convolved + 3 * values + rates);
        bytes.saved_bytes = mask();
        bytes.workspace_values = bytes.split_values = tokens_ * (convolved + values + rates);
        return finished(work, bytes);
    }

    /// The matrices of a feed-forward half with their activation, for `rows` rows; of `matrices`
    /// different ones each row meets one. Of a gated one, the two halves and their product are
    /// kept; else what goes into the activation, and what comes out.
    void inner(LayerWork& work,
               LayerBytes& bytes,
               double rows,
               double inner_width,
               double matrices = 1) const {
        const double ins = model_.gated ? 2 : 1;
        const double values = rows * inner_width;
        work.product(rows, width(), ins * inner_width, matrices);
        work.pass((ins + 1) * values, (2 * ins + 1) * values);
        work.product(rows, inner_width, width(), matrices);
        bytes.saved_values += (ins + 1) * values;
        bytes.workspace_values += ins * values;
        bytes.split_values += ins * values;
    }

    /// A router, rows sorted by expert, the experts, and back; beside them what all tokens share.
    void experts(LayerWork& work, LayerBytes& bytes) const {
        const ExpertShape& shape = model_.experts;
        const double rows = tokens_ * shape.per_token;
        work.product(tokens_, width(), shape.count);
        work.pass(2 * tokens_ * shape.count, 2 * tokens_ * shape.count);
        work.pass(2 * rows * width(), 2 * rows * width());
        inner(work, bytes, rows, shape.width, std::min<double>(shape.count, rows));
        work.pass((rows + tokens_) * width(), 2 * rows * width());
        constexpr double probability = 4;  // in fp32
        bytes.saved_bytes += probability * tokens_ * shape.count;
        bytes.saved_values += 2 * rows * width();  // sorted rows, and what the experts made of them
        if (shape.shared_width > 0) {
            inner(work, bytes, tokens_, shape.shared_width);
            work.pass(3 * tokens_ * width(), 3 * tokens_ * width());
            bytes.saved_values += shape.shared_gate ? tokens_ * width() : 0;
        }
    }

    /// To queries, keys and values through narrow rows, each of which is normalized. Returns the
    /// pairs that the heads look at: an indexer leaves fewer.
    double latent_projections(const LatentShape& latent,
                              double pairs,
                              LayerWork& work,
                              LayerBytes& bytes) const {
        const AttentionShape& shape = model_.attention;
        const double queries = static_cast<double>(shape.heads) * shape.key_width;
        const double keys_and_values = static_cast<double>(shape.heads) *
                                       (shape.key_width - latent.rotary_width + shape.value_width);
        if (latent.query_rank == 0) {
            work.product(tokens_, width(), queries);
        } else {
            work.product(tokens_, width(), latent.query_rank);
            work.norm(tokens_, latent.query_rank);
            work.product(tokens_, latent.query_rank, queries);
        }
        work.product(tokens_, width(), latent.key_value_rank + latent.rotary_width);
        work.norm(tokens_, latent.key_value_rank);
        work.product(tokens_, latent.key_value_rank, keys_and_values);
        bytes.saved_values += 2 * tokens_ * (latent.query_rank + latent.key_value_rank);
        if (!latent.indexer) {
            return pairs;
        }
        const IndexerShape& indexer = *latent.indexer;
        const double rows = static_cast<double>(indexer.heads) * indexer.width;
        work.product(tokens_, latent.query_rank, rows);
        work.product(tokens_, width(), indexer.width + indexer.heads);
        work.choose_keys(indexer, pairs, tokens_);
        bytes.saved_values += tokens_ * (rows + indexer.width + indexer.heads);
        return std::min(pairs, size_ * causal_pairs(indexer.keys, options_.sequence));
    }

    LayerSample logits_and_loss() const {
        const double logits = tokens_ * model_.vocabulary;
        LayerWork work = new_work();
        LayerBytes bytes;
        norms(work, bytes, model_.final_norm ? 1 : 0);
        bytes.saved_values += tokens_ * width();
        double row = width();
        if (model_.embedding_width > 0) {
            row = model_.embedding_width;
            work.product(tokens_, width(), row);
            bytes.saved_values += tokens_ * row;
        }
        work.product(tokens_, row, model_.vocabulary);
        work.loss(logits);
        // The fp32 logits become their gradient in place; others stand beside them.
        bytes.saved_bytes = 4 * logits;
        bytes.workspace_values = options_.precision == "fp32" ? 0 : logits;
        return finished(work, bytes);
    }

    LayerSample finished(const LayerWork& work, const LayerBytes& bytes) const {
        LayerSample sample = work.sample();
        sample.micro_batch_size = size_;
        sample.output = Bytes{whole_number(value() * tokens_ * width())};
        sample.saved = Bytes{whole_number(value() * bytes.saved_values + bytes.saved_bytes)};
        sample.workspace = Bytes{whole_number(value() * bytes.workspace_values)};
        sample.split = Bytes{whole_number(value() * bytes.split_values)};
        return sample;
    }

    const DecoderModel& model_;
    const DeviceProfile& device_;
    const EstimateOptions& options_;
    int size_;
    double tokens_;
};

/// 1, 2, 4, ... up to 32 or twice the given size, and that itself.
std::vector<int> sample_sizes(int micro_batch_size) {
    std::vector<int> sizes;
    for (int size = 1; size <= std::max(32, 2 * micro_batch_size); size *= 2) {
        sizes.push_back(size);
    }
    const auto at = std::ranges::lower_bound(sizes, micro_batch_size);
    if (at == sizes.end() || *at != micro_batch_size) {
        sizes.insert(at, micro_batch_size);
    }
    return sizes;
}

/// AdamW with state in fp32: 28 bytes per parameter go over the memory, whether the weights are
/// fp32 (reads weight, gradient and two moments, writes all but the gradient) or half as wide with
/// fp32 copies (two bytes of gradient, two of weight, eight of each copy and moment).
Duration adamw_time(std::int64_t parameters,
                    const DeviceProfile& device,
                    const EstimateOptions& options) {
    constexpr double moved = 28;
    return Duration{whole_number(1e9 * moved * static_cast<double>(parameters) /
                                 (device.memory_rate.value * options.memory_efficiency))};
}

/// Makes the layers of a profile, one after the other.
class LayerMaker {
  public:
    LayerMaker(const DecoderModel& model,
               const DeviceProfile& device,
               const EstimateOptions& options)
        : device_(device), options_(options) {
        for (const int size : sample_sizes(options.micro_batch_size)) {
            estimators_.emplace_back(model, device, options, size);
        }
    }

    /// `sample` makes the costs at one size from its estimator.
    template <class Sample>
    LayerCost& add(std::string name, std::string kind, std::int64_t parameters, Sample sample) {
        LayerCost& layer = layers_.emplace_back();
        layer.name = std::move(name);
        layer.kind = std::move(kind);
        layer.parameter_count = parameters;
        layer.parameter_bytes = Bytes{parameters * bytes_per_value(options_.precision)};
        layer.optimizer = adamw_time(parameters, device_, options_);
        for (const Estimator& estimator : estimators_) {
            layer.samples.push_back(std::invoke(sample, estimator));
        }
        return layer;
    }

    std::vector<LayerCost> take() { return std::move(layers_); }

  private:
    const DeviceProfile& device_;
    const EstimateOptions& options_;
    std::vector<Estimator> estimators_;
    std::vector<LayerCost> layers_;
};

constexpr const char* encoder_output = "encoder_norm";

/// The encoder's blocks and norm, and the decoder's embedding: it shares the encoder's table, which
/// its rank has to hold as well, with gradients and optimizer state. Its parameters count once, in
/// "embedding". It stands in the chain behind the encoder, as its rank can be another.
void add_encoder(LayerMaker& layers, const DecoderModel& model) {
    for (int block = 0; block < model.encoder_blocks; ++block) {
        layers.add(fmt::format("encoder{}.attention", block),
                   "encoder_attention",
                   encoder_attention_parameters(model, block),
                   &Estimator::encoder_attention);
        layers.add(fmt::format("encoder{}.feed_forward", block),
                   "feed_forward",
                   feed_forward_parameters(model, block),
                   [block](const Estimator& estimator) { return estimator.feed_forward(block); });
    }
    layers.add(encoder_output, "norm", encoder_norm_parameters(model), &Estimator::encoder_norm);
    layers
        .add("decoder_embedding",
             "decoder_embedding",
             embedding_parameters(model),
             &Estimator::embedding)
        .parameter_count = 0;
}

void add_blocks(LayerMaker& layers, const DecoderModel& model) {
    std::string before = "decoder_embedding";
    for (int block = 0; block < model.blocks; ++block) {
        LayerCost& attention =
            layers.add(fmt::format("block{}.attention", block),
                       has_linear_attention(model, block) ? "linear_attention" : "attention",
                       attention_parameters(model, block),
                       [block](const Estimator& estimator) { return estimator.attention(block); });
        if (model.encoder_blocks > 0) {
            attention.inputs = {encoder_output, before};
        }
        before =
            layers
                .add(fmt::format("block{}.feed_forward", block),
                     "feed_forward",
                     feed_forward_parameters(model, block),
                     [block](const Estimator& estimator) { return estimator.feed_forward(block); })
                .name;
    }
}

}  // namespace

Profile estimated_profile(const DecoderModel& model,
                          const DeviceProfile& device,
                          const EstimateOptions& options) {
    PIPETWIN_EXPECT(device.matrix_rates.contains(options.precision),
                    "the device has no rate at the precision of an estimate");
    Profile profile{
        .source = CostSource::Estimated, .device = device.name, .precision = options.precision};
    LayerMaker layers(model, device, options);
    layers.add("embedding", "embedding", embedding_parameters(model), &Estimator::embedding);
    if (model.encoder_blocks > 0) {
        add_encoder(layers, model);
    }
    add_blocks(layers, model);
    for (int index = 0; index < model.prediction_blocks; ++index) {
        layers.add(fmt::format("mtp{}", index),
                   "prediction",
                   prediction_parameters(model),
                   [index](const Estimator& estimator) { return estimator.prediction(index); });
    }
    const std::int64_t shared = shared_embedding_parameters(model);
    LayerCost& head = layers.add("head", "head", head_parameters(model), &Estimator::head);
    profile.tied_bytes = Bytes{shared * bytes_per_value(options.precision)};
    head.parameter_bytes += profile.tied_bytes;
    head.optimizer += adamw_time(shared, device, options);
    profile.layers = layers.take();
    return profile;
}

}  // namespace pipetwin
