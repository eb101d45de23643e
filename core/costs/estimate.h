#pragma once

#include <string>

#include "core/costs/device_profile.h"
#include "core/costs/profile.h"
#include "core/model/decoder_model.h"

/// Costs of a model that has not been measured yet. Formulas: docs/devices.md.
namespace pipetwin {

/// Sizes, precision and efficiencies that an estimate assumes.
struct EstimateOptions {
    int sequence = 1;  ///< tokens per sample
    int micro_batch_size = 1;
    std::string precision = "bf16";  ///< the device has a matrix rate for it
    double efficiency = 0.5;         ///< what matrix products reach of the device's dense rate
    double memory_efficiency = 0.8;  ///< what everything else reaches of its memory rate
};

/// Costs of a model's layers on a device: "embedding", "block0.attention", "block0.feed_forward",
/// ..., "head", at the micro-batch sizes 1, 2, 4, ... up to 32 or twice the given one, and at the
/// given one. Blocks that predict further tokens stand in front of the head: "mtp0", ... An encoder
/// stands behind the embedding: "encoder0.attention", ..., "encoder_norm", which every attention of
/// the decoder reads, and "decoder_embedding", with the bytes of the shared table, as its rank may
/// be another. Where head and embedding share a table, or predicting blocks need it,
/// `tied_bytes` says so.
///
/// Each kernel takes max(operations / (rate * efficiency), bytes / (memory rate *
/// memory_efficiency)), a layer the sum of its kernels. What is kept for the backward: Korthikanti
/// et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4.1,
/// with FlashAttention in place of the stored scores. Source of the profile: estimated.
Profile estimated_profile(const DecoderModel& model,
                          const DeviceProfile& device,
                          const EstimateOptions& options);

}  // namespace pipetwin
