// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan/cross_rank_dependencies.h"

#include <cstddef>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/edge.h"

namespace pipetwin::exec {
namespace {

/// The ends of one edge's messages, in their order.
struct Messages {
    std::vector<Cell> sends;
    std::vector<Cell> receives;
};

const Cell& at(const std::vector<Cell>& cells, std::size_t index) {
    PIPETWIN_EXPECT(index < cells.size(), "every send has its receive");
    return cells[index];
}

}  // namespace

std::vector<std::vector<std::optional<Cell>>> cross_rank_dependencies(const Schedule& schedule,
                                                                      int capacity) {
    std::vector<Messages> edges(edge_count(schedule));
    std::vector<std::optional<Cell>> reductions(as_index(schedule.stage_count()));
    const auto for_each = [&](const auto& visit) {
        for (int rank = 0; rank < schedule.rank_count(); ++rank) {
            const std::vector<Action>& row = schedule.ranks[as_index(rank)];
            for (int cell = 0; cell < static_cast<int>(row.size()); ++cell) {
                visit(Cell{.rank = rank, .cell = cell}, row[as_index(cell)]);
            }
        }
    };
    const auto messages_of = [&](const Action& action) -> Messages& {
        return edges.at(as_index(edge_of(schedule, action)));
    };
    for_each([&](const Cell& cell, const Action& action) {
        if (is_send(action.op)) {
            messages_of(action).sends.push_back(cell);
        } else if (is_receive(action.op)) {
            messages_of(action).receives.push_back(cell);
        } else if (action.op == Op::ReduceGradient) {
            reductions.at(as_index(action.stage)) = cell;
        }
    });

    std::vector<std::vector<std::optional<Cell>>> awaited;
    for (const std::vector<Action>& row : schedule.ranks) {
        awaited.emplace_back(row.size());
    }
    std::vector<std::size_t> sent(edges.size());
    std::vector<std::size_t> received(edges.size());
    for_each([&](const Cell& cell, const Action& action) {
        std::optional<Cell>& other = awaited[as_index(cell.rank)][as_index(cell.cell)];
        if (is_receive(action.op)) {
            const std::size_t edge = as_index(edge_of(schedule, action));
            other = at(edges[edge].sends, received[edge]++);
        } else if (is_send(action.op)) {
            const std::size_t edge = as_index(edge_of(schedule, action));
            const std::size_t index = sent[edge]++;
            const std::size_t room =
                as_index(channel_places(schedule, stages_of(action), std::max(0, capacity)));
            if (capacity >= 0 && index >= room) {
                other = at(edges[edge].receives, index - room);
            }
        } else if (uses_gradients(action.op)) {
            if (const std::optional<int> source = gradient_source(schedule, action.stage)) {
                other = reductions.at(as_index(*source));
            }
        }
    });
    return awaited;
}

std::vector<int> last_norms(const Schedule& schedule) {
    std::vector<int> cells;
    for (const std::vector<Action>& row : schedule.ranks) {
        int& last = cells.emplace_back(-1);
        for (std::size_t cell = 0; cell < row.size(); ++cell) {
            last = row[cell].op == Op::GradientNorm ? static_cast<int>(cell) : last;
        }
    }
    return cells;
}

}  // namespace pipetwin::exec
