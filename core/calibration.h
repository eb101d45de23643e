#pragma once

#include <compare>
#include <vector>

#include "core/model.h"
#include "core/plan.h"
#include "core/profile.h"
#include "core/scenario.h"

namespace pipetwin {

/// Costs of layers that hold for many plans of a model, not for the one that was measured: by what
/// makes the same layer take longer or shorter in one plan than in another.
///
/// - How many samples it gets.
/// - How many stashes are alive: where there are more than the caches hold, a forward writes to
///   memory and a backward reads from it.
/// - Whether it recomputes, and whether its backward is split.
/// - Whether other cores are busy at the same time.
///
/// Measured by exec/calibrate.h, with one rank that holds the whole model and micro-batches of
/// which no plan of the scenario has as many.
struct CalibrationSetting {
    int micro_batch_size = 1;
    int live_stashes = 1;     ///< micro-batches whose stash is kept at a time, per worker
    bool recomputes = false;  ///< every micro-batch
    bool splits = false;      ///< the backward, into I and W
    int workers = 1;          ///< cores that compute, each with a model of its own; one is measured

    auto operator<=>(const CalibrationSetting&) const = default;
};

/// What a layer takes, once per micro-batch; the optimizer once per step.
struct LayerTimes {
    Duration forward{};
    Duration recompute{};
    Duration backward_input{};
    Duration backward_weight{};
    Duration optimizer{};
    bool operator==(const LayerTimes&) const = default;
};

struct CalibrationRun {
    CalibrationSetting setting;
    std::vector<LayerTimes> layers;  ///< of the model
    Duration dispatch{};             ///< host time around an action
    int clean_steps = 0;
    int dropped_steps = 0;
    double p90_over_p10 = 1;  ///< of the clean steps
    int steps_beside = 0;     ///< that each other core did meanwhile, at least
};

struct Calibration {
    Profile bytes;  ///< sizes of the layers at every micro-batch size, and the links; no times
    std::vector<CalibrationRun> runs;
    /// Fitted: by how much longer an action lasts while another rank computes.
    double interference = 0;
};

/// By how much longer the layers took beside others than alone, as a share: over all settings that
/// were measured both ways. 0 where there are none.
double measured_interference(const Calibration& calibration);

/// The plan of a settled scenario, whose partition is written down, with costs from the
/// calibration. Each action's come from the run of its kind that comes nearest in the bytes of
/// stash that all ranks together keep.
///
/// Plans of one rank take what was measured alone. In those of more an action's cost is what was
/// measured beside others, less the measured interference: the simulator adds the fitted one
/// wherever another rank computes at the time (Contention). Throws as `make_plan`, and
/// Error(BadInput) naming the setting if nothing was measured of a kind at a micro-batch size.
Plan calibrated_plan(const Scenario& scenario, const Model& model, const Calibration& calibration);

}  // namespace pipetwin
