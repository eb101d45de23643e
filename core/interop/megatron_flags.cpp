// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_flags.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/base/word_list.h"
#include "core/interop/launch/bridge_dump.h"
#include "core/interop/launch/megatron_flag_table.h"
#include "core/interop/launch/nemo2_dump.h"
#include "core/interop/launch/printed_arguments.h"
#include "core/interop/launch/setting_sections.h"
#include "core/interop/launch/setting_values.h"
#include "core/interop/launch/shell_script.h"
#include "core/interop/launch/swift_arguments.h"
#include "core/interop/launch/yaml_settings.h"
#include "core/interop/megatron_flag_rows.h"
#include "core/interop/megatron_memory.h"
#include "core/interop/megatron_shapes.h"
#include "core/interop/primus_arguments.h"
#include "core/scenario/choices.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"

namespace pipetwin {

namespace {

using std::string_view;

/// Flags of 2021 and of the first months of 2022, which Megatron no longer takes.
constexpr string_view flags_before_2023 =
    "checkpoint-activations checkpoint-num-layers activations-checkpoint-method "
    "activations-checkpoint-num-layers";

/// Further flags that Megatron no longer took when its core models became the default, in June
/// 2024.
constexpr string_view flags_before_core_models =
    "DDP-impl data-impl img-dim layernorm-epsilon mmap-warmup model-spec "
    "no-contiguous-buffers-in-local-ddp no-query-key-layer-scaling override-lr-scheduler "
    "use-checkpoint-lr-scheduler use-contiguous-buffers-in-ddp fp8-hybrid";

/// Flags that came with the core models or after them.
constexpr string_view flags_after_core_models =
    "ckpt-format ckpt-convert-format ckpt-fully-parallel-load ckpt-assume-constant-structure "
    "cp-comm-type config-logger-dir cuda-graph-impl cross-entropy-fusion-impl data-args-path "
    "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers deterministic-mode "
    "dist-ckpt-strictness enable-experimental expert-tensor-parallel-size exp-avg-dtype "
    "microbatch-group-size-per-virtual-pipeline-stage moe-ffn-hidden-size moe-layer-freq "
    "moe-token-dispatcher-type multi-latent-attention no-ckpt-fully-parallel-save "
    "num-virtual-stages-per-pipeline-rank pipeline-model-parallel-layout qk-layernorm "
    "step-batch-size-schedule use-custom-fsdp use-mcore-models use-megatron-fsdp "
    "use-precision-aware-optimizer "
    "use-torch-fsdp2";

/// Values of printed arguments that say that there is none of it.
constexpr string_view printed_off = "false none 0 []";

/// Reads the settings of a file; one object for each.
class FlagReader {
  public:
    explicit FlagReader(LeaveOut leave_out) : leave_out_(leave_out) {}

    /// `file` without settings that are unset; `names`: all of them.
    MegatronFlags read(const LaunchFile& file, const std::vector<Setting>& names) {
        flags_.warnings = file.notes;
        if (file.processes && file.nodes && *file.nodes <= largest_setting / *file.processes) {
            flags_.processes = *file.processes * *file.nodes;
        }
        if (file.all_processes) {
            flags_.processes = file.all_processes;
        }
        flags_.per_node = file.processes;
        flags_.unseen = file.unseen;
        flags_.forbids_fused_attention =
            is_set_to_zero(file, "NVTE_FLASH_ATTN") && is_set_to_zero(file, "NVTE_FUSED_ATTN");
        expect_decoder(file.program);
        find_off_tables(file);
        is_printed_ = file.is_printed;
        is_primus_ = is_primus_run(file);
        for (const Setting& setting : file.settings) {
            if (!is_primus_ || !is_key_of_primus(setting.name)) {
                take(setting);
            }
        }
        if (is_primus_) {
            settle_primus(file, flags_);
        }
        warn_of_off_names();
        if (file.is_printed) {
            note_printed_version(names);
        }
        expect_capacity(file);
        expect_one_precision(file);
        take_defaults_of_trainer(file);
        take_defaults_of_verl(file);
        settle_recompute(file);
        if (!file.settings.empty()) {
            settle_halves(flags_, file.settings.front().place);
        }
        expect_precision_beside_eight_bits(file);
        settle_batch(file);
        if (!flags_.tokenizer && find(file, "merge-file") != nullptr) {
            flags_.tokenizer = "GPT2BPETokenizer";  // of its kind: words and merges
            flags_.warnings.emplace_back(
                "--merge-file without --tokenizer-type: taken for GPT-2's words");
        }
        reading_.problems.settle(leave_out_, flags_.warnings, flags_.left_out);
        return std::move(flags_);
    }

