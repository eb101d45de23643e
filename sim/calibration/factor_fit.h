// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/costs/devices/stack.h"

/// Factors on the times of kernels and messages, from measured runs of any models and layouts.
namespace pipetwin::sim {

/// How much of a step is of each kind: d ln step / d ln time of all that is of the kind.
struct StepShares {
    double products = 0;
    double attention = 0;
    double passes = 0;
    double inside = 0;
    double between = 0;

    double kernels() const { return products + attention + passes; }
};

/// A measured run as the fit sees it.
struct FittedRun {
    std::string model{};   ///< runs of one model have an error in common
    std::string layout{};  ///< of the model; the same
    std::string precision{};
    StepShares shares{};
    double log_ratio = 0;  ///< ln of measured over predicted step
};

/// The factors of a precision that follow from runs on one device, at least one, by the best linear
/// prediction whose weights are not negative: no factor falls where the step of a run grows. A kind
/// that the runs have little of keeps about what is common, and kinds that they do not tell apart
/// move together.
///
///     ln(measured / predicted) = shares * ln(factors) + errors of model, layout and run
///     ln(factors of kernels) = common + of their kind (+ of the precision, for products)
///
/// The weights of a kind of kernels are then made larger by one number, so that runs whose kernels
/// all take x times as long give x: one run is predicted by itself. The standard deviations that it
/// expects: 15 % for what is common, 10 % for products (half of the square for their precision), 15
/// % for attention and passes, 20 % for messages; errors of 4 % of a model, 4 % of a layout and 3 %
/// of a run, which are those of 66 published runs with stacks (docs/internals/stacks-design.md). Of
/// three runs or more those that are more than 5 % above or below all others but a fifth (at least
/// one) count as if they were 5 % off these.
///
/// Monotone: a bound that a run is cut off at is an order statistic of the logarithms, which never
/// falls as one of them grows; so do the cut ones, and their sums with weights that are not
/// negative and do not depend on them.
MeasuredFactors fitted_factors(const std::vector<FittedRun>& runs, std::string_view precision);

}  // namespace pipetwin::sim
