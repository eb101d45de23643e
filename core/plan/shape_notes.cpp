// SPDX-License-Identifier: Apache-2.0
#include "core/plan/shape_notes.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>

#include "core/base/number_text.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"

namespace pipetwin {

std::vector<std::string> schedule_notes(std::string_view schedule, int chunks) {
    std::vector<std::string> notes;
    const ScheduleTraits& traits = schedule_traits(schedule);
    if (traits.generate != nullptr && traits.chunks == ChunkCounts::Several && chunks == 1) {
        notes.push_back(fmt::format(
            "{} is meant for two or more chunks per rank, and has one here: --chunks 2, or "
            "pipeline.chunks = 2 in a scenario, sets two",
            schedule));
    }
    if (traits.stale_gradients) {
        notes.push_back(fmt::format(
            "gradients are stale: {} updates weights while micro-batches are under way, so it is "
            "simulated only; the simulated step has a fill and a drain, which a run has only once",
            schedule));
    }
    return notes;
}

std::vector<std::string> shape_notes(const AskedShape& asked) {
    std::vector<std::string> notes;
    const bool is_file = schedule_traits(asked.schedule).generate == nullptr;
    if (asked.micro_batches > asked.samples && !is_file) {
        notes.push_back(
            fmt::format("asked for pipeline.micro_batches = {}, but {} has {}, and a micro-batch "
                        "at least one: the plan "
                        "has {}; training.batch = {} would give each of the {} a sample",
                        asked.micro_batches,
                        asked.data_parallel > 1 ? "the mini-batch of a replica" : "a mini-batch",
                        counted(asked.samples, "sample"),
                        counted(asked.samples, "micro-batch"),
                        std::int64_t{asked.micro_batches} * asked.data_parallel,
                        asked.micro_batches));
    }
    if (asked.micro_batches < asked.samples && asked.samples % asked.micro_batches != 0) {
        const int larger = asked.samples % asked.micro_batches;
        const int samples = asked.samples / asked.micro_batches;
        notes.push_back(fmt::format("{} in {}: {} of {}, and {} of {}",
                                    counted(asked.samples, "sample"),
                                    counted(asked.micro_batches, "micro-batch"),
                                    larger,
                                    samples + 1,
                                    asked.micro_batches - larger,
                                    samples));
    }
    std::ranges::move(schedule_notes(asked.schedule, asked.chunks), std::back_inserter(notes));
    if (asked.group_size > 0 && !schedule_traits(asked.schedule).has_groups) {
        notes.push_back(
            fmt::format("the key pipeline.group_size = {} changes nothing: {} takes no groups of "
                        "micro-batches in turn",
                        asked.group_size,
                        is_file ? "a schedule file" : asked.schedule));
    }
    const auto nothing = [&notes](bool asks, std::string_view key, std::string_view why) {
        if (asks) {
            notes.push_back(fmt::format("the key pipeline.{} changes nothing: {}", key, why));
        }
    };
    const bool one_device = asked.tensor_parallel == 1;
    nothing(asked.sequence_parallel && one_device, "sequence_parallel", "a rank has one device");
    nothing(asked.tensor_overlap && one_device, "tensor_overlap", "a rank has one device");
    nothing(asked.tensor_overlap && !one_device && !asked.sequence_parallel,
            "tensor_overlap",
            "messages go on beside products where sequence_parallel divides them");
    nothing(asked.scatter_boundaries && one_device, "scatter_boundaries", "a rank has one device");
    nothing(asked.scatter_boundaries && !one_device && asked.stages == 1,
            "scatter_boundaries",
            "there is one stage");
    nothing(asked.scatter_boundaries && !one_device && asked.sequence_parallel,
            "scatter_boundaries",
            "with sequence_parallel each device has only its part of what passes between stages");
    nothing(asked.shard != "none" && asked.data_parallel == 1, "shard", "there is one replica");
    nothing(asked.shard_group && asked.data_parallel == 1, "shard_group", "there is one replica");
    nothing(asked.shard_group && asked.data_parallel > 1 && asked.shard == "none",
            "shard_group",
            "replicas divide nothing");
    nothing(
        asked.overlap_gather && asked.data_parallel == 1, "overlap_gather", "there is one replica");
    nothing(asked.overlap_gather && asked.data_parallel > 1 &&
                (asked.shard == "none" || asked.shard == "weights"),
            "overlap_gather",
            "no weights are gathered after an update");
    nothing(asked.prefetch != 1 && asked.shard != "weights",
            "prefetch",
            "it is for shard = \"weights\"");
    return notes;
}

}  // namespace pipetwin