  private:
    [[noreturn]] static void refuse(const std::string& place,
                                    std::string what,
                                    std::string hint = {}) {
        throw Error(ErrorKind::BadInput, place, std::move(what), std::move(hint));
    }

    static bool is_set_to_zero(const LaunchFile& file, string_view variable) {
        const auto found = file.environment.find(variable);
        return found != file.environment.end() && found->second == "0";
    }

    /// Whether a word of a program's name names another kind of model than a decoder of text; a
    /// number may follow, as in "mamba2".
    static bool is_other_model(string_view word) {
        return begins_numbered(
            "bert roberta t5 ict retro vision vlm realm mimo biencoder diffusion flux multimodal "
            "llava orm",
            word);
    }

    /// Whether a word is one of a list, or one with a number behind it.
    static bool begins_numbered(string_view words, string_view word) {
        return std::ranges::any_of(words_in(words), [word](string_view other) {
            return word.starts_with(other) &&
                   word.find_first_not_of("0123456789", other.size()) == string_view::npos;
        });
    }

    /// Megatron's programs for other models than decoders say so in a word of their names.
    void expect_decoder(string_view program) {
        const std::string name = lower_case(program.substr(program.find_last_of('/') + 1));
        for (std::size_t begin = 0; begin < name.size();) {
            const std::size_t end = std::min(name.find_first_of("_-.", begin), name.size());
            const string_view word = string_view(name).substr(begin, end - begin);
            flags_.state_spaces = flags_.state_spaces || begins_numbered("mamba hybrid", word);
            if (is_other_model(word)) {
                const std::string file(program.substr(program.find_last_of('/') + 1));
                reading_.problems.add(
                    file, file, "the program trains another kind of model than a decoder of text");
                return;
            }
            begin = end + 1;
        }
    }

    /// The file that a Primus module's `config` names has the trainer's defaults. In those of
    /// Primus bf16 is on (primus/configs/modules/megatron/pre_trainer.yaml).
    void take_defaults_of_trainer(const LaunchFile& file) {
        const auto is_config = [](const Setting& setting) {
            return setting.is_key && setting.name == "config" && setting.sections.size() == 2 &&
                   setting.sections.front() == "modules";
        };
        const auto config = std::ranges::find_if(file.settings, is_config);
        if (config == file.settings.end()) {
            return;
        }
        const bool says_precision = std::ranges::any_of(file.settings, [](const Setting& setting) {
            return setting.name == "bf16" || setting.name == "fp16" ||
                   setting.name == "mixed-precision";
        });
        flags_.bf16 = flags_.bf16 || !says_precision;
        flags_.warnings.push_back(
            fmt::format("{}: {}: the trainer's defaults are in that file, which is not read{}; "
                        "write what else it "
                        "says of batch, sequence and optimizer into the overrides",
                        config->place,
                        config->written,
                        says_precision ? "" : ": bf16 is taken, as in Primus's own"));
    }

    /// verl/trainer/config/engine/megatron.yaml: what an override does not say.
    void take_defaults_of_verl(const LaunchFile& file) {
        const bool is_verl = std::ranges::any_of(file.settings, [](const Setting& setting) {
            return setting.is_key && setting.sections.size() > 1 &&
                   (setting.sections.front() == "actor_rollout_ref" ||
                    setting.sections.front() == "actor") &&
                   setting.sections.back() == "megatron";
        });
        if (!is_verl) {
            return;
        }
        flags_.bf16 = flags_.bf16 || !flags_.fp16;
        flags_.attention_backend = flags_.attention_backend.value_or("flash");
        if (find(file, "use-distributed-optimizer") == nullptr) {
            flags_.shard_optimizer = true;
        }
        if (find(file, "sequence-parallel") == nullptr && flags_.tensor_size.value_or(1) > 1) {
            flags_.sequence_parallel = true;
        }
        flags_.warnings.emplace_back(
            "where the settings say nothing, verl's defaults are taken: bf16, flash attention, the "
            "optimizer shared by the replicas, and with tensor parallelism a divided sequence; its "
            "other files are not read");
    }

