#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/compare.h"
#include "core/model.h"
#include "core/scenario.h"
#include "exec/quiet.h"

/// A grid of plans of one model, each predicted from a calibration whose pipelines are none of the
/// grid's (other numbers of micro-batches, another partition), so that every cell is held out.
namespace pipetwin::test {

/// One plan.
struct GridCell {
    int stages = 1;
    int micro_batches = 1;
    std::string schedule = "gpipe";
    int chunks = 1;
    Recompute recompute = Recompute::None;
    int partition = 0;  ///< 0: equal pieces; 1: others, that cut a block in two
    Precision precision = Precision::Fp32;

    bool operator==(const GridCell&) const = default;
};

/// "K=2 M=4 1f1b none p0 fp32": the cell's name in the store.
std::string to_string(const GridCell& cell);

struct GridOptions {
    GptSizes model{.layers = 4,
                   .d_model = 192,
                   .heads = 6,
                   .context = 64,
                   .vocabulary = 256,
                   .feed_forward = 0};
    int batch = 16;
    std::uint64_t seed = 1;      ///< of the order of the cells
    double share = 1;            ///< of the cells, the first in that order; at least one cell
    double minutes = 0;          ///< no cell begins after so long; 0: no limit
    int clean_steps = 15;        ///< of a cell,
    int most_steps = 30;         ///< or at most so many in all
    int calibration_steps = 11;  ///< clean ones of each setting, or at most twice as many in all
    std::vector<Precision> precisions{Precision::Fp32, Precision::Bf16};
    /// No cell is measured with a calibration that the gate refuses, and cells that it refused are
    /// measured again by the next call. False: as they are, for tests on busy machines.
    bool insists_on_gate = true;
    std::filesystem::path store;  ///< a JSON object per line: calibrations and cells
};

struct Grid {
    std::vector<GridCell> cells;
    int void_cells = 0;  ///< no order of that shape, or rows and pieces that an earlier cell has
};

/// K in {1, 2}, M in {1, 2, 4, 8, 16}, gpipe, 1f1b, zb-h1 and interleaved-1f1b with two chunks,
/// recompute none, always and except-last, two partitions, the options' precisions.
Grid accuracy_grid(const GridOptions& options);

/// As they are measured: shuffled by the seed, then cut to the share.
std::vector<GridCell> in_seeded_order(std::vector<GridCell> cells, const GridOptions& options);

Scenario scenario_of(const GridCell& cell, const GridOptions& options);

/// What is kept of a cell.
struct CellResult {
    std::string cell;
    Duration predicted{};
    Duration measured{};
    Duration replayed{};
    double noise_floor = 0;  ///< the first half of the run against the second, as a share
    double predicted_bubble = 0;
    double measured_bubble = 0;
    std::int64_t memory_difference = 0;  ///< the largest over ranks, in bytes
    exec::GateVerdict verdict;
    std::map<std::string, Pair> parts;  ///< sums over the step, by op and stage: "0F", "1OPT"

    /// As shares of the measured step.
    double error() const;
    double replay_error() const;
};

std::string print_cell(const CellResult& result);  ///< one line of JSON
CellResult parse_cell(const std::string& line);

}  // namespace pipetwin::test
