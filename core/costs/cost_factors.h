// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/costs/profile.h"

namespace pipetwin {

/// Factors by which the costs of all layers, and of messages, are multiplied.
struct CostFactors {
    double compute = 1;   ///< of the times of layers
    double memory = 1;    ///< of what they hold beside their inputs, outputs and weights
    double messages = 1;  ///< of the times of all messages that follow from links
    double update = 1;    ///< of the optimizer's update

    bool operator==(const CostFactors&) const = default;
};

/// Returns the profile with the costs of all layers multiplied:
///
///     compute   forward and backward, and so what is computed again; not the optimizer's update,
///               and no launches of kernels
///     memory    what is kept from forward to backward without the layer's input, which other
///               layers made, scratch, and what waits for W; not outputs, inputs, weights
///     messages  `messages_inside` and `messages_between`; links stay as they are
///     update    the optimizer's update of each layer
///
/// Throws Error(BadInput) where a time becomes longer than a step may last.
Profile with_factors(const Profile& profile, const CostFactors& factors);

/// Costs with factors that `Profile::run_calibrations` keeps, too: costs of divided samples and
/// experts, which are estimated anew, take them from there (`divided_profile`). Throws as
/// `with_factors`.
Profile with_known_factors(const Profile& profile, const CostFactors& factors);

}  // namespace pipetwin
