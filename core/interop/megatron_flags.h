// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/layer_division.h"
#include "core/interop/launch/setting.h"
#include "core/interop/launch/setting_problems.h"
#include "core/interop/megatron_layout.h"

namespace pipetwin {

/// The part of Megatron-LM's command line that says which model is trained, and how it is split.
/// A number is none, and a switch false, where the flag is not given.
struct MegatronFlags {
    // The split over devices.
    std::optional<int> pipeline_size;               ///< --pipeline-model-parallel-size
    std::optional<int> tensor_size;                 ///< --tensor-model-parallel-size
    std::optional<int> context_size;                ///< --context-parallel-size
    std::optional<int> expert_size;                 ///< --expert-model-parallel-size
    std::optional<int> expert_tensor_size;          ///< --expert-tensor-parallel-size
    std::optional<ContextMethod> context_method{};  ///< --cp-comm-type
    /// --hierarchical-context-parallel-sizes: devices that share heads, and of the ring of these.
    std::vector<int> context_sizes{};
    bool pipeline_before_data = false;        ///< --use-tp-pp-dp-mapping
    std::optional<int> virtual_stage_layers;  ///< --num-layers-per-virtual-pipeline-stage
    std::optional<int> virtual_stages;        ///< --num-virtual-stages-per-pipeline-rank
    std::optional<int> group_size;         ///< --microbatch-group-size-per-virtual-pipeline-stage
    std::optional<int> first_layers;       ///< --decoder-first-pipeline-num-layers
    std::optional<int> last_layers;        ///< --decoder-last-pipeline-num-layers
    std::optional<MegatronLayout> layout;  ///< --pipeline-model-parallel-layout
    /// --num-layer-list of MindSpeed: decoder layers of each rank; empty: not given.
    std::vector<int> rank_layers{};
    /// --noop-layers of MindSpeed: layers, counted from 0, that stand for nothing.
    std::vector<int> empty_layers{};
    bool account_for_embedding = false;   ///< --account-for-embedding-in-pipeline-split
    bool account_for_loss = false;        ///< --account-for-loss-in-pipeline-split
    bool shard_optimizer = false;         ///< --use-distributed-optimizer
    bool overlap_reduction = false;       ///< --overlap-grad-reduce
    bool overlap_gather = false;          ///< --overlap-param-gather
    bool sequence_parallel = false;       ///< --sequence-parallel
    bool tensor_overlap = false;          ///< --tp-comm-overlap
    std::optional<int> optimizer_groups;  ///< --num-distributed-optimizer-instances
    bool whole_boundaries = false;        ///< --no-scatter-gather-tensors-in-pipeline
    bool megatron_fsdp = false;           ///< --use-megatron-fsdp, or --use-custom-fsdp
    bool torch_fsdp = false;              ///< --use-torch-fsdp2
    bool torch_fsdp_keeps = false;        ///< --torch-fsdp2-no-reshard-after-forward
    std::optional<std::string> sharding;  ///< --data-parallel-sharding-strategy, as written
    // The step.
    std::optional<int> micro_batch_size;  ///< --micro-batch-size: samples
    /// --global-batch-size, or the last of --step-batch-size-schedule: samples.
    std::optional<int> global_batch_size;
    std::optional<int> recompute_layers;  ///< --recompute-num-layers
    bool recompute_full = false;          ///< --recompute-granularity full
    bool recompute_selective = false;     ///< the same, selective; or --recompute-activations
    /// --recompute-method block: the first layers of each stage alone; else uniform.
    bool recompute_first = false;
    std::vector<std::string> recompute_modules{};  ///< --recompute-modules
    bool offloads_inputs = false;                  ///< --fine-grained-activation-offloading
    std::vector<std::string> offload_modules{};    ///< --offload-modules
    std::optional<double> offload_fraction{};      ///< --activation-offload-fraction
    std::optional<int> offloaded_layers{};         ///< --cpu-offloading-num-layers
    bool gradients_fp32 = false;                   ///< --accumulate-allreduce-grads-in-fp32
    bool gradients_narrow = false;                 ///< --grad-reduce-in-bf16
    bool state_types = false;                      ///< --use-precision-aware-optimizer
    std::optional<std::string> main_type{};        ///< --main-params-dtype
    std::optional<std::string> mean_type{};        ///< --exp-avg-dtype
    std::optional<std::string> square_type{};      ///< --exp-avg-sq-dtype
    bool separate_accumulation = false;            ///< --no-gradient-accumulation-fusion
    bool bf16 = false;                             ///< --bf16
    bool fp16 = false;                             ///< --fp16
    bool fp8 = false;                              ///< --fp8-format hybrid or e4m3
    std::optional<std::string> fp8_recipe{};       ///< --fp8-recipe, as written
    std::optional<std::string> optimizer;          ///< --optimizer: adam or sgd
    std::optional<double> clip_norm;               ///< --clip-grad
    std::optional<double> hidden_dropout;          ///< --hidden-dropout
    std::optional<double> attention_dropout;       ///< --attention-dropout
    // The model.
    std::optional<int> layers;              ///< --num-layers
    std::optional<int> hidden_size;         ///< --hidden-size
    std::optional<int> feed_forward;        ///< --ffn-hidden-size
    std::optional<int> heads;               ///< --num-attention-heads
    std::optional<int> query_groups;        ///< --num-query-groups
    std::optional<int> head_width;          ///< --kv-channels
    std::optional<int> sequence;            ///< --seq-length: tokens of a sample
    std::optional<int> positions;           ///< --max-position-embeddings
    std::optional<int> vocabulary;          ///< --vocab-size, before it is padded
    std::optional<int> extra_vocabulary;    ///< --vocab-extra-ids
    std::optional<int> padded_vocabulary;   ///< --padded-vocab-size
    std::optional<int> vocabulary_divisor;  ///< --make-vocab-size-divisible-by
    std::optional<int> prediction_layers;   ///< --mtp-num-layers
    bool grouped = false;                   ///< --group-query-attention
    bool gated = false;                     ///< --swiglu, or --quick-geglu
    bool squared_relu = false;              ///< --squared-relu
    bool no_gelu_fusion = false;  ///< --no-bias-gelu-fusion; with the fusion, GELU is that of tanh
    bool openai_gelu = false;     ///< --openai-gelu: that of tanh without the fusion
    bool no_bias = false;         ///< --disable-bias-linear
    bool query_bias = false;      ///< --add-qkv-bias
    bool untied = false;          ///< --untie-embeddings-and-output-weights
    bool rms_norm = false;        ///< --normalization RMSNorm
    bool no_positions = false;    ///< --position-embedding-type: other than learned
    bool head_norms = false;      ///< --qk-layernorm
    std::optional<int> window;    ///< --window-size: tokens before a token
    // Attention through narrow rows, with --multi-latent-attention.
    bool latent = false;                ///< --multi-latent-attention
    std::optional<int> query_rank;      ///< --q-lora-rank
    std::optional<int> key_value_rank;  ///< --kv-lora-rank
    std::optional<int> key_width;       ///< --qk-head-dim
    std::optional<int> rotary_width;    ///< --qk-pos-emb-head-dim
    std::optional<int> value_width;     ///< --v-head-dim
    // Attention of other kinds.
    std::optional<std::string> attention_variant{};  ///< gated_delta_net or dsa
    std::optional<std::string> linear_pattern{};     ///< --linear-attention-freq, as written
    std::optional<int> linear_convolution{};         ///< --linear-conv-kernel-dim
    std::optional<int> linear_key_heads{};           ///< --linear-num-key-heads
    std::optional<int> linear_key_width{};           ///< --linear-key-head-dim
    std::optional<int> linear_value_heads{};         ///< --linear-num-value-heads
    std::optional<int> linear_value_width{};         ///< --linear-value-head-dim
    std::optional<int> indexer_heads{};              ///< --dsa-indexer-n-heads
    std::optional<int> indexer_width{};              ///< --dsa-indexer-head-dim
    std::optional<int> indexer_keys{};               ///< --dsa-indexer-topk
    bool output_gate = false;                        ///< --attention-output-gate
    bool sinks = false;                              ///< --softmax-type learnable
    std::optional<std::string> window_pattern{};     ///< --window-attn-skip-freq, as written
    // Adapters that are trained in place of the weights, in ms-swift's words.
    bool adapters = false;                       ///< --tuner_type lora
    std::optional<int> adapter_rank{};           ///< --lora_rank
    std::optional<double> adapter_dropout{};     ///< --lora_dropout
    std::vector<std::string> adapter_targets{};  ///< --target_modules
    std::vector<std::string> trained_modules{};  ///< --modules_to_save
    // State spaces in place of attention.
    bool state_spaces = false;                    ///< --spec of a model with them
    std::optional<std::string> hybrid_pattern{};  ///< --hybrid-layer-pattern: "M-M*"
    std::optional<double> attention_ratio{};      ///< --hybrid-attention-ratio
    std::optional<double> feed_forward_ratio{};   ///< --hybrid-mlp-ratio
    std::optional<int> mamba_heads{};             ///< --mamba-num-heads
    std::optional<int> mamba_width{};             ///< --mamba-head-dim
    std::optional<int> mamba_state{};             ///< --mamba-state-dim
    std::optional<int> mamba_groups{};            ///< --mamba-num-groups
    // Experts.
    std::optional<int> experts;                 ///< --num-experts
    std::optional<int> experts_per_token;       ///< --moe-router-topk
    std::optional<int> expert_width;            ///< --moe-ffn-hidden-size
    std::optional<int> shared_width;            ///< --moe-shared-expert-intermediate-size
    bool shared_gate = false;                   ///< --moe-shared-expert-gate
    std::optional<int> latent_experts{};        ///< --moe-latent-size
    std::optional<std::string> expert_pattern;  ///< --moe-layer-freq, as written
    std::optional<std::string> dispatcher{};    ///< --moe-token-dispatcher-type
    std::optional<std::string> flex_backend{};  ///< --moe-flex-dispatcher-backend
    bool deepep = false;                        ///< --moe-enable-deepep
    std::optional<double> expert_capacity{};    ///< --moe-expert-capacity-factor
    bool fills_capacity = false;                ///< --moe-pad-expert-input-to-capacity
    bool fills_rows = false;                    ///< --moe-router-padding-for-quantization
    bool balances_experts = false;              ///< --moe-router-force-load-balancing

