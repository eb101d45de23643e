// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/torchtitan_settings.h"

#include <array>

namespace pipetwin {

const std::string_view harmless_titan =
    "job.config_file job.dump_folder job.description job.use_for_integration_test job.print_args "
    "job.print_config job.save_config_file "
    "profiling.enable_profiling profiling.run_profiler profiling.save_traces_folder "
    "profiling.profile_freq profiling.profile_every_x_iter profiling.profiler_active "
    "profiling.profiler_warmup profiling.enable_memory_snapshot "
    "profiling.save_memory_snapshot_folder "
    "metrics.log_freq metrics.enable_tensorboard metrics.disable_color_printing "
    "metrics.enable_color_printing metrics.save_tb_folder metrics.rank_0_only "
    "metrics.save_for_all_ranks metrics.enable_wandb "
    "lr_scheduler.warmup_steps lr_scheduler.decay_ratio lr_scheduler.decay_type "
    "lr_scheduler.lr_min lr_scheduler.min_lr_factor "
    "checkpoint.enable checkpoint.enable_checkpoint checkpoint.enable_first_step_checkpoint "
    "checkpoint.enable_ft_dataloader_checkpoints checkpoint.folder checkpoint.interval "
    "checkpoint.interval_type checkpoint.initial_load_path checkpoint.initial_load_model_only "
    "checkpoint.initial_load_in_hf checkpoint.initial_load_in_hf_quantized "
    "checkpoint.last_save_model_only checkpoint.last_save_model_weights_only "
    "checkpoint.last_save_in_hf checkpoint.model_weights_only checkpoint.export_dtype "
    "checkpoint.async_mode checkpoint.keep_latest_k checkpoint.load_step "
    "checkpoint.exclude_from_loading checkpoint.create_seed_checkpoint checkpoint.load_only "
    "comm.init_timeout_seconds comm.train_timeout_seconds comm.trace_buf_size "
    "comm.save_traces_folder comm.save_traces_file_prefix "
    "validation.enable validation.dataset validation.dataset_path validation.local_batch_size "
    "validation.seq_len validation.freq validation.steps "
    "validation.dataloader.num_workers validation.dataloader.persistent_workers "
    "validation.dataloader.pin_memory validation.dataloader.prefetch_factor "
    "compile.backend "
    "debug.seed debug.deterministic_warn_only "
    "float8.enable_fsdp_float8_all_gather float8.precompute_float8_dynamic_scale_for_fsdp "
    "float8.force_recompute_fp8_weight_in_bwd float8.recipe_name float8.filter_fqns "
    "float8.moe_fqns float8.moe_fqns_prototype float8.emulate float8.scaling_type_input "
    "float8.scaling_type_weight float8.scaling_type_grad_output "
    "mx.use_fp8_dim1_cast_triton_kernel mx.mxfp8_dim1_cast_kernel_choice mx.recipe_name "
    "mx.filter_fqns mx.moe_fqns_prototype "
    "quantize.linear.float8.enable_fsdp_float8_all_gather "
    "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp "
    "quantize.linear.float8.recipe_name quantize.linear.float8.filter_fqns "
    "quantize.linear.float8.emulate quantize.grouped_mm.float8.fqns "
    "quantize.linear.mx.mxfp8_dim1_cast_kernel_choice quantize.linear.mx.recipe_name "
    "quantize.linear.mx.filter_fqns quantize.grouped_mm.mx.recipe_name "
    "quantize.grouped_mm.mx.fqns "
    "memory_estimation.disable_fake_mode "
    "experimental.pipeline_parallel_split_mode "
    "parallelism.enable_fsdp_symm_mem parallelism.enable_compiled_autograd "
    "experimental.enable_compiled_autograd "
    "training.steps training.dataset training.dataset_path "
    "training.seed training.gc_freq training.gc_debug "
    "training.warmup_steps training.mixed_precision_reduce training.checkpoint_interval "
    "training.checkpoint_interval_type training.checkpoint_folder "
    "training.dataloader.num_workers training.dataloader.persistent_workers "
    "training.dataloader.pin_memory training.dataloader.prefetch_factor "
    "model.hf_assets_path model.tokenizer_path model.print_after_conversion "
    "optimizer.lr optimizer.eps optimizer.beta1 optimizer.beta2 optimizer.weight_decay "
    "optimizer.fused optimizer.implementation "
    "activation_checkpoint.memory_budget "
    "activation_checkpoint.visualize_memory_budget_pareto "
    "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns "
    "activation_checkpoint.preserve_rng_state activation_checkpoint.determinism_check "
    "activation_checkpoint.debug "
    "fault_tolerance.process_group fault_tolerance.process_group_timeout_ms "
    "fault_tolerance.replica_id fault_tolerance.group_size fault_tolerance.min_replica_size "
    "fault_tolerance.sync_steps fault_tolerance.should_quantize "
    "fault_tolerance.fragment_sync_delay fault_tolerance.fragment_update_alpha "
    "fault_tolerance.num_fragments fault_tolerance.module_fqns_per_model_fragment "
    "training.mock_data primus_turbo.enable_primus_turbo primus_turbo.use_turbo_mx_linear "
    "primus_turbo.use_turbo_float8_linear primus_turbo.use_classic_attention "
    "primus_turbo.use_turbo_attention primus_turbo.use_turbo_async_tp "
    "primus_turbo.enable_embedding_autocast";

namespace {

constexpr auto titan_groups = std::to_array<SettingGroup>({
    {"memory_estimation.enable memory_estimation.enabled",
     "nothing is trained, its memory is estimated",
     off_values},
    {"comm.mode", "nothing is sent", "default"},
    {"float8.enable_float8_linear training.enable_float8_linear training.fp8_linear",
     "products in 8 bits take other time and memory",
     off_values},
    {"fault_tolerance.semi_sync_method", "replicas are summed up once in many steps", off_values},
    {"training.enable_cpu_offload", "weights are in host memory"},
    {"primus_turbo.enable_attention_float8",
     "products in 8 bits take other time and memory",
     off_values},
    {"fault_tolerance.enable", "replicas come and go"},
});

}  // namespace

const std::span<const SettingGroup> refused_titan = titan_groups;

}  // namespace pipetwin
