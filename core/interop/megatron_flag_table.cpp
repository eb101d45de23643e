#include "core/interop/megatron_flag_table.h"

#include <algorithm>
#include <array>

namespace pipetwin {

namespace {

constexpr std::string_view off = "0 1 false none null";

/// The words of a list that are apart by blanks.
std::vector<std::string_view> words_of(std::string_view list) {
    std::vector<std::string_view> words;
    while (!list.empty()) {
        const std::size_t end = std::min(list.find(' '), list.size());
        if (end > 0) {
            words.push_back(list.substr(0, end));
        }
        list.remove_prefix(std::min(end + 1, list.size()));
    }
    return words;
}

constexpr std::array refused{
    // The model.
    RefusedFlag{"encoder-num-layers", "the model has an encoder"},
    RefusedFlag{"decoder-num-layers", "the model has an encoder, too"},
    RefusedFlag{"encoder-seq-length", "it is a length of its own for an encoder"},
    RefusedFlag{"decoder-seq-length", "it is a length of its own for a decoder"},
    RefusedFlag{"retro-add-retriever", "it adds a retriever to the model", off},
    RefusedFlag{"heterogeneous-layers-config-path", "another file makes each layer different"},
    RefusedFlag{"heterogeneous-layers-config-encoded-json", "it makes each layer different"},
    RefusedFlag{"is-hybrid-model", "the model has state-space layers", "false"},
    RefusedFlag{"hybrid-attention-ratio", "the model has state-space layers", "0 0.0"},
    RefusedFlag{"hybrid-mlp-ratio", "the model has state-space layers", "0 0.0"},
    RefusedFlag{"hybrid-override-pattern", "the model has state-space layers"},
    RefusedFlag{"hybrid-layer-pattern", "the model has state-space layers"},
    RefusedFlag{"spec", "Python code describes the model", "local"},
    RefusedFlag{"use-checkpoint-args", "a checkpoint describes the model", "false"},
    RefusedFlag{"use-mp-args-from-checkpoint-args", "a checkpoint says how it is split", "false"},
    RefusedFlag{"yaml-cfg", "the settings are in another file: import that file"},
    RefusedFlag{"vision-pretraining", "the model is not a language model", "false"},
    RefusedFlag{"softmax-type", "it adds a number to each head", "vanilla off-by-one"},
    RefusedFlag{"window-attn-skip-freq", "some blocks see less of a sample than others"},
    RefusedFlag{"linear-attention-type", "attention is another one"},
    RefusedFlag{"linear-attention-freq", "attention is another one"},
    RefusedFlag{"experimental-attention-variant", "attention is another one"},
    RefusedFlag{"attention-output-gate", "it adds a matrix to each block", "false"},
    RefusedFlag{"moe-use-upcycling", "a dense model becomes one of experts", "false"},
    RefusedFlag{"moe-latent-size", "it adds matrices around the experts"},
    RefusedFlag{"moe-expert-capacity-factor", "experts drop tokens above a limit"},
    RefusedFlag{"moe-pad-expert-input-to-capacity", "experts compute empty rows, too", "false"},
    RefusedFlag{"sft", "samples have different lengths", "false"},
    RefusedFlag{"perform-rl-step", "a step generates samples, too", "false"},
    RefusedFlag{"variable-seq-lengths", "samples have different lengths", "false"},
    // The split over devices.
    RefusedFlag{"expert-model-parallel-size", "replicas share the experts", "1"},
    RefusedFlag{"num-distributed-optimizer-instances", "groups of replicas share it", "1"},
    RefusedFlag{"outer-dp-sharding-strategy", "groups of replicas share it", "no_shard"},
    RefusedFlag{
        "megatron-fsdp-main-params-dtype", "the copies of the weights have another width", "fp32"},
    RefusedFlag{"megatron-fsdp-main-grads-dtype", "gradients have another width", "auto"},
    RefusedFlag{"megatron-fsdp-grad-comm-dtype", "gradients are sent in another width", "auto"},
    RefusedFlag{"model-parallel-size", "Megatron has no such flag any more"},
    RefusedFlag{"batch-size", "Megatron has no such flag any more"},
    RefusedFlag{"pipeline-model-parallel-split-rank", "the model has an encoder"},
    RefusedFlag{"standalone-embedding-stage", "the embedding is a stage of its own", "false"},
    // Memory.
    RefusedFlag{"fp8-format", "products in 8 bits take other time and memory", "false none null"},
    RefusedFlag{"fp8", "products in 8 bits take other time and memory", "false none null"},
    RefusedFlag{"fp8-param-gather", "weights have 8 bits", "false"},
    RefusedFlag{"fp4-format", "products in 4 bits take other time and memory", "false none null"},
    RefusedFlag{"fp4", "products in 4 bits take other time and memory", "false none null"},
    RefusedFlag{"fp4-param-gather", "weights have 4 bits", "false"},
    RefusedFlag{"use-precision-aware-optimizer", "the optimizer's state is narrower", "false"},
    RefusedFlag{"main-grads-dtype", "gradients have another width", "fp32"},
    RefusedFlag{"main-params-dtype", "the copies of the weights have another width", "fp32"},
    RefusedFlag{"exp-avg-dtype", "the optimizer's state has another width", "fp32"},
    RefusedFlag{"exp-avg-sq-dtype", "the optimizer's state has another width", "fp32"},
    RefusedFlag{"optimizer-cpu-offload", "the optimizer's state is in host memory", "false"},
    RefusedFlag{"cpu-offloading-num-layers", "what some layers keep goes to host memory", "0"},
    RefusedFlag{"cpu-offloading", "what layers keep goes to host memory", "false"},
    RefusedFlag{
        "fine-grained-activation-offloading", "what layers keep goes to host memory", "false"},
    RefusedFlag{"distribute-saved-activations", "what is kept is shared out", "false"},
    RefusedFlag{"distribute-checkpointed-activations", "what is kept is shared out", "false"},
    RefusedFlag{"fp32-residual-connection", "what goes between blocks is twice as wide", "false"},
    RefusedFlag{"moe-layer-recompute", "the halves with experts alone are recomputed", "false"},
    RefusedFlag{"recompute-granularity-per-stage-layer", "stages recompute differently"},
    RefusedFlag{"recompute-layer-ids", "some layers alone are recomputed"},
    // The model, as a class of Megatron-Bridge.
    RefusedFlag{"-target-",
                "the class has sizes, norms, activations and ties of its own, which the file does "
                "not say",
                "megatron.bridge.models.gpt_provider.gptmodelprovider"},
    // The schedule.
    RefusedFlag{"overlap-moe-expert-parallel-comm", "forwards and backwards are merged", "false"},
    RefusedFlag{"combined-1f1b", "forwards and backwards are merged", "false"},
    RefusedFlag{"delay-wgrad-compute", "the gradients of weights wait", "false"},
    RefusedFlag{"defer-embedding-wgrad-compute", "the head's gradients wait", "false"},
    RefusedFlag{"patch-zero-bubble", "another schedule takes Megatron's place", "false"},
    RefusedFlag{"enable-zero-bubble", "another schedule takes Megatron's place", "false"},
    RefusedFlag{"zero-bubble-v-schedule", "another schedule takes Megatron's place", "false"},
    RefusedFlag{"patch-primus-pipeline", "another schedule takes Megatron's place", "false"},
    RefusedFlag{"forward-backward-disaggregating", "it changes the schedule", "false"},
    RefusedFlag{"skip-train", "nothing is trained", "false"},
    RefusedFlag{"decrease-batch-size-if-needed", "the batch follows the machines", "false"},
};

struct NotedFlag {
    std::string_view name;
    std::string_view note;
};

constexpr std::array noted{
    NotedFlag{
        "overlap-param-gather-with-optimizer-step",
        "the prediction waits for the weights that replicas hand to each other; overlapped, a "
        "step is at most as long"},
    NotedFlag{"tp-comm-overlap",
              "the prediction adds the messages of tensor parallelism to the time of a layer; "
              "overlapped, a step is at most as long"},
    NotedFlag{"rampup-batch-size", "the prediction is of steps with the whole batch"},
    NotedFlag{"hierarchical-context-parallel-sizes",
              "messages between the devices of context parallelism are not predicted"},
    NotedFlag{"cp-comm-type",
              "messages between the devices of context parallelism are not predicted"},
};

constexpr std::array aliases{
    FlagAlias{"num-layers-in-first-pipeline-stage", "decoder-first-pipeline-num-layers"},
    FlagAlias{"num-layers-in-last-pipeline-stage", "decoder-last-pipeline-num-layers"},
    FlagAlias{"virtual-pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank"},
    FlagAlias{"microbatch-group-size-per-vp-stage",
              "microbatch-group-size-per-virtual-pipeline-stage"},
    FlagAlias{"num-moe-experts", "num-experts"},
    FlagAlias{"gated-linear-unit", "swiglu"},
    FlagAlias{"bias-gelu-fusion", "no-bias-gelu-fusion", true},
    FlagAlias{"add-bias-linear", "disable-bias-linear", true},
    FlagAlias{"share-embeddings-and-output-weights", "untie-embeddings-and-output-weights", true},
    FlagAlias{"add-position-embedding", "no-position-embedding", true},
    FlagAlias{"sequence-length", "seq-length"},
    FlagAlias{"seq-len", "seq-length"},
    FlagAlias{"overlap-grad-sync", "overlap-grad-reduce"},
    FlagAlias{"use-rotary-position-embedding", "use-rotary-position-embeddings"},
    FlagAlias{"accumulate-all-reduce-grads-in-fp32", "accumulate-allreduce-grads-in-fp32"},
    FlagAlias{"scatter-gather-tensors-in-pipeline", "no-scatter-gather-tensors-in-pipeline", true},
    FlagAlias{"activations-checkpoint-granularity", "recompute-granularity"},
    FlagAlias{"activations-checkpoint-num-layers", "recompute-num-layers"},
    FlagAlias{"checkpoint-num-layers", "recompute-num-layers"},
};

/// Names of harmless flags, in alphabetical order, apart by blanks.
constexpr std::string_view harmless =
    "activation-func activation-func-clamp-value activation-func-fp8-input-store "
    "adlr-autoresume adlr-autoresume-interval align-grad-reduce align-param-gather "
    "allow-ambiguous-pad-tokens app-tag-run-name app-tag-run-version apply-layernorm-1p "
    "apply-query-key-layer-scaling apply-residual-connection-post-layernorm "
    "apply-rope-fusion async-save async-tensor-model-parallel-allreduce attention-backend "
    "attention-softmax-in-fp32 auto-continue-train auto-detect-ckpt-format "
    "autocast-dtype autocast-enabled average-in-collective barrier-with-L1-time "
    "barrier-with-l1-time batch-p2p-comm batch-p2p-sync bert-embedder-type bert-load "
    "bert-no-binary-head beta-fast beta-slow bias-activation-fusion bias-dropout-fusion "
    "bias-swiglu-fusion biencoder-projection-dim "
    "biencoder-shared-query-context-model blend blend-per-split block-data-path bucket-size "
    "DDP-impl data-impl create-all-gather-group fsdp-all-gather-in-start-param-sync "
    "fsdp-db-use-persist-buf-on-alloc-fail fsdp-manual-registration megatron-fsdp-version "
    "megatron-fsdp-enable-fine-grained-param-gather megatron-fsdp-max-pool-double-buffer "
    "cache-mla-latents calc-ft-timeouts calculate-per-token-loss check-for-large-grads "
    "check-for-nan-in-grad check-for-nan-in-loss-and-grad check-for-spiky-loss check-nan "
    "check-weight-hash-across-dp-replicas-interval classes-fraction "
    "clone-scatter-output-in-embedding create-attention-mask "
    "create-attention-mask-in-dataloader cross-entropy-fusion-impl cross-entropy-loss-fusion "
    "data-args-path data-cache-path data-parallel-random-init data-per-class-fraction "
    "dataloader-type dataset deallocate-pipeline-outputs decode-only-cuda-graphs "
    "decoupled-lr decoupled-min-lr description deterministic-mode "
    "disable-bf16-reduced-precision-matmul disable-chunked-prefill "
    "disable-compile-dependencies disable-gloo-process-groups disable-last-saving "
    "disable-mamba-mem-eff-path disable-mlflow disable-msc disable-parameter-transpose-cache "
    "disable-primus-topk-router disable-profiler-activity-cpu disable-straggler-on-startup "
    "disable-symmetric-registration disable-tensorboard disable-wandb "
    "distrib-optim-fully-reshardable-mem-efficient distributed-backend "
    "distributed-timeout-minutes distributed-timeout-seconds-after-init "
    "dump-param-to-param-group-map dump-pp-data embedding-init-method-std embedding-path "
    "empty-unused-memory-level enable-cuda-graph enable-experimental "
    "enable-experimental-features enable-ft-package enable-full-sharding-in-hsdp "
    "enable-gloo-process-groups enable-one-logger enable-primus-turbo end-weight-decay "
    "eod-mask-loss evidence-data-path exit-duration-in-mins exit-interval "
    "exit-on-missing-checkpoint exit-signal-handler exp-name external-cuda-graph "
    "file-sink-level finetune first-last-layers-bf16 flash-decode fp16-lm-cross-entropy "
    "fp4-recipe fp8-amax-compute-algo fp8-amax-history-len fp8-dot-product-attention "
    "fp8-interval fp8-margin fp8-multi-head-attention fp8-recipe fp8-wgrad framework "
    "fsdp-double-buffer full-validation fused-padded-mla-attention fused-single-qkv-rope "
    "glu-linear-offset gradient-accumulation-fusion gradient-reduce-div-fusion head-lr-mult "
    "hf-tokenizer-kwargs high-priority-stream-groups hysteresis ict-head-size ict-load img-h "
    "img-w indexer-batch-size indexer-log-interval init-method init-method-std "
    "init-method-xavier-uniform init-model-with-meta-device initial-loss-scale "
    "iter-per-epoch iterations-to-skip keep-fp8-transpose-cache kitchen-config-file "
    "kitchen-recipe-number layernorm-epsilon layernorm-zero-centered-gamma lazy-mpu-init "
    "legacy-tokenizer load load-main-params-from-ckpt local-rank logging-level loss-scale "
    "loss-scale-window lr manual-gc manual-gc-eval manual-gc-interval mask-factor mask-prob "
    "mask-type masked-softmax-fusion max-tokens-to-oom memory-efficient-layer-norm "
    "memory-snapshot-path merge-file mid-level-dataset-surplus min-loss-scale min-lr "
    "mixed-precision mlp-chunks-for-prefill mmap-bin-files mock-data "
    "moe-apply-probs-on-input moe-aux-loss-coeff moe-deepep-num-sms moe-enable-deepep "
    "moe-extended-tp moe-flex-dispatcher-backend moe-grouped-gemm moe-input-jitter-eps "
    "moe-pad-experts-for-cuda-graph-inference moe-per-layer-logging moe-permute-fusion "
    "moe-shared-expert-overlap moe-token-dispatcher-type moe-token-drop-policy "
    "moe-upcycling-granularity moe-use-legacy-grouped-gemm moe-z-loss-coeff mrope-section "
    "mscale mscale-all-dim mtp-loss-scaling-factor multiple-validation-sets name "
    "nccl-all-reduce-for-prefill nccl-communicator-config-path nccl-ub no-align-grad-reduce "
    "no-align-param-gather no-async-tensor-model-parallel-allreduce "
    "no-barrier-with-level-1-timing no-bias-dropout-fusion "
    "no-bias-swiglu-fusion no-check-for-nan-in-loss-and-grad "
    "no-clone-scatter-output-in-embedding no-create-attention-mask-in-dataloader "
    "no-data-sharding no-fp8-wgrad no-gradient-reduce-div-fusion no-initialization "
    "no-manual-gc-eval "
    "no-masked-softmax-fusion no-mmap-bin-files no-one-logger no-overlap-p2p-communication "
    "no-persist-layer-norm no-pin-cpu-grads no-pin-cpu-params no-rope-freq no-rope-fusion "
    "no-strict-fsdp-dtensor-load "
    "no-use-tokenizer-model-from-checkpoint-args norm-epsilon num-channels num-classes "
    "num-dataset-builder-threads num-layers-at-end-in-bf16 num-layers-at-start-in-bf16 "
    "object-storage-cache-path onnx-safe optimizer-offload-fraction "
    "output-bert-embeddings output-layer-init-method overlap-cpu-optimizer-d2h-h2d "
    "overlap-p2p-comm overlap-p2p-communication overlap-p2p-communication-warmup-flush "
    "override-opt-param-scheduler params-dtype patch-dim path per-split-data-args-path "
    "perform-initialization persist-layer-norm pipeline-dtype "
    "pipeline-model-parallel-comm-backend pp-warmup pretrained-checkpoint profile qk-l2-norm "
    "query-in-block-prob random-seed record-memory-history relative-attention-max-distance "
    "relative-attention-num-buckets replication replication-factor replication-jump "
    "rerun-mode reset-attention-mask reset-attention-masks reset-position-ids "
    "result-rejected-tracker-filename retriever-report-topk-accuracies "
    "retriever-score-scaling retriever-seq-length reuse-grad-buf-for-mxfp8-param-ag "
    "run-workload-inspector-server sample-rate save seed "
    "seq-len-interpolation-factor sft-tokenizer-prompt-format sgd-momentum "
    "sharp-enabled-group short-seq-prob sink-level "
    "skip-getting-attention-mask-from-dataloader split start-weight-decay stderr-sink-level "
    "suggested-communication-unit-size swin-backbone-type symmetric-ar-type "
    "sync-free-moe-stage te-rng-tracker test-mode titles-data-path tokenizer-metadata "
    "tokenizer-model tokenizer-type train-iters "
    "train-samples train-sync-interval trainable transformer-impl trust-remote-code "
    "use-checkpoint-opt-param-scheduler use-cpu-initialization "
    "use-deprecated-20241209-moe-layer use-dist-ckpt use-flash-attn use-fused-deepep "
    "use-fused-weighted-squared-relu use-gloo-process-groups use-legacy-models "
    "use-legacy-static-engine use-mcore-models use-megatron-tokenizer use-nccl-ub "
    "use-one-sent-docs use-persistent-ckpt-worker use-pytorch-profiler use-ring-exchange-p2p "
    "use-rocm-mem-info use-rocm-mem-info-iters use-rope-scaling use-sharp "
    "use-te-activation-func use-torch-optimizer-for-cpu-offload use-tp-pp-dp-mapping "
    "user-name vision-backbone-type vision-pretraining-type vocab-file warmup weight-decay "
    "weight-decay-incr-style wgrad-deferral-limit work-group workspace ";

/// Names that begin like this are harmless.
constexpr std::array<std::string_view, 49> harmless_prefixes{"log-",
                                                             "no-log-",
                                                             "wandb-",
                                                             "tensorboard-",
                                                             "one-logger-",
                                                             "inference-",
                                                             "ckpt-",
                                                             "no-ckpt-",
                                                             "dist-ckpt-",
                                                             "non-persistent-",
                                                             "save-",
                                                             "no-save-",
                                                             "no-load-",
                                                             "lr-",
                                                             "adam-",
                                                             "muon-",
                                                             "eval-",
                                                             "profile-",
                                                             "pytorch-profiler-",
                                                             "tp-comm-",
                                                             "disable-tp-comm-",
                                                             "cuda-graph-",
                                                             "error-injection-",
                                                             "inprocess-",
                                                             "ddp-",
                                                             "tiktoken-",
                                                             "straggler-",
                                                             "data-path",
                                                             "train-data-",
                                                             "valid-data-",
                                                             "test-data-",
                                                             "num-workers",
                                                             "rotary-",
                                                             "rope-",
                                                             "mlflow-",
                                                             "timing-log-",
                                                             "config-logger-",
                                                             "rl-",
                                                             "grpo-",
                                                             "langrl-",
                                                             "mamba-",
                                                             "dino-",
                                                             "retro-",
                                                             "use-turbo-",
                                                             "enable-turbo-",
                                                             "turbo-",
                                                             "moe-router-",
                                                             "moe-deepep-",
                                                             "nvtx-"};

constexpr std::array<std::string_view, 17> harmless_sections{"logger",
                                                             "checkpoint",
                                                             "profiling",
                                                             "rng",
                                                             "dist",
                                                             "scheduler",
                                                             "tokenizer",
                                                             "rerun_state_machine",
                                                             "straggler",
                                                             "nvrx_straggler",
                                                             "inprocess_restart",
                                                             "ft",
                                                             "validation",
                                                             "tensor_inspect",
                                                             "optimizer_config_override_provider",
                                                             "primus_turbo",
                                                             "platform_config"};

}  // namespace

const RefusedFlag* refused_flag(std::string_view name) {
    const auto* const found = std::ranges::find(refused, name, &RefusedFlag::name);
    return found == refused.end() ? nullptr : found;
}

bool is_harmless_value(const RefusedFlag& flag, std::string_view value) {
    const std::vector<std::string_view> values = words_of(flag.harmless_values);
    return std::ranges::find(values, value) != values.end();
}

std::string_view flag_note(std::string_view name) {
    const auto* const found = std::ranges::find(noted, name, &NotedFlag::name);
    return found == noted.end() ? std::string_view() : found->note;
}

bool is_harmless_flag(std::string_view name) {
    const std::vector<std::string_view> names = words_of(harmless);
    // Any text may stand behind a prefix; what is no name of a flag is not understood.
    const bool is_name = name.find_first_not_of(
                             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
                         std::string_view::npos;
    return std::ranges::find(names, name) != names.end() ||
           (is_name && std::ranges::any_of(harmless_prefixes, [name](std::string_view prefix) {
                return name.starts_with(prefix);
            }));
}

bool is_harmless_section(std::string_view section) {
    return std::ranges::find(harmless_sections, section) != harmless_sections.end();
}

std::optional<FlagAlias> flag_alias(std::string_view name) {
    const auto* const found = std::ranges::find(aliases, name, &FlagAlias::alias);
    return found == aliases.end() ? std::nullopt : std::optional(*found);
}

std::vector<std::string_view> known_flags() {
    std::vector<std::string_view> names = words_of(harmless);
    for (const RefusedFlag& flag : refused) {
        names.push_back(flag.name);
    }
    for (const NotedFlag& flag : noted) {
        names.push_back(flag.name);
    }
    for (const FlagAlias& alias : aliases) {
        names.push_back(alias.alias);
    }
    return names;
}

}  // namespace pipetwin
