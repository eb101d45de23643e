// SPDX-License-Identifier: Apache-2.0
#include "core/costs/layer_work.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pipetwin {

namespace {

/// No time or size of a profile is above 2^53; what is, is refused by its check.
constexpr double beyond_profiles = 18014398509481984.0;  // 2^54

}  // namespace

std::int64_t whole_number(double value) {
    return std::llround(std::min(value, beyond_profiles));
}

std::int64_t bytes_per_value(std::string_view precision) {
    return precision == "fp32" ? 4 : 2;
}

double causal_pairs(int window, double sequence) {
    const double seen = window > 0 ? std::min<double>(window, sequence) : sequence;
    return seen * (seen + 1) / 2 + (sequence - seen) * seen;
}

namespace {

/// Operations of the products of all queries with so many keys, and with their values.
double attention_operations(const LayerWork::Attention& shape, double keys) {
    return 2 * shape.samples * shape.sequence * keys * shape.heads *
           (shape.key_width + shape.value_width);
}

/// What is assumed for all, else what the device is known to reach.
MemoryEfficiency memory_efficiency(const DeviceProfile& device, std::optional<double> assumed) {
    if (assumed) {
        return {.copies = *assumed, .activations = *assumed, .norms = *assumed};
    }
    MemoryEfficiency efficiency;
    if (device.copy_efficiency) {
        efficiency.copies = device.copy_efficiency->value;
    }
    return efficiency;
}

/// How much longer gradients of convolutions take than their forwards, in fp32 without matrix
/// units: medians of Baidu's DeepBench (results/train, P100 and Titan X (Pascal), convolutions of
/// 16 channels and more that make 3,000 pixels and more). The gradient of the weights is a small
/// matrix of long sums, which are split between multiprocessors and added: 1.43 for 99 of them.
/// That of the input is none longer, 1.00 for 76, but with a stride most products of a window are
/// with zeros: 2.27 for 23.
constexpr double weight_gradient = 1.4;
constexpr double strided_input_gradient = 2.3;

/// The precision of all but products.
std::string_view kept_precision(std::string_view precision) {
    return precision == "fp8" ? "bf16" : precision;
}

}  // namespace

LayerWork::LayerWork(const DeviceProfile& device, const EstimateOptions& options)
    : half_{.dense = device.matrix_rates.find(kept_precision(options.precision))->second.value,
            .of_sizes = matrix_efficiency(device, kept_precision(options.precision)),
            .bytes = static_cast<double>(bytes_per_value(options.precision))},
      product_{.dense = device.matrix_rates.at(options.precision).value,
               .of_sizes = matrix_efficiency(device, options.precision),
               .bytes = options.precision == "fp8" ? 1 : half_.bytes},
      efficiency_(options.efficiency),
      of_attention_(attention_efficiency(device)),
      memory_rate_(device.memory_rate.value),
      memory_(memory_efficiency(device, options.memory_efficiency)),
      value_(static_cast<double>(bytes_per_value(options.precision))),
      recomputes_operators_(options.recomputes_operators()),
      eager_(options.kernels == BlockKernels::Eager),
      eager_norms_(eager_) {}

double LayerWork::efficiency_of(const Sizes& sizes, const MatrixRate& rate) const {
    return efficiency_.value_or(rate.of_sizes.at(sizes.rows, sizes.columns, sizes.inner));
}

/// All three have the same three sizes, each in another place.
void LayerWork::product(double rows, double inputs, double outputs, double matrices, double again) {
    const double operations = 2 * rows * inputs * outputs;
    const double weights = matrices * inputs * outputs;
    const double efficiency =
        efficiency_of({.rows = rows / matrices, .columns = outputs, .inner = inputs}, product_);
    const auto bytes = [this](double read, double written) {
        return product_.bytes * read + value_ * written;
    };
    const double once = bytes(rows * inputs + weights, rows * outputs);
    operations_ += operations;
    add_product(forward_, operations, once, efficiency);
    add_product(
        backward_input_, operations, bytes(rows * outputs + weights, rows * inputs), efficiency);
    add_product(backward_weight_,
                operations,
                bytes(rows * inputs + rows * outputs, 2 * weights),
                efficiency);
    accumulated_ += weights;
    if (again > 0) {
        add_product(operators_, again * operations, again * once, efficiency);
    }
    if (product_.bytes < value_) {
        cast_operands(rows, inputs, outputs, weights, again);
    }
}

