// SPDX-License-Identifier: Apache-2.0
#include "core/costs/layer_work.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/costs/devices/number_type.h"

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

/// How much longer gradients of convolutions take than their forwards, in fp32 without matrix
/// units: medians of Baidu's DeepBench (results/train, P100 and Titan X (Pascal), convolutions of
/// 16 channels and more that make 3,000 pixels and more). The gradient of the weights is a small
/// matrix of long sums, which are split between multiprocessors and added: 1.43 for 99 of them.
/// That of the input is none longer, 1.00 for 76, but with a stride most products of a window are
/// with zeros: 2.27 for 23.
constexpr double weight_gradient = 1.4;
constexpr double strided_input_gradient = 2.3;

}  // namespace

LayerWork::LayerWork(const DeviceProfile& device, const EstimateOptions& options)
    : rates_(kernel_rates(device, options)),
      half_(rates_.kept),
      product_(rates_.products),
      efficiency_(options.efficiency),
      memory_rate_(device.memory_rate.value),
      memory_(rates_.memory),
      value_(static_cast<double>(bytes_per_value(options.precision))),
      gap_(rates_.gap),
      gap_of_block_(rates_.gap),
      recomputes_operators_(options.recomputes_operators()),
      eager_(options.kernels == BlockKernels::Eager),
      eager_norms_(eager_) {}

double LayerWork::efficiency_of(const Sizes& sizes, const MatrixRate& rate) const {
    return efficiency_.value_or(rate.of_sizes.at(sizes.rows, sizes.columns, sizes.inner));
}

/// Fits of narrow products are of 2,048 rows and more. Of fewer rows, down to 32, they take 0.64 to
/// 0.83 of their time in bf16 on H100, and 0.63 to 0.89 in MXFP8 and NVFP4 on GB200, with the cast
/// of the input (medians of ai-dynamo/aiconfigurator, gemm_perf of TensorRT-LLM 1.3.0rc20).
double LayerWork::reached(const Sizes& sizes) const {
    constexpr double gain_of_small = 1.25;
    const double own = product_.dense * efficiency_of(sizes, product_);
    const bool is_narrow = rates_.casts && product_.bytes < value_;
    return is_narrow ? std::max(own, gain_of_small * half_.dense * efficiency_of(sizes, half_))
                     : own;
}

/// All three have the same three sizes, each in another place.
void LayerWork::product(const Product& shape) {
    const auto& [rows, inputs, outputs, matrices, again, has_whole_input, has_sums, rank] = shape;
    const double operations = 2 * rows * inputs * outputs;
    const double weights = matrices * inputs * outputs;
    const bool is_grouped = matrices > 1 && rates_.stack;
    const double rate =
        is_grouped ? product_.dense * efficiency_.value_or(product_.of_sizes.large)
                   : reached({.rows = rows / matrices, .columns = outputs, .inner = inputs});
    const double once = product_.bytes * (rows * inputs + weights) + value_ * (rows * outputs);
    operations_ += operations;
    const double of_input = product_.bytes * (rows * outputs + weights) + value_ * (rows * inputs);
    const double of_weight =
        product_.bytes * (rows * inputs + rows * outputs) + rates_.gradient_bytes * (2 * weights);
    const auto add_pass = [&](Sum& sum, double bytes) {
        is_grouped
            ? add_grouped_product(
                  sum, {.matrices = matrices, .operations = operations, .bytes = bytes}, rate)
            : add_product(sum, operations, bytes, rate);
    };
    const auto add_passes = [&](Sum& forward, Sum& input, Sum& weight) {
        add_pass(forward, once);
        add_pass(input, of_input);
        if (!is_frozen_) {
            add_pass(weight, of_weight);
        }
    };
    add_passes(forward_, backward_input_, backward_weight_);
    if (has_whole_input) {
        add_passes(first_.forward, first_.input, first_.weight);
    }
    if (has_sums) {
        add_passes(last_.forward, last_.input, last_.weight);
    }
    accumulated_ += is_frozen_ ? 0 : weights;
    if (again > 0) {
        add_product(operators_, again * operations, again * once, rate);
    }
    if (product_.bytes < value_) {
        rates_.casts ? cast_as_stack(shape, *rates_.casts) : cast_operands(shape);
    }
    if (rank > 0) {
        adapt(shape);
    }
}

