// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "core/costs/layer_division.h"
#include "core/costs/layer_estimator.h"
#include "core/costs/profile.h"

namespace pipetwin {

/// Bytes of a layer on one device, from the values in the model's precision and the rest in bytes.
struct LayerEstimator::LayerBytes {
    double saved_values = 0;
    double saved_bytes = 0;
    double whole_values = 0;  ///< saved by every device that shares the layer
    double whole_bytes = 0;
    double core_bytes = 0;      ///< saved by core attention
    double dropped_values = 0;  ///< saved, but not where operators are recomputed
    /// Saved values that the gradients of the weights need: inputs of products. Negative: all.
    double weight_values = -1;
    double workspace_values = 0;
    double split_values = 0;
    /// Part of `saved_values` (and of `whole_values`) that only products read: narrow ones may keep
    /// them narrow.
    double product_values = 0;
    double whole_product_values = 0;
    /// Saved values that a product and another kernel read: a narrow one may keep its own beside.
    double shared_values = 0;
    LayerTraffic traffic{};
    /// What single modules keep.
    struct Modules {
        std::array<double, recompute_module_words.size()> made{};
        std::array<double, recompute_module_words.size()> seconds{};  ///< of the forward
        std::array<double, offload_module_words.size()> inputs{};
    } modules{};

    LayerModules as_sample() const;
};

}  // namespace pipetwin
