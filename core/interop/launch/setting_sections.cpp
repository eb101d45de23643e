// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/setting_sections.h"

#include "core/base/word_list.h"

namespace pipetwin {

namespace {

/// Tables of other things than the training: generation and judgement in reinforcement learning
/// (verl, NeMo-RL), parts of models for images and sound (NeMo, Megatron-Bridge), tests on the way.
constexpr std::string_view others =
    "rollout generation generate inference inference_engine sampling sampling_params vllm "
    "vllm_cfg vllm_kwargs sglang sglang_cfg trtllm engine_kwargs ref reference reference_model "
    "ref_model critic reward reward_model reward_manager rm judge verifier environment env "
    "teacher teacher_model draft draft_model speculative vision vision_encoder vision_config "
    "vision_model vision_tower vision_transformer_config vit image_encoder audio audio_encoder "
    "audio_config speech perception projector mm_projector vision_projection vae text_encoder "
    "validation validation_ds val val_ds eval evaluation test_ds";

/// Tables of a training: Megatron-Bridge, Primus, NeMo, verl.
constexpr std::string_view trainings =
    "model MODEL_ARGS train training trainer policy actor actor_rollout_ref megatron "
    "megatron_cfg override_transformer_config override_mcore_model_config override_ddp_config "
    "override_optimizer_config override_config overrides modules transformer transformer_config "
    "language_model language_config llm text_config strategy parallelism parallel optimizer "
    "optim optimizer_config_override_provider ddp ddp_config fsdp_config distributed dist "
    "mixed_precision precision comm_overlap data dataset train_ds dataloader scheduler sched "
    "lr_scheduler tokenizer logger log logging checkpoint ckpt checkpointing exp_manager rng "
    "profiling profiler ft straggler nvrx_straggler inprocess_restart rerun_state_machine "
    "tensor_inspect primus_turbo platform_config run job global_profiler algorithm hydra peft "
    "lora distillation";

}  // namespace

SettingOwner owner_of(const std::vector<std::string>& sections, std::string_view& other) {
    // The second table of Primus is the user's own name for a module.
    const bool is_module = !sections.empty() && sections.front() == "modules";
    SettingOwner owner = SettingOwner::Training;
    for (std::size_t i = 0; i < sections.size(); ++i) {
        if (has_word(others, sections[i])) {
            other = sections[i];
            return SettingOwner::Other;
        }
        const bool is_free = is_module && i == 1;
        if (!is_free && owner == SettingOwner::Training && !has_word(trainings, sections[i])) {
            other = sections[i];
            owner = SettingOwner::Unknown;
        }
    }
    return owner;
}

}  // namespace pipetwin
