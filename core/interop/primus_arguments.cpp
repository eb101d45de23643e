// SPDX-License-Identifier: Apache-2.0
#include "core/interop/primus_arguments.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/word_list.h"
#include "core/interop/launch/setting_values.h"

namespace pipetwin {

namespace {

/// Keys that `settle_primus` takes.
constexpr std::string_view taken_keys =
    "enable-primus-turbo mock-data sink-sliding-window sink-window-even-layers-only "
    "turbo-sync-free-moe-stage use-sink-attention use-turbo-attention use-turbo-deepep ";

/// Keys that Primus reads beside `patch_zero_bubble` or `patch_primus_pipeline` alone, and
/// `virtual_pipeline_model_parallel_size`, which Megatron-LM's validate_args works out from others.
constexpr std::string_view idle_keys =
    "allow-padding-num-layers auto-offload-time communication-method cpu-offload "
    "debug-scheduler-table enable-1f1b-v enable-exactly-numeric-match "
    "enable-optimizer-post-validation enable-zb-runtime enable-zero-bubble interleave-group-size "
    "num-seq-splits offload offload-chunk-num offload-ops offload-overlap-sr offload-time "
    "pp-algorithm pp-cost-b pp-cost-f pp-cost-w pp-max-mem pre-communication-optimization "
    "profile-memory-iter virtual-pipeline-model-parallel-size zero-bubble-adaptive-memory-limit-"
    "percentile zero-bubble-max-pending-backward zero-bubble-pipeline-timers-end-iter "
    "zero-bubble-pipeline-timers-start-iter zero-bubble-v-schedule "
    "zero-bubble-v-schedule-mem-setup ";

const Setting* find_key(const LaunchFile& file, std::string_view name) {
    const auto found = std::ranges::find_if(file.settings, [name](const Setting& setting) {
        return setting.name == name && !setting.values.empty();
    });
    return found == file.settings.end() ? nullptr : &*found;
}

bool is_on(const LaunchFile& file, std::string_view name) {
    const Setting* const setting = find_key(file, name);
    return setting != nullptr && answer_value(*setting);
}

int number_of(const LaunchFile& file, std::string_view name) {
    const Setting* const setting = find_key(file, name);
    return setting == nullptr ? 0 : whole_value(*setting, 0);
}

/// primus/backends/megatron/patches/args/mock_data_patches.py: the tokenizer for ready numbers,
/// which in Primus's Megatron-LM of March 2026 has a word more.
void take_mock_data(const LaunchFile& file, MegatronFlags& flags) {
    constexpr int words_of_mock_data = 131'072;
    const Setting* const mock = find_key(file, "mock-data");
    if (mock == nullptr || !answer_value(*mock)) {
        return;
    }
    const bool is_said = flags.vocabulary.has_value() || flags.padded_vocabulary.has_value();
    flags.vocabulary = flags.vocabulary.value_or(words_of_mock_data) + 1;
    flags.tokenizer.reset();
    flags.tokenizer_model.reset();
    if (!is_said) {
        flags.warnings.push_back(
            fmt::format("{}: {}: with mock data Primus takes {} words and one that ends a text, "
                        "whatever the tokenizer",
                        mock->place,
                        mock->written,
                        words_of_mock_data));
    }
}

/// primus/backends/megatron/patches/args/rocm_arg_validation.py.
void take_experts(const LaunchFile& file, bool has_turbo, MegatronFlags& flags) {
    const int stage = has_turbo ? number_of(file, "turbo-sync-free-moe-stage") : 0;
    constexpr int first_with_deepep = 2;
    if (stage > 0) {
        flags.fills_rows = flags.fp8;
    }
    flags.deepep = flags.deepep || stage >= first_with_deepep ||
                   (has_turbo && is_on(file, "use-turbo-deepep"));
}

/// primus/backends/megatron/core/extensions/primus_turbo.py, PrimusTurboAttention: the window is of
/// layers 0, 2, ..., unless it is of all.
void take_sinks(const LaunchFile& file, bool has_turbo, MegatronFlags& flags) {
    const Setting* const sinks = find_key(file, "use-sink-attention");
    if (sinks == nullptr || !answer_value(*sinks)) {
        return;
    }
    if (!has_turbo || !is_on(file, "use-turbo-attention") || flags.context_size.value_or(1) > 1) {
        flags.warnings.push_back(fmt::format(
            "{}: {}: has an effect in Primus-Turbo's attention alone, which this run has not",
            sinks->place,
            sinks->written));
        return;
    }
    flags.sinks = true;
    if (const int window = number_of(file, "sink-sliding-window"); window > 0) {
        const Setting* const even = find_key(file, "sink-window-even-layers-only");
        flags.window = window;
        if (even == nullptr || answer_value(*even)) {
            flags.window_pattern = "2";
        }
    }
}

}  // namespace

bool is_primus_run(const LaunchFile& file) {
    return std::ranges::any_of(file.settings, [](const Setting& setting) {
        return setting.is_key && setting.sections.size() > 1 &&
               setting.sections.front() == "modules";
    });
}

bool is_key_of_primus(std::string_view name) {
    return has_word(taken_keys, name) || has_word(idle_keys, name);
}

void settle_primus(const LaunchFile& file, MegatronFlags& flags) {
    const bool has_turbo = is_on(file, "enable-primus-turbo");
    take_mock_data(file, flags);
    take_experts(file, has_turbo, flags);
    take_sinks(file, has_turbo, flags);
    const auto compiles =
        std::ranges::find(file.settings, "torch_compile.enable", &Setting::written);
    if (compiles != file.settings.end() && !compiles->values.empty() && answer_value(*compiles)) {
        flags.warnings.push_back(fmt::format(
            "{}: {}: the prediction has the kernels of its stack, and none that are compiled",
            compiles->place,
            compiles->written));
    }
    if (const Setting* const chunks = find_key(file, "virtual-pipeline-model-parallel-size");
        chunks != nullptr && whole_value(*chunks, 1) > 1) {
        flags.warnings.push_back(
            fmt::format("{}: {}: Megatron-LM works this out from num_virtual_stages_per_pipeline_"
                        "rank, num_layers_per_virtual_pipeline_stage or a layout, and takes no "
                        "notice of it",
                        chunks->place,
                        chunks->written));
    }
}

}  // namespace pipetwin
