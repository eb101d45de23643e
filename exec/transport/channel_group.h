// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "exec/device/device.h"
#include "exec/device/group.h"
#include "exec/transport/channel.h"

namespace pipetwin::exec {

/// What leads from one member of a group to another, for nothing else: a channel without capacity.
using GroupChannels = std::function<Channel&(int from, int to)>;

/// A member of a group.
struct GroupMember {
    int size = 1;
    int index = 0;
    bool are_remote = false;  ///< the others are other processes, not threads of this one
    GroupKind kind = GroupKind::Devices;
    /// Numbers of the members among all devices of the rank, or all replicas.
    int first = 0;
    int step = 1;
};

/// Makes a member of a group whose tensors lie in the device's memory. Each member adds up its
/// share of the numbers, of which threads read those of the others where they are, and then gets
/// the sums of the others: in all it gets less than twice what it has, whatever the number of
/// members. The members of a device that works by itself, as a GPU does, are remote. Device and
/// channels outlive the group.
std::unique_ptr<Group> make_channel_group(const GroupMember& member,
                                          Device& device,
                                          const GroupChannels& channels);

}  // namespace pipetwin::exec
