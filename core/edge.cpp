#include "core/edge.h"

#include "core/error.h"

namespace pipetwin {

int edge_of(const Action& action) {
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
