#include "core/costs/estimate.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace pipetwin {

namespace {

/// No time or size of a profile is above 2^53; what is, is refused by its check.
constexpr double beyond_profiles = 18014398509481984.0;  // 2^54

std::int64_t whole(double value) {
    return std::llround(std::min(value, beyond_profiles));
}

std::int64_t bytes_per_value(std::string_view precision) {
    return precision == "fp32" ? 4 : 2;
}

/// One layer and one micro-batch: the sum of its kernels. Counts are double: they are whole and
/// exact up to 2^53, above which no profile goes.
class LayerWork {
  public:
    LayerWork(const DeviceProfile& device, const EstimateOptions& options)
        : rate_(device.matrix_rates.at(options.precision).value * options.efficiency),
          memory_rate_(device.memory_rate.value * options.memory_efficiency),
          value_(static_cast<double>(bytes_per_value(options.precision))) {}

    /// y (rows, outputs) = x (rows, inputs) * w (inputs, outputs); of `matrices` different w each
    /// row meets one.
    ///
    /// forward      x * w             reads x and w, writes y
    /// of inputs    dy * transposed w     reads dy and w, writes dx
    /// of weights   transposed x * dy     reads x and dy, adds to dw
    void product(double rows, double inputs, double outputs, double matrices = 1) {
        const double operations = 2 * rows * inputs * outputs;
        const double weights = matrices * inputs * outputs;
        const double once = rows * inputs + weights + rows * outputs;
        add(forward_, operations, once);
        add(backward_input_, operations, once);
        add(backward_weight_, operations, once + weights);
    }

    /// Kernels that do little but move values, forward and in the backward of the input.
    void pass(double forward_values, double backward_values) {
        add(forward_, 0, forward_values);
        add(backward_input_, 0, backward_values);
    }

    /// A row of `width` per token: reads it, writes it; backward reads it and its gradient.
    void norm(double rows, double width) { pass(2 * rows * width, 3 * rows * width); }

    /// FlashAttention: forward two products per pair of a query and a key that it sees, backward
    /// five, as the scores are computed again. No score is ever written.
    void attention(const AttentionShape& shape, double samples, int block, double sequence) {
        const double heads = shape.heads;
        const double pairs = samples * pairs_seen(shape, block, sequence);
        const double queries = samples * sequence * heads * shape.key_width;
        const double outputs = samples * sequence * heads * shape.value_width;
        const double keys_and_values =
            samples * sequence * shape.key_value_heads * (shape.key_width + shape.value_width);
        const double moved = queries + keys_and_values + outputs;
        add(forward_, pairs * heads * 2 * (shape.key_width + shape.value_width), moved);
        add(backward_input_,
            pairs * heads * (6 * shape.key_width + 4 * shape.value_width),
            2 * moved);
    }

    /// The rows of a table that the tokens pick; backward adds to them.
    void lookup(double rows, double width) {
        add(forward_, 0, 2 * rows * width);
        add(backward_weight_, 0, 3 * rows * width);
    }

    /// Cross-entropy over logits in fp32: forward turns them into fp32, backward into the gradient
    /// in the model's precision.
    void loss(double logits) {
        const double values = logits * (value_ + 4) / value_;
        pass(values, values);
    }

    LayerSample sample() const {
        LayerSample sample;
        sample.forward = forward_.time();
        sample.backward_input = backward_input_.time();
        sample.backward_weight = backward_weight_.time();
        sample.forward_kernels = forward_.kernels;
        sample.backward_input_kernels = backward_input_.kernels;
        sample.backward_weight_kernels = backward_weight_.kernels;
        return sample;
    }

  private:
    struct Sum {
        double seconds = 0;
        int kernels = 0;

        Duration time() const { return Duration{whole(seconds * 1e9)}; }
    };

    void add(Sum& sum, double operations, double values) const {
        sum.seconds += std::max(operations / rate_, values * value_ / memory_rate_);
        sum.kernels += 1;
    }

    /// Pairs of a query and a key that it sees in one sample: itself and those before it, no
    /// further back than the window.
    static double pairs_seen(const AttentionShape& shape, int block, double sequence) {
        const double window = shape.window > 0 && block >= shape.first_window_block
                                  ? std::min<double>(shape.window, sequence)
                                  : sequence;
        return window * (window + 1) / 2 + (sequence - window) * window;
    }

