// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

/// Words of other programs, and what they are called here.
namespace pipetwin::cli {

/// What an option of another program means.
enum class Meaning {
    Nothing,  ///< not known
    Stages,   ///< of the pipeline
    TensorParallel,
    DataParallel,
    Chunks,
    MicroBatches,    ///< their number
    MicroBatchSize,  ///< samples of one
    Batch,           ///< samples of a step
    Sequence,        ///< tokens of a sample
    Schedule,
    Shard,
    Recompute,
    Precision,
    Steps,
    Epochs,
    CheckpointEvery,
    LearningRate,
    Devices,  ///< their number
    Nodes,
    Hardware,  ///< the kind of node
    Device,    ///< "cuda", or the name of a kind
    Backend,   ///< "cuda", "cpu"
    MemoryLimit,
    Out,
    Continue,  ///< a training, from a folder
    Force,
    Verbose,
    Quiet,
    NoColor,
    Price,
    Bandwidth,
    ExpertParallel,
    ExpertTensorParallel,
    ContextParallel,
    Json,  ///< the format of the answer
    File,  ///< the scenario or model, which has no option
    NoRecompute
};

/// What an option means, as it is written without hyphens before it and with hyphens inside:
/// "tensor-model-parallel-size".
Meaning meaning_of(std::string_view option);

/// The command that a word of another program means: "plan" for "tune"; empty if there is none.
std::string_view command_for(std::string_view word);

}  // namespace pipetwin::cli