    // Kernels of attention.
    std::optional<std::string> attention_backend{};    ///< --attention-backend
    bool flash_attention = false;                      ///< --use-flash-attn
    std::optional<std::string> transformer_kernels{};  ///< --transformer-impl
    bool legacy_models = false;                        ///< --use-legacy-models

    // What is known besides.
    std::optional<std::string> tokenizer{};        ///< --tokenizer-type
    std::optional<std::string> tokenizer_model{};  ///< --tokenizer-model: a name or a file
    /// --null-tokenizer-eod-id or --null-tokenizer-pad-id, of versions since April 2026: the word
    /// that ends a text is one of --vocab-size.
    bool ends_inside = false;
    /// The program whose configuration says all this, where it is not Megatron-LM.
    std::string program{};
    bool all_forwards_first = false;  ///< of such a program: all micro-batches forward, then back
    std::optional<int> processes{};   ///< on all nodes; empty: the launcher does not say
    std::optional<int> per_node{};    ///< processes of a node
    bool is_before_2023 = false;      ///< a flag that Megatron dropped in 2022 is there
    bool is_before_core_models = false;    ///< one that it dropped until the middle of 2024 is
    bool is_after_core_models = false;     ///< one that came since then is, or a YAML file
    bool is_key_file = false;              ///< keys of a YAML file, which may be one of several
    bool forbids_fused_attention = false;  ///< NVTE_FLASH_ATTN=0 and NVTE_FUSED_ATTN=0 are set
    std::vector<std::string> unseen{};     ///< variables with flags that the reader has not seen
    std::vector<std::string> unused{};     ///< harmless flags, as written
    std::vector<std::string> warnings{};   ///< what a prediction will not see
    std::vector<std::string> left_out{};   ///< flags that change the run, with LeaveOut::All

