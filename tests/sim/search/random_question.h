// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/estimate.h"
#include "core/costs/whole_blocks.h"
#include "core/model/decoder_model.h"
#include "core/model/model.h"
#include "core/plan/layer_recompute.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/generators.h"
#include "core/schedule/schedule.h"
#include "core/timeline/memory_limits.h"
#include "sim/search/candidate.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"
#include "tests/support/scenario_plans.h"
#include "tests/support/soak.h"

/// Questions to plan searches, drawn at random, and what simulating all their plans says.
namespace pipetwin::sim::search_test {

using testing::all_partitions;
using testing::layer;
using testing::plan_of;

/// Chains of a few layers with costs of any size, on a few devices, everything open.
class RandomQuestion {
  public:
    explicit RandomQuestion(std::uint64_t seed) : random_(seed) {}

    Profile profile() {
        Profile profile = testing::random_chain(random_, 2, 5);
        for (LayerCost& layer : profile.layers) {
            const int thirds = below(3);  // of what is kept that go with I
            layer.change_samples([thirds](LayerSample& sample) {
                sample.input_saved = Bytes{sample.saved.count * thirds / 3};
            });
        }
        return profile;
    }

    /// With names that tell blocks, with what core attention takes, and with what each of two
    /// devices has that share a layer; or without some of these.
    Profile known_profile() {
        Profile known = profile();
        const bool tells_blocks = below(3) > 0;
        const bool knows_core = below(2) == 0;
        const bool knows_shares = below(2) == 0;
        known.precision = below(2) == 0 ? "bf16" : "";
        const auto layers = std::ssize(known.layers);
        for (std::ptrdiff_t i = 0; i < layers; ++i) {
            LayerCost& layer = known.layers[static_cast<std::size_t>(i)];
            if (tells_blocks) {
                layer.name = i == 0           ? "in"
                             : i + 1 < layers ? fmt::format("block{}.part{}", (i - 1) / 2, i)
                                              : "out";
            }
            const int quarters = knows_core ? below(4) : 0;
            layer.change_samples([quarters](LayerSample& sample) {
                sample.core_forward = sample.forward * quarters / 8;
                sample.core_saved = Bytes{sample.saved.count * quarters / 4};
                sample.accumulation = sample.forward * quarters / 8;
                // Devices divide an output evenly, as they do that of a real model.
                sample.output = Bytes{(sample.output.count + 3) / 4 * 4};
            });
            if (knows_shares) {
                add_shares(layer, 1 + below(3));
            }
        }
        return known;
    }

    Scenario scenario() {
        Scenario scenario = testing::open_scenario(1 << below(3));
        Scenario::PipelinePart& pipeline = scenario.pipeline;
        pipeline.recompute_timing.open();  // that of each schedule
        if (const int timing = below(4); timing < 2) {
            pipeline.recompute_timing = static_cast<RecomputeTiming>(timing);
        }
        pipeline.shard = static_cast<Shard>(below(4));
        scenario.cluster.count = 1 + below(4);
        scenario.cluster.per_node = 1 + below(4);
        scenario.cluster.node_link_gbps = 0.1 * (1 + below(50));
        scenario.cluster.node_link_latency_us = 0.1 * below(5);
        if (below(4) == 0) {
            pipeline.micro_batches = 1 + below(6);  // it may be more than there are samples
        }
        return scenario;
    }

    /// With the schedule named; some with little memory or weight gradients that are put off.
    Scenario scenario_of(std::string_view schedule) {
        Scenario result = scenario();
        result.pipeline.schedule = std::string(schedule);
        result.cluster.count = 2 + below(3);
        result.cluster.per_node = 4;
        result.pipeline.deferred_weights = std::max(0, below(4) - 1);
        if (below(2) == 0) {
            result.cluster.memory_limit = Bytes{400 + below(2000)};
        }
        return result;
    }

