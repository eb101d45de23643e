// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "exec/transport/channel.h"

namespace pipetwin::exec {

/// A channel between processes whose messages are not to be had before Message::available: that
/// moment goes ahead of each. For processes of one machine, whose clocks are one. `inner` has room
/// for twice as many messages.
std::unique_ptr<Channel> make_timed_channel(std::unique_ptr<Channel> inner);

}  // namespace pipetwin::exec
