#pragma once

#include <array>
#include <string_view>

#include "core/metrics.h"

/// What the writer and the reader of our Chrome traces agree on.
namespace pipetwin::chrome_trace {

constexpr int schema_version = 1;

/// `tid` of an event.
enum Lane { ComputeLane, SendLane, ReceiveLane, LinkLane };
constexpr std::array<std::string_view, 4> lane_names{"compute", "send", "receive", "link"};

inline Lane lane_of(Op op) {
    if (is_send(op)) {
        return SendLane;
    }
    return is_receive(op) ? ReceiveLane : ComputeLane;
}

/// Whether a span's `ready` can differ from its begin, so that it has to be written.
inline bool can_wait(Op op) {
    return is_send(op) || is_receive(op);
}

}  // namespace pipetwin::chrome_trace
