// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "gui/view/what_if/what_if_settings.h"

/// What-ifs for every number of stages and of micro-batches.
namespace pipetwin::gui {

/// Quantity that the colour of a cell shows.
enum class HeatValue { Throughput, Bubble, PeakMemory };

/// One what-if of the map.
struct HeatCell {
    double per_second = 0;     ///< samples, or micro-batches where no samples are known
    double bubble = 0;         ///< Bubble::total
    Bytes peak;                ///< of the rank that needs most
    std::string reason;        ///< why there is no such plan, or it does not fit; "" where it does
    bool lacks_costs = false;  ///< the profile has no costs for micro-batches of this size

    bool fits() const { return reason.empty(); }
    /// True if there is such a plan, though it may not fit.
    bool has_plan() const { return per_second > 0; }
    /// The quantity that the colour shows.
    double value(HeatValue of) const;
};

/// What-ifs by number of stages and of micro-batches.
struct HeatMap {
    std::vector<int> stages;         ///< a row each, ascending
    std::vector<int> micro_batches;  ///< a column each, ascending
    std::vector<HeatCell> cells;     ///< row by row
    bool counts_samples = false;
    bool knows_memory = false;
    int batch = 0;                              ///< samples of a step; 0 where it is not known
    int machine_stages = 0;                     ///< most stages that the machine has devices for
    std::vector<int> infeasible_stages;         ///< numbers without a row: no cell is feasible
    std::vector<int> infeasible_micro_batches;  ///< numbers without a column, likewise infeasible
    /// Numbers without a column because their micro-batches have sizes without costs, also numbers
    /// that were not simulated; ascending.
    std::vector<int> micro_batches_without_costs{};
    /// Why the first of `micro_batches_without_costs` has no costs; "" where there is none.
    std::string no_costs{};
    /// Why these numbers have no row or column: the cell at the numbers of the settings, or the
    /// first cell that has costs.
    std::vector<HeatCell> cells_of_infeasible_stages{};
    std::vector<HeatCell> cells_of_infeasible_micro_batches{};
    /// Why there are no other numbers than those of the settings; "" where there may be.
    std::string only_numbers{};

    bool empty() const { return cells.empty(); }
    const HeatCell& at(std::size_t row, std::size_t column) const {
        return cells.at(row * micro_batches.size() + column);
    }
    /// True if a row has no more stages than the machine has devices for.
    bool is_on_machine(std::size_t row) const { return stages[row] <= machine_stages; }
    /// Least and largest value of the cells that fit and are on the machine, or, where there are
    /// none, of all that fit; none where none does.
    std::optional<std::pair<double, double>> range(HeatValue of) const;

    /// The place of a cell.
    struct Place {
        std::size_t row = 0;
        std::size_t column = 0;

        bool operator==(const Place&) const = default;
    };
    /// The best cell that fits and whose stages the machine has devices for: with the largest
    /// throughput, or the least bubble or peak; of equal ones the first. One rank, which has no
    /// bubble, is not compared by it unless there is nothing else. None where there is none.
    std::optional<Place> best(HeatValue of) const;
    /// The cell of these numbers; none where the map has no such row or column.
    std::optional<Place> place_of(int stages, int micro_batches) const;
};

/// The map with at most so many rows and columns (two at least), for a view that has no room for
/// all. First come the rows and columns of `kept`, in their order. Then come powers of two, those
/// that the machine has devices for or that divide the batch before the others; divisors of the
/// batch; both ends; and other numbers. Numbers of micro-batches without costs come last.
HeatMap thinned(const HeatMap& map,
                std::size_t most_rows,
                std::size_t most_columns,
                const std::vector<HeatMap::Place>& kept);

/// The numbers between the least and the largest one of all the lists that are in none of them;
/// ascending.
std::vector<int> numbers_between(const std::vector<std::vector<int>>& lists);

/// `most` of the numbers from `least` to `last`, ascending: all of them where they are no more.
/// Else `among`, both ends, powers of two and divisors of the batch (0: not known), powers of two
/// that do not divide it, and others, in this order; within each kind numbers far from those that
/// are chosen come first, as ratios.
std::vector<int> spread_numbers(
    int least, int last, int most, const std::vector<int>& among, int batch = 0);

/// The settings of a cell: another number of stages as by `with_pieces`.
WhatIf at_cell(const WhatIf& settings, int stages, int micro_batches);

/// Plans and simulates every cell with the schedule of `settings`; never throws. At the most 16
/// rows, and 32 columns with costs, among them those of the settings and of the run. Rows and
/// columns without a cell that fits are left out, but for these; where no cell fits, all stay. An
/// empty map if `stop` was set meanwhile, or where there are no what-ifs.
HeatMap heat_map(const WhatIfSource& source,
                 const WhatIf& settings,
                 const std::atomic<bool>* stop = nullptr);

}  // namespace pipetwin::gui