/// To 8 bits with one scale for each tensor, which is chosen by its largest number: a pass that
/// looks for it, and one that casts. What the backward casts again has its scale.
void LayerWork::cast_operands(
    double rows, double inputs, double outputs, double weights, double again) {
    const double with_scale = value_ + value_ + product_.bytes;
    const double alone = value_ + product_.bytes;
    cast(forward_, rows * inputs + weights, with_scale);
    cast(backward_input_, rows * outputs, with_scale);
    cast(backward_input_, weights, alone);
    cast(backward_weight_, rows * inputs + rows * outputs, alone);  // the other way round in memory
    if (again > 0) {
        cast(operators_, again * (rows * inputs + weights), with_scale);
    }
}

void LayerWork::convolution(const Convolution& shape) {
    const double inner = shape.window * shape.channels / shape.groups;
    const double operations = 2 * shape.pixels * inner * shape.outputs;
    const double weights = inner * shape.outputs;
    // A stride beyond the window leaves pixels out.
    const double read = std::min(shape.pixels_read, shape.pixels * shape.window) * shape.channels;
    const double written = shape.pixels * shape.outputs;
    operations_ += operations;
    accumulated_ += weights;
    if (shape.groups > 1 && shape.groups == shape.channels) {
        pass(read + written, written + shape.pixels_read * shape.channels);
        move(backward_weight_, read + written, memory_.copies);
        return;
    }
    const double efficiency = efficiency_of(
        {.rows = shape.pixels, .columns = shape.outputs / shape.groups, .inner = inner}, half_);
    constexpr double fp32_bytes = 4;
    const bool fp32 = half_.bytes == fp32_bytes;
    const double of_input = fp32 && shape.strided ? strided_input_gradient : 1;
    const double of_weights = fp32 ? weight_gradient : 1;
    const ConvolutionPass pass{.operations = operations,
                               .weights = weights,
                               .efficiency = efficiency,
                               .saves_products = fp32 && shape.saves_products};
    add(forward_, pass, 1, read + written);
    add(backward_input_, pass, of_input, written + shape.pixels_read * shape.channels);
    add(backward_weight_, pass, of_weights, read + written + weights);
}

/// The library takes the faster of two kernels. The one that saves products makes 16 numbers of
/// each 9 weights first, which are then read in their place.
void LayerWork::add(Sum& sum, const ConvolutionPass& pass, double effort, double values) const {
    const auto seconds = [&](double operations, double moved) {
        return std::max(operations / (half_.dense * pass.efficiency),
                        moved * value_ / (memory_rate_ * memory_.copies));
    };
    const double operations = effort * pass.operations;
    double shortest = seconds(operations, values + pass.weights);
    if (pass.saves_products) {
        constexpr double saved = 16.0 / 36;
        const double made = pass.weights * 16 / 9;
        shortest = std::min(
            shortest, seconds(0, pass.weights + made) + seconds(saved * operations, values + made));
    }
    sum.seconds += shortest;
    sum.kernels += 1;
}

void LayerWork::pool(const Pool& shape) {
    const double moved = std::max(shape.read, shape.written * shape.window) + shape.written;
    pass(moved, moved);
}

void LayerWork::half_product(double rows, double inputs, double outputs) {
    const MatrixRate of_products = std::exchange(product_, half_);
    product(rows, inputs, outputs);
    product_ = of_products;
}

void LayerWork::pass(double forward_values, double backward_values) {
    move(forward_, forward_values, memory_.copies);
    move(operators_, forward_values, memory_.copies);
    move(backward_input_, backward_values, memory_.copies);
}

void LayerWork::activation(double forward_values, double backward_values) {
    move(forward_, forward_values, memory_.activations);
    move(operators_, forward_values, memory_.activations);
    move(backward_input_, backward_values, memory_.activations);
}

void LayerWork::whole_pass(double forward_values, double backward_values) {
    pass(forward_values, backward_values);
    move(whole_forward_, forward_values, memory_.copies);
    move(whole_backward_, backward_values, memory_.copies);
}

