#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/interop/megatron_layout.h"

namespace pipetwin {

/// The part of Megatron-LM's command line that says how a model is trained in a pipeline.
struct MegatronFlags {
    std::optional<int> pipeline_size;         ///< --pipeline-model-parallel-size
    std::optional<int> tensor_size;           ///< --tensor-model-parallel-size
    std::optional<int> layers;                ///< --num-layers
    std::optional<int> virtual_stage_layers;  ///< --num-layers-per-virtual-pipeline-stage
    std::optional<int> virtual_stages;        ///< --num-virtual-stages-per-pipeline-rank
    std::optional<int> micro_batch_size;      ///< --micro-batch-size: samples
    std::optional<int> global_batch_size;     ///< --global-batch-size: samples
    std::optional<int> hidden_size;           ///< --hidden-size
    std::optional<int> heads;                 ///< --num-attention-heads
    std::optional<int> sequence;              ///< --seq-length
    std::optional<int> feed_forward;          ///< --ffn-hidden-size
    std::optional<int> vocabulary;            ///< --vocab-size
    std::optional<int> recompute_layers;      ///< --recompute-num-layers
    std::optional<MegatronLayout> layout;     ///< --pipeline-model-parallel-layout
    bool recompute_full = false;              ///< --recompute-granularity full
    bool shard_optimizer = false;             ///< --use-distributed-optimizer
    bool recompute_selective =
        false;  ///< --recompute-granularity selective, or --recompute-activations
    std::vector<std::string> unused{};  ///< flags that say nothing about the pipeline

    bool operator==(const MegatronFlags&) const = default;
};

/// Whether a text holds flags, and not a layout alone.
bool are_megatron_flags(std::string_view text);

/// Reads a command line as one writes it into a shell: quotes, backslashes, line ends, comments,
/// "--flag value" and "--flag=value". Words that belong to no flag are passed over. Throws
/// Error(BadInput) with place:line:column for a value that is none or a flag given twice.
MegatronFlags parse_megatron_flags(std::string_view text, std::string_view place);

/// One line. parse(print(x)) = x but for `unused`.
std::string print_megatron_flags(const MegatronFlags& flags);

}  // namespace pipetwin
