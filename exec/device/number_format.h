#pragma once

#include "core/scenario/scenario.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {

/// What an attention keeps from forward to backward of each row's softmax.
enum class SoftmaxKept {
    Probabilities,  ///< all of them: positions numbers a row
    LogSums,        ///< log(sum exp) of the row, from which its backward finds them again
};

/// How a device keeps the numbers of a model: what tells how many bytes a layer takes.
struct NumberFormat {
    DType real = DType::F32;  ///< of activations, and of the weights that products read
    SoftmaxKept softmax = SoftmaxKept::Probabilities;

    NumberFormat() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): a type alone is the format of the CPU
    NumberFormat(DType type) : real(type) {}

    /// Of what is summed over many numbers or steps: statistics, gradients of weights, the
    /// optimizer's state. Half precision is too coarse for it (Micikevicius et al., arXiv
    /// 1710.03740, section 3).
    DType exact() const { return real == DType::BF16 ? DType::F32 : real; }

    /// Whether the optimizer updates a copy of the weights in `exact`, from which `real` is
    /// rounded.
    bool has_master_weights() const { return real != exact(); }
};

NumberFormat number_format(Precision precision, Backend backend);

}  // namespace pipetwin::exec
