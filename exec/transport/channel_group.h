// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "exec/device/group.h"
#include "exec/transport/channel.h"

namespace pipetwin::exec {

/// What leads from one member of a group to another, for nothing else: a channel without capacity.
using GroupChannels = std::function<Channel&(int from, int to)>;

/// Makes a member of a group of threads of this process whose tensors lie in host memory. Each
/// member adds up its share of the numbers, reading those of the others where they are, and then
/// copies the sums of the others: in all it reads twice what it has, whatever the number of members.
/// The channels outlive the group.
std::unique_ptr<Group> make_channel_group(int size, int index, const GroupChannels& channels);

}  // namespace pipetwin::exec
