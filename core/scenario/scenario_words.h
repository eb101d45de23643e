// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "core/costs/collectives/all_reduce.h"
#include "core/scenario/optimizers.h"

/// The words of a scenario, in the order of their enums; and those that belong to the language, but
/// that this version does not run yet.
namespace pipetwin::words {

/// A word as a scenario writes it.
using Word = std::string_view;

/// model.kind, as enum ModelKind.
inline constexpr std::array<Word, 11> model_kinds{"gpt",
                                                  "mlp",
                                                  "layers",
                                                  "profile",
                                                  "amoebanet-d",
                                                  "amoebanet-b",
                                                  "resnet",
                                                  "unet",
                                                  "llama",
                                                  "translation",
                                                  "moe"};
/// model.router, as enum RouterScores.
inline constexpr std::array<Word, 2> routers{"softmax", "sigmoid"};
/// model.tables, as enum TranslationTables.
inline constexpr std::array<Word, 3> translation_tables{"shared", "tied-target", "separate"};
/// model.activation, as enum FeedForwardActivation.
inline constexpr std::array<Word, 2> activations{"relu", "gelu"};
/// model.gelu, as enum GeluForm.
inline constexpr std::array<Word, 2> gelu_forms{"exact", "tanh"};
/// The form of a layer of type gelu, as enum GeluForm: PyTorch's words.
inline constexpr std::array<Word, 2> gelu_approximations{"none", "tanh"};
/// model.smoothing, as enum Smoothing.
inline constexpr std::array<Word, 2> smoothings{"all", "others"};
/// model.variant, as enum AmoebaNetVariant.
inline constexpr std::array<Word, 2> amoebanet_variants{"reference", "torchgpipe"};

/// data.kind, as enum DataKind.
inline constexpr std::array<Word, 10> data_kinds{"text",
                                                 "tokens",
                                                 "mnist",
                                                 "synthetic",
                                                 "cifar10",
                                                 "images",
                                                 "segmentation",
                                                 "silhouettes",
                                                 "gettext",
                                                 "pairs"};
/// data.direction, as enum PairDirection.
inline constexpr std::array<Word, 3> pair_directions{"from-english", "to-english", "both"};

/// training.optimizer, as enum OptimizerKind.
inline constexpr auto optimizers = [] {
    std::array<Word, pipetwin::optimizers.size()> words{};
    for (std::size_t i = 0; i < words.size(); ++i) {
        words[i] = pipetwin::optimizers[i].word;
    }
    return words;
}();

/// training.learning_rate_schedule, as enum RateSchedule.
inline constexpr std::array<Word, 5> rate_schedules{
    "constant", "linear", "cosine", "step", "inverse-sqrt"};

/// training.weight_decay_of, as enum WeightDecayOf.
inline constexpr std::array<Word, 2> weight_decays{"all", "weights"};

/// training.precision, as enum Precision.
inline constexpr std::array<Word, 3> precisions{"fp32", "fp64", "bf16"};

/// training.gradients, as enum GradientType.
inline constexpr std::array<Word, 2> gradient_types{"fp32", "same"};

/// training.accumulation, as enum Accumulation.
inline constexpr std::array<Word, 2> accumulations{"fused", "separate"};

/// cluster.backend, as enum Backend.
inline constexpr std::array<Word, 3> backends{"cpu", "paced", "cuda"};

/// cluster.scale_costs, as enum ScaleCosts.
inline constexpr std::array<Word, 4> scale_costs{"none", "compute", "memory", "cautious"};
/// cluster.placement, as enum Placement; a list of nodes is Placement::Written.
inline constexpr std::array<Word, 3> placements{"replicas-first", "fill", "round-robin"};
/// cluster.transfer, as enum TransferMode.
inline constexpr std::array<Word, 3> transfers{"asynchronous", "blocking", "hand-over"};
/// cluster.link_sharing, as enum LinkSharing; "none" leaves it unset.
inline constexpr std::array<Word, 3> link_sharings{"fifo", "fair", "none"};
/// cluster.shared_link.kind, as enum SharedLinkKind.
inline constexpr std::array<Word, 5> shared_link_kinds{
    "switch", "host", "socket", "memory", "uplink"};

/// cluster.gpu_shares, as enum GpuShares.
inline constexpr std::array<Word, 2> gpu_shares{"own", "streams"};

/// pipeline.recompute, as enum Recompute.
inline constexpr std::array<Word, 3> recomputes{"none", "always", "except-last"};
/// Words of pipeline.recompute, all of them: those of enum Recompute, then of enum LayerRecompute.
inline constexpr std::array<Word, 5> all_recomputes{
    "none", "always", "except-last", "selective", "block"};
/// pipeline.recompute_timing, as enum RecomputeTiming.
inline constexpr std::array<Word, 2> recompute_timings{"eager", "lazy"};
/// pipeline.shard, as enum Shard.
inline constexpr std::array<Word, 4> shards{"none", "optimizer", "gradients", "weights"};
/// pipeline.offload, as enum Offload.
inline constexpr std::array<Word, 2> offloads{"none", "stash"};
/// pipeline.message_order, as enum MessageOrder.
inline constexpr std::array<Word, 2> message_orders{"plain", "lower-rank-first"};

/// pipeline.receives, as enum Receives.
inline constexpr std::array<Word, 2> receives{"posted", "blocking"};
/// pipeline.shard_group, beside a number.
inline constexpr std::array<Word, 1> shard_groups{"node"};

/// pipeline.all_reduce, as enum AllReduceKind.
inline constexpr auto all_reduces = all_reduce_words;

}  // namespace pipetwin::words