/// RMSNorm in eager PyTorch, bytes for each number: a cast to fp32 (6), the square (8), its mean
/// (4), the product with the root (8), a cast back (6) and the product with the weight (4).
/// Backward likewise: weight (4 + 8), cast (6), product and root (8 + 16), squares and sums (24 +
/// 12 + 12), the mean's share (8), cast (6).
LayerWork::NormCost LayerWork::norm_cost() const {
    constexpr double eager_forward = 36;
    constexpr double eager_backward = 104;
    return eager_norms_ ? NormCost{.forward = eager_forward / value_,
                                   .backward = eager_backward / value_,
                                   .efficiency = memory_.copies,
                                   .forward_kernels = 8,
                                   .backward_kernels = 16}
                        : NormCost{.efficiency = memory_.norms};
}

void LayerWork::norm(double rows, double width) {
    const NormCost cost = norm_cost();
    move(forward_, cost.forward * rows * width, cost.efficiency);
    move(operators_, cost.forward * rows * width, cost.efficiency);
    move(backward_input_, cost.backward * rows * width, cost.efficiency);
    forward_.kernels += cost.forward_kernels - 1;
    backward_input_.kernels += cost.backward_kernels - 1;
}

/// In eager PyTorch a cast to fp32 (6 bytes for each number), a product of complex numbers (8), and
/// a cast back (6).
void LayerWork::rotation(double values) {
    constexpr double eager = 20;
    const double moved = eager_ ? eager / value_ : 2;
    pass(moved * values, moved * values);
    const int kernels = eager_ ? 6 : 1;  // of queries, and of keys
    forward_.kernels += kernels - 1;
    backward_input_.kernels += kernels - 1;
}

void LayerWork::whole_norm(double rows, double width) {
    const NormCost cost = norm_cost();
    norm(rows, width);
    move(whole_forward_, cost.forward * rows * width, cost.efficiency);
    move(whole_backward_, cost.backward * rows * width, cost.efficiency);
}

void LayerWork::count_attention(const Attention& shape) {
    const double keys =
        shape.window > 0 ? std::min(shape.window, shape.sequence) : shape.key_count();
    const double operations = attention_operations(shape, keys);
    operations_ += operations;
    if (shape.seen < keys) {
        masked_operations_ +=
            operations - attention_operations(shape, std::min(keys, shape.sequence / 2));
    }
}

void LayerWork::flash_attention(const Attention& shape) {
    const double tokens = shape.samples * shape.sequence;
    const double queries = tokens * shape.heads * shape.key_width;
    const double outputs = tokens * shape.heads * shape.value_width;
    const double keys_and_values = shape.samples * shape.key_count() * shape.key_value_heads *
                                   (shape.key_width + shape.value_width);
    const double moved = queries + keys_and_values + outputs;
    const double pairs = tokens * shape.seen * shape.heads;
    const double part = shape.sequence / (shape.sequence + of_attention_.half_sequence);
    const double forward = pairs * 2 * (shape.key_width + shape.value_width);
    const double there = efficiency_.value_or(of_attention_.forward * part);
    const double back = efficiency_.value_or(of_attention_.backward * part);
    count_attention(shape);
    add(forward_, forward, moved, there);
    add(core_forward_, forward, moved, there);
    add(backward_input_, pairs * (6 * shape.key_width + 4 * shape.value_width), 2 * moved, back);
}

void LayerWork::standard_attention(const Attention& shape, bool dropout) {
    const double s = shape.sequence;
    const double keys = shape.key_count();
    const double matrices = shape.samples * shape.heads;
    const double scores = matrices * s * keys;
    const auto products = [&](Sum& sum, double width, int count) {
        const double efficiency =
            efficiency_of({.rows = s, .columns = keys, .inner = width}, half_);
        for (int i = 0; i < count; ++i) {
            add(sum, 2 * scores * width, scores + matrices * (s + keys) * width, efficiency);
        }
    };
    count_attention(shape);
    const double softmax = 2 * scores;                                  // reads and writes them
    const double dropped = dropout ? 2 * scores + scores / value_ : 0;  // and a byte of mask each
    for (Sum* const sum : {&forward_, &core_forward_}) {
        products(*sum, shape.key_width, 1);
        products(*sum, shape.value_width, 1);
        move(*sum, softmax, memory_.copies);
        if (dropout) {
            move(*sum, dropped, memory_.copies);
        }
    }
    products(backward_input_, shape.key_width, 2);
    products(backward_input_, shape.value_width, 2);
    move(backward_input_, 3 * scores, memory_.copies);
    if (dropout) {
        move(backward_input_, dropped, memory_.copies);
    }
}

