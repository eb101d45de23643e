// SPDX-License-Identifier: Apache-2.0
#include "gui/view/what_if/heat_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/profile.h"
#include "core/schedule/schedule_csv.h"
#include "core/timeline/metrics.h"
#include "gui/view/what_if/what_if.h"
#include "sim/engine/record_links.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::gui {

namespace {

constexpr int most_rows = 16;
constexpr int most_columns = 32;

HeatCell cell_of(const WhatIfSource& source, const WhatIf& settings) {
    HeatCell cell;
    try {
        sim::SettledStep step = source.step(settings, sim::RecordLinks::No);
        const Plan& plan = step.plan;
        const TimeMetrics metrics = measure_times(plan, step.times);
        cell.bubble = metrics.bubble.total;
        cell.per_second = throughput_of(plan, metrics.step).per_second;
        if (plan->partition && source.knows_bytes()) {
            const std::vector<Bytes> peaks =
                plan->host_link
                    ? peak_totals(plan, timeline_of(plan->schedule.ranks, std::move(step.times)))
                    : peak_totals(plan);
            cell.peak = std::ranges::max(peaks);
            cell.reason = over_limit(plan, peaks);
        }
    } catch (const std::exception& error) {
        cell.reason = sentence_of(error);
        const auto* const own = dynamic_cast<const Error*>(&error);
        cell.lacks_costs = own != nullptr && own->reason() == ErrorReason::NoCosts;
    }
    return cell;
}

/// The map of some rows and columns of another one.
HeatMap part_of(const HeatMap& map,
                const std::vector<std::size_t>& rows,
                const std::vector<std::size_t>& columns) {
    HeatMap part = map;
    part.stages.clear();
    part.micro_batches.clear();
    part.cells.clear();
    for (const std::size_t column : columns) {
        part.micro_batches.push_back(map.micro_batches[column]);
    }
    for (const std::size_t row : rows) {
        part.stages.push_back(map.stages[row]);
        for (const std::size_t column : columns) {
            part.cells.push_back(map.at(row, column));
        }
    }
    return part;
}

/// The numbers below `count` of which a predicate is true.
template <class Stays>
std::vector<std::size_t> those_of(std::size_t count, Stays stays) {
    std::vector<std::size_t> numbers;
    for (std::size_t number = 0; number < count; ++number) {
        if (stays(number)) {
            numbers.push_back(number);
        }
    }
    return numbers;
}

/// The cell that says why its row or column has none that fits: `own`, or where that has no costs
/// the first of the others that has.
template <class CellAt>
const HeatCell& telling_cell(const HeatCell& own, std::size_t count, CellAt cell_at) {
    for (std::size_t place = 0; own.lacks_costs && place < count; ++place) {
        const HeatCell& other = cell_at(place);
        if (!other.lacks_costs) {
            return other;
        }
    }
    return own;
}

/// Removes the rows and columns in which no cell fits, but for those of `kept`.
HeatMap without_infeasible(const HeatMap& map, const std::vector<std::pair<int, int>>& kept) {
    const auto rows = map.stages.size();
    const auto columns = map.micro_batches.size();
    const auto is_kept = [&](int number, int std::pair<int, int>::*part) {
        return std::ranges::any_of(kept, [&](const auto& one) { return one.*part == number; });
    };
    const std::vector<std::size_t> good_rows = those_of(rows, [&](std::size_t row) {
        bool any = is_kept(map.stages[row], &std::pair<int, int>::first);
        for (std::size_t column = 0; column < columns; ++column) {
            any = any || map.at(row, column).fits();
        }
        return any;
    });
    const std::vector<std::size_t> good_columns = those_of(columns, [&](std::size_t column) {
        bool any = is_kept(map.micro_batches[column], &std::pair<int, int>::second);
        for (std::size_t row = 0; row < rows; ++row) {
            any = any || map.at(row, column).fits();
        }
        return any;
    });
    HeatMap good = part_of(map, good_rows, good_columns);
    const auto& [own_stages, own_micro_batches] = kept.back();
    const auto own = map.place_of(own_stages, own_micro_batches).value_or(HeatMap::Place{});
    for (std::size_t row = 0; row < rows; ++row) {
        if (!std::ranges::binary_search(good_rows, row)) {
            good.infeasible_stages.push_back(map.stages[row]);
            good.cells_of_infeasible_stages.push_back(
                telling_cell(map.at(row, own.column), columns, [&](std::size_t column) -> auto& {
                    return map.at(row, column);
                }));
        }
    }
    for (std::size_t column = 0; column < columns; ++column) {
        if (std::ranges::binary_search(good_columns, column)) {
            continue;
        }
        const HeatCell& cell =
            telling_cell(map.at(own.row, column), rows, [&](std::size_t row) -> auto& {
                return map.at(row, column);
            });
        if (cell.lacks_costs) {
            good.no_costs = good.micro_batches_without_costs.empty() ? cell.reason : good.no_costs;
            good.micro_batches_without_costs.push_back(map.micro_batches[column]);
        } else {
            good.infeasible_micro_batches.push_back(map.micro_batches[column]);
            good.cells_of_infeasible_micro_batches.push_back(cell);
        }
    }
    return good;
}

/// Whether a column has no cell with costs.
bool lacks_costs(const HeatMap& map, std::size_t column) {
    for (std::size_t row = 0; row < map.stages.size(); ++row) {
        if (!map.at(row, column).lacks_costs) {
            return false;
        }
    }
    return true;
}

/// Adds the numbers below the first number with costs, and above the last one, to those without
/// costs, where the ends of the axis and the numbers next to those with costs have none.
void add_others_without_costs(HeatMap& map, const WhatIfRanges& ranges) {
    std::set<int> without(map.micro_batches_without_costs.begin(),
                          map.micro_batches_without_costs.end());
    for (std::size_t column = 0; column < map.micro_batches.size(); ++column) {
        if (lacks_costs(map, column)) {
            without.insert(map.micro_batches[column]);
        }
    }
    const auto add = [&](int first, int last) {
        for (int number = first + 1;
             number < last && without.contains(first) && without.contains(last);
             ++number) {
            without.insert(number);
        }
    };
    add(ranges.least_micro_batches, ranges.least_with_costs - 1);
    add(ranges.most_with_costs + 1, ranges.most_micro_batches);
    map.micro_batches_without_costs.clear();
    std::ranges::copy_if(
        without, std::back_inserter(map.micro_batches_without_costs), [&](int number) {
            return !std::ranges::binary_search(map.micro_batches, number);
        });
}

/// Numbers of an axis that are chosen one by one while there is room.
class AxisChoice {
  public:
    explicit AxisChoice(std::size_t most) : most_(most) {}

