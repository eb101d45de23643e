#include "core/timeline/render_timeline.h"

#include <algorithm>
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

Duration fitted_column(const Timeline& timeline, int width, Duration least) {
    PIPETWIN_EXPECT(width > 0, "at least one column");
    return std::max(least, (last_end(timeline) + Duration{width - 1}) / width);
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
