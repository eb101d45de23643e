// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/launched_ranges.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/median.h"

namespace pipetwin {

namespace {

/// Ranges of the host by their beginnings: indices into TraceEvents::ranges.
std::vector<std::size_t> host_ranges(const TraceEvents& events) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < events.ranges.size(); ++i) {
        const TraceRange& range = events.ranges[i];
        if (range.has_times() && !events.lanes[static_cast<std::size_t>(range.lane)].on_device) {
            found.push_back(i);
        }
    }
    std::ranges::stable_sort(found, {}, [&](std::size_t i) { return *events.ranges[i].begin; });
    return found;
}

/// The range of `host`, which are sorted by their beginnings, that holds the moment and began last.
std::optional<std::size_t> innermost_range(const TraceEvents& events,
                                           const std::vector<std::size_t>& host,
                                           Duration moment) {
    constexpr std::size_t deepest = 16;  // ranges that are looked at, from the innermost out
    auto after = std::ranges::upper_bound(
        host, moment, {}, [&](std::size_t range) { return *events.ranges[range].begin; });
    for (std::size_t step = 0; step < deepest && after != host.begin(); ++step) {
        --after;
        if (events.ranges[*after].end() >= moment) {
            return *after;
        }
    }
    return std::nullopt;
}

/// The ranges of a file that ends too early that launched kernels which it does not have.
std::set<std::size_t> ranges_without_all_kernels(const TraceEvents& events,
                                                 const std::vector<std::size_t>& host) {
    std::set<std::size_t> found;
    if (events.cut.empty()) {
        return found;
    }
    std::unordered_set<std::int64_t> known;
    for (const TraceKernel& kernel : events.kernels) {
        known.insert(kernel.correlation.value_or(-1));
    }
    for (const TraceLaunch& launch : events.launches) {
        const std::optional<std::size_t> range =
            launch.is_of_kernel && !known.contains(launch.correlation)
                ? innermost_range(events, host, launch.begin)
                : std::nullopt;
        if (range) {
            found.insert(*range);
        }
    }
    return found;
}

/// A stage's kind of action, as a range names it.
using NamedKind = std::pair<int, Op>;

NamedKind action_of_range(const TraceRange& range) {
    return {range.action.stage.value_or(-1), range.action.op};
}

/// Lengths of ranges of F, B, I, W and of messages by action and stream.
using LengthsOfLanes = std::map<NamedKind, std::map<int, std::vector<Duration>>>;

LengthsOfLanes lengths_of_lanes(const TraceEvents& events, const std::vector<TraceRange>& ranges) {
    LengthsOfLanes lengths;
    for (const TraceRange& range : ranges) {
        const bool counts = is_cost(range.action.op) || is_message(range.action.op);
        if (counts && range.length &&
            events.lanes[static_cast<std::size_t>(range.lane)].on_device) {
            lengths[action_of_range(range)][range.lane].push_back(*range.length);
        }
    }
    return lengths;
}

}  // namespace

KernelLaunches launches_of(const TraceEvents& events) {
    std::unordered_map<std::int64_t, const TraceLaunch*> by_correlation;
    for (const TraceLaunch& launch : events.launches) {
        by_correlation.emplace(launch.correlation, &launch);
    }
    KernelLaunches launches;
    std::size_t known = 0;
    for (const TraceKernel& kernel : events.kernels) {
        const auto found =
            kernel.correlation ? by_correlation.find(*kernel.correlation) : by_correlation.end();
        const bool is_known = found != by_correlation.end();
        known += is_known ? 1 : 0;
        launches.begin.push_back(is_known ? found->second->begin : Duration{-1});
        launches.lane.push_back(is_known ? found->second->lane : -1);
    }
    return 2 * known < events.kernels.size() || known == 0 ? KernelLaunches{} : launches;
}

std::vector<TraceRange> launched_ranges(const TraceEvents& events) {
    const KernelLaunches launches = launches_of(events);
    const std::vector<std::size_t> host = host_ranges(events);
    std::map<std::pair<std::size_t, int>, std::pair<Duration, Duration>> launched;
    for (std::size_t i = 0; i < launches.begin.size(); ++i) {
        const std::optional<std::size_t> range =
            launches.lane[i] < 0 ? std::nullopt : innermost_range(events, host, launches.begin[i]);
        if (!range) {
            continue;
        }
        const TraceKernel& kernel = events.kernels[i];
        const auto [place, is_new] =
            launched.emplace(std::pair(*range, kernel.lane), std::pair(kernel.begin, kernel.end()));
        if (!is_new) {
            auto& [begin, end] = place->second;
            begin = std::min(begin, kernel.begin);
            end = std::max(end, kernel.end());
        }
    }
    const std::set<std::size_t> incomplete = ranges_without_all_kernels(events, host);
    std::vector<TraceRange> ranges;
    for (const auto& [key, times] : launched) {
        if (incomplete.contains(key.first)) {
            continue;
        }
        ranges.push_back({.action = events.ranges[key.first].action,
                          .lane = key.second,
                          .begin = times.first,
                          .length = times.second - times.first});
    }
    return ranges;
}

std::vector<std::string> add_launched_ranges(TraceEvents& events) {
    std::vector<std::string> notes;
    const LengthsOfLanes recorded = lengths_of_lanes(events, events.ranges);
    const std::vector<TraceRange> launched = launched_ranges(events);
    const LengthsOfLanes found = lengths_of_lanes(events, launched);
    std::set<std::pair<NamedKind, int>> taken;  // with the lane
    bool adds = false;
    bool replaces = false;
    for (const auto& [action, lanes] : found) {
        const auto known = recorded.find(action);
        for (const auto& [lane, lengths] : lanes) {
            bool wanted = known == recorded.end();
            adds = adds || wanted;
            if (!wanted && known->second.contains(lane)) {
                const Duration own = median(known->second.at(lane));
                wanted = 2 * median(lengths) > 3 * own;
                replaces = replaces || wanted;
            }
            if (wanted) {
                taken.emplace(action, lane);
            }
        }
    }
    const auto is_taken = [&taken](const TraceRange& range) {
        return taken.contains({action_of_range(range), range.lane});
    };
    if (!taken.empty()) {
        std::erase_if(events.ranges, is_taken);
        std::ranges::copy_if(launched, std::back_inserter(events.ranges), is_taken);
    }
    if (adds) {
        notes.emplace_back(
            "ranges that the trace has of the CPU alone are as long as the kernels ran that were "
            "launched in them");
    }
    if (replaces) {
        notes.emplace_back(
            "the trace's own ranges of the GPU leave out kernels that other threads launched: "
            "those "
            "count, too");
    }
    return notes;
}

}  // namespace pipetwin