    /// Chooses the numbers in their order.
    void take(const std::vector<int>& numbers) {
        for (const int number : numbers) {
            if (has_room()) {
                chosen_.insert(number);
            }
        }
    }

    /// Chooses again and again the number whose ratio to its chosen neighbours is the largest, and
    /// of equal ones the least.
    void spread(std::vector<int> numbers) {
        std::erase_if(numbers, [&](int number) { return chosen_.contains(number); });
        while (has_room() && !numbers.empty()) {
            auto farthest = numbers.begin();
            for (auto number = numbers.begin(); number != numbers.end(); ++number) {
                farthest = ratio_of(*number) > ratio_of(*farthest) ? number : farthest;
            }
            chosen_.insert(*farthest);
            numbers.erase(farthest);
        }
    }

    /// Chooses again and again the middle of the gap with the largest ratio. Two numbers are chosen
    /// before.
    void fill_gaps() {
        for (bool any = true; any && has_room();) {
            any = false;
            int middle_of_widest = 0;
            double widest = 0;
            for (auto low = chosen_.begin(), high = std::next(low); high != chosen_.end();
                 ++low, ++high) {
                if (*high - *low < 2) {
                    continue;
                }
                const double middle_ratio = std::sqrt(static_cast<double>(*low) * *high);
                const int middle =
                    std::clamp(static_cast<int>(std::lround(middle_ratio)), *low + 1, *high - 1);
                if (const double ratio = ratio_of(middle); ratio > widest) {
                    widest = ratio;
                    middle_of_widest = middle;
                    any = true;
                }
            }
            if (any) {
                chosen_.insert(middle_of_widest);
            }
        }
    }

    std::vector<int> numbers() const { return {chosen_.begin(), chosen_.end()}; }

  private:
    bool has_room() const { return chosen_.size() < most_; }

    /// The ratio of a number to the nearest chosen one, 1 at least.
    double ratio_of(int number) const {
        const auto above = chosen_.lower_bound(number);
        double ratio = std::numeric_limits<double>::infinity();
        if (above != chosen_.end()) {
            ratio = static_cast<double>(*above) / number;
        }
        if (above != chosen_.begin()) {
            ratio = std::min(ratio, static_cast<double>(number) / *std::prev(above));
        }
        return ratio;
    }