    /// Megatron takes no padding without a capacity (megatron/core/transformer).
    void expect_capacity(const LaunchFile& file) const {
        if (flags_.expert_capacity == 0) {
            refuse(find(file, "moe-expert-capacity-factor")->place,
                   "a capacity factor of 0, expected more than 0",
                   "leave --moe-expert-capacity-factor out to drop no token");
        }
        if (flags_.fills_capacity && !flags_.expert_capacity) {
            refuse(find(file, "moe-pad-expert-input-to-capacity")->place,
                   "--moe-pad-expert-input-to-capacity without --moe-expert-capacity-factor",
                   "Megatron refuses this, too");
        }
    }

    /// Megatron refuses two half precisions at once (megatron/training/arguments.py).
    void expect_one_precision(const LaunchFile& file) const {
        if (!flags_.fp16 || !flags_.bf16) {
            return;
        }
        std::vector<std::string> written;
        std::string place;
        for (const Setting& setting : file.settings) {
            if (setting.name == "fp16" || setting.name == "bf16" ||
                setting.name == "mixed-precision") {
                written.push_back(setting.written);
                place = setting.place;
            }
        }
        refuse(place,
               fmt::format("{} at once, expected fp16 or bf16", fmt::join(written, " and ")),
               "Megatron refuses both, too: take one of them out");
    }

    /// What is not in 8 bits is in bf16 here.
    void expect_precision_beside_eight_bits(const LaunchFile& file) {
        const Setting* const given =
            find(file, "fp8-format") != nullptr ? find(file, "fp8-format") : find(file, "fp8");
        if (given != nullptr && flags_.fp8 && !flags_.bf16) {
            problem(*given, "products in 8 bits beside another precision than bf16");
        }
    }

    /// Tables that train something else have a key that turns them off.
    void find_off_tables(const LaunchFile& file) {
        for (const Setting& setting : file.settings) {
            const SettingGroup* const table = refused_table(setting.sections);
            const std::string text =
                setting.values.empty() ? std::string() : lower_case(setting.values.front().text);
            const bool is_switch = setting.name == "enabled" || setting.name == "enable" ||
                                   setting.name == "rank" || setting.name == "dim";
            if (table != nullptr && is_switch && (text == "false" || text == "0")) {
                off_tables_.insert(table->names);
            }
        }
    }

    void take(const Setting& setting) {
        if (const SettingGroup* const table = refused_table(setting.sections)) {
            if (!off_tables_.contains(table->names) &&
                refused_tables_.insert(table->names).second) {
                problem(setting, table->why);
            }
            return;
        }
        const bool is_in_module =
            setting.is_key && !setting.sections.empty() && setting.sections.front() == "modules";
        const bool is_in_model =
            setting.sections.size() == 1 && setting.sections.front() == "model";
        if ((setting.name == "config" && is_in_module) ||
            (setting.name == "-target-" && !is_in_model)) {
            flags_.unused.push_back(setting.written);
            return;
        }
        note_version(setting);
        const FlagAlias alias =
            flag_alias(setting.name).value_or(FlagAlias{.alias = {}, .name = setting.name});
        const MegatronFlagRow* row = megatron_flag_row(alias.name);
        if (row != nullptr && row->rule == FlagRule::Keys && !setting.is_key) {
            row = nullptr;
        }
        string_view table;
        if (row == nullptr && turns_off(setting)) {
            take_off(setting);
        } else if (row == nullptr) {
            take_other(setting, alias.name);
        } else if (row->decides && owner_of(setting.sections, table) == SettingOwner::Unknown) {
            problem(setting,
                    fmt::format("whether '{}' is about the model that is trained is not known "
                                "here",
                                table));
        } else {
            take_row(*row, alias, setting);
        }
    }

    static bool is_known(string_view name) {
        return megatron_flag_row(name) != nullptr || refused_flag(name) != nullptr ||
               noted_flag(name) != nullptr || is_harmless_flag(name) || flag_alias(name);
    }

