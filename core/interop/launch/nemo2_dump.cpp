// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/nemo2_dump.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/word_list.h"
#include "core/interop/launch/bridge_dump.h"
#include "core/interop/launch/setting_problems.h"
#include "core/interop/launch/setting_values.h"

namespace pipetwin {

namespace {

/// Classes of nemo.collections.llm and the published models whose sizes they have.
constexpr auto model_classes = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"Llama2Config7B", "llama-2-7b"},        {"Llama2Config13B", "llama-2-13b"},
    {"Llama2Config70B", "llama-2-70b"},      {"Llama3Config8B", "llama-3-8b"},
    {"Llama3Config70B", "llama-3-70b"},      {"Llama31Config8B", "llama-3.1-8b"},
    {"Llama31Config70B", "llama-3.1-70b"},   {"Llama31Config405B", "llama-3.1-405b"},
    {"Llama32Config1B", "llama-3.2-1b"},     {"Llama32Config3B", "llama-3.2-3b"},
    {"MistralConfig7B", "mistral-7b"},       {"MixtralConfig8x7B", "mixtral-8x7b"},
    {"MixtralConfig8x22B", "mixtral-8x22b"}, {"Qwen25Config7B", "qwen2.5-7b"},
    {"Qwen25Config14B", "qwen2.5-14b"},      {"Qwen25Config32B", "qwen2.5-32b"},
    {"Qwen25Config72B", "qwen2.5-72b"},      {"Qwen3Config8B", "qwen3-8b"},
    {"Qwen3Config30B_A3B", "qwen3-30b-a3b"}, {"Qwen3Config235B_A22B", "qwen3-235b-a22b"},
    {"DeepSeekV3Config", "deepseek-v3"},     {"DeepSeekV2LiteConfig", "deepseek-v2-lite"},
});

/// Tables of a dump, and the one of Megatron-Bridge in which the same keys stand.
struct TableOfDump {
    std::string_view path;
    std::string_view table;
};

/// The longest path goes first.
constexpr auto tables_of_dump = std::to_array<TableOfDump>({
    {"trainer.strategy.ddp", "ddp"},
    {"trainer.strategy", "model"},
    {"trainer.plugins", "mixed_precision"},
    {"model.config", "model"},
    {"optim.config", "optimizer"},
});

/// Keys of the trainer, its strategy and the data that change no step.
constexpr std::string_view harmless_of_dump =
    "trainer.accelerator trainer.enable_checkpointing trainer.limit_test_batches "
    "trainer.limit_val_batches trainer.limit_train_batches trainer.log_every_n_steps "
    "trainer.logger trainer.max_steps trainer.max_epochs trainer.max_time "
    "trainer.num_sanity_val_steps trainer.use_distributed_sampler trainer.val_check_interval "
    "trainer.check_val_every_n_epoch trainer.enable_progress_bar "
    "trainer.strategy.ckpt_async_save trainer.strategy.ckpt_parallel_load "
    "trainer.strategy.ckpt_parallel_save trainer.strategy.ckpt_parallel_save_optim "
    "trainer.strategy.ckpt_assume_constant_structure trainer.strategy.ckpt_include_optimizer "
    "trainer.strategy.ckpt_load_directly_on_device trainer.strategy.ckpt_load_optimizer "
    "trainer.strategy.ckpt_load_strictness trainer.strategy.ckpt_save_optimizer "
    "trainer.strategy.ckpt_save_pre_mcore_014 trainer.strategy.gradient_as_bucket_view "
    "trainer.strategy.progress_interval trainer.strategy.save_ckpt_format "
    "trainer.strategy.setup_optimizers trainer.strategy.store_optimizer_states "
    "trainer.strategy.replace_progress_bar trainer.strategy.restore_config "
    "data.paths data.split data.num_workers data.num_train_samples data.num_val_samples "
    "data.num_test_samples data.pin_memory data.persistent_workers data.seed data.weights "
    "data.index_mapping_dir data.reset_position_ids data.reset_attention_mask "
    "data.eod_mask_loss data.create_attention_mask data.dataset_kwargs";

std::string text_in(const Setting& setting) {
    return setting.values.empty() ? std::string() : setting.values.front().text;
}

bool is_class(const Setting& setting) {
    return setting.name == "-target-" || setting.name == "-partial-" || setting.name == "-call-";
}

/// Below the log, the resumption, the rate and the tokenizer no key says anything of a step, unless
/// its name speaks of one.
bool is_beside_the_step(const Setting& setting) {
    const bool is_beside =
        !setting.sections.empty() &&
        (has_word("log resume", setting.sections.front()) ||
         has_word("lr_scheduler tokenizer wandb tensorboard ckpt", setting.sections.back()) ||
         (setting.sections.front() == "optim" && setting.sections.back() == "optim"));
    return is_beside && (is_class(setting) || word_of_a_run(setting.name).empty());
}

