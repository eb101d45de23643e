// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/render_timeline.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/schedule/render_schedule.h"

namespace pipetwin {

namespace {

constexpr char idle = '.';

char glyph(const Action& action) {
    switch (action.op) {
        case Op::Forward:
            return static_cast<char>('0' + action.micro_batch % 10);
        case Op::Backward:
        case Op::BackwardInput:
            return static_cast<char>('a' + action.micro_batch % 26);
        case Op::BackwardWeight:
            return static_cast<char>('A' + action.micro_batch % 26);
        case Op::Recompute:
            return 'r';
        case Op::ReduceGradient:
        case Op::GradientNorm:
        case Op::Optimizer:
            return '#';
        default:
            return idle;
    }
}

Duration last_end(const Timeline& timeline) {
    Duration last{};
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            last = std::max(last, glyph(span.action) == idle ? Duration{} : span.end);
        }
    }
    return last;
}

std::string timeline_row(const std::vector<Span>& row, Duration column, std::size_t columns) {
    std::string text(columns, idle);
    for (const Span& span : row) {
        // The first column whose middle, k * column + column / 2, is not before the span's ready.
        const Duration from = std::max(Duration{}, span.ready - column / 2);
        auto k = static_cast<std::size_t>((from + column - Duration{1}) / column);
        for (; k < columns && static_cast<std::int64_t>(k) * column + column / 2 < span.end; ++k) {
            text[k] = glyph(span.action);
        }
    }
    return text;
}

std::int64_t rounded_quotient(Duration time, Duration unit) {
    return (time + unit / 2) / unit;
}

/// Begins and ends of everything that is drawn, in ascending order, without 0.
std::vector<Duration> drawn_times(const Timeline& timeline) {
    std::vector<Duration> times;
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            if (glyph(span.action) != idle && span.end > span.ready) {
                times.push_back(span.ready);
                times.push_back(span.end);
            }
        }
    }
    std::ranges::sort(times);
    times.erase(times.begin(), std::ranges::upper_bound(times, Duration{}));
    const auto repeated = std::ranges::unique(times);
    times.erase(repeated.begin(), repeated.end());
    return times;
}

/// Shortest time between two of the times, or from 0 to the first. Times that are closer together
/// than a millionth of the last one count as equal: costs were rounded to nanoseconds.
Duration shortest_interval(const std::vector<Duration>& times) {
    const Duration equal = times.back() / 1'000'000;
    Duration before{};
    Duration shortest = times.back();
    for (const Duration time : times) {
        if (time - before > equal) {
            shortest = std::min(shortest, time - before);
        }
        before = time;
    }
    return shortest;
}

/// The longest unit of which all times are multiples; null where it is less than a twelfth of the
/// shortest interval.
std::optional<Duration> common_unit(const std::vector<Duration>& times) {
    constexpr int most_per_interval = 12;
    constexpr std::int64_t tolerance = 1000;  // a time may be off by this part of a unit
    const Duration shortest = shortest_interval(times);
    for (int parts = 1; parts <= most_per_interval; ++parts) {
        const Duration part = shortest / parts;
        if (part == Duration{}) {
            return std::nullopt;
        }
        const std::int64_t count = rounded_quotient(times.back(), part);
        const Duration unit = (times.back() + Duration{count - 1}) / count;
        const bool fits = std::ranges::all_of(times, [&](Duration time) {
            // Multiples of the exact unit, which is the last time over `count`.
            const double multiple = static_cast<double>(time.count()) * static_cast<double>(count) /
                                    static_cast<double>(times.back().count());
            return std::abs(multiple - std::round(multiple)) <= 1.0 / tolerance;
        });
        if (fits) {
            return unit;
        }
    }
    return std::nullopt;
}

}  // namespace

std::string render_timeline(const Timeline& timeline, Duration column) {
    PIPETWIN_EXPECT(column > Duration{}, "a column lasts some time");
    const auto columns =
        static_cast<std::size_t>((last_end(timeline) + column - Duration{1}) / column);
    std::string text;
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
        text += row_label(static_cast<int>(rank), timeline.ranks.size());
        text += timeline_row(timeline.ranks[rank], column, columns) + '\n';
    }
    return text;
}

Duration fitted_column(const Timeline& timeline, int width) {
    PIPETWIN_EXPECT(width > 0, "at least one column");
    return std::max(Duration{1}, (last_end(timeline) + Duration{width - 1}) / width);
}

TimelineColumns timeline_columns(const Timeline& timeline, int width) {
    TimelineColumns columns{.column = fitted_column(timeline, width)};
    const std::vector<Duration> times = drawn_times(timeline);
    if (times.empty()) {
        return columns;
    }
    columns.unit = common_unit(times);
    if (columns.unit) {
        columns.units = rounded_quotient(times.back(), *columns.unit);
        if (columns.units <= width) {
            columns.column = *columns.unit;
        }
    }
    return columns;
}

std::string timeline_legend(const Timeline& timeline) {
    const auto drawn = [&timeline](std::initializer_list<Op> ops) {
        return std::ranges::any_of(timeline.ranks, [&ops](const std::vector<Span>& row) {
            return std::ranges::any_of(row, [&ops](const Span& span) {
                return span.end > span.begin && std::ranges::find(ops, span.action.op) != ops.end();
            });
        });
    };
    std::string text = "digits forward";
    text += drawn({Op::Backward}) ? ", letters backward" : "";
    text += drawn({Op::BackwardInput}) ? ", letters input gradient" : "";
    text += drawn({Op::BackwardWeight}) ? ", capitals weight gradient" : "";
    text += drawn({Op::Recompute}) ? ", r recompute" : "";
    text += drawn({Op::ReduceGradient, Op::GradientNorm, Op::Optimizer})
                ? ", # sum of gradients and update"
                : "";
    return text + ", '.' idle";
}

}  // namespace pipetwin
