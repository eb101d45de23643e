// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/accuracy/calibration.h"
#include "bench/accuracy/grid.h"

#include <functional>
#include <string>
#include <vector>

/// What a plan takes beside what its layers take: in every round a step of each setting that its
/// costs come from (bench/accuracy/calibration_rounds.h), then a step of the plan. Where devices or
/// replicas divide layers the costs come from a step of what `profile` measures, of other numbers
/// of micro-batches than the plan's.
namespace pipetwin::accuracy {

/// What holds for all cells of one precision.
struct Scalars {
    Calibration base;  ///< without runs: sizes, the link, and the interference
    Duration hop{};    ///< the link's latency, as the short runs' messages had it
    std::vector<RoundsVerdict> short_runs;
    std::vector<double> fit_error_percent;  ///< of each
    std::vector<double> leave_one_out_percent;

    bool passes() const;  ///< the gate, each of them
};

/// "gpipe (6 x 1)"
std::string short_run_name(std::size_t index);

using Said = std::function<void(const std::string& what)>;

/// Where there is one core: without short runs.
Scalars measured_scalars(const Model& model,
                         const GridOptions& options,
                         Precision precision,
                         const Said& say);

CellResult measured_cell(const GridCell& cell,
                         const Model& model,
                         const Calibration& base,
                         const GridOptions& options);

/// Sizes of layers and messages at every micro-batch size that the grid has; no times.
Profile grid_sizes(const Model& model, const GridOptions& options, Precision precision);

/// Worker threads for the two ranks of a plan: two where there are as many cores.
int grid_workers();

}  // namespace pipetwin::accuracy
