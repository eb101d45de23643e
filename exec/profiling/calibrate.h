// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/costs/profile.h"
#include "core/scenario/choices.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

namespace pipetwin::exec {

/// How the interference is measured: steps of the model alone and beside others, in turns.
struct CalibrateOptions {
    int fewest_clean = 11;  ///< steps of each,
    int most_steps = 24;    ///< or at most so many
    Precision precision = Precision::Fp32;
    OptimizerKind optimizer = OptimizerKind::AdamW;
    bool averages_weights = false;  ///< every update moves averages of the weights, too
    std::uint64_t seed = 1;
    std::function<void(double share, const std::string& what)> progress;
};

/// Adds to a profile of this machine's processor what it does not need itself, but who predicts
/// other plans from it does: by how much the model's layers take longer while all other cores do
/// the same (at the smallest size of micro-batch), and the transfer ladder. Nothing where there is
/// one core.
void add_interference_and_ladder(Profile& profile,
                                 const Model& model,
                                 const CalibrateOptions& options);

/// The transfer ladder: from a send to a thread that waits for it until that has read the message,
/// the median of many, for messages of 64 bytes to 4 MiB.
std::vector<LadderRung> transfer_ladder();

}  // namespace pipetwin::exec
