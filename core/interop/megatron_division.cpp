// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_division.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/number_text.h"
#include "core/interop/megatron_stack.h"

namespace pipetwin {

namespace {

ExpertDispatch dispatch_of(const MegatronFlags& flags) {
    const bool is_flex = flags.dispatcher == "flex";
    if (is_flex && flags.flex_backend == "hybridep") {
        return ExpertDispatch::HybridEp;
    }
    return is_flex || flags.deepep ? ExpertDispatch::DeepEp : ExpertDispatch::Nccl;
}

/// Whether each device gathers the tokens of all: Megatron-LM's default, but YAML files continue
/// classes and files that say otherwise.
bool gathers_rows(const MegatronFlags& flags) {
    return !flags.deepep &&
           flags.dispatcher.value_or(flags.is_key_file ? "alltoall" : "allgather") == "allgather";
}

}  // namespace

int rows_of_padding(std::string_view precision) {
    constexpr int of_fp8 = 16;
    constexpr int of_blocks_of_32 = 32;
    if (precision == "mxfp8" || precision == "nvfp4") {
        return of_blocks_of_32;
    }
    return precision.starts_with("fp8") ? of_fp8 : 1;
}

std::vector<std::string> division_warnings(const MegatronFlags& flags) {
    std::vector<std::string> warnings;
    if (flags.expert_size.value_or(1) > 1 && gathers_rows(flags)) {
        warnings.push_back(fmt::format(
            "{}: each device gathers the tokens of all; the prediction sends a token to its "
            "experts alone, as alltoall does, so a step is at least as long",
            flags.dispatcher ? "--moe-token-dispatcher-type allgather"
                             : "no --moe-token-dispatcher-type, which is allgather"));
    }
    const int in_node = flags.per_node.value_or(1) / flags.tensor_size.value_or(1);
    const int heads = hierarchical_sizes(flags.context_size.value_or(1), in_node).front();
    if (flags.context_method == ContextMethod::RingAllToAll && flags.per_node &&
        !flags.context_sizes.empty() && flags.context_sizes.front() != heads) {
        warnings.push_back(
            fmt::format("--hierarchical-context-parallel-sizes {}: the prediction divides heads "
                        "among the {} of a node that have parts of a sample",
                        fmt::join(flags.context_sizes, " "),
                        counted(heads, "device")));
    }
    if (flags.expert_capacity && !flags.fills_capacity) {
        warnings.emplace_back(
            "--moe-expert-capacity-factor without --moe-pad-expert-input-to-capacity: the "
            "prediction fills experts up to their capacity; a step is at most as long");
    }
    return warnings;
}

std::string division_lines(const MegatronFlags& flags) {
    std::string text;
    if (const int context = flags.context_size.value_or(1); context > 1) {
        text += fmt::format("context_parallel = {}\n", context);
        if (flags.context_method) {
            text += fmt::format("context_method = \"{}\"\n", to_string(*flags.context_method));
        }
    }
    if (flags.experts.value_or(0) > 0 || flags.expert_size.value_or(1) > 1) {
        if (flags.expert_size) {
            text += fmt::format("expert_parallel = {}\n", *flags.expert_size);
        }
        if (flags.expert_tensor_size) {
            text += fmt::format("expert_tensor_parallel = {}\n", *flags.expert_tensor_size);
        }
        if (const ExpertDispatch dispatch = dispatch_of(flags); dispatch != ExpertDispatch::Nccl) {
            text += fmt::format("expert_dispatch = \"{}\"\n", to_string(dispatch));
        }
    }
    return flags.pipeline_before_data ? text + "order = \"tp-cp-ep-pp-dp\"\n" : text;
}

std::string expert_lines(const MegatronFlags& flags) {
    std::string text;
    if (flags.balances_experts) {
        text += "expert_load = \"balanced\"\n";
    }
    if (flags.expert_capacity) {
        text += fmt::format("expert_capacity = {}\n", *flags.expert_capacity);
    }
    if (flags.fills_rows && flags.fp8) {
        text += fmt::format("expert_padding = {}\n", rows_of_padding(megatron_narrow_type(flags)));
    }
    return text;
}

std::vector<int> hierarchical_sizes(int context, int in_node) {
    const int heads = std::clamp(in_node, 1, context);
    return {heads, context / heads};
}

void set_dispatch(ExpertDispatch dispatch, MegatronFlags& flags) {
    flags.dispatcher = dispatch == ExpertDispatch::Nccl ? "alltoall" : "flex";
    if (dispatch != ExpertDispatch::Nccl) {
        flags.flex_backend = to_string(dispatch);
    }
}

}  // namespace pipetwin
