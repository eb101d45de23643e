// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <vector>

#include "core/costs/profile.h"

namespace pipetwin {

class Model;
class Plan;
struct SettledScenario;

}  // namespace pipetwin

namespace pipetwin::accuracy {

/// Costs of layers that hold for many plans of a model, not for the one that was measured: by what
/// makes the same layer take longer or shorter in one plan than in another.
///
/// - How many samples it gets.
/// - How many micro-batches are on their way: where their stashes are more than the caches hold, a
///   forward writes to memory and a backward reads from it; and many forwards in a row find their
///   weights in the caches.
/// - Whether it recomputes, and whether its backward is split.
/// - Whether other cores are busy at the same time.
/// - Which layers take turns on a core: the fewer weights are used between two uses of a layer's
///   own, the more of them the caches still hold. With small micro-batches that is 10 %.
///
/// Measured by bench/accuracy/calibration_rounds.h, with workers that each train alone, and with
/// micro-batches of which no plan of the scenario has as many.
struct CalibrationSetting {
    /// Consecutive layers of the model.
    struct Piece {
        int first = 0;
        int count = 0;
        auto operator<=>(const Piece&) const = default;
    };

    int micro_batch_size = 1;
    int live_stashes = 1;     ///< micro-batches between forward and backward, per worker
    bool recomputes = false;  ///< every micro-batch
    bool splits = false;      ///< the backward, into I and W
    int workers = 1;          ///< cores that compute
    /// [worker][piece]: what each trains, as a rank of a plan has it. Empty: all the model.
    std::vector<std::vector<Piece>> held{};

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
    /// [core][layer of the model]: of every core that computed; 0 for layers that it did not hold.
    /// Where cores are not equally fast, each rank gets what its own was.
    std::vector<std::vector<LayerTimes>> cores;
    Duration dispatch{};    ///< host time around an action
    int clean_steps = 0;    ///< that the costs are the mean of, on each core
    int dropped_steps = 0;  ///< that lost time to others
};

struct Calibration {
    Profile bytes;  ///< sizes of the layers at every micro-batch size, and the links; no times
    std::vector<CalibrationRun> runs;
    /// Fitted: by how much longer an action of a pipeline lasts while another rank computes, as a
    /// share.
    double interference = 0;
};

/// Which of the candidates a plan of the scenario takes its costs from: of every kind of action
/// that it has the one nearest in the micro-batches that are on their way on all ranks together.
/// Where there is a worker for each rank, and what a rank holds can be trained by itself, with just
/// that held. Throws as `calibrated_plan`.
std::vector<CalibrationSetting> settings_needed(const SettledScenario& scenario,
                                                const Model& model,
                                                const Profile& bytes,
                                                const std::vector<CalibrationSetting>& candidates);

/// The plan of a scenario whose partition is written down, with costs from the
/// calibration: each action's from the run of its kind that comes nearest, as `settings_needed`,
/// and from the core of its rank; first of all from runs in which workers held what its ranks hold.
///
/// Plans of one rank take what was measured alone. In those of more an action's cost is what was
/// measured beside others, less the interference, which the simulator adds again wherever another
/// rank computes at the time (Contention): there it is what was measured. Throws as `make_plan`,
/// and Error(BadInput) naming the setting if nothing was measured of a kind at a micro-batch size.
Plan calibrated_plan(const SettledScenario& scenario,
                     const Model& model,
                     const Calibration& calibration);

}  // namespace pipetwin::accuracy
