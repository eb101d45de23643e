// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/compute_lane.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/median.h"
#include "core/base/number_text.h"

namespace pipetwin {

namespace {

/// A stage's kind of action: what has one cost.
using CostKey = std::pair<int, Op>;

CostKey key_of(const TraceRange& range) {
    return {range.action.stage.value_or(-1), range.action.op};
}

std::string key_text(const CostKey& key) {
    return key.first < 0 ? std::string(op_text(key.second))
                         : fmt::format("{}{}", key.first, op_text(key.second));
}

/// "0F3" or "F3" or "F".
std::string range_text(const TraceRange& range) {
    return key_text(key_of(range)) +
           (range.action.micro_batch ? fmt::format("{}", *range.action.micro_batch) : "");
}

/// What runs on a stream.
struct LaneScore {
    std::size_t kernels = 0;         ///< of computation, that begin inside the ranges
    std::size_t ranges = 0;          ///< of F, B, I and W
    std::size_t communications = 0;  ///< kernels of messages that begin inside the ranges
    Duration typical{};              ///< the median length of a range

    auto rank() const {
        return std::tuple(kernels, ranges, -static_cast<std::ptrdiff_t>(communications), typical);
    }
};

/// The ranges of each lane, and how the lanes compare.
struct LaneTable {
    std::map<int, std::vector<std::size_t>> ranges;  ///< [lane]: by their beginnings
    std::map<int, LaneScore> scores;
};

/// The begin and end of each range, which ends where the next one begins.
std::vector<std::pair<Duration, Duration>> stretches(const TraceEvents& events,
                                                     const std::vector<std::size_t>& ranges) {
    std::vector<std::pair<Duration, Duration>> all;
    for (const std::size_t i : ranges) {
        const TraceRange& range = events.ranges[i];
        if (!range.has_times()) {
            continue;
        }
        if (!all.empty()) {
            all.back().second = std::min(all.back().second, *range.begin);
        }
        all.emplace_back(*range.begin, range.end());
    }
    return all;
}

LaneTable lane_table(const TraceEvents& events, bool on_device) {
    LaneTable table;
    for (std::size_t i = 0; i < events.ranges.size(); ++i) {
        const TraceRange& range = events.ranges[i];
        if (is_cost(range.action.op) && events.lanes[as_index(range.lane)].on_device == on_device) {
            table.ranges[range.lane].push_back(i);
        }
    }
    std::map<int, std::vector<std::pair<Duration, Duration>>> inside;
    for (auto& [lane, ranges] : table.ranges) {
        std::ranges::stable_sort(
            ranges, {}, [&](std::size_t i) { return events.ranges[i].begin.value_or(Duration{}); });
        LaneScore& score = table.scores[lane];
        std::vector<Duration> lengths;
        for (const std::size_t i : ranges) {
            if (events.ranges[i].length) {
                lengths.push_back(*events.ranges[i].length);
            }
        }
        score.ranges = lengths.size();
        score.typical = lengths.empty() ? Duration{} : median(lengths);
        inside[lane] = stretches(events, ranges);
    }
    for (const TraceKernel& kernel : events.kernels) {
        const auto lane = inside.find(kernel.lane);
        if (lane == inside.end()) {
            continue;
        }
        const auto& all = lane->second;
        const auto after =
            std::ranges::upper_bound(all, kernel.begin, {}, &std::pair<Duration, Duration>::first);
        if (after != all.begin() && kernel.begin < std::prev(after)->second) {
            LaneScore& score = table.scores[kernel.lane];
            ++(kernel.work == KernelWork::Compute ? score.kernels : score.communications);
        }
    }
    return table;
}

/// The actions that the chosen lane lacks, from the lanes that have them, the best first.
void add_lacking(const TraceEvents& events, const LaneTable& table, ComputeRanges& chosen) {
    std::set<CostKey> there;
    for (const std::size_t i : chosen.ranges) {
        there.insert(key_of(events.ranges[i]));
    }
    std::vector<int> others;
    for (const auto& [lane, score] : table.scores) {
        if (lane != chosen.lane) {
            others.push_back(lane);
        }
    }
    std::ranges::stable_sort(
        others, std::greater{}, [&](int lane) { return table.scores.at(lane).rank(); });
    const bool has_kernels = table.scores.at(chosen.lane).kernels > 0;
    for (const int lane : others) {
        if (has_kernels && table.scores.at(lane).kernels == 0) {
            continue;  // copies or messages: what they take is no cost of computing
        }
        std::set<CostKey> more;
        for (const std::size_t i : table.ranges.at(lane)) {
            const CostKey key = key_of(events.ranges[i]);
            if (!there.contains(key)) {
                more.insert(key);
                chosen.ranges.push_back(i);
            }
        }
        if (!more.empty()) {
            std::vector<std::string> names;
            for (const CostKey& key : more) {
                names.push_back(key_text(key));
            }
            chosen.notes.push_back(fmt::format("{} ran on {}, the other actions on {}",
                                               fmt::join(names, ", "),
                                               events.lanes[as_index(lane)].text(),
                                               events.lanes[as_index(chosen.lane)].text()));
        }
        there.merge(more);
    }
}

/// The lengths of each kind of action.
std::map<CostKey, std::vector<Duration>> lengths_by_key(const TraceEvents& events,
                                                        const std::vector<std::size_t>& ranges) {
    std::map<CostKey, std::vector<Duration>> lengths;
    for (const std::size_t i : ranges) {
        if (events.ranges[i].length) {
            lengths[key_of(events.ranges[i])].push_back(*events.ranges[i].length);
        }
    }
    return lengths;
}

/// Lengths of one kind of action.
struct UsualLength {
    std::size_t count = 0;
    Duration shorter_half{};  ///< the largest of the shorter half: of two the shorter one
};

std::map<CostKey, UsualLength> usual_lengths(const TraceEvents& events,
                                             const std::vector<std::size_t>& ranges) {
    std::map<CostKey, UsualLength> usual;
    for (auto& [key, lengths] : lengths_by_key(events, ranges)) {
        std::vector<Duration> sorted = lengths;
        std::ranges::sort(sorted);
        usual[key] = {.count = sorted.size(), .shorter_half = sorted[(sorted.size() - 1) / 2]};
    }
    return usual;
}

/// Ranges of one lane, by their beginnings, that go on when the next one has begun; a microsecond
/// is allowed, as times are rounded. The last one goes on too long if it alone is longer than all
/// others together with the gaps between them.
std::vector<std::size_t> overlong(const TraceEvents& events,
                                  const std::vector<std::size_t>& ranges) {
    constexpr Duration rounding = std::chrono::microseconds(1);
    std::vector<std::size_t> found;
    for (std::size_t place = 0; place < ranges.size(); ++place) {
        const TraceRange& range = events.ranges[ranges[place]];
        if (!range.has_times()) {
            return {};
        }
        const bool is_last = place + 1 == ranges.size();
        if (!is_last && !events.ranges[ranges[place + 1]].has_times()) {
            return {};
        }
        const Duration extent = *range.begin - *events.ranges[ranges.front()].begin;
        if (!is_last && *events.ranges[ranges[place + 1]].begin == *range.begin) {
            continue;  // times of beginning that say nothing
        }
        const bool too_long =
            is_last ? place > 1 && *range.length > extent + rounding
                    : range.end() > *events.ranges[ranges[place + 1]].begin + rounding;
        if (too_long) {
            found.push_back(ranges[place]);
        }
    }
    return found;
}

/// A sentence on ranges with a length that cannot be.
std::string impossible_text(const TraceEvents& events, const std::vector<std::size_t>& ranges) {
    const TraceRange& first = events.ranges[ranges.front()];
    const std::string length =
        first.length ? fmt::format("lasts {}, which cannot be", format_duration(*first.length))
                     : "has no length";
    return fmt::format(
        "{}: {} {}{}",
        events.lanes[as_index(first.lane)].text(),
        range_text(first),
        length,
        ranges.size() > 1
            ? fmt::format(" ({} likewise)", counted(std::ssize(ranges) - 1, "other range"))
            : "");
}

/// The time from the first begin to the last end of the ranges that are possible.
Duration extent_of(const TraceEvents& events, const std::vector<std::size_t>& ranges) {
    std::optional<Duration> begin;
    std::optional<Duration> end;
    for (const std::size_t i : ranges) {
        const TraceRange& range = events.ranges[i];
        if (range.has_times()) {
            begin = std::min(begin.value_or(*range.begin), *range.begin);
            end = std::max(end.value_or(range.end()), range.end());
        }
    }
    return begin ? *end - *begin : Duration{};
}

/// The longest that something may last beside computation that takes `extent` altogether: a receive
/// can have been pending before.
Duration most_beside(Duration extent, bool may_be_pending) {
    return may_be_pending ? 10 * extent : extent;
}

/// Ranges of the streams that are not `lane`, with lengths that cannot be.
std::map<int, std::vector<std::size_t>> impossible_elsewhere(const TraceEvents& events,
                                                             int chosen_lane,
                                                             Duration extent) {
    std::map<int, std::vector<std::size_t>> by_lane;
    for (std::size_t i = 0; i < events.ranges.size(); ++i) {
        const int lane = events.ranges[i].lane;
        if (lane != chosen_lane && events.lanes[as_index(lane)].on_device) {
            by_lane[lane].push_back(i);
        }
    }
    std::map<int, std::vector<std::size_t>> impossible;
    for (auto& [lane, ranges] : by_lane) {
        std::ranges::stable_sort(
            ranges, {}, [&](std::size_t i) { return events.ranges[i].begin.value_or(Duration{}); });
        const std::vector<std::size_t> found = overlong(events, ranges);
        const std::set<std::size_t> suspects(found.begin(), found.end());
        const bool is_damage = 4 * suspects.size() <= ranges.size();
        for (const std::size_t i : ranges) {
            const TraceRange& range = events.ranges[i];
            const bool longer = range.length && extent > Duration{} &&
                                *range.length > most_beside(extent, is_receive(range.action.op));
            const bool overlaps = is_damage && suspects.contains(i);
            if (!range.length || longer || overlaps) {
                impossible[lane].push_back(i);
            }
        }
    }
    return impossible;
}

/// Notes on ranges and kernels of other streams that cannot have lasted so long.
void note_other_streams(const TraceEvents& events, ComputeRanges& chosen) {
    const Duration extent = extent_of(events, chosen.ranges);
    for (const auto& [lane, ranges] : impossible_elsewhere(events, chosen.lane, extent)) {
        chosen.notes.push_back(impossible_text(events, ranges) + "; it changes nothing");
    }
    std::map<int, std::pair<std::int64_t, const TraceKernel*>> kernels;
    for (const TraceKernel& kernel : events.kernels) {
        const Duration most = most_beside(extent, kernel.work != KernelWork::Compute);
        if (extent > Duration{} && kernel.length > most) {
            auto& [count, first] = kernels[kernel.lane];
            first = count == 0 ? &kernel : first;
            ++count;
        }
    }
    for (const auto& [lane, found] : kernels) {
        const auto& [count, first] = found;
        chosen.notes.push_back(fmt::format(
            "{}: kernel {} lasts {}, longer than all ranges together{}; it changes nothing",
            events.lanes[as_index(lane)].text(),
            events.kernel_names[as_index(first->name)].substr(0, 60),
            format_duration(first->length),
            count > 1 ? fmt::format(" ({} likewise)", counted(count - 1, "other kernel")) : ""));
    }
    if (events.damaged_kernels > 0) {
        chosen.notes.push_back(
            fmt::format("left out: {} without times in microseconds, the first is {}",
                        counted(events.damaged_kernels, "kernel"),
                        events.damaged_kernel.substr(0, 60)));
    }
}

}  // namespace

ComputeRanges compute_ranges(const TraceEvents& events, bool on_device) {
    const LaneTable table = lane_table(events, on_device);
    ComputeRanges chosen;
    if (table.ranges.empty()) {
        return chosen;
    }
    const auto best = std::ranges::max_element(
        table.scores, {}, [](const auto& lane) { return lane.second.rank(); });
    chosen.lane = best->first;
    if (!on_device) {
        for (const auto& [lane, ranges] : table.ranges) {
            chosen.ranges.insert(chosen.ranges.end(), ranges.begin(), ranges.end());
        }
        return chosen;
    }
    chosen.ranges = table.ranges.at(chosen.lane);
    for (const auto& [lane, score] : table.scores) {
        const LaneScore& mine = best->second;
        const bool alike = lane != chosen.lane && score.kernels == mine.kernels &&
                           score.ranges == mine.ranges &&
                           score.communications == mine.communications;
        if (alike && score.typical != mine.typical) {
            chosen.notes.push_back(fmt::format(
                "{} and {} have equally many ranges and no kernels that tell which of them "
                "computes: the one with the longer ranges, {}, counts",
                events.lanes[as_index(chosen.lane)].text(),
                events.lanes[as_index(lane)].text(),
                events.lanes[as_index(chosen.lane)].text()));
        }
    }
    add_lacking(events, table, chosen);
    return chosen;
}

void leave_out_impossible(const TraceEvents& events, ComputeRanges& chosen) {
    std::map<int, std::vector<std::size_t>> by_lane;
    for (const std::size_t i : chosen.ranges) {
        by_lane[events.ranges[i].lane].push_back(i);
    }
    std::set<std::size_t> left_out;
    for (auto& [lane, ranges] : by_lane) {
        const auto usual = usual_lengths(events, ranges);
        std::vector<std::size_t> impossible;
        for (const std::size_t i : overlong(events, ranges)) {
            const UsualLength& alike = usual.at(key_of(events.ranges[i]));
            if (alike.count > 1 && *events.ranges[i].length > 2 * alike.shorter_half) {
                impossible.push_back(i);
            }
        }
        if (4 * impossible.size() > ranges.size()) {
            impossible.clear();
        }
        // A range without a length is left out where there are others of its kind.
        for (const std::size_t i : ranges) {
            if (!events.ranges[i].length && usual.contains(key_of(events.ranges[i]))) {
                impossible.push_back(i);
            }
        }
        if (!impossible.empty()) {
            chosen.notes.push_back(impossible_text(events, impossible) + ": left out");
            left_out.insert(impossible.begin(), impossible.end());
        }
    }
    std::erase_if(chosen.ranges, [&](std::size_t i) { return left_out.contains(i); });
    note_other_streams(events, chosen);
}

}  // namespace pipetwin
