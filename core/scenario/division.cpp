// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/division.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/device_profile.h"
#include "core/costs/estimate_source.h"
#include "core/costs/profile.h"
#include "core/scenario/choices.h"
#include "core/scenario/cluster/pipeline_contention.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/settled_scenario.h"
#include "core/scenario/shard_group.h"

namespace pipetwin {

namespace {

bool has_experts(const Profile& profile) {
    return std::ranges::any_of(profile.layers,
                               [](const LayerCost& layer) { return layer.expert_bytes > Bytes{}; });
}

/// Whether other devices divide routed experts than all other weights.
bool expert_rules_apply(const SettledScenario& scenario, const Profile& profile) {
    const auto& pipeline = scenario.pipeline;
    const bool is_as_dense = pipeline.expert_parallel == 1 && pipeline.context_parallel == 1 &&
                             pipeline.expert_tensor_devices() == pipeline.tensor_parallel;
    return !is_as_dense && has_experts(profile);
}

[[noreturn]] void refuse(const SettledScenario& scenario,
                         std::string_view key,
                         std::string text,
                         Hint hint) {
    throw Error(ErrorKind::BadInput, scenario.file.string(), std::move(text), std::move(hint))
        .about(std::string(key));
}

/// Rows of the fullest of `parts` groups of neighbouring experts over the mean.
double fullest_part(std::span<const double> shares, int parts) {
    const std::size_t size = shares.size() / as_index(parts);
    double most = 0;
    for (int part = 0; part < parts; ++part) {
        const auto own = shares.subspan(as_index(part) * size, size);
        most = std::max(most, std::accumulate(own.begin(), own.end(), 0.0));
    }
    return std::max(1.0, most * parts);
}

void require_shares(const SettledScenario& scenario, std::size_t shares, int experts) {
    if (shares != as_index(experts)) {
        refuse(scenario,
               "training.expert_load",
               fmt::format("training.expert_load has {}, but a layer has {}",
                           counted(shares, "share"),
                           counted(experts, "expert")),
               "give the share of each expert of a layer, in their order");
    }
}

ExpertLoad expert_load(const SettledScenario& scenario, const DecoderModel& model) {
    const auto& training = scenario.training;
    const auto& written = training.expert_load;
    const int parts = scenario.pipeline.expert_parallel;
    const int experts = model.experts.count;
    ExpertLoad load{.fullest = written.fullest,
                    .capacity = training.expert_capacity,
                    .padding = training.expert_padding};
    if (!written.shares.empty()) {
        require_shares(scenario, written.shares.size(), experts);
        load.fullest = fullest_part(written.shares, parts);
    }
    if (written.of_blocks.empty()) {
        return load;
    }
    std::size_t next = 0;
    for (const bool routes : model.has_experts) {
        double fullest = 1;
        if (routes && next < written.of_blocks.size()) {
            require_shares(scenario, written.of_blocks[next].size(), experts);
            fullest = fullest_part(written.of_blocks[next], parts);
        }
        next += routes ? 1 : 0;
        load.of_block.push_back(fullest);
    }
    if (next != written.of_blocks.size()) {
        refuse(scenario,
               "training.expert_load",
               fmt::format("{} has loads of {}, but {} of the model have experts",
                           written.file.string(),
                           counted(written.of_blocks.size(), "block"),
                           next),
               "give a list of shares for each block with experts, in their order");
    }
    return load;
}

}  // namespace

bool routes_experts(const Profile& profile) {
    return profile.estimated_from && has_experts(profile);
}

DividedModel divided_model(const Profile& profile) {
    const EstimateSource* const source = profile.estimated_from.get();
    if (source == nullptr) {
        return {};
    }
    const DecoderModel& model = source->model;
    const AttentionShape& first = model.attention;
    DividedModel divided{
        .experts = model.experts.count,
        .expert_width = model.experts.count > 0 ? model.experts.width : 0,
        .heads =
            first.compressed ? std::gcd(first.heads, first.compressed->output_groups) : first.heads,
        .key_value_heads = first.latent || first.compressed ? 0 : first.key_value_heads,
        .sequence = source->options.sequence};
    // What divides the heads of every kind of block divides their greatest common divisor.
    for (const AttentionShape& other : model.other_attentions) {
        const int heads = other.mamba    ? std::gcd(other.mamba->heads, other.mamba->groups)
                          : other.linear ? other.linear->value_heads
                                         : other.heads;
        divided.heads = std::gcd(divided.heads, heads);
        if (!other.mamba && !other.linear && !other.latent && !other.compressed) {
            divided.key_value_heads = std::gcd(divided.key_value_heads, other.key_value_heads);
        }
    }
    return divided;
}

ParallelSizes parallel_sizes(const SettledScenario& scenario, int ranks) {
    const auto& pipeline = scenario.pipeline;
    return {.tensor = pipeline.tensor_parallel,
            .context = pipeline.context_parallel,
            .data = pipeline.data_parallel,
            .pipeline = ranks,
            .expert_tensor = pipeline.expert_tensor_devices(),
            .expert = pipeline.expert_parallel};
}

AxisOrder axis_order(const SettledScenario& scenario) {
    return axis_order(scenario.pipeline.order, scenario.cluster.placement);
}

AxisOrder axis_order(const std::optional<AxisOrder>& written, Placement placement) {
    return written.value_or(placement == Placement::ReplicasFirst ? pipeline_last : data_last);
}

namespace {

ModuleRules module_lists(const SettledScenario& scenario) {
    const auto& pipeline = scenario.pipeline;
    return {.recompute = pipeline.recompute_modules,
            .offload = pipeline.offload_modules,
            .offload_fraction = pipeline.offload_fraction,
            .recompute_only = pipeline.recompute_only};
}

}  // namespace

ModuleRules module_rules(const SettledScenario& scenario,
                         const Profile& profile,
                         const RankDevice& device) {
    ModuleRules rules = module_lists(scenario);
    rules.host_link = host_link(scenario.cluster, profile);
    if (!rules.host_link && device.profile) {
        const LinkFacts& link = device.profile->host_link;
        rules.host_link = LinkCost{.between = "host",
                                   .latency = link.latency.value,
                                   .bytes_per_second = link.bytes_per_second.value};
    }
    if (!rules.host_link && !rules.offload.empty()) {
        refuse(scenario,
               "pipeline.offload_modules",
               "pipeline.offload_modules is given, but neither scenario, profile nor device says "
               "how fast the link to host memory is",
               "set cluster.host_link = \"pcie-4\", or another of its kind, or "
               "cluster.host_link_gbps");
    }
    return rules;
}

LayerDivision layer_division(const SettledScenario& scenario,
                             const Profile& profile,
                             int context_nodes) {
    const auto& pipeline = scenario.pipeline;
    LayerDivision division{.tensor = pipeline.tensor_parallel,
                           .sequence_parallel = pipeline.sequence_parallel,
                           .context = pipeline.context_parallel,
                           .context_method = pipeline.context_method,
                           .context_ring = context_nodes,
                           .expert_tensor = pipeline.tensor_parallel,
                           .by_module = module_lists(scenario).are_any()};
    const EstimateSource* const source = profile.estimated_from.get();
    if (source != nullptr && has_experts(profile)) {
        division.expert = pipeline.expert_parallel;
        division.expert_tensor = pipeline.expert_tensor_devices();
        division.load = expert_load(scenario, source->model);
        if (division.expert > 1) {
            division.dispatch = pipeline.expert_dispatch;
        }
    }
    return division;
}

SharingDevices sharing_devices(const SettledScenario& scenario, const Profile& profile) {
    const auto& pipeline = scenario.pipeline;
    const int group = group_size(scenario);
    SharingDevices sharing{.dense = group * pipeline.context_parallel};
    sharing.experts = sharing.dense;
    if (expert_rules_apply(scenario, profile)) {
        const int stage = pipeline.rank_devices() * group;
        sharing.experts =
            std::max(1, stage / (pipeline.expert_tensor_devices() * pipeline.expert_parallel));
    }
    return sharing;
}

std::optional<ExpertRules> expert_rules(const SettledScenario& scenario, const Profile& profile) {
    if (!expert_rules_apply(scenario, profile)) {
        return std::nullopt;
    }
    const auto& pipeline = scenario.pipeline;
    return ExpertRules{.devices = pipeline.expert_tensor_devices() * pipeline.expert_parallel,
                       .shards = shards_among(sharing_devices(scenario, profile).experts,
                                              scenario,
                                              stack_of(scenario, profile).get())};
}

namespace {

/// Refuses a module, if one of the lists has it, that the model has no part of.
template <class List, class Module, class Words>
void refuse_module(const SettledScenario& scenario,
                   std::string_view key,
                   const std::vector<List>& lists,
                   Module module,
                   const Words& words,
                   std::string_view missing) {
    if (std::ranges::any_of(lists, [module](const List& list) { return list.has(module); })) {
        const std::string_view word = words.at(static_cast<std::size_t>(module));
        refuse(scenario,
               key,
               fmt::format("{} has {}, but the model has no {}", key, word, missing),
               fmt::format("leave {} out", word));
    }
}

/// Refuses modules that the model has no part of.
void require_modules(const SettledScenario& scenario, const Profile& profile) {
    const EstimateSource* const source = profile.estimated_from.get();
    if (source == nullptr) {
        return;
    }
    const DecoderModel& model = source->model;
    if (scenario.pipeline.recompute_modules.as_needed) {
        return;  // what the model has no part of gives nothing back
    }
    const auto lacks = [&](RecomputeModule module, std::string_view missing) {
        refuse_module(scenario,
                      "pipeline.recompute_modules",
                      scenario.pipeline.recompute_modules.of_piece,
                      module,
                      recompute_module_words,
                      missing);
    };
    const auto cannot_offload = [&](OffloadModule module, std::string_view missing) {
        refuse_module(scenario,
                      "pipeline.offload_modules",
                      scenario.pipeline.offload_modules,
                      module,
                      offload_module_words,
                      missing);
    };
    if (!model.attention.latent) {
        lacks(RecomputeModule::LatentUp, "latent attention");
    }
    if (!has_experts(profile)) {
        lacks(RecomputeModule::ExpertActivation, "experts");
        lacks(RecomputeModule::Experts, "experts");
        cannot_offload(OffloadModule::ExpertFirst, "experts");
        cannot_offload(OffloadModule::ExpertActivation, "experts");
    }
    if (model.experts.shared_width == 0) {
        lacks(RecomputeModule::SharedExperts, "shared experts");
    }
}

}  // namespace

void require_division(const SettledScenario& scenario, const Profile& profile, int ranks) {
    const auto& pipeline = scenario.pipeline;
    require_modules(scenario, profile);
    const bool divides_experts = pipeline.expert_parallel > 1 ||
                                 (pipeline.expert_tensor_parallel > 0 &&
                                  pipeline.expert_tensor_parallel != pipeline.tensor_parallel);
    if (!divides_experts && pipeline.context_parallel == 1) {
        return;
    }
    require_source(profile);
    if (divides_experts && !has_experts(profile)) {
        refuse(scenario,
               "pipeline.expert_parallel",
               fmt::format("pipeline.expert_parallel = {}, but no layer of the model has experts",
                           pipeline.expert_parallel),
               Hint("set {}", {{"pipeline.expert_parallel", "1"}}));
    }
    const bool by_heads = pipeline.context_method == ContextMethod::AllToAll;
    require_grid({.sizes = parallel_sizes(scenario, ranks),
                  .order = axis_order(scenario),
                  .model = divided_model(profile),
                  .sequence_parallel = pipeline.sequence_parallel,
                  .context_divides_heads = by_heads && pipeline.context_parallel > 1},
                 scenario.file.string());
    if (divides_experts && pipeline.tensor_parallel > 1 && !pipeline.sequence_parallel) {
        refuse(scenario,
               "pipeline.sequence_parallel",
               fmt::format("pipeline.tensor_parallel = {} with divided experts, but each of these "
                           "devices has all tokens (pipeline.sequence_parallel = false)",
                           pipeline.tensor_parallel),
               Hint("set {}", {{"pipeline.sequence_parallel", "true"}}));
    }
}

}  // namespace pipetwin
