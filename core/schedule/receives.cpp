// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/receives.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

namespace {

/// A tensor that a stage receives for a micro-batch: its input, or the gradient of its output.
using ReceivedTensor = std::tuple<bool, int, int>;  // is a gradient, stage, micro-batch

bool uses_input(Op op) {
    return op == Op::Forward;
}

/// A recompute that waits for the gradient stands behind its receive on purpose.
bool uses_gradient(Op op) {
    return op == Op::Backward || op == Op::BackwardInput || op == Op::Recompute;
}

/// For each cell of a row where its receive is to stand: before which cell; the cell itself where
/// it is no receive, or stays.
std::vector<std::size_t> places_of_receives(const std::vector<Action>& row) {
    std::vector<std::size_t> places(row.size());
    std::map<ReceivedTensor, std::size_t> next_use;
    std::map<std::tuple<Op, int, int>, std::size_t> later_of_edge;  // op, stage and hop
    for (std::size_t cell = row.size(); cell-- > 0;) {
        const Action& action = row[cell];
        // Both of an overlapped pair are issued at once, when the tensors of both are there.
        const std::size_t begin = cell > 0 && row[cell - 1].with_next ? cell - 1 : cell;
        places[cell] = cell;
        if (uses_input(action.op)) {
            next_use[{false, action.stage, action.micro_batch}] = begin;
        } else if (uses_gradient(action.op)) {
            next_use[{true, action.stage, action.micro_batch}] = begin;
        } else if (is_receive(action.op)) {
            const bool is_gradient = action.op == Op::RecvBackward;
            const auto use = next_use.find({is_gradient, action.stage, action.micro_batch});
            std::size_t place = use == next_use.end() ? cell : use->second;
            const auto [later, is_last] =
                later_of_edge.try_emplace({action.op, action.stage, action.hop}, place);
            place = std::min(place, later->second);
            later->second = place;
            places[cell] = place;
        }
    }
    return places;
}

std::vector<Action> with_receives_at(const std::vector<Action>& row,
                                     const std::vector<std::size_t>& places) {
    std::vector<std::vector<Action>> moved(row.size());
    for (std::size_t cell = 0; cell < row.size(); ++cell) {
        if (places[cell] != cell) {
            moved[places[cell]].push_back(row[cell]);
        }
    }
    std::vector<Action> result;
    result.reserve(row.size());
    for (std::size_t cell = 0; cell < row.size(); ++cell) {
        result.insert(result.end(), moved[cell].begin(), moved[cell].end());
        if (places[cell] == cell) {
            result.push_back(row[cell]);
        }
    }
    return result;
}

}  // namespace

std::string_view to_string(Receives receives) {
    switch (receives) {
        case Receives::Posted:
            return "posted";
        case Receives::Blocking:
            return "blocking";
    }
    PIPETWIN_EXPECT(false, "receives out of range");
}

Schedule wait_where_used(Schedule schedule) {
    for (std::vector<Action>& row : schedule.ranks) {
        const std::vector<std::size_t> places = places_of_receives(row);
        row = with_receives_at(row, places);
    }
    return schedule;
}

}  // namespace pipetwin
