// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "core/timeline/metrics.h"

/// Numbers and words that the writer and the reader of our Chrome traces share.
namespace pipetwin::chrome_trace {

/// Version of the metadata's form; a reader refuses others.
constexpr int schema_version = 1;

/// `tid` of an event. The last two hold copies of stashes to host memory and back.
enum Lane { ComputeLane, SendLane, ReceiveLane, LinkLane, CopyOutLane, CopyInLane };
/// Name of each lane, by Lane.
constexpr std::array<std::string_view, 6> lane_names{
    "compute", "send", "receive", "link", "copy out", "copy in"};

/// The lane of an action in its rank's process.
inline Lane lane_of(Op op) {
    if (is_send(op)) {
        return SendLane;
    }
    return is_receive(op) ? ReceiveLane : ComputeLane;
}

/// True for actions whose span says how long it waited even if it did not.
inline bool can_wait(Op op) {
    return is_message(op);
}

}  // namespace pipetwin::chrome_trace