/// Two narrow products that are not in 8 bits, and the sum with the result; backward sums the two
/// gradients of the input.
void LayerWork::adapt(const Product& shape) {
    const bool was_frozen = std::exchange(is_frozen_, false);
    const MatrixRate of_products = std::exchange(product_, half_);
    product({.rows = shape.rows,
             .inputs = shape.inputs,
             .outputs = shape.adapter,
             .matrices = shape.matrices});
    product({.rows = shape.rows,
             .inputs = shape.adapter,
             .outputs = shape.outputs,
             .matrices = shape.matrices});
    product_ = of_products;
    is_frozen_ = was_frozen;
    pass(3 * shape.rows * shape.outputs, 3 * shape.rows * shape.inputs);
}

/// To 8 bits with one scale for each tensor, which is chosen by its largest number: a pass that
/// looks for it, and one that casts. What the backward casts again has its scale.
void LayerWork::cast_operands(const Product& shape) {
    const double with_scale = value_ + value_ + product_.bytes;
    const double alone = value_ + product_.bytes;
    const double inputs = shape.rows * shape.inputs;
    const double outputs = shape.rows * shape.outputs;
    const double weights = shape.matrices * shape.inputs * shape.outputs;
    cast(forward_, inputs + weights, with_scale);
    cast(backward_input_, outputs, with_scale);
    cast(backward_input_, weights, alone);
    if (!is_frozen_) {
        cast(backward_weight_, inputs + outputs, alone);  // the other way round in memory
    }
    if (shape.again > 0) {
        cast(operators_, shape.again * (inputs + weights), with_scale);
    }
}

