// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pipetwin {

/// What a scenario asks of a plan's shape.
struct AskedShape {
    std::string_view schedule;  ///< our name, or a file
    int chunks = 1;
    int group_size = 0;  ///< 0: not asked for
    int micro_batches = 1;
    int samples = 1;          ///< of the mini-batch of one replica
    int data_parallel = 1;    ///< replicas
    int tensor_parallel = 1;  ///< devices of a rank
    int stages = 1;
    bool sequence_parallel = false;
    bool tensor_overlap = false;  ///< asked for
    bool scatter_boundaries = false;
    std::string_view shard = "none";  ///< the scenario's word
    bool shard_group = false;         ///< asked for
    bool overlap_gather = false;      ///< asked for
    int prefetch = 1;
};

/// Sentences on what the shape asks for and a plan cannot be, or what changes nothing: more
/// micro-batches than samples, micro-batches of unequal sizes, groups for a schedule without, keys
/// of devices or replicas where there is one; and the notes on the schedule.
std::vector<std::string> shape_notes(const AskedShape& asked);

/// Sentences on a schedule that is meant for several chunks per rank and has one, or whose
/// gradients are stale.
std::vector<std::string> schedule_notes(std::string_view schedule, int chunks);

}  // namespace pipetwin
