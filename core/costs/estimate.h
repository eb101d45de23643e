#pragma once

#include <string>
#include <vector>

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
/// given one.
///
/// Each kernel takes max(operations / (rate * efficiency), bytes / (memory rate *
/// memory_efficiency)), a layer the sum of its kernels. What is kept for the backward: Korthikanti
/// et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4.1,
/// with FlashAttention in place of the stored scores. Source of the profile: estimated.
Profile estimated_profile(const DecoderModel& model,
                          const DeviceProfile& device,
                          const EstimateOptions& options);

/// A measured layer: all that is needed to correct the estimates of its kind.
struct CalibrationPoint {
    std::string kind{};
    int micro_batch_size = 1;
    Duration forward{};
    Duration backward{};

    bool operator==(const CalibrationPoint&) const = default;
};

/// Factors by which `calibrate` multiplied the times of a kind of layer.
struct CalibrationFactor {
    std::string kind{};
    double forward = 1;
    double backward = 1;
};

/// Multiplies the times of every layer of a point's kind, so that their mean at the point's
/// micro-batch size becomes the measured one; one point per kind. Throws Error(BadInput) at `place`
/// for a kind that no layer has, for a size that no sample is near, for a time of 0, and if a layer
/// without backward shall have one.
std::vector<CalibrationFactor> calibrate(Profile& profile,
                                         const std::vector<CalibrationPoint>& points,
                                         std::string_view place);

/// One point per kind of a measured profile: the mean over the layers of that kind at a micro-batch
/// size. Throws as `cost_at`.
std::vector<CalibrationPoint> points_of(const Profile& measured, int micro_batch_size);

}  // namespace pipetwin
