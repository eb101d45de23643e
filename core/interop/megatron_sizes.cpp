// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_sizes.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/interop/megatron_layout.h"
#include "core/interop/megatron_memory.h"
#include "core/interop/megatron_model.h"

namespace pipetwin {

namespace {

[[noreturn]] void refuse_sizes(const std::string& place, std::string what, std::string hint) {
    throw Error(ErrorKind::Infeasible, place, std::move(what), std::move(hint));
}

/// A flag that the reader has not seen may be there: its default is no fact then.
void expect_known_stages(const MegatronFlags& flags, const std::string& place) {
    if (flags.pipeline_size || flags.unseen.empty()) {
        return;
    }
    throw Error(ErrorKind::BadInput,
                place,
                fmt::format("no --pipeline-model-parallel-size among the flags that are seen, and "
                            "those that {} {} are not",
                            fmt::join(flags.unseen, ", "),
                            flags.unseen.size() == 1 ? "holds" : "hold"),
                "write the flags in place of the variable; --insist takes Megatron's defaults for "
                "what is not seen, such as one stage");
}

/// Replicas of the pipeline: what tensor, context and pipeline parallelism leave of the devices.
std::optional<int> replicas_of(const MegatronFlags& flags, int ranks, const std::string& place) {
    if (!flags.processes) {
        return std::nullopt;
    }
    // Divided one by one, as the product of the three may be larger than any number here.
    int left = *flags.processes;
    for (const int size : {ranks, flags.tensor_size.value_or(1), flags.context_size.value_or(1)}) {
        if (left % size != 0) {
            refuse_sizes(place,
                         fmt::format("{} cannot be shared out to replicas of {} x {} x {} "
                                     "devices: pipeline x tensor x context parallelism",
                                     counted(*flags.processes, "process"),
                                     ranks,
                                     flags.tensor_size.value_or(1),
                                     flags.context_size.value_or(1)),
                         "Megatron refuses this, too");
        }
        left /= size;
    }
    return left;
}

/// Whether the devices of a stage can share the experts (megatron/core/parallel_state.py).
void expect_expert_groups(const MegatronFlags& flags,
                          std::optional<int> replicas,
                          const std::string& place) {
    const int tensor = flags.tensor_size.value_or(1);
    const int context = flags.context_size.value_or(1);
    const std::int64_t group =
        std::int64_t{flags.expert_size.value_or(1)} * flags.expert_tensor_size.value_or(tensor);
    const std::int64_t stage = replicas ? std::int64_t{tensor} * context * *replicas : group;
    if (stage % group != 0) {
        refuse_sizes(place,
                     fmt::format("{} of a stage cannot be shared out to groups of {} x {} devices: "
                                 "expert x expert tensor parallelism",
                                 counted(stage, "device"),
                                 flags.expert_size.value_or(1),
                                 flags.expert_tensor_size.value_or(tensor)),
                     "Megatron refuses this, too");
    }
}

/// What of groups of replicas, of which each divides the state, a scenario cannot say; empty:
/// nothing.
std::string_view fault_of_groups(const MegatronFlags& flags,
                                 std::optional<int> replicas,
                                 int groups) {
    if (megatron_shard(flags) == Shard::None) {
        return "without --use-distributed-optimizer there is nothing to divide in groups";
    }
    if (!replicas) {
        return "the flags do not say how many GPUs there are, so the groups have no size";
    }
    return *replicas / groups < 2 ? "a group has one replica, and divides nothing" : "";
}

/// Sets the replicas of a group that divides the state: Megatron makes groups of ranks that follow
/// each other.
void set_shard_group(MegatronSizes& sizes,
                     const MegatronFlags& flags,
                     LeaveOut leave_out,
                     const std::string& place) {
    const int groups = flags.optimizer_groups.value_or(1);
    if (groups == 1) {
        return;
    }
    std::string flag = fmt::format("--num-distributed-optimizer-instances {}", groups);
    const std::string_view fault = fault_of_groups(flags, sizes.replicas, groups);
    if (fault.empty() && *sizes.replicas % groups != 0) {
        refuse_sizes(
            place,
            fmt::format("{} do not make {} alike", counted(*sizes.replicas, "replica"), flag),
            "Megatron refuses this, too");
    }
    if (fault.empty()) {
        sizes.shard_group = *sizes.replicas / groups;
        return;
    }
    if (leave_out != LeaveOut::All) {
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("{}: {}", flag, fault),
                    sizes.replicas
                        ? "take it out; --insist leaves it out, and says so in the result"
                        : "add --devices N to the command, all of the run");
    }
    sizes.left_out.push_back(std::move(flag));
}

}  // namespace