void LayerWork::cast_as_stack(const Product& shape, const CastBytes& casts) {
    const double inputs = shape.rows * shape.inputs;
    const double weights = shape.matrices * shape.inputs * shape.outputs;
    const bool is_grouped = shape.matrices > 1;
    const double alone = is_grouped ? casts.grouped_bytes : 0;
    cast(forward_, inputs, casts.of_inputs + alone);
    cast(backward_input_, shape.rows * shape.outputs, casts.of_gradients + alone);
    if (is_grouped) {
        for (Sum* const sum : {&forward_, &backward_input_}) {
            sum->seconds += shape.matrices * casts.grouped_kernels * rates_.gap;
        }
    }
    if (shape.has_whole_input) {
        cast(whole_casts_, inputs, casts.of_inputs);
    }
    if (shape.again > 0) {
        cast(operators_, shape.again * inputs, casts.of_inputs);
    }
    Sum of_weights;
    cast(of_weights, weights, casts.of_weights);
    if (casts.once_a_step) {
        weight_cast_ += of_weights.seconds;
        weight_copies_ += rates_.weight_copy_bytes * shape.matrices * shape.inputs * shape.outputs;
    } else {
        forward_.seconds += of_weights.seconds;
        operators_.seconds += shape.again * of_weights.seconds;
        backward_input_.seconds += of_weights.seconds / 2;
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
    run(sum, shortest);
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

void LayerWork::sort_rows(double forward_values, double backward_values) {
    move(forward_, forward_values, memory_.rows);
    move(operators_, forward_values, memory_.rows);
    move(backward_input_, backward_values, memory_.rows);
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
                                   .forward_efficiency = memory_.copies,
                                   .backward_efficiency = memory_.copies,
                                   .forward_kernels = 8,
                                   .backward_kernels = 16}
                        : NormCost{.forward_efficiency = memory_.norms_forward,
                                   .backward_efficiency = memory_.norms_backward};
}

void LayerWork::norm(double rows, double width) {
    const NormCost cost = norm_cost();
    move(forward_, cost.forward * rows * width, cost.forward_efficiency);
    move(operators_, cost.forward * rows * width, cost.forward_efficiency);
    move(backward_input_, cost.backward * rows * width, cost.backward_efficiency);
    add_kernels(forward_, cost.forward_kernels - 1);
    add_kernels(backward_input_, cost.backward_kernels - 1);
}

/// In eager PyTorch a cast to fp32 (6 bytes for each number), a product of complex numbers (8), and
/// a cast back (6).
void LayerWork::rotation(double values) {
    constexpr double eager = 20;
    const double moved = eager_ ? eager / value_ : 2;
    pass(moved * values, moved * values);
    const int kernels = eager_ ? 6 : 1;  // of queries, and of keys
    add_kernels(forward_, kernels - 1);
    add_kernels(backward_input_, kernels - 1);
}

void LayerWork::whole_norm(double rows, double width) {
    const NormCost cost = norm_cost();
    norm(rows, width);
    move(whole_forward_, cost.forward * rows * width, cost.forward_efficiency);
    move(whole_backward_, cost.backward * rows * width, cost.backward_efficiency);
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
    const double forward = pairs * 2 * (shape.key_width + shape.value_width);
    const AttentionShares reached = rates_.attention(shape.key_width);
    const double work = tokens * shape.heads;
    const double beside = shape.beside > 0 ? shape.beside : shape.sequence;
    const double there = efficiency_.value_or(reached.forward.at(beside, work));
    const double back = efficiency_.value_or(reached.backward.at(beside, work));
    count_attention(shape);
    for (Sum* const sum : {&forward_, &core_forward_}) {
        add(*sum, forward, moved, there);
    }
    const double backward = pairs * (6 * shape.key_width + 4 * shape.value_width);
    for (Sum* const sum : {&backward_input_, &core_backward_}) {
        add(*sum, backward, 2 * moved, back);
    }
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
    for (Sum* const sum : {&backward_input_, &core_backward_}) {
        products(*sum, shape.key_width, 2);
        products(*sum, shape.value_width, 2);
        move(*sum, 3 * scores, memory_.copies);
        if (dropout) {
            move(*sum, dropped, memory_.copies);
        }
    }
}

void LayerWork::delta_rule(const LinearAttentionShape& shape, double tokens) {
    constexpr double chunk = 64;
    const double k = shape.key_width;
    const double v = shape.value_width;
    const double operations =
        tokens * shape.value_heads * 2 * (chunk * (3 * k + 2 * v) + 3 * k * v);
    const double decay = shape.decay_rank > 0 ? shape.key_heads * k : shape.value_heads;
    const double moved = tokens * (2.0 * shape.key_heads * k + 2.0 * shape.value_heads * v +
                                   shape.value_heads + decay);
    const double efficiency =
        efficiency_of({.rows = tokens, .columns = chunk, .inner = std::min(k, v)}, half_);
    operations_ += operations;
    add(forward_, operations, moved, efficiency);
    add(backward_input_, 2 * operations, 2 * moved, efficiency);
}

void LayerWork::state_space(const MambaShape& shape, double tokens) {
    const double chunk = shape.chunk;
    const double state = shape.state;
    const double inner = static_cast<double>(shape.heads) * shape.width;
    const double pairs = shape.groups * chunk * state;  // products of what reads and what writes
    const double writes = inner * state;
    const double operations = tokens * 2 * (pairs + inner * chunk + 2 * writes);
    const double again = tokens * 2 * (pairs + writes);
    const double of_states = 2 * (4 / value_) * writes / chunk;  // in fp32, written and read
    const double moved =
        tokens * (2 * inner + 2.0 * shape.groups * state + shape.heads + of_states);
    const double efficiency =
        efficiency_of({.rows = tokens,
                       .columns = chunk,
                       .inner = std::min(state, static_cast<double>(shape.width))},
                      half_);
    operations_ += operations;
    add(forward_, operations, moved, efficiency);
    add(backward_input_, 2 * operations + again, 2 * moved, efficiency);
}

void LayerWork::choose_keys(const IndexerShape& shape, double pairs, double tokens) {
    const double operations = pairs * shape.heads * 2 * shape.width;
    const double moved = tokens * (static_cast<double>(shape.heads) + 1) * shape.width;
    const double efficiency = efficiency_.value_or(rates_.attention(shape.width).forward.share);
    operations_ += operations;
    add(forward_, operations, moved, efficiency);
    add(backward_input_, 2 * operations, 2 * moved, efficiency);
}

void LayerWork::lookup(double rows, double width) {
    move(forward_, 2 * rows * width, memory_.copies);
    if (!is_frozen_) {
        move(backward_weight_, 3 * rows * width, memory_.copies);
    }
}

void LayerWork::sum_outputs(double outputs, double values) {
    pass((outputs + 1) * values, (outputs + 1) * values);
}

void LayerWork::join_outputs(double values) {
    pass(2 * values, 2 * values);
}

void LayerWork::loss(double logits, LossKernels kernels) {
    const auto of_bytes = [this, logits](double bytes) { return logits * bytes / value_; };
    if (rates_.loss) {
        pass(of_bytes(rates_.loss->forward), of_bytes(rates_.loss->backward));
        return;
    }
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
    // Nothing waits within a backward: its launches are spread as the time of its kernels is.
    const double waited = backward_input_.waited + backward_weight_.waited;
    const double backward = backward_input_.seconds + backward_weight_.seconds;
    const double of_input = waited > 0 ? waited * backward_input_.seconds / backward : 0;
    const auto launches = [](int kernels, double more) {
        return kernels + static_cast<int>(std::lround(more));
    };
    sample.forward_kernels = launches(forward_.kernels, forward_.waited);
    sample.backward_input_kernels = launches(backward_input_.kernels, of_input);
    sample.backward_weight_kernels = launches(backward_weight_.kernels, waited - of_input);
    const double tail = forward_.seconds - before_tail_.value_or(forward_.seconds);
    sample.tail_forward = Duration{whole_number(tail * 1e9)};
    sample.core_forward = recomputes_operators_ ? operators_.time() : core_forward_.time();
    sample.whole_forward = whole_forward_.time() + whole_casts_.time();
    sample.whole_backward = whole_backward_.time();
    if (rates_.stack) {
        sample.first_forward = first_.forward.time();
        sample.first_input = first_.input.time();
        sample.first_weight = first_.weight.time();
        sample.last_forward = last_.forward.time();
        sample.last_input = last_.input.time();
    }
    return sample;
}

void LayerWork::begin_block_of_experts() {
    if (!rates_.launches_graphs) {
        gap_ = gap_of_block_ = rates_.experts_gap.value_or(rates_.gap);
    }
}

void LayerWork::begin_experts(bool waits_for_rows) {
    gap_ = rates_.experts_gap.value_or(rates_.gap);
    waits_for_rows_ = waits_for_rows && rates_.launches_of_expert_kernel > 0;
}

void LayerWork::end_experts() {
    gap_ = gap_of_block_;
    waits_for_rows_ = false;
}

void LayerWork::add_launches(Sum& sum, int kernels) const {
    if (waits_for_rows_) {
        sum.waited += kernels * rates_.launches_of_expert_kernel;
    } else if (!rates_.launches_graphs) {
        sum.kernels += kernels;
    }
}

void LayerWork::run(Sum& sum, double seconds) const {
    sum.seconds += seconds + gap_;
    add_launches(sum, 1);
}

void LayerWork::add_kernels(Sum& sum, int kernels) const {
    sum.seconds += kernels * gap_;
    add_launches(sum, kernels);
}

void LayerWork::add(Sum& sum, double operations, double values, double efficiency) const {
    run(sum,
        std::max(operations / (half_.dense * efficiency),
                 values * value_ / (memory_rate_ * memory_.copies)));
}

void LayerWork::add_product(Sum& sum, double operations, double bytes, double reached) const {
    run(sum, std::max(operations / reached, bytes / (memory_rate_ * memory_.copies)));
}

/// Products of many small matrices, which caches do not keep for others' rows: 108 products of
/// B200, 20 to 256 matrices for 128 to 9,832 rows each, take as long as their operations and their
/// bytes one after the other, to 10 % in the median and without a bias (MooreThreads/SimuMax,
/// configs/system/b200_bf16_ceperm.json, group_matmul). The longer of both is 30 % too short.
void LayerWork::add_grouped_product(Sum& sum, const Group& group, double reached) const {
    run(sum, group.operations / reached + group.bytes / (memory_rate_ * memory_.copies));
    sum.waited += waits_for_rows_ ? group.matrices * rates_.launches_of_matrix : 0;
}

/// A cast is often part of the kernel before it: no gap of its own.
void LayerWork::cast(Sum& sum, double values, double bytes_of_value) const {
    const double share = rates_.casts ? rates_.casts->memory_share : memory_.copies;
    sum.seconds += values * bytes_of_value / (memory_rate_ * share);
    add_launches(sum, 1);
}

void LayerWork::move(Sum& sum, double values, double efficiency) const {
    run(sum, values * value_ / (memory_rate_ * efficiency));
}

}  // namespace pipetwin
