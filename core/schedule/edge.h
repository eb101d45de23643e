// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/action.h"
#include "core/schedule/schedule.h"

/// Messages go between pairs of stages. Pair b, for every boundary b, is stages b and b + 1; behind
/// them come the schedule's skips. Each pair has two edges: 2 * pair leads to the later stage, 2 *
/// pair + 1 back.
namespace pipetwin {

/// Number of boundaries: one behind each stage but the last.
inline std::size_t boundary_count(const Schedule& schedule) {
    return schedule.rank_of_stage.empty() ? 0 : schedule.rank_of_stage.size() - 1;
}

/// Number of pairs of stages that messages can go between: the boundaries and the skips.
inline std::size_t pair_count(const Schedule& schedule) {
    return boundary_count(schedule) + schedule.skips.size();
}

/// Number of edges: two for each pair of stages.
inline std::size_t edge_count(const Schedule& schedule) {
    return 2 * pair_count(schedule);
}

/// The stages of a pair, by its number.
inline StagePair stages_of_pair(const Schedule& schedule, std::size_t pair) {
    const std::size_t boundaries = boundary_count(schedule);
    if (pair < boundaries) {
        return {.from = static_cast<int>(pair), .to = static_cast<int>(pair) + 1};
    }
    return schedule.skips.at(pair - boundaries);
}

/// Boundaries that lie between the stages of a pair: 1 for neighbours.
constexpr int distance(const StagePair& pair) {
    return pair.to - pair.from;
}

/// The stages that a message goes between.
constexpr StagePair stages_of(const Action& message) {
    const int peer = peer_stage(message);
    return peer < message.stage ? StagePair{.from = peer, .to = message.stage}
                                : StagePair{.from = message.stage, .to = peer};
}

/// True if a schedule has an edge for this send or receive: both stages exist, and are neighbours
/// or one of its skips.
inline bool has_edge(const Schedule& schedule, const Action& message) {
    const StagePair stages = stages_of(message);
    return stages.from >= 0 && stages.to < schedule.stage_count() &&
           (message.hop == 0 || std::ranges::binary_search(schedule.skips, stages));
}

/// The edge that a skip message uses. It must have one.
int edge_of_skip(const Schedule& schedule, const Action& message);

/// The edge that a send or receive uses, by its number: the index of Timeline::links. The message
/// must have an edge.
inline int edge_of(const Schedule& schedule, const Action& message) {
    PIPETWIN_EXPECT(is_message(message.op), "only sends and receives use an edge");
    if (message.hop != 0) [[unlikely]] {
        return edge_of_skip(schedule, message);
    }
    // SEND_F of stage s leads over boundary s, RECV_F over s - 1; SEND_B and RECV_B the other way.
    constexpr std::array offsets{0, -2, -1, 1};
    return 2 * message.stage + offsets[as_index(message.op) - as_index(Op::SendForward)];
}

/// The action at the other end of a message: of a send its receive, of a receive its send.
constexpr Action other_end(const Action& message) {
    PIPETWIN_EXPECT(is_message(message.op), "only sends and receives have another end");
    constexpr std::array ops{Op::RecvForward, Op::SendForward, Op::RecvBackward, Op::SendBackward};
    return {.op = ops[as_index(message.op) - as_index(Op::SendForward)],
            .stage = peer_stage(message),
            .micro_batch = message.micro_batch,
            .hop = message.hop};
}

/// Messages that a pair's channel has room for where those of neighbours have `capacity`: as many
/// for each boundary that lies between, as a message is under way for as many micro-batches; no
/// more than there are micro-batches.
inline int channel_places(const Schedule& schedule, const StagePair& pair, int capacity) {
    if (distance(pair) == 1) {
        return capacity;
    }
    const std::int64_t places = std::int64_t{capacity} * distance(pair);
    return static_cast<int>(std::min<std::int64_t>(places, std::max(1, schedule.micro_batches)));
}

}  // namespace pipetwin