    bool operator==(const MegatronFlags&) const = default;
};

/// Whether a text holds flags or settings, and not a layout alone.
bool are_megatron_flags(std::string_view text);

/// Reads a shell script, a command line, a file of flags (core/interop/launch/shell_script.h), or a
/// YAML file of Primus or Megatron-Bridge (core/interop/launch/yaml_settings.h). Throws
/// Error(BadInput) with place:line:column.
LaunchFile parse_launch_file(std::string_view text,
                             std::string_view place,
                             const LaunchVariables& given = {});

/// Adds the settings of a file that another one continues, but for those that it sets anew or
/// unsets.
void add_base_settings(LaunchFile& file, const LaunchFile& base);

/// The flags among the settings. Those in tables of another model or program are left out. Throws
/// Error(BadInput) with place:line:column for a value that is none, a flag given twice, keys with
/// one meaning and two values, a value that the file does not hold, and, unless `leave_out` says
/// otherwise, for flags that are not known, or change the model, the split, the memory or the
/// schedule and have no member here, naming all of them.
MegatronFlags megatron_flags(const LaunchFile& file, LeaveOut leave_out = LeaveOut::Nothing);

/// Reads the flags of a text that `parse_launch_file` reads.
MegatronFlags parse_megatron_flags(std::string_view text,
                                   std::string_view place,
                                   LeaveOut leave_out = LeaveOut::Nothing);

/// One line. parse(print(x)) = x but for what is known besides.
std::string print_megatron_flags(const MegatronFlags& flags);

}  // namespace pipetwin
