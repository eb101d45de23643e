#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/calibration.h"
#include "core/model.h"
#include "core/scenario.h"

namespace pipetwin::exec {

struct CalibrateOptions {
    std::vector<CalibrationSetting> settings;  ///< each is measured; on the CPU
    int fewest_clean = 11;                     ///< steps of each,
    int most_steps = 24;                       ///< or at most so many
    Precision precision = Precision::Fp32;
    OptimizerKind optimizer = OptimizerKind::AdamW;
    std::uint64_t seed = 1;
    Duration longest_wait{};  ///< before a step for a core that is slow: exec/speed_witness.h
    std::function<void(double share, const std::string& what)> progress;
};

/// The settings that the plans of a mini-batch of so many samples can need, in as many cores as
/// `workers`: of each size one stash alive, about three quarters of those that the whole mini-batch
/// makes and of those that half of it makes; with recompute; with a split backward.
std::vector<CalibrationSetting> calibration_settings(const std::vector<int>& micro_batch_sizes,
                                                     int batch,
                                                     int workers);

/// Measures every setting by training a copy of the model with random data: one rank, 1f1b of 3
/// micro-batches where one stash is alive, gpipe of as many as are alive where there are more,
/// zb-h1 of 3 for a split backward. While it is measured, so many workers less one do the same on
/// other cores. Steps pass exec/quiet.h's gate as those of a run; costs are means over the quiet
/// ones.
///
/// Throws Error(Unavailable) if there are fewer cores than workers.
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
using LadderRung = CalibrationNote::Rung;
std::vector<LadderRung> transfer_ladder();

/// latency + (n + half) / rate through the rungs: the smallest message gives the latency, the
/// largest two the rate, and the half-bandwidth size fits what lies between best.
LinkCost fitted_link(const std::vector<LadderRung>& rungs);

}  // namespace pipetwin::exec