    std::size_t most_;
    std::set<int> chosen_;
};

bool is_power_of_two(int number) {
    return std::has_single_bit(static_cast<unsigned>(number));
}

/// True where the batch is not known, too.
bool divides(int number, int batch) {
    return batch == 0 || batch % number == 0;
}

template <class Stays>
std::vector<int> those_among(const std::vector<int>& numbers, Stays stays) {
    std::vector<int> some;
    std::ranges::copy_if(numbers, std::back_inserter(some), stays);
    return some;
}

/// The places of some numbers in a list that has them all; both ascending.
std::vector<std::size_t> places_of(const std::vector<int>& numbers, const std::vector<int>& list) {
    return those_of(list.size(), [&](std::size_t place) {
        return std::ranges::binary_search(numbers, list[place]);
    });
}

std::vector<int> chosen_rows(const HeatMap& map, std::size_t most, const std::vector<int>& kept) {
    const auto on_machine = [&](int stages) { return stages <= map.machine_stages; };
    AxisChoice choice(most);
    choice.take(kept);
    const std::vector<int> powers = those_among(map.stages, is_power_of_two);
    choice.spread(those_among(powers, on_machine));
    choice.spread(powers);
    choice.take({map.stages.back(), map.stages.front()});
    choice.spread(those_among(map.stages, on_machine));
    choice.spread(map.stages);
    return choice.numbers();
}

std::vector<int> chosen_columns(const HeatMap& map,
                                std::size_t most,
                                const std::vector<int>& kept) {
    const std::vector<int> known = those_among(map.micro_batches, [&](int number) {
        const auto column = static_cast<std::size_t>(
            std::ranges::lower_bound(map.micro_batches, number) - map.micro_batches.begin());
        return !lacks_costs(map, column);
    });
    AxisChoice choice(most);
    choice.take(kept);
    const auto divides_batch = [&](int number) { return divides(number, map.batch); };
    const std::vector<int> powers = those_among(known, is_power_of_two);
    choice.spread(those_among(powers, divides_batch));
    if (map.batch > 0) {
        choice.spread(those_among(known, divides_batch));
    }
    choice.spread(powers);
    if (!known.empty()) {
        choice.take({known.back(), known.front()});
    }
    choice.spread(known);
    choice.spread(map.micro_batches);
    return choice.numbers();
}

}  // namespace

double HeatCell::value(HeatValue of) const {
    switch (of) {
        case HeatValue::Throughput:
            return per_second;
        case HeatValue::Bubble:
            return bubble;
        case HeatValue::PeakMemory:
            return static_cast<double>(peak.count);
    }
    PIPETWIN_EXPECT(false, "value of a cell out of range");
}

std::optional<std::pair<double, double>> HeatMap::range(HeatValue of) const {
    std::optional<std::pair<double, double>> range;
    const bool on_machine = best(of).has_value();
    for (std::size_t place = 0; place < cells.size(); ++place) {
        const HeatCell& cell = cells[place];
        if (cell.fits() && (!on_machine || is_on_machine(place / micro_batches.size()))) {
            const double value = cell.value(of);
            range = range ? std::pair(std::min(range->first, value), std::max(range->second, value))
                          : std::pair(value, value);
        }
    }
    return range;
}

std::optional<HeatMap::Place> HeatMap::best(HeatValue of) const {
    std::optional<Place> best;
    const auto is_trivial = [&](std::size_t row) {
        return of == HeatValue::Bubble && stages[row] == 1;
    };
    for (std::size_t row = 0; row < stages.size(); ++row) {
        for (std::size_t column = 0; column < micro_batches.size(); ++column) {
            const HeatCell& cell = at(row, column);
            if (!cell.fits() || !is_on_machine(row)) {
                continue;
            }
            const double gain = best ? cell.value(of) - at(best->row, best->column).value(of) : 0;
            const bool is_better = of == HeatValue::Throughput ? gain > 0 : gain < 0;
            if (!best || (is_trivial(best->row) && !is_trivial(row)) || is_better) {
                best = Place{row, column};
            }
        }
    }
    return best;
}

std::optional<HeatMap::Place> HeatMap::place_of(int of_stages, int of_micro_batches) const {
    const auto row = std::ranges::find(stages, of_stages);
    const auto column = std::ranges::find(micro_batches, of_micro_batches);
    if (row == stages.end() || column == micro_batches.end()) {
        return std::nullopt;
    }
    return Place{static_cast<std::size_t>(row - stages.begin()),
                 static_cast<std::size_t>(column - micro_batches.begin())};
}

