// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/layer_times.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/number_text.h"
#include "core/interop/traces/nsys_events.h"
#include "core/interop/traces/torch_events.h"
#include "core/interop/traces/torch_trace.h"

namespace pipetwin {

namespace {

using std::string_view;

bool lacks_backward(const LayerRanges& ranges) {
    return ranges.backward.empty();
}

std::string pattern_hint(const LayerRanges& ranges) {
    return fmt::format("say how they are named: --backward '{}=PATTERN'", ranges.kind);
}

/// Finds what autograd ran for the nodes that layers made in their forwards.
class BackwardFinder {
  public:
    explicit BackwardFinder(const TraceEvents& events) : events_(events) {
        for (std::size_t i = 0; i < events.ranges.size(); ++i) {
            const TraceRange& range = events.ranges[i];
            const bool is_host = !events.lanes[as_index(range.lane)].on_device;
            if (range.action.op == Op::Forward && is_host && range.has_times()) {
                forwards_[range.lane].push_back(i);
            }
        }
        for (auto& [lane, ranges] : forwards_) {
            std::ranges::stable_sort(
                ranges, {}, [&](std::size_t i) { return *events.ranges[i].begin; });
        }
        number_nodes();
    }

    /// Threads whose forwards have backwards in the trace.
    std::size_t forward_threads() const {
        std::map<std::int64_t, int> threads;
        for (const TraceOperator& of : events_.operators) {
            if (of.is_backward() && layer_of(of)) {
                ++threads[of.forward_thread];
            }
        }
        return threads.size();
    }

    /// A range of the host for the backward of each layer: from the first operator of its nodes to
    /// the last one.
    std::vector<TraceRange> ranges() const {
        std::map<std::size_t, TraceRange> found;  // [forward's range]
        for (const TraceOperator& of : events_.operators) {
            const std::optional<std::size_t> layer = of.is_backward() ? layer_of(of) : std::nullopt;
            if (!layer) {
                continue;
            }
            NamedAction action = events_.ranges[*layer].action;
            action.op = Op::Backward;
            TraceRange& range = found
                                    .try_emplace(*layer,
                                                 TraceRange{.action = action,
                                                            .lane = of.lane,
                                                            .begin = of.begin,
                                                            .length = of.length})
                                    .first->second;
            const Duration end = std::max(range.end(), of.end());
            range.begin = std::min(*range.begin, of.begin);
            range.length = end - *range.begin;
        }
        std::vector<TraceRange> all;
        for (auto& [layer, range] : found) {
            if (!events_.has_kernels) {  // else the kernels of a range count, not its length
                *range.length -= computed_again(range);
            }
            all.push_back(std::move(range));
        }
        return all;
    }

  private:
    /// The last operator of a forward with a number made the node: those before it made none.
    void number_nodes() {
        for (const TraceOperator& of : events_.operators) {
            if (of.is_backward() || !forwards_.contains(of.lane)) {
                continue;
            }
            const TraceOperator*& maker = makers_[of.sequence][of.lane];
            if (maker == nullptr || of.begin >= maker->begin) {
                maker = &of;
            }
        }
    }

    /// The range of the forward that made the node of a backward; none: it was in no range. A
    /// forward on the backward's own thread is one that is computed again, where there is another.
    std::optional<std::size_t> layer_of(const TraceOperator& backward) const {
        const auto found = makers_.find(backward.sequence);
        if (found == makers_.end()) {
            return std::nullopt;
        }
        auto maker = found->second.begin();
        if (maker->first == backward.lane && found->second.size() > 1) {
            ++maker;
        }
        return range_at(*maker->second);
    }

    /// Time of the forwards inside of a backward, on its own thread.
    Duration computed_again(const TraceRange& backward) const {
        const auto lane = forwards_.find(backward.lane);
        Duration sum{};
        Duration end = *backward.begin;  // of the last one: others may lie in it
        if (lane == forwards_.end()) {
            return sum;
        }
        const auto begin_of = [this](std::size_t i) { return *events_.ranges[i].begin; };
        const auto first = std::ranges::lower_bound(lane->second, end, {}, begin_of);
        const auto last = std::ranges::upper_bound(lane->second, backward.end(), {}, begin_of);
        for (auto at = first; at < last; ++at) {
            const TraceRange& forward = events_.ranges[*at];
            if (*forward.begin >= end && forward.end() <= backward.end()) {
                sum += *forward.length;
                end = forward.end();
            }
        }
        return sum;
    }

    /// The innermost range in which an operator begins.
    std::optional<std::size_t> range_at(const TraceOperator& of) const {
        constexpr int deepest = 16;
        const std::vector<std::size_t>& ranges = forwards_.at(of.lane);
        auto after = std::ranges::upper_bound(
            ranges, of.begin, {}, [this](std::size_t i) { return *events_.ranges[i].begin; });
        for (int step = 0; step < deepest && after != ranges.begin(); ++step) {
            --after;
            if (events_.ranges[*after].end() > of.begin) {
                return *after;
            }
        }
        return std::nullopt;
    }

