// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/interop/megatron_flags.h"
#include "core/partition/partition.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/schedule.h"

/// Plans as files that training systems and clusters start from.
namespace pipetwin {

/// A scenario, its schedule and its partition.
struct PlacedPlan {
    SettledScenario scenario;
    Schedule schedule;
    Partition partition;        ///< in halves of blocks, without layers that predict further tokens
    int prediction_layers = 0;  ///< such layers, all on the last stage, in front of the head
    /// The model as a config.json. Empty: not known.
    std::string config;
    std::string config_name;  ///< the file that it is from, for errors
    int sequence = 0;         ///< tokens of a sample
    /// Number type of the products: "fp16" or that of narrow ones where the costs are of these,
    /// which a scenario has no word for; else that of the training.
    std::string precision;
    bool hides_tensor = false;  ///< messages of tensor parallelism go on beside products

    /// Devices of all replicas, and of all that share a rank.
    int devices() const {
        return schedule.rank_count() * scenario.pipeline.data_parallel *
               scenario.pipeline.rank_devices();
    }

    /// Decoder layers of the model.
    int blocks() const { return partition.layer_count() / 2 - 1; }
};

/// The sizes of the plan's model; none: its config.json is not known. Throws as
/// `megatron_model_flags`.
std::optional<MegatronFlags> sizes_of_model(const PlacedPlan& plan);

/// "4 blocks of 512, 8 heads, vocabulary 32,000", for people.
std::string model_in_words(const PlacedPlan& plan, const std::optional<MegatronFlags>& sizes);

/// Whole blocks of every stage, in the order of the model. Throws Error(BadInput), as
/// `refuse_lack`, for a cut through a block.
std::vector<int> stage_blocks(const PlacedPlan& plan, std::string_view system);

/// Samples of a micro-batch. Throws Error(BadInput), as `refuse_lack`, where they are not equally
/// many.
int samples_of_micro_batch(const PlacedPlan& plan, std::string_view system);

}  // namespace pipetwin