    /// "--no-x", where x is a flag and --no-x none of its own: Python's BooleanOptionalAction.
    static bool turns_off(const Setting& setting) {
        constexpr string_view no = "no-";
        const bool is_switch = setting.is_key
                                   ? has_word("true True false False", all_words(setting))
                                   : setting.values.empty();
        return is_switch && setting.name.starts_with(no) && !is_known(setting.name) &&
               is_known(string_view(setting.name).substr(no.size()));
    }

    void take_off(const Setting& setting) {
        if (setting.is_key && lower_case(all_words(setting)) == "false") {
            flags_.unused.push_back(setting.written);  // the flag is not given
            return;
        }
        const SettingGroup* const unseen = noted_flag(string_view(setting.name).substr(3));
        if (unseen != nullptr && !has_word(unseen->harmless_values, "false")) {
            flags_.warnings.push_back(
                fmt::format("{}: {}: {}", setting.place, setting.written, unseen->why));
        } else {
            flags_.unused.push_back(setting.written);
        }
    }

    void note_version(const Setting& setting) {
        const auto is_old = [&setting](string_view list) {
            return !setting.is_key && has_word(list, setting.name);
        };
        flags_.is_before_2023 = flags_.is_before_2023 || is_old(flags_before_2023);
        flags_.is_before_core_models = flags_.is_before_core_models || flags_.is_before_2023 ||
                                       is_old(flags_before_core_models);
        flags_.is_key_file = flags_.is_key_file || setting.is_key;
        flags_.is_after_core_models = flags_.is_after_core_models || setting.is_key ||
                                      has_word(flags_after_core_models, setting.name);
    }

    /// A printed block has all arguments of its version.
    void note_printed_version(const std::vector<Setting>& names) {
        const auto has = [&names](string_view list) {
            return std::ranges::any_of(
                names, [list](const Setting& setting) { return has_word(list, setting.name); });
        };
        flags_.is_before_2023 = has(flags_before_2023);
        flags_.is_after_core_models = has("attention-backend");
        flags_.is_before_core_models = !flags_.is_after_core_models && has("use-flash-attn") &&
                                       !flags_.transformer_kernels.has_value();
        flags_.is_key_file = false;
    }

    void take_row(const MegatronFlagRow& row, const FlagAlias& alias, const Setting& setting) {
        const bool is_whole = std::holds_alternative<WholeFlag>(row.target) ||
                              std::holds_alternative<WholesFlag>(row.target);
        const bool is_not_given = setting.is_key &&
                                  setting.written.find("--") != std::string::npos &&
                                  lower_case(all_words(setting)) == "false";
        if (is_whole && is_not_given) {  // launchers leave a flag with `false` out
            flags_.unused.push_back(setting.written);
            return;
        }
        if (is_whole || row.rule == FlagRule::Once) {
            once(setting, alias.name);
        }
        take_flag(row, setting, alias.is_inverted, reading_);
        // Only Megatron's command line needs a flag besides to group queries.
        const bool is_bridge = setting.is_key && !setting.sections.empty() &&
                               setting.sections.front() != "modules" &&
                               setting.sections.front() != "MODEL_ARGS";
        flags_.grouped = flags_.grouped || setting.name == "num-key-value-heads" ||
                         (is_bridge && alias.name == "num-query-groups");
        const bool is_switch = std::holds_alternative<bool MegatronFlags::*>(row.target);
        if (is_switch && !setting.is_key && !setting.values.empty() &&
            !setting.values.front().unknown.empty()) {
            flags_.unseen.push_back(setting.values.front().unknown);
            flags_.warnings.push_back(
                fmt::format("{}: {} has no value in this file, or one under a condition: flags "
                            "that it holds are not seen",
                            setting.values.front().place,
                            setting.values.front().unknown));
        }
    }

    static const Setting* find(const LaunchFile& file, string_view name) {
        const auto found = std::ranges::find(file.settings, name, &Setting::name);
        return found == file.settings.end() ? nullptr : &*found;
    }