    double rate_;
    double memory_rate_;
    double value_;
    Sum forward_;
    Sum backward_input_;
    Sum backward_weight_;
};

/// Bytes of a layer, from the values in the model's precision and the rest in bytes.
struct LayerBytes {
    double saved_values = 0;
    double saved_bytes = 0;
    double workspace_values = 0;
    double split_values = 0;
};

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
        work.lookup(tokens_, width());
        if (model_.learned_positions > 0) {
            work.lookup(tokens_, width());
        }
        constexpr double id = 8;  // a token, as frameworks keep them
        LayerSample sample = finished(work, {.saved_bytes = id * tokens_ + mask()});
        sample.input = Bytes{whole(id * tokens_)};
        return sample;
    }

    LayerSample attention(int block) const {
        const AttentionShape& shape = model_.attention;
        const double queries = shape.heads * shape.key_width;
        const double keys = shape.key_value_heads * shape.key_width;
        const double values = shape.key_value_heads * shape.value_width;
        const double outputs = shape.heads * shape.value_width;
        LayerWork work = new_work();
        LayerBytes bytes;
        work.norm(tokens_, width());
        bytes.saved_values = 2 * width() + queries + keys + values + outputs;
        if (shape.latent) {
            latent_projections(*shape.latent, work, bytes);
        } else {
            work.product(tokens_, width(), queries + keys + values);
        }
        if (shape.head_norms) {
            work.norm(tokens_, queries + keys);
            bytes.saved_values += queries + keys;
        }
        if (model_.learned_positions == 0) {  // rotated by their position
            work.pass(2 * tokens_ * (queries + keys), 2 * tokens_ * (queries + keys));
        }
        work.attention(shape, size_, block, options_.sequence);
        work.product(tokens_, outputs, width());
        residual(work);
        bytes.saved_values *= tokens_;
        constexpr double log_sum = 4;  // of a query's scores, in fp32
        bytes.saved_bytes = log_sum * tokens_ * shape.heads + mask();
        bytes.workspace_values = bytes.split_values = tokens_ * (queries + keys + values);
        return finished(work, bytes);
    }

    LayerSample feed_forward(int block) const {
        LayerWork work = new_work();
        LayerBytes bytes;
        work.norm(tokens_, width());
        bytes.saved_values = 2 * tokens_ * width();
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
        const double logits = tokens_ * model_.vocabulary;
        LayerWork work = new_work();
        work.norm(tokens_, width());
        work.product(tokens_, width(), model_.vocabulary);
        work.loss(logits);
        // The fp32 logits become their gradient in place; others stand beside them.
        LayerSample sample =
            finished(work,
                     {.saved_values = 2 * tokens_ * width(),
                      .saved_bytes = 4 * logits,
                      .workspace_values = options_.precision == "fp32" ? 0 : logits});
        sample.output = Bytes{};
        return sample;
    }

  private:
    double width() const { return model_.width; }
    double mask() const { return model_.dropout ? tokens_ * width() : 0; }  // a byte per number
    LayerWork new_work() const { return {device_, options_}; }

    /// Reads both, writes the sum; backward adds two gradients.
    void residual(LayerWork& work) const {
        work.pass(3 * tokens_ * width(), 3 * tokens_ * width());
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

    /// To queries, keys and values through narrow rows, each of which is normalized.
    void latent_projections(const LatentShape& latent, LayerWork& work, LayerBytes& bytes) const {
        const AttentionShape& shape = model_.attention;
        const double queries = shape.heads * shape.key_width;
        const double keys_and_values =
            shape.heads * (shape.key_width - latent.rotary_width + shape.value_width);
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
        bytes.saved_values += 2 * (latent.query_rank + latent.key_value_rank);
    }

    LayerSample finished(const LayerWork& work, const LayerBytes& bytes) const {
        const auto value = static_cast<double>(bytes_per_value(options_.precision));
        LayerSample sample = work.sample();
        sample.micro_batch_size = size_;
        sample.output = Bytes{whole(value * tokens_ * width())};
        sample.saved = Bytes{whole(value * bytes.saved_values + bytes.saved_bytes)};
        sample.workspace = Bytes{whole(value * bytes.workspace_values)};
        sample.split = Bytes{whole(value * bytes.split_values)};
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
    return Duration{whole(1e9 * moved * static_cast<double>(parameters) /
                          (device.memory_rate.value * options.memory_efficiency))};
}

}  // namespace

