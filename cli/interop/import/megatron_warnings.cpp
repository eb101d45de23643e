// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/megatron_warnings.h"

#include <fmt/format.h>

#include "core/base/number_text.h"
#include "core/interop/megatron_memory.h"

namespace pipetwin::cli {

std::string attention_warning(const CoreAttention& attention, bool estimates) {
    if (attention.reason.empty()) {
        return {};
    }
    if (attention.is_standard && estimates) {
        return fmt::format(
            "{}: attention is estimated as separate kernels over all scores, "
            "which are kept; --attention flash estimates fused kernels",
            attention.reason);
    }
    if (attention.is_standard) {
        return fmt::format(
            "{}: attention is separate kernels over all scores, which are kept: "
            "a profile of the model has to be one with --attention standard",
            attention.reason);
    }
    if (!attention.is_certain && estimates) {
        return fmt::format(
            "{}: fused attention is estimated, which is Megatron's default since "
            "June 2024; for an older version add --attention standard",
            attention.reason);
    }
    return {};
}

std::string group_warning(const MegatronFlags& flags,
                          const MegatronSizes& sizes,
                          std::int64_t count) {
    if (sizes.chunks == 1 || flags.group_size || !sizes.replicas || count % sizes.ranks == 0) {
        return {};
    }
    return fmt::format(
        "Megatron refuses {} in groups of {}, because the last group has fewer than the {} ranks; "
        "--microbatch-group-size-per-virtual-pipeline-stage sets the groups",
        counted(count, "micro-batch"),
        sizes.ranks,
        sizes.ranks);
}

std::vector<std::string> unsaid_warnings(const MegatronFlags& flags, bool knows_device) {
    std::vector<std::string> warnings;
    if (flags.sequence_parallel && !divides_sequence(flags)) {
        warnings.emplace_back(
            "--sequence-parallel: Megatron turns it off where --tensor-model-parallel-size is "
            "1, and the fragment leaves it out");
    }
    if (has_whole_boundaries(flags) && !flags.is_before_2023 && !flags.whole_boundaries) {
        warnings.emplace_back(
            "boundaries between stages: each device of tensor parallelism sends them whole, as "
            "Megatron does since March 2023; for an older version, which sends parts, set "
            "pipeline.scatter_boundaries = true");
    }
    if (flags.megatron_fsdp && !flags.sharding) {
        warnings.emplace_back(
            "no --data-parallel-sharding-strategy: the fragment says shard = \"weights\", as "
            "Megatron core 0.19 takes it; older versions share nothing then");
    }
    if (!knows_device && flags.processes && flags.per_node && *flags.processes > *flags.per_node) {
        warnings.emplace_back(
            "several nodes: set cluster.node_link, as the flags do not say what connects them");
    }
    if (!flags.pipeline_size) {
        warnings.emplace_back("no --pipeline-model-parallel-size: one stage, as in Megatron");
    }
    return warnings;
}

}  // namespace pipetwin::cli
