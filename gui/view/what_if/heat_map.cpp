#include "gui/view/what_if/heat_map.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
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
        cell.per_second = metrics.samples_per_second.value_or(
            metrics.step > Duration{} ? plan.micro_batches() / to_seconds(metrics.step) : 0);
        if (plan->partition) {
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

/// Removes all but the innermost of the columns at either end in which nothing can be planned: it
/// says why, and the others would say the same. Columns of `kept` stay, too.
void trim_columns(HeatMap& map, const std::vector<int>& kept) {
    const std::size_t columns = map.micro_batches.size();
    const auto stays = [&](std::size_t column) {
        bool any = std::ranges::find(kept, map.micro_batches[column]) != kept.end();
        for (std::size_t row = 0; row < map.stages.size(); ++row) {
            any = any || map.at(row, column).has_plan();
        }
        return any;
    };
    std::size_t first = 0;
    while (first < columns && !stays(first)) {
        ++first;
    }
    std::size_t last = columns;
    while (last > first && !stays(last - 1)) {
        --last;
    }
    first = first == 0 || first == last ? 0 : first - 1;
    last = std::min(columns, last + 1);
    HeatMap trimmed = map;
    trimmed.micro_batches.assign(map.micro_batches.begin() + static_cast<std::ptrdiff_t>(first),
                                 map.micro_batches.begin() + static_cast<std::ptrdiff_t>(last));
    trimmed.cells.clear();
    for (std::size_t row = 0; row < map.stages.size(); ++row) {
        for (std::size_t column = first; column < last; ++column) {
            trimmed.cells.push_back(map.at(row, column));
        }
    }
    map = std::move(trimmed);
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
    for (const HeatCell& cell : cells) {
        if (cell.fits()) {
            const double value = cell.value(of);
            range = range ? std::pair(std::min(range->first, value), std::max(range->second, value))
                          : std::pair(value, value);
        }
    }
    return range;
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
    map.micro_batches = spread_numbers(
        1, ranges.most_micro_batches, most_columns, {own.micro_batches, settings.micro_batches});
    map.knows_memory = ranges.has_partition;
    map.counts_samples = source.run().planned != nullptr;
    for (const int stages : map.stages) {
        for (const int micro_batches : map.micro_batches) {
            if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
                return {};
            }
            map.cells.push_back(cell_of(source, at_cell(settings, stages, micro_batches)));
        }
    }
    trim_columns(map, {own.micro_batches, settings.micro_batches});
    return map;
}

}  // namespace pipetwin::gui
