#pragma once

#include <array>
#include <cstddef>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/action.h"

namespace pipetwin {

/// The edge that a send or receive uses: 2b leads forward over boundary b, 2b + 1 back. The index
/// of Timeline::links.
constexpr int edge_of(const Action& action) {
    PIPETWIN_EXPECT(is_message(action.op), "only sends and receives use an edge");
    // SEND_F of stage s leads over boundary s, RECV_F over s - 1; SEND_B and RECV_B the other way.
    constexpr std::array offsets{0, -2, -1, 1};
    return 2 * action.stage + offsets[as_index(action.op) - as_index(Op::SendForward)];
}

/// The action at the other end of a message: of a send its receive, of a receive its send.
constexpr Action other_end(const Action& message) {
    PIPETWIN_EXPECT(is_message(message.op), "only sends and receives have another end");
    constexpr std::array ops{Op::RecvForward, Op::SendForward, Op::RecvBackward, Op::SendBackward};
    constexpr std::array stages{1, -1, -1, 1};
    const std::size_t index = as_index(message.op) - as_index(Op::SendForward);
    return {.op = ops[index],
            .stage = message.stage + stages[index],
            .micro_batch = message.micro_batch};
}

}  // namespace pipetwin
