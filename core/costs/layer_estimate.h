// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/costs/devices/device_profile.h"
#include "core/costs/estimate.h"
#include "core/costs/profile.h"

/// What layers of an executable model cost that was never measured.
namespace pipetwin {

struct Layer;
class Model;

/// Operations of a layer's forward for one sample, as `LayerCost::operations` counts them: two for
/// each multiplication of a product with its addition, attention over all pairs of a query and a
/// key.
struct ForwardOperations {
    double all = 0;
    double masked = 0;  ///< part of `all`: half of causal core attention

    ForwardOperations& operator+=(const ForwardOperations& more) {
        all += more.all;
        masked += more.masked;
        return *this;
    }
};

/// Throws Error(BadInput) for a layer that is known by its costs only.
ForwardOperations forward_operations(const Layer& layer);

/// Times and kernels of the layer at `index` for one micro-batch of `samples` samples on a device:
/// each kernel takes what `LayerWork` says. `options.sequence` and `options.micro_batch_size` have
/// no meaning here. Bytes are not set. Throws as `forward_operations`.
LayerSample estimated_sample(const Model& model,
                             int index,
                             int samples,
                             const DeviceProfile& device,
                             const EstimateOptions& options);

/// Costs of all layers of an executable model on a device, but for their bytes beside those of the
/// parameters, at the micro-batch sizes of `sample_sizes`. Source of the profile: estimated. The
/// device has a matrix rate at the precision of the options.
Profile estimated_times(const Model& model,
                        const DeviceProfile& device,
                        const EstimateOptions& options);

}  // namespace pipetwin
