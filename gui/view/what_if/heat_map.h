#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "gui/view/what_if/what_if.h"

/// What-ifs for every number of stages and of micro-batches.
namespace pipetwin::gui {

/// Quantity that the colour of a cell shows.
enum class HeatValue { Throughput, Bubble, PeakMemory };

/// One what-if of the map.
struct HeatCell {
    double per_second = 0;  ///< samples, or micro-batches where no samples are known
    double bubble = 0;      ///< Bubble::total
    Bytes peak;             ///< of the rank that needs most
    std::string reason;     ///< why there is no such plan, or it does not fit; "" where it does

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

    bool empty() const { return cells.empty(); }
    const HeatCell& at(std::size_t row, std::size_t column) const {
        return cells.at(row * micro_batches.size() + column);
    }
    /// Least and largest value of the cells that fit; none where none does.
    std::optional<std::pair<double, double>> range(HeatValue of) const;
};

/// `most` of the numbers from `least` to `last`, ascending: all of them where they are no more,
/// else ones whose ratios are alike, with both ends and what has to be among them.
std::vector<int> spread_numbers(int least, int last, int most, const std::vector<int>& among);

/// The settings of a cell: another number of stages as by `with_pieces`.
WhatIf at_cell(const WhatIf& settings, int stages, int micro_batches);

/// Plans and simulates every cell with the schedule of `settings`; never throws. At the most 16
/// rows and 32 columns, among them those of the settings and of the run; of columns at the ends in
/// which nothing can be planned, one. An empty map if `stop` was set meanwhile, or where there are
/// no what-ifs.
HeatMap heat_map(const WhatIfSource& source,
                 const WhatIf& settings,
                 const std::atomic<bool>* stop = nullptr);

}  // namespace pipetwin::gui
