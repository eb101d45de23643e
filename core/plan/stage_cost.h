// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/base/units.h"
#include "core/plan/action_messages.h"

namespace pipetwin {

/// Costs of one stage for one micro-batch. Memory terms follow the rules of `LayerSample`.
struct StageCost {
    Duration forward{};
    Duration recompute{};
    Duration backward{};        ///< the whole of it; not below zero
    Duration backward_input{};  ///< where a schedule splits it
    Duration backward_weight{};
    Bytes input{};            ///< all that it is sent; for the first stage the model's own input
    Bytes output{};           ///< all that it sends to later stages; 0 for the last
    Bytes saved{};            ///< kept from F to B when everything is kept, input included
    Bytes split{};            ///< kept in addition from I to W: gradients of the inner outputs
    Bytes input_saved{};      ///< part of `saved` that goes with I
    Bytes unread_gradient{};  ///< part of the output's gradient that goes with I
    /// Most held during an F that keeps `saved`, where layers drop what they compute again; 0: no
    /// more than `saved` and the output.
    Bytes forward_peak{};
    Bytes forward_drop_peak{};  ///< most held during an F that keeps its input only, input included
    Bytes backward_peak{};      ///< most held during B: what is left of `saved`, and both gradients
    /// Most held during I: what is left of `saved`, what W reads, and both gradients; 0: no more
    /// than all of `saved` and `split`, and both gradients.
    Bytes backward_input_peak{};
    /// Part of `backward_peak` that is there only while B runs, where blocks do not keep what they
    /// need: what it computes again, and the gradients inside of the stage. 0: nothing is computed
    /// again.
    Bytes backward_again{};
    ActionMessages forward_messages{};          ///< of `forward`, and as much of `recompute`
    ActionMessages backward_input_messages{};   ///< of `backward_input`, and of `backward`
    ActionMessages backward_weight_messages{};  ///< of `backward_weight`, and of `backward`
};

/// Memory that a stage holds all the time, and the times of its update.
struct StageState {
    Bytes weights{};
    Bytes expert_weights{};  ///< part of `weights`: of experts that devices of their own sum
    Bytes gradients{};       ///< with room for those of another stage that shares the weights
    Bytes optimizer_state{};
    Bytes running{};    ///< statistics of norms, narrow copies; of the weights' kind of memory
    Bytes workspace{};  ///< largest of its layers
    /// For weights of its layers that are gathered, and for the gradients of one before they are
    /// summed, where replicas divide these; the largest of a rank's stages.
    Bytes gathered{};
    Duration optimizer{};
    Duration norm{};  ///< of its gradients
};

}  // namespace pipetwin
