// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/device/tensor.h"

namespace pipetwin::exec {

/// Part of each row's softmax that an attention keeps from forward to backward.
enum class SoftmaxKept {
    Probabilities,  ///< all of them: positions numbers a row
    LogSums,        ///< log(sum exp) of the row, from which its backward finds them again
};

/// Format in which a device keeps the numbers of a model. It decides how many bytes a layer takes.
struct NumberFormat {
    DType real = DType::F32;  ///< of activations, and of the weights that products read
    SoftmaxKept softmax = SoftmaxKept::Probabilities;

    NumberFormat() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): a type alone is the format of the CPU
    NumberFormat(DType type) : real(type) {}

    /// Type of what is summed over many numbers or steps: statistics, gradients of weights, the
    /// optimizer's state. Half precision is too coarse for it (Micikevicius et al., arXiv
    /// 1710.03740, section 3).
    DType exact() const { return real == DType::BF16 ? DType::F32 : real; }

    /// Whether the optimizer updates a copy of the weights in `exact`, from which `real` is
    /// rounded.
    bool has_master_weights() const { return real != exact(); }
};

}  // namespace pipetwin::exec
