#include "core/costs/layer_work.h"

#include <algorithm>
#include <cmath>

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

LayerWork::LayerWork(const DeviceProfile& device, const EstimateOptions& options)
    : rate_(device.matrix_rates.at(options.precision).value * options.efficiency),
      memory_rate_(device.memory_rate.value * options.memory_efficiency),
      value_(static_cast<double>(bytes_per_value(options.precision))) {}

void LayerWork::product(double rows, double inputs, double outputs, double matrices) {
    const double operations = 2 * rows * inputs * outputs;
    const double weights = matrices * inputs * outputs;
    const double once = rows * inputs + weights + rows * outputs;
    add(forward_, operations, once);
    add(backward_input_, operations, once);
    add(backward_weight_, operations, once + weights);
}

void LayerWork::pass(double forward_values, double backward_values) {
    add(forward_, 0, forward_values);
    add(backward_input_, 0, backward_values);
}

void LayerWork::norm(double rows, double width) {
    pass(2 * rows * width, 3 * rows * width);
}

void LayerWork::attention(const AttentionShape& shape, double pairs, double tokens) {
    const double heads = shape.heads;
    const double queries = tokens * heads * shape.key_width;
    const double outputs = tokens * heads * shape.value_width;
    const double keys_and_values =
        tokens * shape.key_value_heads * (shape.key_width + shape.value_width);
    const double moved = queries + keys_and_values + outputs;
    add(forward_, pairs * heads * 2 * (shape.key_width + shape.value_width), moved);
    add(backward_input_, pairs * heads * (6 * shape.key_width + 4 * shape.value_width), 2 * moved);
}

void LayerWork::delta_rule(const LinearAttentionShape& shape, double tokens) {
    constexpr double chunk = 64;
    const double k = shape.key_width;
    const double v = shape.value_width;
    const double operations =
        tokens * shape.value_heads * 2 * (chunk * (3 * k + 2 * v) + 3 * k * v);
    const double moved =
        tokens * (2.0 * shape.key_heads * k + 2.0 * shape.value_heads * v + 2 * shape.value_heads);
    add(forward_, operations, moved);
    add(backward_input_, 2 * operations, 2 * moved);
}

void LayerWork::choose_keys(const IndexerShape& shape, double pairs, double tokens) {
    const double operations = pairs * shape.heads * 2 * shape.width;
    const double moved = tokens * (static_cast<double>(shape.heads) + 1) * shape.width;
    add(forward_, operations, moved);
    add(backward_input_, 2 * operations, 2 * moved);
}

void LayerWork::lookup(double rows, double width) {
    add(forward_, 0, 2 * rows * width);
    add(backward_weight_, 0, 3 * rows * width);
}

void LayerWork::loss(double logits) {
    const double values = logits * (value_ + 4) / value_;
    pass(values, values);
}

LayerSample LayerWork::sample() const {
    LayerSample sample;
    sample.forward = forward_.time();
    sample.backward_input = backward_input_.time();
    sample.backward_weight = backward_weight_.time();
    sample.forward_kernels = forward_.kernels;
    sample.backward_input_kernels = backward_input_.kernels;
    sample.backward_weight_kernels = backward_weight_.kernels;
    return sample;
}

void LayerWork::add(Sum& sum, double operations, double values) const {
    sum.seconds += std::max(operations / rate_, values * value_ / memory_rate_);
    sum.kernels += 1;
}

}  // namespace pipetwin
