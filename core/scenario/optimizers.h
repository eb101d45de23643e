// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace pipetwin {

/// How weights follow their gradients, in the order of `optimizers`: training.optimizer.
enum class OptimizerKind { Sgd, Momentum, RmsProp, Adam, AdamW, RmsPropMomentum };

/// What is to be known of an optimizer beside its formula (exec/device/update_rules.h).
struct OptimizerTraits {
    std::string_view word;  ///< in a scenario
    int state_slots = 0;    ///< numbers of state for each weight, without an average of the weights
    // The keys that it has:
    bool has_momentum = false;
    bool has_rmsprop_decay = false;
    bool has_epsilon = false;
    bool has_betas = false;
    // Defaults:
    double epsilon = 1e-8;  ///< PyTorch's
    double weight_decay = 0;
    /// What every number of the first slot is before the first step.
    double first_begins_at = 0;
};

/// All optimizers, in the order of `OptimizerKind`. `rmsprop-momentum` is TensorFlow's, whose mean
/// of squares begins with 1, with the epsilon of GPipe's training of AmoebaNet.
inline constexpr std::array optimizers{
    OptimizerTraits{.word = "sgd"},
    OptimizerTraits{.word = "momentum", .state_slots = 1, .has_momentum = true},
    OptimizerTraits{
        .word = "rmsprop", .state_slots = 1, .has_rmsprop_decay = true, .has_epsilon = true},
    OptimizerTraits{.word = "adam", .state_slots = 2, .has_epsilon = true, .has_betas = true},
    OptimizerTraits{.word = "adamw",
                    .state_slots = 2,
                    .has_epsilon = true,
                    .has_betas = true,
                    .weight_decay = 0.01},
    OptimizerTraits{.word = "rmsprop-momentum",
                    .state_slots = 2,
                    .has_momentum = true,
                    .has_rmsprop_decay = true,
                    .has_epsilon = true,
                    .epsilon = 1,
                    .first_begins_at = 1},
};

/// The row of an optimizer.
constexpr const OptimizerTraits& traits(OptimizerKind kind) {
    return optimizers[static_cast<std::size_t>(kind)];
}

}  // namespace pipetwin
