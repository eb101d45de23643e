// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/accuracy/calibration.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "core/scenario/choices.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

namespace pipetwin::accuracy {

/// What is measured round by round, on the CPU.
struct RoundsOptions {
    std::vector<CalibrationSetting> settings;
    Precision precision = Precision::Fp32;
    OptimizerKind optimizer = OptimizerKind::AdamW;
    std::uint64_t seed = 1;
};

/// The settings that the plans of a mini-batch of so many samples can need, in as many cores as
/// `workers`: of each size one stash alive, about three quarters of those that the whole mini-batch
/// makes and of those that half of it makes, without recompute and with it; one with a split
/// backward.
std::vector<CalibrationSetting> calibration_settings(const std::vector<int>& micro_batch_sizes,
                                                     int batch,
                                                     int workers);

/// Settings that are measured side by side, by training with random data: on as many cores at once
/// as there are workers, each one rank by itself with the model or with what the setting has it
/// hold. 1f1b of 3 micro-batches where one stash is alive, gpipe of as many as are alive where
/// there are more, zb-h1 of 3 for a split backward; where pieces take turns interleaved-1f1b of
/// three turns, and looped-bfs.
///
/// A round takes one step of each. So all of them have the same machine, and so has whatever the
/// caller measures between two rounds: where cores get faster and slower from second to second, as
/// other guests of a host come and go, it shows in all alike.
class CalibrationRounds {
  public:
    /// Throws Error(Unavailable) if
    /// there are fewer cores than workers.
    CalibrationRounds(const Model& model, const RoundsOptions& options);
    ~CalibrationRounds();

    struct Round {
        std::vector<CalibrationRun> runs;  ///< of every setting what one step took
        double stolen = 0;                 ///< the largest share of a step that was lost to others
    };
    Round next();

    /// The mean of every setting over all rounds but those that lost more than `most_stolen`; where
    /// every one did, over the calmest third.
    std::vector<CalibrationRun> means() const;

  private:
    class Cores;
    std::vector<std::unique_ptr<Cores>> measured_;  // per setting
};

/// latency + (n + half) / rate through the rungs: the smallest message gives the latency, the
/// largest two the rate, and the half-bandwidth size fits what lies between best.
LinkCost fitted_link(const std::vector<LadderRung>& rungs);

}  // namespace pipetwin::accuracy
