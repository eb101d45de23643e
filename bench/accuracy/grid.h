// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/scenario/settled_scenario.h"
#include "core/timeline/compare.h"

/// A grid of plans of one model, each predicted from a calibration whose pipelines are none of the
/// grid's (other numbers of micro-batches, another partition), so that every cell is held out.
namespace pipetwin::accuracy {

/// One plan.
struct GridCell {
    int stages = 1;
    int micro_batches = 1;
    std::string schedule = "gpipe";
    int chunks = 1;
    Recompute recompute = Recompute::None;
    int partition = 0;  ///< 0: equal pieces; 1: others, that cut a block in two
    Precision precision = Precision::Fp32;
    int devices = 1;         ///< of a rank, which divide its layers
    bool sequence = false;   ///< ... and the rows between them
    bool selective = false;  ///< backwards compute core attention again
    int replicas = 1;        ///< which divide what `shard` says
    Shard shard = Shard::None;

    /// Whether devices or replicas divide layers: such a cell has one rank on two cores.
    bool is_divided() const { return devices > 1 || replicas > 1; }

    bool operator==(const GridCell&) const = default;
};

/// "K=2 M=4 1f1b none p0 fp32", "K=1 T=2 sequence M=4 1f1b selective fp32", "K=1 weights/2 M=4 1f1b
/// none fp32": the cell's name in the store.
std::string to_string(const GridCell& cell);

struct GridOptions {
    GptSizes model{.layers = 4,
                   .d_model = 192,
                   .heads = 6,
                   .context = 64,
                   .vocabulary = 256,
                   .feed_forward = 0};
    int batch = 16;
    std::uint64_t seed = 1;       ///< of the order of the cells
    double share = 1;             ///< of the cells, the first in that order; at least one cell
    double minutes = 0;           ///< no cell begins after so long; 0: no limit
    int fewest_rounds = 15;       ///< of a cell or a short run that no time was stolen from,
    int most_rounds = 480;        ///< or at most so many in all
    double wanted_error = 0.012;  ///< standard error with which a cell is done before that
    std::vector<Precision> precisions{Precision::Fp32, Precision::Bf16};
    bool divided = false;  ///< the cells of divided layers, and no others
    /// No cell is predicted with interference from short runs that the gate refuses, and cells that
    /// it refused are measured again by the next call. False: as they are, for tests on busy
    /// machines.
    bool insists_on_gate = true;
    std::filesystem::path store;  ///< a JSON object per line: interference and cells
};

struct Grid {
    std::vector<GridCell> cells;
    int void_cells = 0;  ///< no order of that shape, or rows and pieces that an earlier cell has
};

/// K in {1, 2}, M in {1, 2, 4, 8, 16}, gpipe, 1f1b, zb-h1 and interleaved-1f1b with two chunks,
/// recompute none, always and except-last, two partitions, the options' precisions.
Grid accuracy_grid(const GridOptions& options);

/// One rank of two devices that divide its layers, or of two replicas that divide gradients or
/// weights, M as above, gpipe and 1f1b, recompute none, always and, of devices, selective, rows
/// whole and divided, the options' precisions.
Grid divided_grid(const GridOptions& options);

/// The cells in the order in which they are measured: shuffled by the seed, then cut to the share.
std::vector<GridCell> in_seeded_order(std::vector<GridCell> cells, const GridOptions& options);

SettledScenario scenario_of(const GridCell& cell, const GridOptions& options);

/// The largest share of its compute time that a step of a round may lose to other programs. More
/// than a step alone may (exec::most_stolen): what is lost is lost by a plan and by what it is
/// predicted from alike.
constexpr double most_stolen_of_a_round = 0.05;

/// What the gate looks at: stolen time and spread, never the size of an error.
struct RoundsVerdict {
    int clean = 0;            ///< rounds that lost at most `most_stolen_of_a_round`
    int dropped = 0;          ///< the others
    double p90_over_p10 = 1;  ///< of the measured steps
    /// Standard error of the error, as a share: what is left of the spread of the rounds in their
    /// mean.
    double standard_error = 0;

    /// Enough rounds, and together they say as much as the fewest steps of the largest spread of
    /// exec/base/noise.h do.
    bool passes() const;
    double dropped_share() const;
};

/// Standard error of the median of so many values of such a spread, were they normally distributed.
double standard_error_of_median(double p90_over_p10, int values);

/// The geometric mean of the middle 80 % of ratios, and its standard error as a share: that of a
/// trimmed mean (Tukey and McLaughlin 1963), of their logarithms. Of fewer than two no error is
/// known, and it counts as 100 %.
struct Middle {
    double value = 1;
    double standard_error = 1;
};
Middle middle_of(std::vector<double> ratios);

/// What is kept of a cell. Medians over its rounds.
struct CellResult {
    std::string cell;
    Duration predicted{};
    Duration measured{};
    double error = 0;         ///< predicted / measured - 1: `middle_of` the rounds
    double replay_error = 0;  ///< of each measured step from its own durations, as a share of it
    double noise_floor = 0;   ///< between the first half of the rounds and the second
    double bubble_difference = 0;        ///< predicted less measured, round by round, as a share
    std::int64_t memory_difference = 0;  ///< the largest over ranks, in bytes
    RoundsVerdict verdict;
    std::map<std::string, Pair> parts;  ///< sums over the step, by op and stage: "0F", "1OPT"
};

nlohmann::json verdict_json(const RoundsVerdict& verdict);
RoundsVerdict parse_verdict(const nlohmann::json& array);
std::string print_cell(const CellResult& result);  ///< one line of JSON
CellResult parse_cell(const std::string& line);

}  // namespace pipetwin::accuracy
