// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan/step_layout.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/schedule/edge.h"
#include "exec/memory_plan/arena_layout.h"
#include "exec/memory_plan/cross_rank_dependencies.h"
#include "exec/memory_plan/schedule_order.h"

namespace pipetwin::exec {
namespace {

/// Alignment of all blocks, in bytes: fast for copies and vector instructions, on a GPU too.
constexpr std::size_t alignment = 256;

std::size_t aligned(std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

using MessageKey = std::pair<int, int>;  ///< edge, micro-batch

MessageKey key(const MessageName& message) {
    return {message.edge, message.micro_batch};
}

struct Writer {
    int rank = 0;
    int cell = 0;
};

/// The rank that writes each message, and the earliest cell in which it does.
std::map<MessageKey, Writer> writers(const Plan& plan,
                                     std::span<const RowNeeds> needs,
                                     const std::vector<bool>& copied) {
    std::map<MessageKey, Writer> all;
    for (std::size_t rank = 0; rank < needs.size(); ++rank) {
        for (const RowNeeds::Need& need : needs[rank].requests) {
            if (need.sent) {
                all[key(*need.sent)] = {.rank = static_cast<int>(rank), .cell = need.cell};
            }
        }
        const std::vector<Action>& row = plan->schedule.ranks[rank];
        for (std::size_t cell = 0; cell < row.size(); ++cell) {
            const Action& action = row[cell];
            if (is_send(action.op) && copied[as_index(edge_of(plan->schedule, action))]) {
                all[{edge_of(plan->schedule, action), action.micro_batch}] = {
                    .rank = static_cast<int>(rank), .cell = static_cast<int>(cell)};
            }
        }
    }
    return all;
}

}  // namespace

std::vector<std::vector<std::vector<int>>> vector_clocks(const Schedule& schedule, int capacity) {
    const auto order = schedule_order(schedule, capacity);
    const auto awaited = cross_rank_dependencies(schedule, capacity);
    std::vector<std::tuple<int, std::size_t, std::size_t>> cells;  // order, rank, cell
    std::vector<std::vector<std::vector<int>>> known(schedule.ranks.size());
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
        const std::size_t count = schedule.ranks[rank].size();
        known[rank].assign(count + 1, std::vector<int>(schedule.ranks.size(), 0));
        for (std::size_t cell = 0; cell < count; ++cell) {
            cells.emplace_back(order[rank][cell], rank, cell);
        }
    }
    std::ranges::sort(cells);
    for (const auto& [place, rank, cell] : cells) {
        std::vector<int>& after = known[rank][cell + 1];
        after = known[rank][cell];
        after[rank] = static_cast<int>(cell) + 1;
        if (const std::optional<Cell>& other = awaited[rank][cell]) {
            // A rank that has turned to that cell has done those before it, and knew what it knew
            // then.
            const std::size_t peer = as_index(other->rank);
            const std::vector<int>& theirs = known[peer][as_index(other->cell)];
            std::ranges::transform(
                after, theirs, after.begin(), [](int a, int b) { return std::max(a, b); });
            after[peer] = std::max(after[peer], other->cell);
        }
    }
    return known;
}

std::vector<RowLayout> lay_out_step(const Plan& plan,
                                    std::span<const RowNeeds> needs,
                                    const std::vector<bool>& copied) {
    const auto known = vector_clocks(plan->schedule, plan->channel_capacity.value_or(-1));
    const std::map<MessageKey, Writer> writer_of = writers(plan, needs, copied);
    std::vector<RowLayout> layouts;
    for (std::size_t rank = 0; rank < needs.size(); ++rank) {
        const RowNeeds& row = needs[rank];
        std::vector<Block> blocks;
        std::vector<std::size_t> own;  // [block] which of the requests
        for (std::size_t index = 0; index < row.requests.size(); ++index) {
            const RowNeeds::Need& need = row.requests[index];
            if (!need.sent) {
                own.push_back(index);
                blocks.push_back(
                    {.bytes = aligned(need.bytes), .begin = need.begin, .end = need.end});
            }
        }
        for (const RowNeeds::Need& arrival : row.arrivals) {
            const auto writer = writer_of.find(key(arrival.received.value()));
            PIPETWIN_EXPECT(writer != writer_of.end(), "what is received is sent");
            const std::size_t sender = as_index(writer->second.rank);
            const std::size_t cell = as_index(writer->second.cell);
            const int done = known[sender][cell][rank];
            blocks.push_back({.bytes = aligned(arrival.bytes),
                              .begin = row.turns[as_index(done)],
                              .end = arrival.end});
        }
        const ArenaLayout layout = lay_out(blocks);
        RowLayout& result = layouts.emplace_back();
        result.requests.resize(row.requests.size());
        for (std::size_t i = 0; i < own.size(); ++i) {
            result.requests[own[i]] = layout.offsets[i];
        }
        result.arrivals.assign(layout.offsets.begin() + std::ssize(own), layout.offsets.end());
        result.extent = layout.extent;
        result.least = most_needed(blocks);
    }
    return layouts;
}

}  // namespace pipetwin::exec