    /// What replicas and devices of a rank share is open, too, or some of it.
    Scenario scenario_with_shares() {
        Scenario result = scenario();
        Scenario::PipelinePart& pipeline = result.pipeline;
        result.cluster.per_node = 2;
        if (below(2) == 0) {
            pipeline.shard = Shard::None;
            pipeline.shard.open();
        }
        if (below(2) == 0) {
            pipeline.tensor_parallel.open();
            if (below(3) > 0) {
                pipeline.sequence_parallel.open();
            }
            if (below(3) > 0) {
                pipeline.scatter_boundaries.open();
            }
        }
        result.training.clip_norm = below(4) == 0 ? 1 : 0;
        result.training.accumulation = static_cast<Accumulation>(below(2));
        pipeline.overlap_reduction = below(4) == 0;
        if (below(2) == 0) {
            result.cluster.memory_limit = Bytes{300 + below(1500)};
        }
        return result;
    }

    /// Estimated costs of a model with experts, of few layers.
    Profile profile_with_experts() {
        DecoderModel model{.blocks = 1 + below(2), .width = 512, .vocabulary = 4000};
        model.attention = {.heads = 8, .key_value_heads = 4, .key_width = 64, .value_width = 64};
        model.feed_forward = 1536;
        model.experts = {.count = 4 << below(2), .per_token = 2, .width = 768 << below(3)};
        model.has_experts.assign(static_cast<std::size_t>(model.blocks), true);
        EstimateOptions options{.sequence = 2048 << below(2), .precision = "bf16"};
        options.micro_batch_size = 1;
        options.most_devices = 4;
        const DeviceProfile& device = find_device("h100-sxm");
        return with_whole_blocks(estimated_profile(model, device, options));
    }

    /// With every axis of parallelism open, on up to eight devices.
    Scenario scenario_with_division() {
        Scenario result = scenario_with_shares();
        Scenario::PipelinePart& pipeline = result.pipeline;
        constexpr std::array schedules{"1f1b", "gpipe", "interleaved-1f1b"};
        pipeline.schedule = schedules.at(static_cast<std::size_t>(below(3)));
        pipeline.context_parallel.open();
        pipeline.expert_parallel.open();
        pipeline.expert_tensor_parallel.open();
        pipeline.tensor_parallel.open();
        pipeline.sequence_parallel.open();
        pipeline.scatter_boundaries = false;
        pipeline.recompute = below(2) == 0 ? Recompute::None : Recompute::Always;
        pipeline.context_method = static_cast<ContextMethod>(below(4));
        pipeline.expert_dispatch = static_cast<ExpertDispatch>(below(2));
        if (below(3) == 0) {
            pipeline.order = below(2) == 0 ? pipeline_last : data_last;
        }
        constexpr std::array placements{
            Placement::ReplicasFirst, Placement::Fill, Placement::RoundRobin};
        result.cluster.placement = placements.at(static_cast<std::size_t>(below(3)));
        result.training.precision = Precision::Bf16;
        result.cluster.count = 2 + below(3);
        result.cluster.per_node = 2 << below(2);
        result.cluster.device = "h100-sxm";
        result.cluster.node_link_gbps = 10 * (1 + below(40));
        result.cluster.memory_limit = std::nullopt;
        if (below(2) == 0) {
            result.cluster.memory_limit = Bytes{(std::int64_t{100} + below(1000)) << 20};
        }
        return result;
    }

    int below(int end) { return testing::below(random_, end); }

  private:
    /// Samples of one of two devices: half of all but some eighths, which are whole on both.
    static void add_shares(LayerCost& layer, int eighths) {
        std::vector<LayerSample>& of_one = layer.shared[2];
        of_one = layer.samples;
        for (LayerSample& sample : of_one) {
            const auto part = [eighths](auto count) { return count * (8 + eighths) / 16; };
            sample.whole_forward = sample.forward * eighths / 8;
            sample.whole_backward = sample.backward_input * eighths / 8;
            sample.whole_saved = Bytes{sample.saved.count * eighths / 8};
            sample.forward = part(sample.forward);
            sample.backward_input = part(sample.backward_input);
            sample.backward_weight = sample.backward_weight / 2;
            sample.saved = Bytes{part(sample.saved.count)};
            sample.input_saved = Bytes{part(sample.input_saved.count)};
            sample.core_forward = sample.core_forward / 2;
            sample.core_saved = Bytes{sample.core_saved.count / 2};
        }
    }