    const TraceEvents& events_;
    std::map<int, std::vector<std::size_t>> forwards_;  ///< [lane of the host]: by their beginnings
    std::map<std::int64_t, std::map<int, const TraceOperator*>> makers_;  ///< [sequence][lane]
};

/// Adds ranges for the backwards of kinds that have no pattern for them.
void add_backwards(TraceEvents& events, string_view place, const std::vector<LayerRanges>& kinds) {
    const auto wanted = std::ranges::find_if(kinds, lacks_backward);
    if (wanted == kinds.end()) {
        return;
    }
    const auto is_backward = [](const TraceOperator& of) { return of.is_backward(); };
    if (std::ranges::none_of(events.operators, is_backward)) {
        throw Error(ErrorKind::BadInput,
                    std::string(place),
                    "no operator of a backward has a \"Sequence number\" and a \"Fwd thread id\", "
                    "which tell the layer that it belongs to",
                    pattern_hint(*wanted));
    }
    const BackwardFinder finder(events);
    if (const std::size_t threads = finder.forward_threads(); threads > 1) {
        throw Error(ErrorKind::BadInput,
                    std::string(place),
                    fmt::format("backwards belong to forwards of {}, expected one: forwards that "
                                "checkpoint(use_reentrant=True) computes again are numbered anew",
                                counted(threads, "thread")),
                    "record with use_reentrant=False, or " + pattern_hint(*wanted));
    }
    for (TraceRange& range : finder.ranges()) {
        if (lacks_backward(kinds[as_index(*range.action.stage)])) {
            events.ranges.push_back(std::move(range));
        }
    }
}

}  // namespace

RangeNames layer_range_names(const std::vector<LayerRanges>& ranges) {
    std::vector<RangeNames::Pattern> patterns;
    for (std::size_t kind = 0; kind < ranges.size(); ++kind) {
        const LayerRanges& of = ranges[kind];
        const bool is_again = std::ranges::count(ranges, of.kind, &LayerRanges::kind) > 1;
        const bool has_stage = of.forward.find("{stage}") != std::string::npos ||
                               of.backward.find("{stage}") != std::string::npos;
        if (is_again || has_stage) {
            throw Error(ErrorKind::Usage,
                        "",
                        is_again ? fmt::format("kind '{}' is named twice", of.kind)
                                 : "{stage} in the pattern of a layer, which is of one rank",
                        is_again ? "one pattern with * can stand for several names"
                                 : "write * in its place");
        }
        const auto stage = static_cast<int>(kind);
        patterns.push_back({.op = Op::Forward, .text = of.forward, .stage = stage});
        if (!lacks_backward(of)) {
            patterns.push_back({.op = Op::Backward, .text = of.backward, .stage = stage});
        }
    }
    RangeNames names(std::move(patterns));
    if (std::ranges::any_of(ranges, lacks_backward)) {
        names.keep_operators();
    }
    return names;
}

LayerTimes layer_times(TraceEvents events,
                       string_view place,
                       const std::vector<LayerRanges>& ranges) {
    add_backwards(events, place, ranges);
    const TorchTrace trace = torch_trace(std::move(events), place, layer_range_names(ranges));
    LayerTimes times{
        .on_gpu = trace.on_gpu, .only_launches = trace.only_launches, .notes = trace.notes};
    for (std::size_t kind = 0; kind < ranges.size(); ++kind) {
        const auto found = trace.stages.find(static_cast<int>(kind));
        const LayerRanges& of = ranges[kind];
        if (found == trace.stages.end() || found->second.forward.empty()) {
            throw Error(
                ErrorKind::BadInput,
                std::string(place),
                fmt::format(
                    "no range has a name like '{}', the forward of kind '{}'", of.forward, of.kind),
                "a pattern is the whole name of a range as the trace gives it; * is any text");
        }
        if (found->second.backward.empty()) {
            throw Error(
                ErrorKind::BadInput,
                std::string(place),
                lacks_backward(of)
                    ? fmt::format("no operator of a backward belongs to a forward of kind "
                                  "'{}'",
                                  of.kind)
                    : fmt::format("no range has a name like '{}', the backward of kind '{}'",
                                  of.backward,
                                  of.kind),
                lacks_backward(of) ? pattern_hint(of)
                                   : "a pattern is the whole name of a range as the trace "
                                     "gives it; * is any text");
        }
        times.kinds.push_back({.kind = of.kind,
                               .forward = found->second.forward,
                               .backward = found->second.backward});
    }
    return times;
}

LayerTimes read_layer_times(const std::filesystem::path& file,
                            const std::vector<LayerRanges>& ranges) {
    const RangeNames names = layer_range_names(ranges);
    if (!is_nsys_file(file)) {
        return layer_times(read_torch_events(file, names), file.string(), ranges);
    }
    std::vector<TraceEvents> ranks = read_nsys_events(file, names);
    if (ranks.size() != 1) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    fmt::format("{}, expected that of one rank", counted(ranks.size(), "process")),
                    "record one rank: nsys profile around one of the processes");
    }
    return layer_times(std::move(ranks.front()), file.string(), ranges);
}

std::vector<CalibrationPoint> points_of(const LayerTimes& times, int micro_batch_size) {
    std::vector<CalibrationPoint> points;
    for (const KindTimes& of : times.kinds) {
        points.push_back({.kind = of.kind,
                          .micro_batch_size = micro_batch_size,
                          .forward = median(of.forward),
                          .backward = median(of.backward)});
    }
    return points;
}

}  // namespace pipetwin
