// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/costs/devices/device_profile.h"
#include "core/costs/devices/kernel_kinds.h"
#include "core/costs/devices/stack.h"

/// What the kernels of an estimate reach of a device's rates.
namespace pipetwin {

struct EstimateOptions;

/// What kernels that do little but move values reach of a device's memory rate, as shares. Kernels
/// measured on A100 (microsoft/vidur, data/profiling/compute/a100): a sum with a residual 0.89, an
/// activation with its gate 0.50, a norm 0.33; fused norms of training libraries reach more.
struct MemoryEfficiency {
    double copies = 0.8;
    double activations = 0.5;
    double norms_forward = 0.47;
    double norms_backward = 0.47;
    double rows = 0.8;  ///< of tokens, sorted by expert and back
};

/// Rate of the matrix units at one precision, and what products reach of it.
struct MatrixRate {
    double dense = 0;
    MatrixEfficiency of_sizes{};
    double bytes = 2;  ///< of a number that goes into a product
};

/// Bytes that the loss moves for each logit.
struct LossBytes {
    double forward = 0;
    double backward = 0;
};

/// Rates of the kernels of an estimate: those of its stack, or, without one, what the device is
/// known to reach. An efficiency of the options replaces them.
struct KernelRates {
    MatrixRate kept{};      ///< at the precision of all but products
    MatrixRate products{};  ///< of products of blocks
    MemoryEfficiency memory{};
    std::optional<CastBytes> casts{};  ///< none: two passes, every micro-batch (docs/devices.md)
    std::optional<LossBytes> loss{};   ///< none: as the kind of its kernels says
    double gap = 0;                    ///< seconds between a kernel and the next
    double gradient_bytes = 2;         ///< of a weight's gradient, as products add it up
    double weight_copy_bytes = 0;      ///< of a weight of narrow products, cast once a step
    /// Bytes of a number that a narrow product keeps of its input until its backward; none: as much
    /// as all else.
    std::optional<double> kept_input_bytes{};
    bool launches_graphs = false;         ///< one launch for all kernels of an action
    std::optional<double> experts_gap{};  ///< behind those of experts; none: as all others
    /// Launches of a kernel of experts, and of a matrix of their grouped products, behind rows that
    /// the host waits for; each as long as that of another kernel. 0 kernels: as all others.
    double launches_of_expert_kernel = 0;
    double launches_of_matrix = 0;
    /// What says how fast attention is; null: `attention_efficiency` of the device.
    std::shared_ptr<const Stack> stack{};
    double attention_time = 1;  ///< of fused attention, times what the stack says
    const DeviceProfile* device = nullptr;

    /// What fused attention with heads of that size reaches.
    AttentionShares attention(double head_size) const;
};

/// Estimates with a stack, and with its kinds of kernels.
void take_stack(std::shared_ptr<const Stack> stack, EstimateOptions& options);

/// Kinds of kernels that a user names: they stand in place of the stack's.
struct NamedKernels {
    std::optional<BlockKernels> blocks{};
    std::optional<LossKernels> loss{};
    std::optional<AttentionKernels> attention{};

    /// Sets those that are named.
    void replace(EstimateOptions& options) const;
};

/// The rates of an estimate; `device` must outlive them. Its matrix rates, and products of the
/// stack, are there in the precision of the options.
KernelRates kernel_rates(const DeviceProfile& device, const EstimateOptions& options);

}  // namespace pipetwin