    std::mt19937_64 random_;
};

/// A few rounds; more until some shape of a schedule has come up.
inline bool goes_on(int round, bool has_come_up) {
    return round < tests::soaked(5) || (!has_come_up && round < 1000);
}

/// None where there is no such plan or it does not fit.
inline std::optional<Duration> step_of(const SettledScenario& settled, const Profile& profile) {
    try {
        const Plan plan = with_settled_capacity(plan_of(settled, profile));
        check_memory(plan);
        return step_time(simulate(plan));
    } catch (const Error&) {
        return std::nullopt;
    }
}

/// Every way to recompute on some ranks, as rules of their pieces.
inline std::vector<RecomputeRules> all_rules(const Schedule& schedule) {
    constexpr std::array modes{Recompute::None, Recompute::ExceptLast, Recompute::Always};
    std::vector<RecomputeRules> result;
    const int ranks = schedule.rank_count();
    for (int number = 0; number < std::pow(3, ranks); ++number) {
        std::vector<Recompute> of_rank;
        for (int rest = number; std::ssize(of_rank) < ranks; rest /= 3) {
            of_rank.push_back(modes.at(static_cast<std::size_t>(rest % 3)));
        }
        std::vector<Recompute> of_piece;
        for (const int rank : schedule.rank_of_stage) {
            of_piece.push_back(of_rank.at(static_cast<std::size_t>(rank)));
        }
        result.emplace_back(of_piece);
    }
    return result;
}

/// Simulates a candidate with one partition, or with the balanced one; where recompute is as
/// needed, with the fastest rules.
inline std::optional<Duration> step_of(const Scenario& scenario,
                                       const Profile& profile,
                                       const Candidate& candidate,
                                       const std::vector<int>& partition) {
    SettledScenario settled = with_candidate(scenario, candidate);
    if (!partition.empty()) {
        settled.pipeline.partition = partition;
    }
    if (!candidate.choice.recompute_by_rank) {
        return step_of(settled, profile);
    }
    std::optional<Duration> best;
    // Without a partition those that are balanced for no rank's recompute and for every rank's.
    for (const Recompute balanced : {Recompute::None, Recompute::Always}) {
        try {
            settled.pipeline.recompute = balanced;
            const Plan plan = plan_of(settled, profile);
            for (const RecomputeRules& of_pieces : all_rules(plan->schedule)) {
                SettledScenario one = settled;
                one.pipeline.recompute = of_pieces;
                one.pipeline.partition = plan->partition->layers_per_stage();
                const auto step = step_of(one, profile);
                best = step ? std::min(best.value_or(*step), *step) : best;
            }
        } catch (const Error&) {
            return std::nullopt;
        }
    }
    return best;
}

/// All, with as many pieces as the schedule has; none where there is no such schedule.
inline std::vector<std::vector<int>> every_partition(const Scenario& scenario,
                                                     const Candidate& candidate,
                                                     const Model& model) {
    if (!scenario.pipeline.partition.is_auto()) {
        return {{}};
    }
    try {
        const SettledScenario settled = with_candidate(scenario, candidate);
        const int pieces = schedule_traits(candidate.choice.schedule).order_from_costs
                               ? candidate.shape.stages * candidate.choice.chunks
                               : model_stage_count(scenario_schedule(settled));
        return all_partitions(model.layer_count(), pieces);
    } catch (const Error&) {
        return {};
    }
}

}  // namespace pipetwin::sim::search_test