    /// What flags of recompute mean together: those of 2021 say no granularity, and
    /// --recompute-activations goes before any.
    void settle_recompute(const LaunchFile& file) {
        const Setting* const old_method = find(file, "activations-checkpoint-method");
        const bool says_granularity = find(file, "recompute-granularity") != nullptr ||
                                      find(file, "activations-checkpoint-granularity") != nullptr;
        const bool is_old = old_method != nullptr || reading_.checkpoints_activations;
        flags_.recompute_full =
            (flags_.recompute_full || (is_old && !says_granularity)) && !flags_.recompute_selective;
        if (flags_.recompute_layers == 0) {
            if (flags_.recompute_full && !flags_.recompute_first) {
                refuse(find(file, "recompute-num-layers") != nullptr
                           ? find(file, "recompute-num-layers")->place
                           : file.settings.front().place,
                       "groups of 0 layers to recompute, expected at least 1",
                       "leave --recompute-granularity full out to recompute nothing");
            }
            flags_.recompute_full = false;  // the first 0 layers of each stage
            flags_.recompute_layers.reset();
        }
    }

    void take_other(const Setting& setting, string_view name) {
        const std::string text =
            setting.values.empty() ? std::string() : lower_case(setting.values.front().text);
        if (const SettingGroup* const changing = refused_flag(name)) {
            if (setting.values.empty() || !has_word(changing->harmless_values, text)) {
                problem(setting, changing->why);
            }
        } else if (const SettingGroup* const unseen = noted_flag(name)) {
            if (!has_word(unseen->harmless_values, text.empty() ? "given" : text)) {
                flags_.warnings.push_back(
                    fmt::format("{}: {}: {}", setting.place, setting.written, unseen->why));
            }
        } else if (is_harmless_flag(name) || is_harmless_key(setting.written)) {
            flags_.unused.push_back(setting.written);
        } else if (is_printed_ && has_word(printed_off, text.empty() ? "none" : text)) {
            off_names_.push_back(setting.written);
        } else {
            add_unknown(setting, name);
        }
    }

    /// A name like that of a flag with a meaning may be a slip.
    void add_unknown(const Setting& setting, string_view name) {
        const std::vector<string_view> rows = megatron_row_names();
        std::vector<string_view> known = known_flags();
        std::ranges::copy(rows, std::back_inserter(known));
        const string_view near = nearest_word(name, known);
        const bool is_slip = std::ranges::count(rows, near) > 0 || refused_flag(near) != nullptr;
        const std::string meant =
            near.empty() ? std::string() : fmt::format("{}{}", setting.is_key ? "" : "--", near);
        reading_.problems.add_unknown(
            setting.place,
            shown_setting(setting),
            name,
            "no flag that is known here",
            is_slip || !word_of_a_run(name).empty() ? string_view(meant) : string_view());
    }

    /// What a newer version or another program has that grew out of Megatron, switched off.
    void warn_of_off_names() {
        if (!off_names_.empty()) {
            flags_.warnings.push_back(
                fmt::format("not known here, and off in the run: {}", fmt::join(off_names_, " ")));
        }
    }

    void problem(const Setting& setting, string_view what) { add_problem(reading_, setting, what); }

    /// Megatron takes one of the two, and a batch that grows must be told how far.
    void settle_batch(const LaunchFile& file) {
        if (reading_.scheduled_batch && flags_.global_batch_size) {
            refuse(find(file, "step-batch-size-schedule")->place,
                   "--step-batch-size-schedule beside --global-batch-size",
                   "Megatron refuses both, too: take one of them out");
        }
        const Setting* const growth = find(file, "rampup-batch-size");
        if (growth != nullptr && !reading_.scheduled_batch && !flags_.global_batch_size) {
            refuse(growth->place,
                   fmt::format("{} without --global-batch-size, up to which the batch grows",
                               growth->written),
                   "add --global-batch-size N");
        }
        if (reading_.scheduled_batch) {
            flags_.global_batch_size = reading_.scheduled_batch;
        }
    }

