#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/model/model.h"
#include "core/scenario/calibration.h"
#include "core/scenario/scenario.h"

namespace pipetwin::exec {

struct CalibrateOptions {
    std::vector<CalibrationSetting> settings;  ///< each is measured; on the CPU
    int fewest_clean = 11;                     ///< steps of each,
    int most_steps = 24;                       ///< or at most so many
    Precision precision = Precision::Fp32;
    OptimizerKind optimizer = OptimizerKind::AdamW;
    std::uint64_t seed = 1;
    std::function<void(double share, const std::string& what)> progress;
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
    /// Takes the options' settings, precision, optimizer and seed. Throws Error(Unavailable) if
    /// there are fewer cores than workers.
    CalibrationRounds(const Model& model, const CalibrateOptions& options);
    ~CalibrationRounds();

    struct Round {
        std::vector<CalibrationRun> runs;  ///< of every setting what one step took
        double stolen = 0;                 ///< the largest share of a step that was lost to others
    };
    Round next();

    /// Of every setting the mean over all rounds but those that lost more than `most_stolen`; where
    /// every one did, over the calmest third.
    std::vector<CalibrationRun> means() const;

  private:
    class Cores;
    std::vector<std::unique_ptr<Cores>> measured_;  // per setting
};

/// All rounds that the options want. Throws as CalibrationRounds.
Calibration calibrate(const Model& model, const CalibrateOptions& options);

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

/// latency + (n + half) / rate through the rungs: the smallest message gives the latency, the
/// largest two the rate, and the half-bandwidth size fits what lies between best.
LinkCost fitted_link(const std::vector<LadderRung>& rungs);

}  // namespace pipetwin::exec