void LayerWork::delta_rule(const LinearAttentionShape& shape, double tokens) {
    constexpr double chunk = 64;
    const double k = shape.key_width;
    const double v = shape.value_width;
    const double operations =
        tokens * shape.value_heads * 2 * (chunk * (3 * k + 2 * v) + 3 * k * v);
    const double moved =
        tokens * (2.0 * shape.key_heads * k + 2.0 * shape.value_heads * v + 2 * shape.value_heads);
    const double efficiency =
        efficiency_of({.rows = tokens, .columns = chunk, .inner = std::min(k, v)}, half_);
    operations_ += operations;
    add(forward_, operations, moved, efficiency);
    add(backward_input_, 2 * operations, 2 * moved, efficiency);
}

void LayerWork::choose_keys(const IndexerShape& shape, double pairs, double tokens) {
    const double operations = pairs * shape.heads * 2 * shape.width;
    const double moved = tokens * (static_cast<double>(shape.heads) + 1) * shape.width;
    const double efficiency = efficiency_.value_or(of_attention_.forward);
    operations_ += operations;
    add(forward_, operations, moved, efficiency);
    add(backward_input_, 2 * operations, 2 * moved, efficiency);
}

void LayerWork::lookup(double rows, double width) {
    move(forward_, 2 * rows * width, memory_.copies);
    move(backward_weight_, 3 * rows * width, memory_.copies);
}

void LayerWork::sum_outputs(double outputs, double values) {
    pass((outputs + 1) * values, (outputs + 1) * values);
}

void LayerWork::join_outputs(double values) {
    pass(2 * values, 2 * values);
}

void LayerWork::loss(double logits, LossKernels kernels) {
    const auto of_bytes = [this, logits](double bytes) { return logits * bytes / value_; };
    if (kernels == LossKernels::Fused) {
        pass(of_bytes(value_ + 4), of_bytes(value_ + 4));
        return;
    }
    pass(of_bytes(value_ + 4), of_bytes(value_ + 4));  // to fp32, and the gradient back
    pass(of_bytes(4 + 4), of_bytes(4 + 4 + 4));        // log-softmax
    pass(0, of_bytes(4));                              // the gradient of the chosen values
}

LayerSample LayerWork::sample() const {
    LayerSample sample;
    sample.forward = forward_.time();
    sample.backward_input = backward_input_.time();
    sample.backward_weight = backward_weight_.time();
    constexpr double bytes_per_weight = 8;  // as LayerSample::accumulation says
    sample.accumulation = Duration{
        whole_number(1e9 * bytes_per_weight * accumulated_ / (memory_rate_ * memory_.copies))};
    sample.forward_kernels = forward_.kernels;
    sample.backward_input_kernels = backward_input_.kernels;
    sample.backward_weight_kernels = backward_weight_.kernels;
    const double tail = forward_.seconds - before_tail_.value_or(forward_.seconds);
    sample.tail_forward = Duration{whole_number(tail * 1e9)};
    sample.core_forward = recomputes_operators_ ? operators_.time() : core_forward_.time();
    sample.whole_forward = whole_forward_.time();
    sample.whole_backward = whole_backward_.time();
    return sample;
}

void LayerWork::add(Sum& sum, double operations, double values, double efficiency) const {
    sum.seconds += std::max(operations / (half_.dense * efficiency),
                            values * value_ / (memory_rate_ * memory_.copies));
    sum.kernels += 1;
}

void LayerWork::add_product(Sum& sum, double operations, double bytes, double efficiency) const {
    sum.seconds += std::max(operations / (product_.dense * efficiency),
                            bytes / (memory_rate_ * memory_.copies));
    sum.kernels += 1;
}

void LayerWork::cast(Sum& sum, double values, double bytes_of_value) const {
    sum.seconds += values * bytes_of_value / (memory_rate_ * memory_.copies);
    sum.kernels += 1;
}

void LayerWork::move(Sum& sum, double values, double efficiency) const {
    sum.seconds += values * value_ / (memory_rate_ * efficiency);
    sum.kernels += 1;
}

}  // namespace pipetwin