    /// Refuses a flag that stands twice, and two keys with one meaning but for equal values.
    void once(const Setting& setting, string_view name) {
        const auto [entry, is_first] = given_.emplace(name, &setting);
        if (is_first) {
            return;
        }
        const Setting& other = *entry->second;
        const auto same = [](const SettingWord& a, const SettingWord& b) {
            return a.text == b.text && a.unknown == b.unknown;
        };
        if (!setting.is_key || !other.is_key) {
            refuse(setting.place,
                   fmt::format("{} a second time", setting.written),
                   "keep one of them");
        }
        if (!std::ranges::equal(setting.values, other.values, same)) {
            refuse(setting.place,
                   fmt::format("{} = {}, but {} = {} at {}",
                               setting.written,
                               all_words(setting).substr(0, 60),
                               other.written,
                               all_words(other).substr(0, 60),
                               other.place),
                   "both keys mean the same: give them one value");
        }
    }

    LeaveOut leave_out_;
    MegatronReading reading_;
    MegatronFlags& flags_ = reading_.flags;
    std::set<string_view> off_tables_;      ///< of LoRA and the like, turned off
    std::set<string_view> refused_tables_;  ///< those with a problem
    std::map<std::string, const Setting*, std::less<>> given_;
    bool is_printed_ = false;             ///< the settings are a block that a program printed
    bool is_primus_ = false;              ///< they are of a Primus experiment
    std::vector<std::string> off_names_;  ///< unknown, and off
};

/// Takes the settings of other models and programs out, with a note for each of these, and returns
/// them as written.
std::vector<std::string> erase_of_others(LaunchFile& file) {
    std::vector<std::string> written;
    std::map<std::string, int> counts;
    std::erase_if(file.settings, [&](const Setting& setting) {
        string_view other;
        if (!setting.is_key || owner_of(setting.sections, other) != SettingOwner::Other) {
            return false;
        }
        written.push_back(setting.written);
        ++counts[std::string(other)];
        return true;
    });
    for (const auto& [other, count] : counts) {
        file.notes.push_back(fmt::format(
            "'{}' is another model or program than the one that is trained: {} of it {} no effect "
            "on the prediction, which is of a training step alone",
            other,
            counted(count, "setting"),
            count == 1 ? "has" : "have"));
    }
    return written;
}

}  // namespace

bool are_megatron_flags(string_view text) {
    // A layout has neither a minus nor a colon.
    return is_swift_arguments(text) || text.find("--") != string_view::npos || is_yaml(text) ||
           text.find(".py") != string_view::npos;
}

LaunchFile parse_launch_file(string_view text, string_view place, const LaunchVariables& given) {
    if (has_printed_arguments(text)) {
        return parse_printed_arguments(text, place);
    }
    if (is_swift_arguments(text)) {
        return parse_swift_arguments(text, place);
    }
    if (!is_yaml(text)) {
        return parse_shell_script(text, place, given);
    }
    LaunchFile file = parse_yaml_settings(text, place, given);
    if (is_bridge_dump(file)) {
        settle_bridge_dump(file);
    } else if (is_nemo2_dump(file)) {
        settle_nemo2_dump(file);
    }
    return file;
}

void add_base_settings(LaunchFile& file, const LaunchFile& base) {
    const auto name_of = [](const Setting& setting) {
        const std::optional<FlagAlias> alias = flag_alias(setting.name);
        return alias ? std::string(alias->name) : setting.name;
    };
    std::set<std::string> names;
    std::set<std::string> unset;  // as written: null takes away one key, not what means the same
    for (const Setting& setting : file.settings) {
        if (setting.is_unset) {
            unset.insert(setting.name);
        } else {
            names.insert(name_of(setting));
        }
    }
    for (const Setting& setting : base.settings) {
        if (!names.contains(name_of(setting)) && !unset.contains(setting.name)) {
            file.settings.push_back(setting);
        }
    }
    std::ranges::copy(base.notes, std::back_inserter(file.notes));
}

MegatronFlags megatron_flags(const LaunchFile& file, LeaveOut leave_out) {
    LaunchFile kept = file;
    std::erase_if(kept.settings, &Setting::is_unset);
    const std::vector<std::string> others = erase_of_others(kept);
    MegatronFlags flags = FlagReader(leave_out).read(kept, file.settings);
    flags.unused.insert(flags.unused.end(), others.begin(), others.end());
    return flags;
}

MegatronFlags parse_megatron_flags(string_view text, string_view place, LeaveOut leave_out) {
    return megatron_flags(parse_launch_file(text, place), leave_out);
}

}  // namespace pipetwin