MegatronSizes megatron_sizes(const MegatronFlags& flags,
                             LeaveOut leave_out,
                             const std::string& place) {
    MegatronSizes sizes{.ranks = flags.pipeline_size.value_or(1)};
    check_layout(flags, place);
    if (flags.torch_fsdp && sizes.ranks > 1) {
        refuse_sizes(
            place,
            fmt::format("--use-torch-fsdp2 beside --pipeline-model-parallel-size {}", sizes.ranks),
            "Megatron refuses this, too");
    }
    sizes.chunks = megatron_chunks(flags, sizes.ranks, place);
    sizes.replicas = replicas_of(flags, sizes.ranks, place);
    if (flags.experts.value_or(0) > 0) {
        expect_expert_groups(flags, sizes.replicas, place);
    }
    set_shard_group(sizes, flags, leave_out, place);
    if (leave_out != LeaveOut::All) {
        expect_known_stages(flags, place);
    }
    return sizes;
}

std::optional<int> megatron_batch(const MegatronFlags& flags,
                                  const MegatronSizes& sizes,
                                  const std::string& place) {
    if (flags.global_batch_size || !flags.micro_batch_size || !sizes.replicas) {
        return flags.global_batch_size;
    }
    constexpr std::int64_t most = 1 << 30;
    const std::int64_t samples = std::int64_t{*flags.micro_batch_size} * *sizes.replicas;
    if (samples > most) {
        refuse_sizes(place,
                     fmt::format("--micro-batch-size {} on {} replicas are {} samples, expected at "
                                 "most {}",
                                 *flags.micro_batch_size,
                                 *sizes.replicas,
                                 samples,
                                 most),
                     "is there a digit too many in --micro-batch-size?");
    }
    return static_cast<int>(samples);  // Megatron's default
}

std::optional<std::int64_t> megatron_micro_batches(const MegatronFlags& flags,
                                                   const MegatronSizes& sizes,
                                                   const std::string& place) {
    const std::optional<int> samples = megatron_batch(flags, sizes, place);
    if (!samples || !flags.micro_batch_size) {
        return std::nullopt;
    }
    const std::int64_t size = std::int64_t{*flags.micro_batch_size} * sizes.replicas.value_or(1);
    if (*samples % size != 0) {
        refuse_sizes(
            place,
            fmt::format(
                "--global-batch-size {} is not a multiple of --micro-batch-size {}{}",
                *samples,
                *flags.micro_batch_size,
                sizes.replicas ? fmt::format(" x {}", counted(*sizes.replicas, "replica")) : ""),
            "Megatron refuses this, too");
    }
    return *samples / size;
}

std::vector<int> megatron_stage_blocks(const MegatronFlags& flags,
                                       const MegatronSizes& sizes,
                                       const std::string& place) {
    if (!flags.layout) {
        return megatron_blocks(flags, sizes.ranks, sizes.chunks, place);
    }
    try {
        layout_partition(*flags.layout);  // refuses empty stages
    } catch (const Error& error) {
        throw error.at(place);
    }
    std::vector<int> counts;
    for (const std::string& stage : flags.layout->stages) {
        counts.push_back(static_cast<int>(std::ranges::count(stage, 't')));
        const bool is_last = counts.size() == flags.layout->stages.size();
        if (stage.find('m') != std::string::npos && !is_last) {
            refuse_sizes(place,
                         fmt::format("stage {} has a layer m, but here those that predict further "
                                     "tokens stand on the last stage, with the head",
                                     counts.size() - 1),
                         "move the layers m of the layout to the end: '...mL'");
        }
    }
    return counts;
}

}  // namespace pipetwin
