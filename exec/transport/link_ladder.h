// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/costs/profile.h"
#include "exec/device/memory.h"
#include "exec/transport/process_group.h"

namespace pipetwin::exec {

/// Messages of 4 KiB to 64 MiB to and fro between two processes, over channels as training uses
/// them: the median of half the time there and back. Larger ones are left out where they would take
/// long. Of the two processes, and of all others, which wait: to be called by all. Empty but in
/// processes `first` and `second`. With `gpu` messages lie in that memory.
std::vector<LadderRung> link_ladder(ProcessGroup& group,
                                    int first,
                                    int second,
                                    Memory* gpu = nullptr);

/// What an end of it takes.
constexpr Bytes ladder_memory{std::int64_t{129} << 20};

/// latency + (bytes + half_bandwidth) / bytes_per_second, with the least sum of squares of relative
/// errors from 64 KiB up; the latency is that of the smallest message. Where noise made larger
/// messages no slower than smaller ones, the rate is that of the largest message alone, without a
/// latency. Expects three rungs of those.
LinkCost link_of(const std::vector<LadderRung>& rungs);

/// How long a message of so many bytes is under way by the link's own words.
Duration message_time(const LinkCost& link, Bytes bytes);

/// The slowest link of either kind, of those that pipelines of so many ranks use: between
/// neighbours, and from the first rank to its like in the next replica; and that between two
/// devices of the first rank.
struct MeasuredLinks {
    std::optional<LinkCost> inside{};   ///< of a host: "ranks"
    std::optional<LinkCost> between{};  ///< hosts: "nodes"
    std::optional<LinkCost> devices{};  ///< of a rank: "devices"
};

/// Processes of a training: ranks of a replica, and devices of a rank.
struct RanksOfProcesses {
    int ranks = 1;
    int devices = 1;
};

/// [process] `hosts`: the same number for those of one host. With `gpu`, the memory of this
/// process's, links are those between GPUs; replicas have none. In all processes the same.
MeasuredLinks measured_links(ProcessGroup& group,
                             const RanksOfProcesses& of,
                             const std::vector<int>& hosts,
                             Memory* gpu = nullptr);

}  // namespace pipetwin::exec
