// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/megatron_flag_table.h"

#include <algorithm>
#include <array>

#include "core/base/word_list.h"

namespace pipetwin {

namespace {

/// What says of a number of streams or parts that there is one.
constexpr std::string_view off_or_one = "0 1 false none null";

/// Flags that change the model, the split, the memory or the schedule in a way that no scenario can
/// say.
constexpr auto refused = std::to_array<SettingGroup>({
    // The model.
    {"encoder-num-layers", "the model has an encoder"},
    {"decoder-num-layers", "the model has an encoder, too"},
    {"encoder-seq-length", "it is a length of its own for an encoder"},
    {"decoder-seq-length", "it is a length of its own for a decoder"},
    {"retro-add-retriever", "it adds a retriever to the model", off_or_one},
    {"heterogeneous-layers-config-path", "another file makes each layer different"},
    {"heterogeneous-layers-config-encoded-json", "it makes each layer different"},
    {"mamba-d-conv", "the state space sees another number of tokens", "4 null none"},
    {"mamba-expand", "the state space has another width", "2 null none"},
    {"mamba-chunk-size", "the state space has other chunks", "128 null none"},
    {"mamba-training-ssm-states-dtype", "states have another width", "null none"},
    {"mtp-hybrid-override-pattern", "it says what layers predict further tokens", "null none"},
    {"conv-bias lfm-layer-types", "the model has convolutions", off_values},
    {"use-checkpoint-args", "a checkpoint describes the model", off_values},
    {"use-mp-args-from-checkpoint-args", "a checkpoint says how it is split", off_values},
    {"yaml-cfg", "the settings are in another file: import that file"},
    {"vision-pretraining", "the model is not a language model", off_values},
    {"moe-use-upcycling", "a dense model becomes one of experts", off_values},
    {"sft variable-seq-lengths neat-pack packed-sequence "
     "enable-packed-sequences use-packed-sequence no-pad-to-seq-lengths "
     "hybrid-context-parallel rl-use-sequence-packing",
     "samples have different lengths",
     off_values},
    {"perform-rl-step", "a step generates samples, too", off_values},
    {"mtp-standalone", "the layers that predict further tokens are a stage", off_values},
    {"mtp-use-repeated-layer", "it adds layers that predict further tokens", off_values},
    {"enable-dsa-indexer index-topk", "an indexer chooses keys in each block", off_values},
    {"dsa-indexer-topk-freq", "blocks take the choice of a block before", "1 null none"},
    {"full-attention-interval", "attention is another one in most blocks", "0 1 null"},
    {"interleave-sliding-window sink-sliding-window",
     "some blocks see less of a sample",
     off_values},
    {"sliding-window-size", "attention sees a window of a sample", off_values},
    {"enable-mhc enable-mhc-connections", "blocks have several residual streams", off_values},
    {"mhc-num-residual-streams hc-mult", "blocks have several residual streams", off_or_one},
    {"n-hash-layers num-hash-layers", "some layers are others", off_values},
    {"num-zero-experts", "some experts compute nothing", off_values},
    {"n-shared-experts", "it widens the shared experts", off_values},
    {"first-k-dense-replace", "the first blocks have no experts", off_values},
    {"moe-token-dropping moe-expert-rank-capacity-factor",
     "experts drop tokens above a limit",
     off_values},
    {"post-norm", "norms stand behind the halves of a block", off_values},
    {"input-embeds-norm", "a norm stands behind the embedding", off_values},
    {"add-output-layer-bias", "the head has a bias", off_values},
    {"add-dense-bias", "matrices have biases of their own", off_values},
    {"o-lora-rank", "the output of attention goes through narrow rows", off_values},
    {"mla-mm-split", "matrices of latent attention are divided otherwise", off_values},
    {"enable-mla-absorb", "latent attention is computed otherwise", off_values},
    {"moe-shared-expert-gate-size", "it adds a gate to the shared experts", off_values},
    {"freeze-all-layers", "nothing is trained", off_values},
    {"freeze-base-for-mtp", "parts of the model are not trained", off_values},
    {"flextron", "parts of the model are left out", off_values},
    {"peft lora lora-r lora-target-modules lora-fusion",
     "adapters are trained, and the weights are not",
     off_values},
    {"freeze-llm freeze-parameters-ratio freeze-parameters freeze-parameters-regex "
     "trainable-parameters trainable-parameters-regex",
     "parts of the model are not trained",
     "false 0 0.0 null none []"},
    {"task-type", "another head takes the place of the logits", "causal_lm null none"},
    {"rlhf-type", "further models compute in each step", off_values},
    {"torch-dtype", "weights have another type", "bfloat16 bf16 null none"},
    {"attn-impl",
     "attention has other kernels",
     "flash_attn flash_attention_2 flash_attention_3 auto null none"},
    {"export-kd-teacher-load", "a second model, the teacher, computes in each step", off_values},
    {"stage",
     "samples have different lengths, or further models compute in each step",
     "pretrain pt null none"},
    {"pad-vocab-size", "the vocabulary is not padded", "true 1 null none"},
    {"framework", "the module is of another program", "megatron null none"},
    {"enable-turbo-attention-float8", "attention is in 8 bits", off_values},
    {"turbo-mega-moe-precision", "experts have another precision", "bf16 null none"},
    {"lora-bias", "adapters have biases", "none null"},
    {"target-regex target-parameters", "adapters stand beside other products", "null none"},
    {"kitchen-recipe-number kitchen-config-file quant-recipe",
     "products in few bits take other time and memory",
     off_values},
    {"mlp-chunks-for-training", "the feed-forward halves are cut in parts", off_or_one},
    {"moe-combine-bwd-dtype moe-dispatch-fwd-dtype",
     "tokens are sent in another width",
     "bf16 null none"},
    {"expert-interval", "some blocks alone have experts", "1"},
    {"topk moe-train-capacity-factor moe-expert-parallel-size moe-top2-2nd-expert-sampling",
     "it shares out tokens as DeepSpeed's experts do",
     "null none"},
    {"mlp-type", "experts have another form", "standard"},
    {"curriculum-learning curriculum-learning-legacy random-ltd "
     "data-efficiency-curriculum-learning",
     "samples have different lengths",
     off_values},
    {"compression-training", "weights have few bits", off_values},
    {"kd mos", "a second model, the teacher, computes in each step", off_values},
    {"memory-centric-tiled-linear", "products are cut in parts", off_values},
    // The split over devices.
    {"ds-sequence-parallel-size sequence-parallel-size",
     "devices share samples as DeepSpeed has it",
     off_or_one},
    {"gtp-weight-remat-size expert-gtp-weight-remat-size",
     "weights are shared out, and gathered for each layer",
     off_or_one},
    {"pipeline-num-transformer-layers", "it says the layers of each stage"},
    {"automated-pipeline", "a program chooses the split", off_values},
    {"layerwise-disaggregated-training", "stages are placed otherwise", off_values},
    {"encoder-tensor-model-parallel-size "
     "encoder-pipeline-model-parallel-size",
     "an encoder has devices of its own",
     off_values},
    {"moe-tp-extend-ep moe-extended-tp", "experts are shared out otherwise", off_values},
    {"use-layer-wise-distributed-optimizer",
     "replicas share the optimizer layer by layer",
     off_values},
    {"data-parallel-replicate-degree", "groups of replicas each have a copy", off_or_one},
    {"weight-deosc", "weights are changed between steps", off_values},
    {"tensor-parallel-num-weight-shards", "weights are shared out otherwise", "1 null"},
    {"megatron-fsdp-use-decoupled-grad", "gradients have another width", off_values},
    {"outer-dp-sharding-strategy", "groups of replicas share it", "no_shard"},
    {"megatron-fsdp-main-params-dtype", "the copies of the weights have another width", "fp32"},
    {"megatron-fsdp-main-grads-dtype", "gradients have another width", "auto fp32"},
    {"megatron-fsdp-grad-comm-dtype", "gradients are sent in another width", "auto fp32"},
    {"model-parallel-size batch-size", "Megatron has no such flag any more"},
    {"pipeline-model-parallel-split-rank", "the model has an encoder"},
    {"standalone-embedding-stage", "the embedding is a stage of its own", off_values},
    // Memory.
    {"fp8-param-gather", "weights have 8 bits", off_values},
    {"fp4-format fp4", "products in 4 bits take other time and memory", off_values},
    {"fp4-param-gather fp4-param", "weights have 4 bits", off_values},
    {"optimizer-cpu-offload optimizer-offload offload-optimizer-states swap-optimizer",
     "the optimizer's state is in host memory",
     off_values},
    {"distribute-saved-activations distribute-checkpointed-activations",
     "what is kept is shared out",
     off_values},
    {"fp32-residual-connection", "what goes between blocks is twice as wide", off_values},
    {"moe-layer-recompute", "the halves with experts alone are recomputed", off_values},
    {"recompute-granularity-per-stage-layer", "stages recompute differently"},
    {"recompute-layer-ids", "some layers alone are recomputed"},
    {"cpu-optimizer cpu-torch-adam checkpoint-in-cpu", "state is in host memory", off_values},
    {"partition-activations", "what is kept is shared out", off_values},
    {"remote-device", "state is in host memory", off_values},
    {"param-offload", "weights are in host memory", off_values},
    {"grad-offload", "gradients are in host memory", off_values},
    {"swap-attention", "what attention keeps goes to host memory", off_values},
    {"adaptive-memory-optimization", "a program chooses what is kept", off_values},
    {"reuse-fp32-param", "weights and their copies share memory", off_values},
    {"o2-optimizer", "the optimizer's state has another width", off_values},
    {"o2-gradient", "gradients have another width", off_values},
    {"moe-zero-memory", "experts are recomputed", "disable null none"},
    {"recompute-activation-function", "activations alone are recomputed", off_values},
    {"recompute-norm", "norms alone are recomputed", off_values},
    {"recompute-in-bubble", "recomputes move into the bubble", off_values},
    {"recompute-in-advance", "recomputes move forward", off_values},
    {"mtp-mem-efficient-logits fused-ce-mode", "the head's logits are cut in parts", off_values},
    {"loss-chunk-size", "the head's logits are cut in parts", "0 1 null none"},
    {"num-microbatches-with-partial-activation-checkpoints",
     "micro-batches are recomputed differently",
     off_values},
    {"fp8-e4m3 fp8-hybrid", "products in 8 bits take other time and memory", off_values},
    {"use-fsdp2-bf16-master-weight-optimizer",
     "the copies of the weights have another width",
     off_values},
    {"precision-config", "the settings of precision are in another place", "bf16_mixed null none"},
    // The model, as a class of Megatron-Bridge.
    {"-target-",
     "the class has sizes, norms, activations and ties of its own, which the file does not say",
     "megatron.bridge.models.gpt_provider.gptmodelprovider"},
    // The schedule.
    {"schedules-method enable-odc patch-zero-bubble enable-zero-bubble enable-zbh1-pipeline "
     "enable-zbh1-exact-semantics "
     "zero-bubble-v-schedule patch-primus-pipeline",
     "another schedule takes Megatron's place",
     off_values},
    {"overlap-moe-expert-parallel-comm",
     "messages of experts go beside the layers of another micro-batch",
     off_values},
    {"moe-fb-overlap combined-1f1b patch-moe-overlap",
     "forwards and backwards are merged",
     off_values},
    {"inference-only skip-train", "nothing is trained", off_values},
    {"fake-process-group", "nothing is sent", off_values},
    {"delay-wgrad-compute", "the gradients of weights wait", off_values},
    {"defer-embedding-wgrad-compute", "the head's gradients wait", off_values},
    {"forward-backward-disaggregating", "it changes the schedule", off_values},
    {"decrease-batch-size-if-needed", "the batch follows the machines", off_values},
});

constexpr std::string_view unfused =
    "the prediction has these kernels fused; one by one, a step is longer";
/// What says that kernels are fused: true, or a flag alone.
constexpr std::string_view on_values = "true 1 given null";
constexpr std::string_view all_in_eight_bits =
    "with --fp8-format the prediction has all products of blocks in 8 bits";
constexpr std::string_view attention_in_half =
    "with --fp8-format the prediction has attention in bf16";
constexpr std::string_view part_of_overlap =
    "with --tp-comm-overlap the prediction has all messages of tensor parallelism beside products";
constexpr std::string_view of_reinforcement =
    "the samples of an update are not taken from it: set training.batch and "
    "pipeline.micro_batches";

/// Flags of which a prediction leaves something out; "given" is the value of a flag alone.
constexpr auto noted = std::to_array<SettingGroup>({
    {"parallel-output",
     "the prediction leaves logits divided; gathered, they take more time and memory",
     on_values},
    {"scatter-embedding-sequence-parallel",
     "the prediction divides the embedding's output where the sequence is divided",
     on_values},
    {"preserve-fp32-weights", "the prediction keeps weights in fp32, too", on_values},
    {"deepspeed-config",
     "the ZeRO stage, the clipping and the precision of that file are not read: set "
     "pipeline.shard, "
     "training.clip_norm and training.precision where they differ"},
    {"activation-func-fp8-input-store",
     "the prediction keeps the activation's input in two bytes; it needs less memory",
     off_values},
    {"moe-use-legacy-grouped-gemm", "the prediction has the kernels of today", off_values},
    {"use-ring-exchange-p2p", "the prediction sends each message by itself", off_values},
    {"overlap-param-gather-with-optimizer-step",
     "the prediction waits for the weights that replicas hand to each other; "
     "overlapped, a step is at most as long",
     off_values},
    {"use-ascend-coc use-ascend-mc2",
     "the prediction adds the messages of tensor parallelism to the time of a layer; "
     "overlapped, a step is at most as long",
     off_values},
    {"rampup-batch-size", "the prediction is of steps with the whole batch", off_values},
    {"ulysses-degree-in-cp",
     "the prediction divides heads among the devices of a node, and has a ring of nodes",
     "1 null none"},
    {"moe-shared-expert-overlap",
     "the prediction computes shared experts before the messages of the others; beside them a "
     "step is at most as long",
     off_values},
    {"deallocate-pipeline-outputs",
     "the prediction frees what a stage has sent; kept, the run needs more memory",
     on_values},
    {"pipeline-dtype",
     "stages send two bytes for each number in the prediction of a run in half precision",
     "torch.bfloat16 bfloat16 bf16 torch.float16 float16 fp16 null none"},
    {"moe-router-force-biased", "the prediction has no bias towards some experts", "null none"},
    {"moe-router-topk-limited-devices",
     "the prediction sends tokens to all devices that have their experts",
     "0 null none"},
    {"moe-alltoall-overlap-comm moe-permutation-async-comm use-turbo-mega-moe",
     "the prediction sends tokens to experts before it computes them; beside the work a step is at "
     "most as long",
     off_values},
    {"overlap-p2p-communication-warmup-flush overlap-p2p-comm-warmup-flush",
     "the prediction sends beside the computation in the steady state; a step is at most as long",
     off_values},
    {"fsdp-double-buffer megatron-fsdp-max-pool-double-buffer nccl-ub use-nccl-ub",
     "buffers that messages keep are not in the prediction: the run needs more memory",
     off_values},
    {"keep-fp8-transpose-cache keep-fp8-transpose-cache-when-using-custom-fsdp",
     "copies of weights that are kept need more memory",
     off_values},
    {"reuse-grad-buf-for-mxfp8-param-ag",
     "the prediction has a buffer of its own for gathered weights; the run needs less memory",
     off_values},
    {"empty-unused-memory-level",
     "the prediction has no time for handing memory back; a step is longer",
     off_values},
    {"ddp-reduce-scatter-with-fp32-accumulation",
     "the prediction sums gradients by reduce-scatter; messages to all take other time",
     off_values},
    {"disable-tp-comm-bulk-dgrad disable-tp-comm-bulk-wgrad disable-tp-comm-overlap-ag "
     "disable-tp-comm-overlap-rs disable-tp-comm-split-ag disable-tp-comm-split-rs "
     "tp-comm-overlap-disable-fc1 tp-comm-overlap-disable-qkv",
     part_of_overlap,
     off_values},
    {"tp-comm-bulk-dgrad tp-comm-bulk-wgrad tp-comm-overlap-ag tp-comm-overlap-rs "
     "tp-comm-split-ag tp-comm-split-rs",
     part_of_overlap,
     on_values},
    {"disable-jit-fuser", unfused, off_values},
    {"no-async-tensor-model-parallel-allreduce",
     "messages of tensor parallelism may hide beside products in the prediction",
     off_values},
    {"is-instruction-dataset is-pairwise-dataset",
     "the prediction has samples of --seq-length tokens; shorter ones take less time",
     off_values},
    {"packing padding-free",
     "the prediction has attention over whole samples; within documents it takes less time",
     off_values},
    {"delta-offload-bytes-across-pp-ranks",
     "the prediction has one share of what is offloaded on all stages",
     off_values},
    {"qk-clip", "the prediction has no time for clipping weights of attention", off_values},
    {"batch-invariant-mode", "such kernels may take longer than predicted", off_values},
    {"deterministic-mode", "deterministic kernels may take longer than predicted", off_values},
    {"fp16-lm-cross-entropy",
     "the prediction has the head's logits in fp32; in fp16 they take less memory",
     off_values},
    {"reset-attention-mask reset-attention-masks",
     "the prediction has attention over whole samples",
     off_values},
    {"enable-cuda-graph external-cuda-graph cuda-graph-impl "
     "optimizer-cuda-graph",
     "the prediction launches kernels one by one, and has no memory of graphs",
     off_values},
    {"first-last-layers-bf16 no-fp8-wgrad", all_in_eight_bits, off_values},
    {"dsa-indexer-loss-coeff",
     "the prediction has no time for the loss of the indexer; a step is longer",
     "0 0.0 null none"},
    {"fp8-wgrad", all_in_eight_bits, on_values},
    {"fp8-dot-product-attention fp8-multi-head-attention", attention_in_half, off_values},
    {"no-masked-softmax-fusion no-bias-swiglu-fusion no-bias-dropout-fusion "
     "no-persist-layer-norm no-rope-fusion",
     unfused,
     off_values},
    {"masked-softmax-fusion bias-swiglu-fusion bias-activation-fusion "
     "bias-dropout-fusion persist-layer-norm apply-rope-fusion",
     unfused,
     on_values},
    {"moe-grouped-gemm",
     "the prediction computes the experts of a device together; one by one, a step is longer",
     on_values},
    {"no-overlap-p2p-communication",
     "the prediction sends beside the computation; one after the other, a step is longer",
     off_values},
    {"overlap-p2p-comm overlap-p2p-communication",
     "the prediction sends beside the computation; one after the other, a step is longer",
     on_values},
    // verl: a step of the optimizer has ppo_mini_batch_size x rollout.n samples.
    {"train-batch-size ppo-mini-batch-size ppo-max-token-len-per-gpu "
     "ppo-epochs use-dynamic-bsz",
     of_reinforcement,
     off_values},
    {"max-prompt-length max-response-length",
     "samples have prompt and response: set the tokens of a sample",
     off_values},
});

constexpr auto aliases = std::to_array<FlagAlias>({
    {"num-layers-in-first-pipeline-stage", "decoder-first-pipeline-num-layers"},
    {"num-layers-in-last-pipeline-stage", "decoder-last-pipeline-num-layers"},
    {"virtual-pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank"},
    {"microbatch-group-size-per-vp-stage", "microbatch-group-size-per-virtual-pipeline-stage"},
    {"num-moe-experts", "num-experts"},
    {"gated-linear-unit", "swiglu"},
    {"bias-gelu-fusion", "no-bias-gelu-fusion", true},
    {"gradient-accumulation-fusion", "no-gradient-accumulation-fusion", true},
    {"add-bias-linear", "disable-bias-linear", true},
    {"share-embeddings-and-output-weights", "untie-embeddings-and-output-weights", true},
    {"add-position-embedding", "no-position-embedding", true},
    {"sequence-length", "seq-length"},
    {"num-key-value-heads", "num-query-groups"},
    {"seq-len", "seq-length"},
    {"overlap-grad-sync", "overlap-grad-reduce"},
    {"use-rotary-position-embedding", "use-rotary-position-embeddings"},
    {"accumulate-all-reduce-grads-in-fp32", "accumulate-allreduce-grads-in-fp32"},
    {"scatter-gather-tensors-in-pipeline", "no-scatter-gather-tensors-in-pipeline", true},
    {"activations-checkpoint-granularity", "recompute-granularity"},
    {"activations-checkpoint-num-layers", "recompute-num-layers"},
    {"checkpoint-num-layers", "recompute-num-layers"},
    {"shared-expert-gate", "moe-shared-expert-gate"},
    {"train-type", "tuner-type"},
    {"ppo-micro-batch-size-per-gpu", "micro-batch-size"},
    {"fp8", "fp8-format"},
    {"activations-checkpoint-method", "recompute-method"},
    {"torch-fsdp2-reshard-after-forward", "torch-fsdp2-no-reshard-after-forward", true},
});

/// Names of harmless flags, in alphabetical order, apart by blanks: their values change no kernel,
/// size, message or order of a training step.
constexpr std::string_view harmless =
    // Numbers of layers in bf16, which --first-last-layers-bf16 alone makes so.
    "num-layers-at-end-in-bf16 num-layers-at-start-in-bf16 "
    // Primus: reports, and what enable_odc, fp4 and weight_deosc alone read.
    "generate-tracelens-report mxfp4-gradient-stochastic-rounding odc-gda-defer-reduce "
    "odc-gda-pipe odc-gda-rs-blocks odc-gda-stride-bytes odc-gda-warmup-mode "
    "odc-grad-spike-threshold odc-max-buffer-size odc-mori-init odc-p2p-backend odc-phase "
    "odc-rocshmem-gda odc-rocshmem-lib use-dist-ckpt-deprecated weight-deosc-log-freq "
    "weight-deosc-period weight-deosc-ratio weight-deosc-start-step "
    // Megatron-Bridge: what samples are made of, and how masks are passed on.
    "add-extra-token-to-sequence drop-last-partial-validation-sequence "
    "skip-getting-attention-mask-from-dataset "
    "DDP-impl activation-func-clamp-value adam-beta1 adam-beta2 adam-eps add-rmsnorm-offset "
    "adlr-autoresume adlr-autoresume-interval adv-estimator ai-framework align-grad-reduce "
    "align-param-gather allow-ambiguous-pad-tokens aml-data-download-path app-tag-run-name "
    "app-tag-run-version append-eod apply-layernorm-1p apply-query-key-layer-scaling "
    "apply-residual-connection-post-layernorm apply-wd-to-qk-layernorm async-ckpt-cpu-priority "
    "async-ckpt-io-priority async-ckpt-use-cpu-shm async-save async-strategy "
    "async-tensor-model-parallel-allreduce attention-mask-type attention-softmax-in-fp32 "
    "attn-logit-softcapping auto-continue-train auto-detect-ckpt-format autocast-dtype "
    "autocast-enabled average-in-collective barrier-with-L1-time barrier-with-l1-time "
    "basemodel-type batch-invariant-backend batch-p2p-comm batch-p2p-sync bert-binary-head "
    "bert-embedder-type bert-load bert-no-binary-head beta-fast beta-slow "
    "biencoder-projection-dim biencoder-shared-query-context-model binary-mask bind-core blend "
    "blend-per-split block-data-path bpe-kv-cache bpe-max-buffer bpe-params bpe-ssm-cache "
    "bucket-size budget-list budget-probs budget-type cache-mla-latents calc-ft-timeouts "
    "calculate-per-token-loss chat-template check-for-large-grads check-for-nan-in-grad "
    "check-for-nan-in-loss check-for-nan-in-loss-and-grad check-for-spiky-loss check-nan "
    "check-weight-hash-across-dp-replicas-interval ckpt-assume-constant-structure "
    "ckpt-convert-format ckpt-convert-save ckpt-convert-update-legacy-dist-opt-format "
    "ckpt-drop-redundant-extra-state ckpt-format ckpt-fully-parallel-load "
    "ckpt-fully-parallel-load-exchange-algo ckpt-fully-parallel-load-per-rank-objects "
    "ckpt-fully-parallel-load-process-group ckpt-fully-parallel-save "
    "ckpt-fully-parallel-save-deprecated ckpt-fully-parallel-save-process-group "
    "ckpt-load-validate-sharding-integrity ckpt-pg-tensors-cache-create "
    "ckpt-pg-tensors-cache-path ckpt-step classes-fraction clip-ratio clip-ratio-c "
    "clip-ratio-high clip-ratio-low clone-scatter-output-in-embedding cluster-time-out "
    "config-logger-dir config-name config-path consumed-train-tokens contigious-checkpointing "
    "conv-L-cache cpu-offloading cpu-offloading-activations cpu-offloading-weights "
    "create-all-gather-group "
    "create-attention-mask create-attention-mask-in-dataloader critic-warmup "
    "cross-entropy-fusion-impl cross-entropy-loss-fusion cuda-graph-modules "
    "cuda-graph-retain-backward-graph cuda-graph-scope cuda-graph-use-single-mempool "
    "cuda-graph-warmup-steps data-args-path data-cache-path data-file-list data-impl "
    "data-parallel-random-init data-path data-paths data-per-class-fraction data-sharding "
    "dataloader-defer-npy-index-mmap dataloader-fast-cache-load dataloader-type dataset "
    "dataset-provider ddp-average-in-collective ddp-bucket-size ddp-num-buckets "
    "ddp-pad-buckets-for-high-nccl-busbw ddp-param-name-patterns-for-fp32-local-accumulation "
    "debug-scheduler-table decode-only-cuda-graphs decoupled-lr decoupled-min-lr "
    "decoupled-weight-decay deepspeed deepspeed-activation-checkpointing deepspeed-mpi "
    "default-local-dir delay-param-gather deprecated-use-mcore-models description "
    "dino-bottleneck-size dino-freeze-last-layer dino-head-hidden-size dino-local-crops-number "
    "dino-local-img-size dino-norm-last-layer dino-teacher-temp dino-warmup-teacher-temp "
    "dino-warmup-teacher-temp-epochs disable-bf16-reduced-precision-matmul "
    "disable-chunked-prefill disable-compile-dependencies disable-gloo-group "
    "disable-gloo-process-groups disable-last-saving disable-mamba-mem-eff-path disable-mlflow "
    "disable-msc disable-parameter-transpose-cache disable-primus-topk-router "
    "disable-profiler-activity-cpu disable-straggler-on-startup disable-symmetric-registration "
    "disable-tensorboard disable-wandb dist-checkpointing-path dist-checkpointing-prefix "
    "dist-ckpt-format dist-ckpt-format-deprecated dist-ckpt-optim-fully-reshardable "
    "dist-ckpt-save-pre-mcore-014 dist-ckpt-strictness dist-ckpt-workers distill-coeff "
    "distrib-optim-fully-reshardable-mem-efficient distributed-backend "
    "distributed-timeout-minutes distributed-timeout-seconds-after-init ds-pipeline-enabled "
    "dsa-indexer-rotate-activation dsa-indexer-scoring-relu dsa-indexer-skip-topk-offset "
    "dump-param-to-param-group-map dump-pp-data embedding-init-method "
    "embedding-init-method-std embedding-multiplier-scale embedding-path enable-experimental "
    "enable-experimental-features enable-ft-package enable-full-sharding-in-hsdp "
    "enable-gloo-process-groups enable-hf2mg-convert enable-mg2hf-convert enable-msc "
    "enable-one-logger enable-primus-turbo end-weight-decay entropy-coeff eod-mask-loss "
    "error-injection-rate error-injection-type eval-global-batch-size eval-interval eval-iters "
    "eval-micro-batch-size evidence-data-path exit-duration-in-mins exit-interval "
    "exit-on-missing-checkpoint exit-signal exit-signal-handler "
    "exit-signal-handler-for-dataloader exit-signal-handler-for-training exp-name experiment-name "
    "export-kv-cache-quant export-model-type file-sink-level filter-overlong-prompts "
    "filter-warnings fim-data fim-eod-token fim-fragment-rate fim-middle-token fim-no-prefix "
    "fim-pad-token fim-prefix-token fim-rate fim-split-sample fim-spm-rate fim-suffix-token "
    "final-logit-softcapping finalize-model-grads-func finetune finetune-data-split "
    "finetune-hf-dataset finetune-lr flash-decode flight-recorder-dump-on-timeout "
    "flight-recorder-dump-path flight-recorder-extra-dump-on-exec "
    "flight-recorder-include-only-active flight-recorder-include-stack-trace "
    "flight-recorder-trace-buffer-size fp4-recipe fp8-amax-compute-algo fp8-amax-history-len "
    "fp8-interval fp8-margin fsdp-all-gather-in-start-param-sync "
    "fsdp-db-use-persist-buf-on-alloc-fail fsdp-manual-registration ft-num-warmup-iters "
    "full-validation fully-parallel-load fully-parallel-save fused-padded-mla-attention "
    "fused-single-qkv-rope gemm-gradient-accumulation-fusion glu-linear-offset "
    "gpu-sniff-test-interval grad-norm-skip-threshold grad-scale-func grad-sync-func "
    "gradient-reduce-div-fusion grpo-clamp-eps-lower grpo-clamp-eps-upper "
    "grpo-default-temperature grpo-default-top-p grpo-entropy-term-weight "
    "grpo-filter-groups-with-same-reward grpo-group-size grpo-iterations grpo-kl-beta "
    "grpo-prompts-per-step handler-name hard-sample-th head-lr-mult hetereogenous-dist-checkpoint "
    "hf-cfg-dir hf-ckpt-dir hf-ckpt-num-shards hf-tokenizer-kwargs high-freq-factor "
    "high-priority-stream-groups hysteresis ict-head-size ict-load img-h img-w indexer-batch-size "
    "indexer-log-interval inference-batch-times-seqlen-threshold inference-ckpt-non-strict "
    "inference-coordinator-port inference-cuda-graph-all-prefills inference-cuda-graph-max-tokens "
    "inference-cuda-graph-scope inference-disable-ep-consensus "
    "inference-disable-triton-nvls-kernels inference-dynamic-batching "
    "inference-dynamic-batching-async-sched-mode inference-dynamic-batching-block-size "
    "inference-dynamic-batching-buffer-guaranteed-fraction "
    "inference-dynamic-batching-buffer-overflow-factor inference-dynamic-batching-buffer-size-gb "
    "inference-dynamic-batching-chunk-size "
    "inference-dynamic-batching-cuda-graph-mixed-prefill-count "
    "inference-dynamic-batching-cuda-graph-sizing-distribution "
    "inference-dynamic-batching-enable-prefix-caching inference-dynamic-batching-logprobs-mode "
    "inference-dynamic-batching-mamba-memory-ratio inference-dynamic-batching-max-requests "
    "inference-dynamic-batching-max-requests-override inference-dynamic-batching-max-tokens "
    "inference-dynamic-batching-max-tokens-override inference-dynamic-batching-num-cuda-graphs "
    "inference-dynamic-batching-paused-buffer-size-gb inference-dynamic-batching-prefix-caching "
    "inference-dynamic-batching-prefix-caching-coordinator-policy "
    "inference-dynamic-batching-prefix-caching-eviction-policy "
    "inference-dynamic-batching-prefix-caching-mamba-gb "
    "inference-dynamic-batching-prefix-caching-routing-alpha "
    "inference-dynamic-batching-sampling-backend "
    "inference-dynamic-batching-track-generated-token-events "
    "inference-dynamic-batching-track-paused-request-events "
    "inference-dynamic-batching-unified-memory-level inference-fuse-tp-communication "
    "inference-grouped-gemm-backend inference-logging-step-interval inference-max-batch-size "
    "inference-max-requests inference-max-seq-length inference-moe-disable-fused-quant-kernels "
    "inference-moe-token-dispatcher-type inference-repeat-n inference-rng-tracker "
    "inference-sampling-seed inference-shards inference-text-gen-server-logging "
    "inference-use-synchronous-zmq-collectives inference-wandb-logging init-method "
    "init-method-std init-method-xavier-uniform init-model-with-meta-device "
    "init-norm-weight-in-fp32 initial-loss-scale inprocess-active-world-size "
    "inprocess-barrier-timeout inprocess-completion-timeout inprocess-empty-cuda-cache "
    "inprocess-granularity inprocess-hard-timeout inprocess-heartbeat-interval "
    "inprocess-heartbeat-timeout inprocess-last-call-wait inprocess-max-iterations "
    "inprocess-monitor-process-interval inprocess-monitor-thread-interval "
    "inprocess-progress-watchdog-interval inprocess-restart inprocess-soft-timeout "
    "inprocess-termination-grace-time input input-jitter iter-per-epoch iterations-to-skip join "
    "json-keys kd-alpha-ce kd-beta-ce kd-temp kill-switch-file kitchen-attention-backend kl-coef "
    "kl-loss-coef kl-loss-type langrl-env-config langrl-external-server "
    "langrl-inference-server-conversation-template langrl-inference-server-type layernorm-epsilon "
    "layernorm-zero-centered-gamma lazy-mpu-init legacy-tokenizer linear-scaler-end "
    "linear-scaler-start lion-beta1 lion-beta2 load load-main-params-from-ckpt load-mode "
    "load-optim load-rng load-tag local-rank local-worker-num log-avg-reset-interval "
    "log-avg-skip-iterations log-batch-size-to-tensorboard log-budgets log-device-memory-used "
    "log-dir log-energy log-interval log-l2-norm-grad-to-tensorboard "
    "log-learning-rate-to-tensorboard log-loss-scale-to-tensorboard log-max-attention-logit "
    "log-memory-interval log-memory-to-tensorboard log-num-zeros-in-grad "
    "log-optimizer-states-to-tensorboard log-params-norm log-progress log-runtime-to-tensorboard "
    "log-straggler log-throughput log-throughput-to-tensorboard log-timers-to-tensorboard "
    "log-val-generations log-validation-ppl-to-tensorboard log-world-size-to-tensorboard logger "
    "logging-level logits-load-decode-threads logits-load-kd-loss-alpha "
    "logits-load-msc-prefetch-depth logits-load-prefetch-factor logits-save-dtype "
    "logits-save-top-p-min-k long-factor long-mscale longrope-freqs-type loss-agg-mode loss-alpha "
    "loss-scale loss-scale-window low-freq-factor lr lr-decay-iters lr-decay-samples "
    "lora-alpha lr-decay-steps lr-decay-style lr-mult-router lr-warmup-fraction lr-warmup-init "
    "lr-warmup-iters lr-warmup-samples lr-warmup-steps lr-wsd-decay-iters lr-wsd-decay-samples "
    "lr-wsd-decay-style mamba-inference-conv-states-dtype mamba-inference-ssm-states-dtype "
    "mamba-int-list "
    "manual-gc "
    "manual-gc-eval manual-gc-interval mask-factor mask-prob mask-type master-addr master-port "
    "max-restarts max-tokens-to-oom megatron-fsdp-enable-fine-grained-param-gather "
    "megatron-fsdp-version mem-batch-size mem-efficient-ln mem-infer-seq-len "
    "memory-efficient-layer-norm memory-keys memory-profile memory-snapshot-path merge-file "
    "merge-lora mhc-init-gating-factor mhc-sinkhorn-iterations mid-level-dataset-surplus "
    "min-loss-scale min-lr min-offloaded-tensor-size mixed-precision mlflow-experiment-name "
    "mlflow-run-name mlflow-tracelens-auto-install mlflow-tracelens-cleanup-after-upload "
    "mlflow-tracelens-output-format mlflow-tracelens-ranks mlflow-upload-logs "
    "mlflow-upload-performance-metrics mlflow-upload-tracelens-report mlflow-upload-traces "
    "mlp-chunks-for-prefill mmap-bin-files mmap-warmup mock-data model-author model-name "
    "model-type-hf moe-apply-probs-on-input moe-aux-loss-coeff moe-deepep-num-sms "
    "moe-flex-dispatcher-num-sms "
    "moe-eval-capacity-factor moe-hybridep-num-sms moe-hybridep-num-sms-preprocessing "
    "moe-input-jitter-eps moe-loss-coeff moe-min-capacity "
    "moe-pad-experts-for-cuda-graph-inference moe-paged-stash-buffer-size-factor-cpu "
    "moe-paged-stash-buffer-size-factor-cuda moe-paged-stash-page-size moe-per-layer-logging "
    "moe-permute-fusion moe-router-bias-update-rate moe-router-bias-update-rule moe-router-dtype "
    "moe-router-enable-expert-bias moe-router-force-load-balancing-type moe-router-fusion "
    "moe-router-group-topk moe-router-load-balancing-type moe-router-num-groups "
    "moe-router-pre-softmax moe-router-quantile-balancing-ema moe-router-score-function "
    "moe-router-topk-scaling-factor moe-token-drop-policy moe-upcycling-granularity "
    "moe-use-fused-router-with-aux-score moe-z-loss-coeff monitor-interval most-recent-k "
    "mrope-section mscale mscale-all-dim mtp-loss-scaling-factor multiple-validation-sets "
    "multiprocessing-context muon-coefficient-type muon-extra-scale-factor muon-fp32-matmul-prec "
    "muon-momentum muon-nesterov muon-no-split-qkv muon-num-ns-steps muon-scalar-optimizer "
    "muon-scale-mode muon-split-qkv muon-tp-mode muon-use-nesterov muon-use-syrk "
    "mup-attn-scale-power mup-base-hidden-size mup-embedding-mult mup-output-mult mup-width-mult "
    "name "
    "nccl-all-reduce-for-prefill nccl-communicator-config-path no-align-grad-reduce "
    "no-align-param-gather no-barrier-with-level-1-timing no-check-for-nan-in-loss-and-grad "
    "no-ckpt-fully-parallel-save no-ckpt-load-validate-sharding-integrity "
    "no-clone-scatter-output-in-embedding no-contiguous-buffers-in-local-ddp "
    "no-create-attention-mask-in-dataloader no-data-sharding no-delay-grad-reduce "
    "no-fp8-weight-transpose-cache no-gradient-reduce-div-fusion no-initialization no-load-optim "
    "no-load-rng no-log-learnig-rate-to-tensorboard no-log-loss-scale-to-tensorboard "
    "no-manual-gc-eval no-mmap-bin-files no-one-logger no-pin-cpu-grads no-pin-cpu-params "
    "no-pipeline-parallel no-query-key-layer-scaling no-record-throughput no-rope-freq "
    "no-save-optim no-save-rng no-shared-storage no-shuffle no-strict-fsdp-dtensor-load "
    "no-sync-func no-use-tokenizer-model-from-checkpoint-args no-weight-decay-cond-type "
    "no-yarn-correction-range-round-to-int node-rank non-persistent-ckpt-type "
    "non-persistent-global-ckpt-dir non-persistent-local-ckpt-algo non-persistent-local-ckpt-dir "
    "non-persistent-save-interval norm-epsilon norm-topk-prob npu-deterministic "
    "num-buckets num-channels num-classes "
    "num-dataset-builder-threads num-experts-teacher num-speculative-tokens num-workers "
    "nvtx-ranges object-storage-cache-path offset-sampling-seed-by-dp-rank one-logger-async "
    "one-logger-entity one-logger-project one-logger-run-name onnx-safe "
    "optimizer-offload-fraction original-max-position-embeddings original-model-sample-prob "
    "otel-enabled otel-service-name otel-span-groups output-bert-embeddings "
    "output-layer-init-method output-logit-softcapping output-multiplier-scale output-prefix "
    "overlap-cpu-optimizer-d2h-h2d override-ckpt-iteration override-lr-scheduler "
    "override-opt-param-scheduler pad-buckets-for-high-nccl-busbw param-sync-func patch-dim path "
    "per-dataset-sequences-path per-split-data-args-path per-step-rng-reseed "
    "perform-initialization persistent-save-interval phase-transition-iterations pin-cpu-grads "
    "pin-cpu-params pipeline-model-parallel-comm-backend pp-warmup prefill-chunk-size "
    "pretrained-checkpoint profile profile-memory-iter profile-ranks profile-step-end "
    "profile-step-start profile-steps project-name prompt-key prompt-type "
    "pytorch-profiler-collect-callstack pytorch-profiler-collect-chakra "
    "pytorch-profiler-collect-shapes qk-clip-alpha qk-clip-threshold qk-l2-norm "
    "query-in-block-prob query-pre-attn-scalar random-seed rdzv-backend rdzv-endpoint rdzv-id "
    "record-memory-history record-shapes redirects refit-method relative-attention-max-distance "
    "relative-attention-num-buckets renormalize-blend-weights repeated-dataloader replication "
    "replication-factor replication-jump rerun-mode reset-position-ids "
    "result-rejected-tracker-filename resume-mode retriever-report-topk-accuracies "
    "retriever-score-scaling retriever-seq-length retro-attention-gate retro-cyclic-train-iters "
    "retro-encoder-attention-dropout retro-encoder-hidden-dropout retro-encoder-layers "
    "retro-no-verify-neighbor-count retro-num-neighbors retro-num-retrieved-chunks "
    "retro-project-dir retro-return-doc-ids retro-verify-neighbor-count retro-workdir "
    "return-raw-chat rl-calculate-intra-group-similarity rl-consumption-granularity "
    "rl-default-temperature rl-default-top-k rl-default-top-p rl-durable-rollout-bank "
    "rl-generation-lag rl-importance-sampling-truncation-coef "
    "rl-inference-expert-model-parallel-size rl-inference-expert-tensor-model-parallel-size "
    "rl-inference-logprobs-is-correction rl-inference-model-unified-memory-level "
    "rl-inference-parsers rl-inference-pipeline-model-parallel-size "
    "rl-inference-tensor-model-parallel-size rl-kv-cache-management-mode rl-max-inflight-requests "
    "rl-offload-inference-model-weights-when-idle rl-offload-kv-cache-during-training "
    "rl-offload-optimizer-during-inference rl-partial-rollouts rl-persist-cuda-graphs rl-profile "
    "rl-profile-dir rl-prompts-per-eval rl-remove-kv-cache-during-training rl-reset-cuda-graphs "
    "rl-rollout-bank-dir rl-rollout-bank-max-bytes rl-sequence-packing-algo "
    "rl-sequence-packing-bin-size rl-sequence-packing-max-sequences-per-bin rl-skip-bos-token "
    "rl-submission-granularity rl-training-cuda-graphs rl-verify-model-weights-swap "
    "rmsnorm-weight-in-fp32 rope-factor rope-scaling-factor rope-scaling-mscale "
    "rope-scaling-mscale-all-dim rope-scaling-original-max-position-embeddings rope-scaling-type "
    "rope-theta rope-type rotary-base rotary-interleaved rotary-percent rotary-scaling-factor "
    "rotary-seq-len-interpolation-factor router-beta router-gating-in-fp32 router-gbs "
    "router-inter-dim router-logit-softcapping router-std run-workload-inspector-server "
    "runtime-time-unit s3-cache-path sample-rate save save-activations-interval "
    "save-config-filepath save-dgrads-interval save-freq save-interval save-optim "
    "save-params-interval save-retain-interval save-rng save-tokenizer-assets "
    "save-tokens-per-expert-interval save-wgrads-interval seed seq-aux "
    "seq-len-interpolation-factor set-level-for-all-loggers sft-tokenizer-prompt-format "
    "sgd-momentum shape-order sharp-enabled-group short-factor short-mscale short-seq-prob "
    "sink-level skip-getting-attention-mask-from-dataloader skip-save softmax-scale sophiag-beta1 "
    "sophiag-beta2 sophiag-rho special-tokens split start-eval-at-iter start-weight-decay "
    "stderr-sink-level straggler-ctrlr-port straggler-minmax-count strict-fsdp-dtensor-load "
    "suggested-communication-unit-size suspend-resume-interval suspend-timeout swin-backbone-type "
    "symmetric-ar-type sync-free-moe-stage tau-decay tau-init te-rng-tracker tee tensorboard-dir "
    "tensorboard-log-interval tensorboard-queue-size test-data-path test-freq test-mode "
    "throughput-window-size tiktoken-num-special-tokens tiktoken-pattern tiktoken-special-tokens "
    "tile-factor timers timing-log-level timing-log-option titles-data-path "
    "tokenizer-hf-no-include-special-tokens tokenizer-hf-no-use-fast tokenizer-metadata "
    "tokenizer-not-use-fast tokenizer-padding-side "
    "tokenizer-sentencepiece-ignore-extra-whitespaces tokenizer-sentencepiece-legacy "
    "tokenizer-special-tokens topk-softmax-in-fp32 torch-profiler-record-shapes "
    "torch-profiler-use-gzip torch-profiler-with-stack total-epochs total-training-steps "
    "tp-comm-atomic-ag tp-comm-atomic-rs tp-comm-bootstrap-backend tp-comm-overlap-cfg "
    "tp-comm-overlap-rs-dgrad tp-only-amax-red trace-dir train-data-path train-desc-path "
    "train-files train-iters train-samples train-sync-interval train-tokens trainable truncation "
    "trust-remote-code turbo-deepep-num-cu turbo-deepep-use-comm-stream turbo-gemm-backend "
    "turbo-grouped-gemm-backend turbo-grouped-gemm-without-padding turbo-sync-free-moe-stage "
    "universal-checkpoint use-checkpoint-lr-scheduler use-checkpoint-opt-param-scheduler "
    "use-contiguous-buffers-in-ddp use-contiguous-buffers-in-local-ddp use-cp-send-recv-overlap "
    "use-cpu-initialization use-deprecated-20241209-moe-layer use-dist-checkpointing "
    "use-dist-ckpt use-flashinfer-fused-rope use-fused-deepep "
    "use-fused-moe-token-permute-and-unpermute use-fused-rmsnorm use-fused-rotary-pos-emb "
    "use-fused-swiglu use-fused-weighted-squared-relu use-gigatoken use-glm-rope "
    "use-gloo-process-groups use-kl-in-reward use-kl-loss use-layer-wise-param-layout "
    "use-legacy-static-engine use-mamba-mem-eff-path use-mbridge use-mcore-models "
    "use-megatron-tokenizer use-nsys-profiler use-one-sent-docs use-persistent-ckpt-worker "
    "use-pin-memory use-pytorch-profiler use-rocm-mem-info use-rocm-mem-info-iters "
    "use-rope-scaling use-sharp use-te-activation-func use-te-rng-tracker "
    "use-tokenizer-model-from-checkpoint-args use-torch-optimizer-for-cpu-offload "
    "use-turbo-attention use-turbo-autotune use-turbo-fused-act-with-probs use-turbo-gemm "
    "use-turbo-grouped-gemm use-turbo-grouped-mlp use-turbo-norm-te-linear "
    "use-turbo-permute-padding use-turbo-rms-norm user-name val-before-train val-files "
    "valid-data-path validation-set-names verify-integrity vision-backbone-type "
    "vision-pretraining-type vocab-file wall-clock-step-timer wandb-entity wandb-exp-name "
    "wandb-project wandb-save-dir warmup wd-incr-steps weight-decay weight-decay-incr-style "
    "wgrad-deferral-limit work-group worker-num workers workspace wsd-decay-steps yarn-beta-fast "
    "yarn-beta-slow yarn-correction-range-round-to-int yarn-original-max-position-embeddings "
    "zero-allgather-bucket-size zero-contigious-gradients zero-reduce-bucket-size "
    "zero-reduce-scatter ";

/// Keys that are harmless in their table alone: tables of Megatron-Bridge and of Primus.
constexpr std::string_view harmless_in_tables =
    "dist.external_gpu_device_mapping dist.enable_megatron_core_experimental "
    "dist.use_decentralized_pg dist.eval_context_parallel_size dist.local_rank "
    "rerun_state_machine.spiky_loss_factor scheduler.max_steps scheduler.no_weight_decay_cond "
    "train.num_epochs train.check_optimizer_step_success train.skip_sync_grad_norm_across_mp "
    "checkpoint.storage_writers_per_rank checkpoint.async_write_results_mp_mode "
    "checkpoint.custom_manager_class checkpoint.also_save_hf_checkpoint "
    "checkpoint.hf_source_path checkpoint.hf_trust_remote_code checkpoint.hf_distributed_save "
    "checkpoint.hf_save_every_n_ranks checkpoint.fully_parallel_save "
    "checkpoint.fully_parallel_load checkpoint.replication_jump checkpoint.load_main_params "
    "logger.skip_train_metrics_log logger.comet_project logger.comet_experiment_name "
    "logger.comet_workspace logger.comet_api_key logger.comet_tags logger.filter_warnings "
    "logger.modules_to_filter tensor_inspect.enabled tensor_inspect.features "
    "tensor_inspect.feature_dirs tensor_inspect.allow_custom_feature_dirs "
    "tensor_inspect.log_dir tensor_inspect.init_training_step ft.simulate_fault "
    "ft.simulated_fault_type ft.simulated_fault_rank ft.simulated_fault_base_delay "
    "nvrx_straggler.enabled nvrx_straggler.report_time_interval "
    "nvrx_straggler.calc_relative_gpu_perf nvrx_straggler.calc_individual_gpu_perf "
    "nvrx_straggler.num_gpu_perf_scores_to_print nvrx_straggler.gpu_relative_perf_threshold "
    "nvrx_straggler.gpu_individual_perf_threshold nvrx_straggler.stop_if_detected "
    "nvrx_straggler.enable_logging nvrx_straggler.profiling_interval "
    "nvrx_straggler.logger_name inprocess_restart.enabled inprocess_restart.max_iterations "
    "inprocess_restart.monitor_thread_interval inprocess_restart.monitor_process_interval "
    "inprocess_restart.progress_watchdog_interval inprocess_restart.heartbeat_interval "
    "inprocess_restart.soft_timeout inprocess_restart.hard_timeout "
    "inprocess_restart.heartbeat_timeout inprocess_restart.barrier_timeout "
    "inprocess_restart.completion_timeout inprocess_restart.last_call_wait "
    "inprocess_restart.termination_grace_time inprocess_restart.granularity "
    "inprocess_restart.active_world_size inprocess_restart.empty_cuda_cache "
    "inprocess_restart.max_rank_faults inprocess_restart.monitor_process_logdir "
    "profiling.profile_ranks profiling.memory_snapshot_path platform_config.name "
    "mock_dataset.class mock_dataset.params.num_samples mock_dataset.params.image_size "
    "torch_compile.enable torch_compile.backend torch_compile.mode torch_compile.fullgraph ";

/// Tables whose keys, taken together, train something else.
constexpr auto refused_tables = std::to_array<SettingGroup>({
    {"peft", "adapters are trained, and the weights are not"},
    {"lora", "adapters are trained, and the weights are not"},
    {"distillation", "a second model, the teacher, computes in each step"},
});

}  // namespace

const SettingGroup* refused_flag(std::string_view name) {
    return group_with(refused, name);
}

const SettingGroup* noted_flag(std::string_view name) {
    return group_with(noted, name);
}

bool is_harmless_flag(std::string_view name) {
    return has_word(harmless, name);
}

bool is_harmless_key(std::string_view written) {
    return has_word(harmless_in_tables, written);
}

const SettingGroup* refused_table(const std::vector<std::string>& sections) {
    for (const std::string& section : sections) {
        if (const SettingGroup* const table = group_with(refused_tables, section)) {
            return table;
        }
    }
    return nullptr;
}

std::optional<FlagAlias> flag_alias(std::string_view name) {
    const auto* const found = std::ranges::find(aliases, name, &FlagAlias::alias);
    return found == aliases.end() ? std::nullopt : std::optional(*found);
}

std::vector<std::string_view> known_flags() {
    std::vector<std::string_view> names = words_in(harmless);
    const auto add = [&names](const auto& groups) {
        for (const SettingGroup& group : groups) {
            const std::vector<std::string_view> more = words_in(group.names);
            names.insert(names.end(), more.begin(), more.end());
        }
    };
    add(refused);
    add(noted);
    for (const FlagAlias& alias : aliases) {
        names.push_back(alias.alias);
    }
    return names;
}

}  // namespace pipetwin