Profile estimated_profile(const DecoderModel& model,
                          const DeviceProfile& device,
                          const EstimateOptions& options) {
    PIPETWIN_EXPECT(device.matrix_rates.contains(options.precision),
                    "the device has no rate at the precision of an estimate");
    Profile profile{
        .source = CostSource::Estimated, .device = device.name, .precision = options.precision};
    std::vector<Estimator> estimators;
    for (const int size : sample_sizes(options.micro_batch_size)) {
        estimators.emplace_back(model, device, options, size);
    }
    const auto add = [&](std::string name, const char* kind, std::int64_t count, auto sample) {
        LayerCost layer{.name = std::move(name),
                        .kind = kind,
                        .parameter_count = count,
                        .parameter_bytes = Bytes{count * bytes_per_value(options.precision)},
                        .optimizer = adamw_time(count, device, options)};
        std::ranges::transform(estimators, std::back_inserter(layer.samples), sample);
        profile.layers.push_back(std::move(layer));
    };
    add("embedding", "embedding", embedding_parameters(model), &Estimator::embedding);
    for (int block = 0; block < model.blocks; ++block) {
        add(fmt::format("block{}.attention", block),
            "attention",
            attention_parameters(model),
            [block](const Estimator& estimator) { return estimator.attention(block); });
        add(fmt::format("block{}.feed_forward", block),
            "feed_forward",
            feed_forward_parameters(model, block),
            [block](const Estimator& estimator) { return estimator.feed_forward(block); });
    }
    add("head", "head", head_parameters(model), &Estimator::head);
    return profile;
}

namespace {

/// The mean times of a profile's layers of one kind; none: there is no such layer.
std::optional<CalibrationPoint> mean_of(const Profile& profile,
                                        std::string_view kind,
                                        int micro_batch_size) {
    CalibrationPoint mean{.kind = std::string(kind), .micro_batch_size = micro_batch_size};
    int layers = 0;
    for (const LayerCost& layer : profile.layers) {
        if (layer.kind == kind) {
            const LayerSample sample = cost_at(layer, micro_batch_size);
            mean.forward += sample.forward;
            mean.backward += sample.backward();
            ++layers;
        }
    }
    if (layers == 0) {
        return std::nullopt;
    }
    mean.forward /= layers;
    mean.backward /= layers;
    return mean;
}

/// Every kind of a profile, in the order of its layers.
std::vector<std::string> kinds_of(const Profile& profile) {
    std::vector<std::string> kinds;
    for (const LayerCost& layer : profile.layers) {
        if (!layer.kind.empty() && std::ranges::find(kinds, layer.kind) == kinds.end()) {
            kinds.push_back(layer.kind);
        }
    }
    return kinds;
}

double factor(Duration measured, Duration estimated, const std::string& what) {
    if (measured <= Duration{} || estimated <= Duration{}) {
        throw Error(ErrorKind::BadInput,
                    what,
                    fmt::format("measured {} ns, estimated {} ns, expected both above 0",
                                measured.count(),
                                estimated.count()),
                    "measure one layer of that kind, forward and backward");
    }
    return to_seconds(measured) / to_seconds(estimated);
}

}  // namespace

std::vector<CalibrationFactor> calibrate(Profile& profile,
                                         const std::vector<CalibrationPoint>& points,
                                         std::string_view place) {
    std::vector<CalibrationFactor> factors;
    for (const CalibrationPoint& point : points) {
        const std::string what = fmt::format("{}: kind '{}'", place, point.kind);
        const auto estimate = mean_of(profile, point.kind, point.micro_batch_size);
        if (!estimate) {
            throw Error(ErrorKind::BadInput,
                        what,
                        fmt::format("no layer of that kind, expected one of {}",
                                    fmt::join(kinds_of(profile), ", ")),
                        "leave the point out");
        }
        factors.push_back(
            {.kind = point.kind,
             .forward = factor(point.forward, estimate->forward, what + ", forward"),
             .backward = factor(point.backward, estimate->backward, what + ", backward")});
        for (LayerCost& layer : profile.layers) {
            if (layer.kind != point.kind) {
                continue;
            }
            for (LayerSample& sample : layer.samples) {
                sample.forward = scaled(sample.forward, factors.back().forward);
                sample.backward_input = scaled(sample.backward_input, factors.back().backward);
                sample.backward_weight = scaled(sample.backward_weight, factors.back().backward);
            }
        }
    }
    return factors;
}

std::vector<CalibrationPoint> points_of(const Profile& measured, int micro_batch_size) {
    std::vector<CalibrationPoint> points;
    for (const std::string& kind : kinds_of(measured)) {
        if (const auto point = mean_of(measured, kind, micro_batch_size)) {
            points.push_back(*point);
        }
    }
    return points;
}

}  // namespace pipetwin
