// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/costs/device_profile.h"
#include "core/costs/profile.h"
#include "core/model/decoder_model.h"

/// Costs of a model that has not been measured yet. Formulas: docs/devices.md.
namespace pipetwin {

/// How attention is computed.
enum class AttentionKernels {
    Flash,    ///< block by block: no score is written to memory
    Standard  ///< scores, softmax and dropout are kernels of their own, and keep what they make
};

/// What selective recompute does again (`LayerSample::core_forward`).
enum class SelectiveRecompute {
    Usual,         ///< core attention where it keeps scores, else single operators
    CoreAttention  ///< whatever the kernels of attention are: Megatron-LM
};

/// How the loss is computed from the logits.
enum class LossKernels {
    Fused,    ///< one kernel each way: the logits become their gradient in place
    Standard  ///< kernels of their own, as PyTorch's cross-entropy over logits in fp32 has them
};

/// Kernels between the products of a block, and what they keep.
enum class BlockKernels {
    Fused,     ///< one for each norm, rotation and activation, as training libraries have them
    Compiled,  ///< as Fused, and a compiler keeps nothing that no backward reads: torch.compile
    Eager      ///< PyTorch's operators one by one: norms and rotations pass through fp32
};

/// What kernels that do little but move values reach of a device's memory rate, as shares. Kernels
/// measured on A100 (microsoft/vidur, data/profiling/compute/a100): a sum with a residual 0.89, an
/// activation with its gate 0.50, a norm 0.33; fused norms of training libraries reach more.
struct MemoryEfficiency {
    double copies = 0.8;
    double activations = 0.5;
    double norms = 0.47;
};

/// Sizes, precision and efficiencies that an estimate assumes.
struct EstimateOptions {
    int sequence = 1;  ///< tokens per sample
    int micro_batch_size = 1;
    /// The device has a matrix rate for it. "fp8": products of blocks in 8 bits, and all else, with
    /// what is kept, in bf16.
    std::string precision = "bf16";
    /// What matrix products reach of the device's dense rate, all of them; none: as their sizes
    /// say (`matrix_efficiency`).
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

}  // namespace pipetwin