void put_into(Setting& setting, std::string_view table, std::size_t levels) {
    setting.sections.erase(setting.sections.begin(),
                           setting.sections.begin() + static_cast<std::ptrdiff_t>(levels));
    setting.sections.insert(setting.sections.begin(), std::string(table));
    std::string key = setting.written.substr(setting.written.rfind('.') + 1);
    setting.written = fmt::format("{}.{}", fmt::join(setting.sections, "."), key);
}

/// The table of Megatron-Bridge for a setting of a dump.
void move_to_table(Setting& setting) {
    const std::string path = fmt::format("{}", fmt::join(setting.sections, "."));
    for (const TableOfDump& known : tables_of_dump) {
        const bool is_below = path == known.path || path.starts_with(std::string(known.path) + ".");
        if (is_below) {
            const auto levels = static_cast<std::size_t>(std::ranges::count(known.path, '.')) + 1;
            put_into(setting, known.table, levels);
            return;
        }
    }
    if (path == "data") {
        const bool is_batch =
            has_word("global-batch-size micro-batch-size rampup-batch-size", setting.name);
        put_into(setting, is_batch ? "train" : "dataset", 1);
    }
}

}  // namespace

bool is_nemo2_dump(const LaunchFile& file) {
    return std::ranges::any_of(file.settings, [](const Setting& setting) {
        return setting.name == "-target-" && text_in(setting).starts_with("nemo.collections.llm");
    });
}

void settle_nemo2_dump(LaunchFile& file) {
    std::vector<Setting> kept;
    std::optional<int> devices;
    int nodes = 1;
    bool has_callbacks = false;
    for (Setting& setting : file.settings) {
        const std::string text = text_in(setting);
        const std::string& written = setting.written;
        has_callbacks = has_callbacks || written == "trainer.callbacks";
        if (written == "trainer.devices" && whole_in(text)) {
            devices = whole_value(setting, 1);
        } else if (written == "trainer.num_nodes") {
            nodes = whole_value(setting, 1);
        } else if (written == "trainer.accumulate_grad_batches" && text != "1" && !text.empty()) {
            throw Error(ErrorKind::BadInput,
                        setting.place,
                        "trainer.accumulate_grad_batches: passes are repeated before an update",
                        "expected 1: data.global_batch_size says how many samples a step has");
        } else if (written == "model.config._target_") {
            const std::string name = text.substr(text.rfind('.') + 1);
            const auto* const known = std::ranges::find(
                model_classes, name, &std::pair<std::string_view, std::string_view>::first);
            kept.push_back(
                {.name = "model",
                 .written = "model",
                 .place = setting.place,
                 .values = {{.text =
                                 known == model_classes.end() ? name : std::string(known->second),
                             .place = setting.place}},
                 .is_key = true});
        } else if (written == "trainer.strategy.fsdp" && !setting.is_unset && text != "false") {
            const bool is_torch = text == "pytorch";
            kept.push_back({.name = is_torch ? "use-torch-fsdp2" : "use-megatron-fsdp",
                            .written = written,
                            .place = setting.place,
                            .values = {{.text = "true", .place = setting.place}},
                            .is_key = true,
                            .sections = {"dist"}});
        } else if (written == "trainer.plugins.precision") {
            std::string recipe = text;
            std::ranges::replace(recipe, '-', '_');
            kept.push_back({.name = "mixed-precision",
                            .written = written,
                            .place = setting.place,
                            .values = {{.text = recipe, .place = setting.place}},
                            .is_key = true});
        } else if (!is_beside_the_step(setting) && !has_word(harmless_of_dump, written) &&
                   written != "trainer.accumulate_grad_batches" && written != "trainer.callbacks") {
            const bool is_class_of_table = is_class(setting) && setting.sections.size() < 2;
            move_to_table(setting);
            if (!is_class_of_table) {
                kept.push_back(std::move(setting));
            }
        }
    }
    file.settings = std::move(kept);
    if (devices && *devices <= largest_setting / nodes) {
        file.processes = devices;
        file.nodes = nodes;
    }
    settle_bridge_dump(file);
    file.is_printed = false;  // what the classes have by default is not among the settings
    file.framework = "nemo";
    if (has_callbacks) {
        file.notes.emplace_back(
            "trainer.callbacks are not read: whether messages of tensor parallelism go on beside "
            "products (MegatronCommOverlapCallback) follows from the stack");
    }
}

}  // namespace pipetwin
