#include "core/render_text.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "core/error.h"

namespace pipetwin {

namespace {

/// "rank 0  ": padded so that the rows of ten and more ranks begin in one column.
std::string row_label(int rank, std::size_t rank_count) {
    const std::size_t digits = fmt::formatted_size("{}", rank_count == 0 ? 0 : rank_count - 1);
    return fmt::format("rank {:<{}}  ", rank, digits);
}

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

namespace {

std::string cell_text(const Action& action) {
    return to_string(action) + (action.with_next ? "&" : "");
}

/// The part of a row that is shown.
struct Window {
    std::size_t begin = 0;
    std::size_t end = 0;
};

Window window_of(std::size_t row_size, std::size_t max_cells, const std::set<int>& marks) {
    constexpr std::size_t shown_before_mark = 4;
    const std::size_t first_mark = marks.empty() ? 0 : static_cast<std::size_t>(*marks.begin());
    std::size_t begin = 0;
    if (first_mark >= max_cells) {
        begin = std::min(first_mark - shown_before_mark, row_size - std::min(row_size, max_cells));
    }
    return {begin, std::min(row_size, begin + max_cells)};
}

/// Cells padded to one width, and below them the arrows, if any.
std::string grid_row(const std::vector<Action>& row,
                     const std::string& label,
                     const Window& window,
                     const std::set<int>& marks,
                     std::size_t width) {
    std::string line = label;
    std::string arrows(label.size(), ' ');
    if (window.begin > 0) {
        const std::string skipped = fmt::format("({} before) ", window.begin);
        line += skipped;
        arrows.append(skipped.size(), ' ');
    }
    for (std::size_t cell = window.begin; cell < window.end; ++cell) {
        const std::string text = cell_text(row[cell]);
        const bool marked = marks.contains(static_cast<int>(cell));
        line += fmt::format("{:<{}} ", text, width);
        arrows += fmt::format("{:<{}} ", marked ? std::string(text.size(), '^') : "", width);
    }
    if (window.end < row.size()) {
        line += fmt::format("({} more)", row.size() - window.end);
    }
    const auto trimmed = [](std::string text) {
        text.erase(text.find_last_not_of(' ') + 1);
        return text;
    };
    line = trimmed(line) + '\n';
    return marks.empty() ? line : line + trimmed(arrows) + '\n';
}

/// All ranks; of a wide schedule that is pointed at, only those with a mark, as many as fit on a
/// page.
std::vector<std::size_t> ranks_to_show(const std::vector<std::set<int>>& marks_of_rank) {
    constexpr std::size_t page = 16;
    const auto marked = [&](std::size_t rank) { return !marks_of_rank[rank].empty(); };
    std::vector<std::size_t> all(marks_of_rank.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (all.size() <= page || std::ranges::none_of(all, marked)) {
        return all;
    }
    std::erase_if(all, [&](std::size_t rank) { return !marked(rank); });
    all.resize(std::min(all.size(), page));
    return all;
}

std::vector<std::set<int>> by_rank(std::span<const CellMark> marks, std::size_t rank_count) {
    std::vector<std::set<int>> result(rank_count);
    for (const CellMark& mark : marks) {
        if (mark.rank >= 0 && static_cast<std::size_t>(mark.rank) < rank_count) {
            result[static_cast<std::size_t>(mark.rank)].insert(mark.cell);
        }
    }
    return result;
}

}  // namespace

std::string render_schedule(const Schedule& schedule,
                            int max_cells,
                            std::span<const CellMark> marks) {
    PIPETWIN_EXPECT(max_cells > 4, "room for a few cells");
    const std::vector<std::set<int>> marks_of = by_rank(marks, schedule.ranks.size());
    const std::vector<std::size_t> shown = ranks_to_show(marks_of);
    std::vector<Window> windows;
    std::size_t width = 0;
    for (const std::size_t rank : shown) {
        const auto& row = schedule.ranks[rank];
        windows.push_back(
            window_of(row.size(), static_cast<std::size_t>(max_cells), marks_of[rank]));
        for (std::size_t cell = windows.back().begin; cell < windows.back().end; ++cell) {
            width = std::max(width, cell_text(row[cell]).size());
        }
    }
    std::string text;
    for (std::size_t i = 0; i < shown.size(); ++i) {
        const std::size_t rank = shown[i];
        text += grid_row(schedule.ranks[rank],
                         row_label(static_cast<int>(rank), schedule.ranks.size()),
                         windows[i],
                         marks_of[rank],
                         width);
    }
    return text;
}

}  // namespace pipetwin
