#pragma once

#include "core/action.h"
#include "core/error.h"

namespace pipetwin {

/// The edge that a send or receive uses: 2b leads forward over boundary b, 2b + 1 back. The index
/// of Timeline::links.
inline int edge_of(const Action& action) {
    switch (action.op) {
        case Op::SendForward:
            return 2 * action.stage;
        case Op::RecvForward:
            return 2 * (action.stage - 1);
        case Op::SendBackward:
            return 2 * (action.stage - 1) + 1;
        case Op::RecvBackward:
            return 2 * action.stage + 1;
        default:
            PIPETWIN_EXPECT(false, "only sends and receives use an edge");
    }
}

}  // namespace pipetwin
