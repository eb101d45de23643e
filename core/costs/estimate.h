// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/costs/devices/device_profile.h"
#include "core/costs/devices/kernel_kinds.h"
#include "core/costs/layer_division.h"
#include "core/costs/profile.h"
#include "core/model/decoder_model.h"

/// Costs of a model that has not been measured yet. Formulas: docs/devices.md.
namespace pipetwin {

struct Stack;

/// What selective recompute does again (`LayerSample::core_forward`).
enum class SelectiveRecompute {
    Usual,         ///< core attention where it keeps scores, else single operators
    CoreAttention  ///< whatever the kernels of attention are: Megatron-LM
};

/// Sizes, precision and efficiencies that an estimate assumes.
struct EstimateOptions {
    int sequence = 1;  ///< tokens per sample
    int micro_batch_size = 1;
    /// The device has a matrix rate for it, and the stack has products. Where products are narrow
    /// (`has_narrow_products`), all else, with what is kept, is in bf16; all but "fp8" need a
    /// stack.
    std::string precision = "bf16";
    /// What kernels reach; null: what devices reach that were measured (`kernel_rates`). Its kinds
    /// of kernels are those of the options, where the caller takes them from it.
    std::shared_ptr<const Stack> stack{};
    /// What matrix products reach of the device's dense rate, all of them; none: as their sizes
    /// say (`kernel_rates`).
    std::optional<double> efficiency{};
    /// What everything else reaches of its memory rate, all of it; none: `MemoryEfficiency`.
    std::optional<double> memory_efficiency{};
    AttentionKernels attention = AttentionKernels::Flash;
    LossKernels loss = LossKernels::Fused;
    SelectiveRecompute selective = SelectiveRecompute::Usual;
    BlockKernels kernels = BlockKernels::Fused;

    /// Whether selective recompute is of single operators.
    bool recomputes_operators() const {
        return attention == AttentionKernels::Flash && selective == SelectiveRecompute::Usual;
    }

    int most_devices =
        1;  ///< costs are estimated for 2, 4, ... devices to a layer, too, up to that

    bool operator==(const EstimateOptions&) const = default;
};

/// 1, 2, 4, ... up to 32 or twice the given size, and that itself.
std::vector<int> sample_sizes(int micro_batch_size);

/// AdamW with state in fp32: 28 bytes per parameter go over the memory, whether the weights are
/// fp32 (reads weight, gradient and two moments, writes all but the gradient) or half as wide with
/// fp32 copies (two bytes of gradient, two of weight, eight of each copy and moment).
Duration adamw_time(std::int64_t parameters,
                    const DeviceProfile& device,
                    const EstimateOptions& options);

/// Costs of a model's layers on a device: "embedding", "block0.attention", "block0.feed_forward",
/// ..., "head", at the micro-batch sizes 1, 2, 4, ... up to 32 or twice the given one, and at the
/// given one. Blocks that predict further tokens stand in front of the head: "mtp0", ... An encoder
/// stands behind the embedding: "encoder0.attention", ..., "encoder_norm", which every attention of
/// the decoder reads, and "decoder_embedding", with the bytes of the shared table, as its rank may
/// be another. Where head and embedding share a table, or predicting blocks need it,
/// `tied_bytes` says so.
///
/// Each kernel takes max(operations / (rate * efficiency), bytes / (memory rate *
/// memory efficiency)), a layer the sum of its kernels. What is kept for the backward: Korthikanti
/// et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4.1,
/// with FlashAttention in place of the stored scores unless they are asked for. Several devices
/// share a layer as in section 4.2: each has its heads, and its part of the inner width and of the
/// vocabulary; norms, residuals and what they keep are whole. Source of the profile: estimated.
///
/// What selective recompute does again (`core_forward`, `core_saved`): standard core attention;
/// with FlashAttention, which keeps no scores, what PyTorch's selective checkpointing of operators
/// does (torchtitan, "op"): results of attention and of every second product are kept, counted from
/// the queries' on, and all else is computed again.
Profile estimated_profile(const DecoderModel& model,
                          const DeviceProfile& device,
                          const EstimateOptions& options);

/// Costs of a model's layers on one device of a division, in `LayerCost::samples`, or, where
/// several share a layer, in `LayerCost::shared`. What it sends to others is in its samples
/// (`LayerSample::traffic`). With experts that devices share tokens have to be divided between
/// layers, too
/// (`LayerDivision::sequence_parallel`).
Profile estimated_profile(const DecoderModel& model,
                          const DeviceProfile& device,
                          const EstimateOptions& options,
                          const LayerDivision& division);

}  // namespace pipetwin