HeatMap thinned(const HeatMap& map,
                std::size_t most_rows,
                std::size_t most_columns,
                const std::vector<HeatMap::Place>& kept) {
    if (map.empty()) {
        return map;
    }
    std::vector<int> rows;
    std::vector<int> columns;
    for (const HeatMap::Place& place : kept) {
        rows.push_back(map.stages[place.row]);
        columns.push_back(map.micro_batches[place.column]);
    }
    return part_of(map,
                   places_of(chosen_rows(map, most_rows, rows), map.stages),
                   places_of(chosen_columns(map, most_columns, columns), map.micro_batches));
}

std::vector<int> numbers_between(const std::vector<std::vector<int>>& lists) {
    std::set<int> known;
    for (const std::vector<int>& list : lists) {
        known.insert(list.begin(), list.end());
    }
    std::vector<int> others;
    if (known.empty()) {
        return others;
    }
    for (int number = *known.begin(); number < *known.rbegin(); ++number) {
        if (!known.contains(number)) {
            others.push_back(number);
        }
    }
    return others;
}

std::vector<int> spread_numbers(
    int least, int last, int most, const std::vector<int>& among, int batch) {
    const auto in_range = [&](int number) { return number >= least && number <= last; };
    std::vector<int> powers;
    for (std::int64_t power = 1; power <= last; power *= 2) {
        powers.push_back(static_cast<int>(power));
    }
    powers = those_among(powers, in_range);
    AxisChoice choice(as_index(most));
    choice.take(those_among(among, in_range));
    choice.take({last, least});
    choice.spread(those_among(powers, [&](int power) { return divides(power, batch); }));
    std::vector<int> divisors;
    for (int number = least; number <= std::min(last, batch); ++number) {
        if (divides(number, batch)) {
            divisors.push_back(number);
        }
    }
    choice.spread(divisors);
    choice.spread(powers);
    choice.fill_gaps();
    return choice.numbers();
}

WhatIf at_cell(const WhatIf& settings, int stages, int micro_batches) {
    WhatIf cell = with_pieces(settings, stages, settings.chunks);
    cell.micro_batches = micro_batches;
    return cell;
}

HeatMap heat_map(const WhatIfSource& source,
                 const WhatIf& settings,
                 const std::atomic<bool>* stop) {
    if (!source.why_not().empty()) {
        return {};
    }
    const WhatIfRanges ranges = source.ranges(settings);
    const WhatIf& own = source.settings();
    HeatMap map;
    map.stages = spread_numbers(
        ranges.least_stages, ranges.most_stages, most_rows, {own.stages, settings.stages});
    map.batch = ranges.batch;
    map.micro_batches = spread_numbers(ranges.least_with_costs,
                                       ranges.most_with_costs,
                                       most_columns,
                                       {own.micro_batches, settings.micro_batches},
                                       ranges.batch);
    // Whether the numbers outside have costs is seen at the ends.
    for (const int number : {own.micro_batches,
                             settings.micro_batches,
                             ranges.least_micro_batches,
                             ranges.least_with_costs - 1,
                             ranges.most_with_costs + 1,
                             ranges.most_micro_batches}) {
        const auto place = std::ranges::lower_bound(map.micro_batches, number);
        const bool is_new = place == map.micro_batches.end() || *place != number;
        if (is_new && number >= ranges.least_micro_batches && number <= ranges.most_micro_batches) {
            map.micro_batches.insert(place, number);
        }
    }
    map.knows_memory = ranges.has_partition && source.knows_bytes();
    map.counts_samples = source.run().planned != nullptr;
    if (is_schedule_file(settings.schedule)) {
        map.only_numbers = own_numbers_words(settings.schedule);
    }
    for (const int stages : map.stages) {
        for (const int micro_batches : map.micro_batches) {
            if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
                return {};
            }
            map.cells.push_back(cell_of(source, at_cell(settings, stages, micro_batches)));
        }
    }
    map.machine_stages = source.stages_of_machine();
    const bool any =
        std::ranges::any_of(map.cells, [](const HeatCell& cell) { return cell.fits(); });
    if (!any) {
        return map;
    }
    HeatMap feasible = without_infeasible(
        map, {{own.stages, own.micro_batches}, {settings.stages, settings.micro_batches}});
    add_others_without_costs(feasible, ranges);
    return feasible;
}

}  // namespace pipetwin::gui
