// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/scenario/optimizers.h"

/// What a scenario chooses between by a word: kinds of models and data, number types, backends.
namespace pipetwin {

/// Where the layers of a model come from: model.kind.
enum class ModelKind {
    Gpt,
    Mlp,
    Layers,
    Profile,
    AmoebaNetD,
    AmoebaNetB,
    ResNet,
    UNet,
    Llama,
    Translation,
    Moe
};
/// Where training samples come from: data.kind.
enum class DataKind {
    Text,
    Tokens,
    Mnist,
    Synthetic,
    Cifar10,
    Images,
    Segmentation,
    Silhouettes,
    Gettext,
    Pairs
};
/// Which way pairs of English and another language are translated: data.direction.
enum class PairDirection { FromEnglish, ToEnglish, Both };

/// Whether data of this kind are images.
bool is_of_images(DataKind kind);
/// Whether data of this kind have files for tests, which validation reads where nothing else is
/// named.
bool has_test_files(DataKind kind);
/// Whether data of this kind are texts with their translations, of which a fixed part is kept for
/// validation.
bool is_of_pairs(DataKind kind);
/// Number type of activations and of the weights that kernels read: training.precision.
enum class Precision { Fp32, Fp64, Bf16 };

/// Number type of the gradients of weights that have two bytes: training.gradients.
enum class GradientType {
    Fp32,  ///< summed in fp32
    Same   ///< that of the weights
};

/// Who adds the gradients of a micro-batch to those of the ones before: training.accumulation.
enum class Accumulation {
    Fused,    ///< the product that makes them
    Separate  ///< kernels of their own
};

/// How the learning rate goes on behind its warm-up.
enum class RateSchedule { Constant, Linear, Cosine, Step, InverseSqrt };
/// What weight decay makes smaller: every parameter, or all but norms, biases and embeddings.
enum class WeightDecayOf { All, Weights };
/// Which devices run the stages: cluster.backend.
enum class Backend { Cpu, Paced, Cuda };

/// What each replica of a pipeline has only its share of (Rajbhandari et al., arXiv 1910.02054):
/// pipeline.shard. Each kind includes the one before it.
enum class Shard {
    None,
    Optimizer,  ///< ZeRO-1: state of the optimizer, and the update
    Gradients,  ///< ZeRO-2: gradients are summed to their shares with every micro-batch
    Weights     ///< ZeRO-3: weights are gathered layer by layer, forward and backward
};

/// How the ranks of one GPU share it. Own: each has multiprocessors of its own. Streams: each takes
/// what is free.
enum class GpuShares { Own, Streams };

/// Which node a rank is on. Written down: as listed.
enum class Placement { ReplicasFirst, Fill, RoundRobin, Written };

/// Each enum value as a scenario writes it.
std::string_view to_string(ModelKind kind);
std::string_view to_string(DataKind kind);
std::string_view to_string(PairDirection direction);
std::string_view to_string(OptimizerKind kind);
std::string_view to_string(Precision precision);
/// The word of training.precision for costs in a number type. Scenarios have no fp16, fp8 and tf32;
/// their plans take weights, gradients and rates from the costs.
std::string_view trained_as(std::string_view costs_precision);
std::string_view to_string(GradientType type);
std::string_view to_string(Accumulation accumulation);
std::string_view to_string(RateSchedule schedule);
std::string_view to_string(Backend backend);
std::string_view to_string(GpuShares shares);
std::string_view to_string(Placement placement);
std::string_view to_string(Shard shard);

}  // namespace pipetwin
