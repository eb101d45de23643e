// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/render_schedule.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "core/base/as_index.h"

namespace pipetwin {

std::string row_label(int rank, std::size_t rank_count) {
    const std::size_t digits = fmt::formatted_size("{}", rank_count == 0 ? 0 : rank_count - 1);
    return fmt::format("rank {:<{}}  ", rank, digits);
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
    const std::size_t shown_before_mark = std::min<std::size_t>(4, max_cells / 2);
    const auto mark = marks.lower_bound(0);  // behind that of the rank's name
    const std::size_t first_mark = mark == marks.end() ? 0 : static_cast<std::size_t>(*mark);
    std::size_t begin = 0;
    if (first_mark >= max_cells) {
        begin = std::min(first_mark - shown_before_mark, row_size - std::min(row_size, max_cells));
    }
    return {begin, std::min(row_size, begin + max_cells)};
}

std::string count_before(const Window& window) {
    return window.begin > 0 ? fmt::format("({} before) ", window.begin) : "";
}

/// Cells padded to one width, and below them the arrows, if any. `before`: the columns for the
/// count of the cells before the window, in all rows.
std::string grid_row(const std::vector<Action>& row,
                     const std::string& label,
                     const Window& window,
                     const std::set<int>& marks,
                     std::size_t width,
                     std::size_t before) {
    std::string line = label;
    const std::size_t name = label.find_last_not_of(' ') + 1;
    std::string arrows(label.size(), ' ');
    arrows.replace(0, name, name, marks.contains(-1) ? '^' : ' ');
    line += fmt::format("{:<{}}", count_before(window), before);
    arrows.append(before, ' ');
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
        if (mark.rank >= 0 && as_index(mark.rank) < rank_count) {
            result[as_index(mark.rank)].insert(mark.cell);
        }
    }
    return result;
}

}  // namespace

std::string render_schedule(const Schedule& schedule,
                            int columns,
                            std::span<const CellMark> marks) {
    const std::vector<std::set<int>> marks_of = by_rank(marks, schedule.ranks.size());
    const std::vector<std::size_t> shown = ranks_to_show(marks_of);
    std::size_t width = 0;
    for (const std::size_t rank : shown) {
        for (const Action& action : schedule.ranks[rank]) {
            width = std::max(width, cell_text(action).size());
        }
    }
    const std::size_t max_cells = std::max<std::size_t>(2, as_index(columns) / (width + 1));
    std::vector<Window> windows;
    std::size_t before = 0;
    for (const std::size_t rank : shown) {
        windows.push_back(window_of(schedule.ranks[rank].size(), max_cells, marks_of[rank]));
        before = std::max(before, count_before(windows.back()).size());
    }
    std::string text;
    for (std::size_t i = 0; i < shown.size(); ++i) {
        const std::size_t rank = shown[i];
        text += grid_row(schedule.ranks[rank],
                         row_label(static_cast<int>(rank), schedule.ranks.size()),
                         windows[i],
                         marks_of[rank],
                         width,
                         before);
    }
    return text;
}

}  // namespace pipetwin
