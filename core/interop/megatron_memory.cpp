// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_memory.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/costs/layer_division.h"
#include "core/interop/megatron_model.h"
#include "core/scenario/choices.h"

namespace pipetwin {

namespace {

constexpr auto core_attention =
    recompute_module_words[static_cast<std::size_t>(RecomputeModule::CoreAttention)];

/// Whether the model has such a part: Megatron passes over words of others.
bool has_part(const MegatronFlags& flags, RecomputeModule module) {
    switch (module) {
        case RecomputeModule::LatentUp:
            return flags.latent;
        case RecomputeModule::ExpertActivation:
        case RecomputeModule::Experts:
            return flags.experts.value_or(0) > 0;
        case RecomputeModule::SharedExperts:
            return flags.shared_width.value_or(0) > 0;
        default:
            return true;
    }
}

/// The parts of a block that selective recompute computes again: --recompute-modules, by default
/// core attention.
RecomputeWord selective_recompute(const MegatronFlags& flags) {
    RecomputeWord said{.word = "none"};
    std::vector<std::string_view> unknown;
    for (const std::string& word : flags.recompute_modules) {
        const auto* const found = std::ranges::find(recompute_module_words, word);
        if (found == recompute_module_words.end()) {
            unknown.push_back(word);
        } else if (has_part(flags,
                            static_cast<RecomputeModule>(found - recompute_module_words.begin()))) {
            said.modules.push_back(*found);
        }
    }
    const bool is_attention =
        said.modules == std::vector<std::string_view>{core_attention} && unknown.empty();
    if (flags.recompute_modules.empty() || is_attention) {
        return {.word = "selective"};
    }
    if (!unknown.empty()) {
        said.left_out = fmt::format(
            "--recompute-modules {}: no word of a scenario, so that what they make is kept: a rank "
            "needs at most the memory that a prediction says",
            fmt::join(unknown, " "));
    }
    return said;
}

/// Whether a module is one of experts.
bool is_of_experts(OffloadModule module) {
    return module == OffloadModule::ExpertFirst || module == OffloadModule::ExpertActivation;
}

}  // namespace

OffloadWords megatron_offload(const MegatronFlags& flags) {
    OffloadWords said;
    if (!flags.offloads_inputs) {
        return said;
    }
    std::vector<std::string_view> unknown;
    for (const std::string& word : flags.offload_modules) {
        const auto* const found = std::ranges::find(offload_module_words, word);
        if (found == offload_module_words.end()) {
            unknown.push_back(word);
        } else if (flags.experts.value_or(0) > 0 || !is_of_experts(static_cast<OffloadModule>(
                                                        found - offload_module_words.begin()))) {
            said.modules.push_back(*found);
        }
    }
    said.fraction = flags.offload_fraction.value_or(1);
    if (!unknown.empty()) {
        said.left_out = fmt::format(
            "--offload-modules {}: no word of a scenario, so that what goes in stays: a rank needs "
            "at most the memory that a prediction says",
            fmt::join(unknown, " "));
    }
    return said;
}

std::optional<int> largest_stage(const MegatronFlags& flags, std::string_view place) {
    std::vector<int> blocks;
    if (flags.layout) {
        for (const std::string& stage : flags.layout->stages) {
            blocks.push_back(static_cast<int>(std::ranges::count(stage, 't')));
        }
    } else {
        const int ranks = flags.pipeline_size.value_or(1);
        blocks = megatron_blocks(flags, ranks, megatron_chunks(flags, ranks, place), place);
    }
    return blocks.empty() ? std::nullopt : std::optional(std::ranges::max(blocks));
}

RecomputeWord megatron_recompute(const MegatronFlags& flags, std::string_view place) {
    if (flags.recompute_selective) {
        return selective_recompute(flags);
    }
    if (!flags.recompute_full) {
        return {.word = "none"};
    }
    if (flags.recompute_first) {
        const int first = flags.recompute_layers.value_or(1);
        const bool is_all = first >= largest_stage(flags, place).value_or(first + 1) &&
                            flags.prediction_layers.value_or(0) == 0;
        return {.word = "block", .only = is_all ? 0 : first};
    }
    return {.word = "block", .blocks = flags.recompute_layers.value_or(1)};
}

Shard megatron_shard(const MegatronFlags& flags) {
    if (flags.torch_fsdp) {
        return flags.torch_fsdp_keeps ? Shard::Gradients : Shard::Weights;
    }
    if (!flags.megatron_fsdp) {
        return flags.shard_optimizer ? Shard::Optimizer : Shard::None;
    }
    const std::string strategy = flags.sharding.value_or("optim_grads_params");
    return strategy == "no_shard"      ? Shard::None
           : strategy == "optim"       ? Shard::Optimizer
           : strategy == "optim_grads" ? Shard::Gradients
                                       : Shard::Weights;
}

std::optional<GradientType> megatron_gradients(const MegatronFlags& flags) {
    if (flags.bf16) {
        return flags.gradients_narrow ? GradientType::Same : GradientType::Fp32;
    }
    if (flags.fp16) {
        return flags.gradients_fp32 ? GradientType::Fp32 : GradientType::Same;
    }
    return std::nullopt;
}

std::optional<int> megatron_state_bytes(const MegatronFlags& flags) {
    constexpr int fp32 = 4;
    constexpr int adam_in_fp32 = 3 * fp32;
    if (!flags.state_types || !(flags.bf16 || flags.fp16)) {
        return std::nullopt;
    }
    const auto width = [](const std::optional<std::string>& type) {
        return type.value_or("fp32") == "fp32" ? fp32 : *type == "fp8" ? 1 : 2;
    };
    const bool is_own_copy = flags.fp8 && flags.fp8_recipe.value_or("delayed") != "delayed";
    const bool has_rest_alone = flags.bf16 && !is_own_copy;
    const int copy = has_rest_alone ? 2 : width(flags.main_type);
    const int bytes = copy + width(flags.mean_type) + width(flags.square_type);
    return bytes == adam_in_fp32 ? std::nullopt : std::optional(bytes);
}

bool divides_sequence(const MegatronFlags& flags) {
    return flags.sequence_parallel && flags.tensor_size.value_or(1) > 1;
}

bool has_whole_boundaries(const MegatronFlags& flags) {
    return flags.tensor_size.value_or(1) > 1 && flags.pipeline_size.value_or(1) > 1 &&
           !divides_sequence(flags);
}

bool scatters_boundaries(const MegatronFlags& flags) {
    return has_whole_boundaries(flags) && flags.is_before_2023 && !flags.whole_boundaries;
}

}  // namespace pipetwin
