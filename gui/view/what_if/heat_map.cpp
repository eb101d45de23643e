#include "gui/view/what_if/heat_map.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/schedule_csv.h"
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
            good.cells_of_infeasible_stages.push_back(map.at(row, own.column));
        }
    }
    for (std::size_t column = 0; column < columns; ++column) {
        if (!std::ranges::binary_search(good_columns, column)) {
            good.cells_of_infeasible_micro_batches.push_back(map.at(own.row, column));
        }
    }
    std::ranges::set_difference(
        map.stages, good.stages, std::back_inserter(good.infeasible_stages));
    std::ranges::set_difference(
        map.micro_batches, good.micro_batches, std::back_inserter(good.infeasible_micro_batches));
    return good;
}

/// `most` of the numbers below `count`: those of `kept`, both ends, and then again and again the
/// one that is farthest from the ones chosen so far.
std::vector<std::size_t> spread_over(std::size_t count,
                                     std::size_t most,
                                     const std::vector<std::size_t>& kept) {
    std::vector<std::size_t> wanted = kept;
    wanted.insert(wanted.end(), {0, count - 1});
    std::set<std::size_t> chosen;
    for (const std::size_t number : wanted) {
        if (chosen.size() < std::min(most, count)) {
            chosen.insert(number);
        }
    }
    const auto distance = [&](std::size_t number) {
        const auto above = chosen.lower_bound(number);
        const std::size_t to_above = *above - number;
        return *above == number ? 0 : std::min(to_above, number - *std::prev(above));
    };
    while (chosen.size() < std::min(most, count)) {
        std::size_t farthest = 0;
        for (std::size_t number = 1; number < count; ++number) {
            farthest = distance(number) > distance(farthest) ? number : farthest;
        }
        chosen.insert(farthest);
    }
    return {chosen.begin(), chosen.end()};
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
    std::vector<std::size_t> rows;
    std::vector<std::size_t> columns;
    for (const HeatMap::Place& place : kept) {
        rows.push_back(place.row);
        columns.push_back(place.column);
    }
    return part_of(map,
                   spread_over(map.stages.size(), most_rows, rows),
                   spread_over(map.micro_batches.size(), most_columns, columns));
}

std::vector<int> numbers_between(const std::vector<int>& shown,
                                 const std::vector<int>& infeasible) {
    std::set<int> known(shown.begin(), shown.end());
    known.insert(infeasible.begin(), infeasible.end());
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

std::vector<int> spread_numbers(int least, int last, int most, const std::vector<int>& among) {
    std::set<int> numbers;
    for (const int number : among) {
        if (number >= least && number <= last) {
            numbers.insert(number);
        }
    }
    numbers.insert(last);
    numbers.insert(least);
    const std::size_t wanted = as_index(std::min(most, last - least + 1));
    // Ever finer: where there are few numbers the coarse ones fall together.
    for (int parts = 1; numbers.size() < wanted; parts *= 2) {
        for (int part = 1; part < parts && numbers.size() < wanted; part += 2) {
            const double share = static_cast<double>(part) / parts;
            numbers.insert(static_cast<int>(
                std::lround(least * std::pow(static_cast<double>(last) / least, share))));
        }
        constexpr int fine = 1 << 20;
        for (int number = least; parts >= fine && numbers.size() < wanted; ++number) {
            numbers.insert(number);
        }
    }
    return {numbers.begin(), numbers.end()};
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
    map.micro_batches = spread_numbers(ranges.least_micro_batches,
                                       ranges.most_micro_batches,
                                       most_columns,
                                       {own.micro_batches, settings.micro_batches});
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
    return any ? without_infeasible(
                     map,
                     {{own.stages, own.micro_batches}, {settings.stages, settings.micro_batches}})
               : map;
}

}  // namespace pipetwin::gui
