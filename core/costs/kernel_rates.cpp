// SPDX-License-Identifier: Apache-2.0
#include "core/costs/kernel_rates.h"

#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "core/costs/devices/number_type.h"
#include "core/costs/estimate.h"
#include "core/costs/layer_work.h"

namespace pipetwin {

namespace {

MatrixRate matrix_rate_of(const DeviceProfile& device,
                          const Stack* stack,
                          std::string_view precision) {
    MatrixRate rate{.dense = device.matrix_rates.find(rate_precision(precision))->second.value,
                    .of_sizes = matrix_efficiency(device, precision),
                    .bytes = product_bytes(precision)};
    if (stack != nullptr) {
        const std::optional<MatrixEfficiency> reached = stack->products_of(device.name, precision);
        PIPETWIN_EXPECT(reached, "the stack of an estimate has no products of the device");
        rate.of_sizes = *reached;
    }
    return rate;
}

/// What is assumed for all, else what the stack says, else what the device is known to reach.
MemoryEfficiency memory_efficiency(const DeviceProfile& device, const EstimateOptions& options) {
    if (const std::optional<double>& assumed = options.memory_efficiency) {
        return {.copies = *assumed,
                .activations = *assumed,
                .norms_forward = *assumed,
                .norms_backward = *assumed,
                .rows = *assumed};
    }
    if (options.stack) {
        const Stack::Passes& passes = options.stack->passes;
        return {.copies = passes.copies.value,
                .activations = passes.activations.value,
                .norms_forward = passes.norms_forward.value,
                .norms_backward = passes.norms_backward.value,
                .rows = passes.rows.value_or(passes.copies).value};
    }
    MemoryEfficiency efficiency;
    if (device.copy_efficiency) {
        efficiency.copies = efficiency.rows = device.copy_efficiency->value;
    }
    return efficiency;
}

/// Makes kernels as much slower as measured runs were, but for what the user assumes of them.
void correct(const MeasuredFactors& by, const EstimateOptions& options, KernelRates& rates) {
    rates.kept.of_sizes.large /= by.products;
    rates.products.of_sizes.large /= by.products;
    rates.attention_time = by.attention;
    if (!options.memory_efficiency) {
        for (double* const share : {&rates.memory.copies,
                                    &rates.memory.activations,
                                    &rates.memory.norms_forward,
                                    &rates.memory.norms_backward,
                                    &rates.memory.rows}) {
            *share /= by.passes;
        }
        if (rates.casts) {
            rates.casts->memory_share /= by.passes;
        }
    }
    rates.gap *= by.passes;
    if (rates.experts_gap) {
        *rates.experts_gap *= by.passes;
    }
}

void add_stack(const DeviceProfile& device, const EstimateOptions& options, KernelRates& rates) {
    const Stack& stack = *options.stack;
    if (const CastBytes* const casts = stack.casts_of(device.name, options.precision)) {
        rates.casts = *casts;
        rates.casts->memory_share = options.memory_efficiency.value_or(casts->memory_share);
    }
    if (has_narrow_products(options.precision)) {
        rates.weight_copy_bytes = rates.casts ? rates.casts->kept_of_weights : 0;
        if (stack.stored.inputs_in_8_bits.value) {
            rates.kept_input_bytes = product_bytes(options.precision);
        }
    }
    if (options.loss == stack.kernels.loss) {
        rates.loss = {.forward = stack.passes.loss_forward_bytes.value,
                      .backward = stack.passes.loss_backward_bytes.value};
    }
    rates.gap = std::chrono::duration<double>(stack.launch.gap.value).count();
    rates.launches_graphs = stack.launch.graphs;
    if (stack.launch.experts_gap) {
        rates.experts_gap = std::chrono::duration<double>(stack.launch.experts_gap->value).count();
    }
    if (stack.launch.expert_host && stack.launch.host.value > Duration{}) {
        const auto launches_in = [&stack](Duration time) {
            return static_cast<double>(time.count()) /
                   static_cast<double>(stack.launch.host.value.count());
        };
        const Stack::Launch::ExpertHost& host = stack.launch.expert_host->value;
        rates.launches_of_expert_kernel = launches_in(host.kernel);
        rates.launches_of_matrix = launches_in(host.matrix);
    }
    constexpr double fp32 = 4;
    rates.gradient_bytes = stack.stored.fp32_gradients ? fp32 : rates.gradient_bytes;
    rates.stack = options.stack;
    correct(stack.factors_of(rates.device->name, options.precision), options, rates);
}

}  // namespace

void take_stack(std::shared_ptr<const Stack> stack, EstimateOptions& options) {
    options.kernels = stack->kernels.blocks;
    options.loss = stack->kernels.loss;
    options.attention = stack->kernels.attention;
    options.stack = std::move(stack);
}

void NamedKernels::replace(EstimateOptions& options) const {
    options.kernels = blocks.value_or(options.kernels);
    options.loss = loss.value_or(options.loss);
    options.attention = attention.value_or(options.attention);
}

KernelRates kernel_rates(const DeviceProfile& device, const EstimateOptions& options) {
    const std::string_view kept = kept_precision(options.precision);
    KernelRates rates{.kept = matrix_rate_of(device, options.stack.get(), kept),
                      .products = matrix_rate_of(device, options.stack.get(), options.precision),
                      .memory = memory_efficiency(device, options),
                      .gradient_bytes = static_cast<double>(bytes_per_value(options.precision)),
                      .device = &device};
    if (options.stack) {
        add_stack(device, options, rates);
    }
    return rates;
}

AttentionShares KernelRates::attention(double head_size) const {
    const Stack::Attention* const row =
        stack ? stack->attention_of(device->name, head_size) : nullptr;
    if (row != nullptr) {
        AttentionShares shares = row->reached.value;
        shares.forward.share /= attention_time;
        shares.backward.share /= attention_time;
        return shares;
    }
    const AttentionEfficiency known = attention_efficiency(*device);
    return {.forward = {.share = known.forward, .half_sequence = known.half_sequence},
            .backward = {.share = known.backward, .half_sequence = known.half_sequence}};
}

}  // namespace pipetwin
