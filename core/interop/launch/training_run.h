// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/interop/launch/setting.h"
#include "core/interop/launch/setting_problems.h"
#include "core/interop/launch/setting_values.h"

namespace pipetwin {

/// What the settings of another program say about a training in a pipeline, in the words of a
/// scenario. An empty text or list, and none, stand for what they do not say.
struct TrainingRun {
    std::string framework{};      ///< that runs it, where it is not that of the file
    std::string model{};          ///< the name that the settings give it, for people
    std::string shipped_model{};  ///< its name in profiles/models; empty: it is not there
    std::optional<int> stages{};  ///< pipeline.stages
    int chunks = 1;               ///< pipeline.chunks
    std::string schedule{};       ///< pipeline.schedule
    std::optional<int> micro_batches{};
    std::optional<int> batch{};  ///< training.batch: samples of all replicas
    std::optional<int> data_parallel{};
    /// Devices that the settings leave open: the run has those of one of what is left.
    bool has_open_devices = false;
    std::optional<int> sequence{};            ///< tokens of a sample
    bool balances_experts = false;            ///< training.expert_load = "balanced"
    std::optional<double> expert_capacity{};  ///< training.expert_capacity
    std::optional<int> tensor_parallel{};
    std::optional<int> context_parallel{};
    std::string context_method{};  ///< pipeline.context_method
    std::optional<int> expert_parallel{};
    std::optional<int> expert_tensor_parallel{};
    std::string expert_dispatch{};  ///< pipeline.expert_dispatch
    std::vector<int> blocks{};      ///< pipeline.partition, in whole blocks
    std::string recompute{};
    int recompute_blocks = 1;
    bool recompute_early_stop = false;
    std::string precision{};
    std::string narrow{};  ///< type of the blocks' products where it is another one: "fp8"
    /// Products that are not narrow all the same: "experts" or "linear layers"; empty: none.
    std::string not_narrow{};
    std::optional<int> optimizer_state_bytes{};  ///< the key; none: the state is in fp32
    std::string gradients{};  ///< training.gradients; empty also where weights have four bytes
    std::string optimizer{};
    std::optional<double> clip_norm{};
    std::string shard{};  ///< pipeline.shard
    std::optional<int> shard_group{};
    std::optional<int> prefetch{};
    bool sequence_parallel = false;
    std::optional<bool> tensor_overlap{};  ///< none: as the program does by default
    std::optional<bool> compiles{};        ///< by torch.compile; none: the settings do not say
    std::vector<std::string> harmless{};   ///< settings without effect, as written
    std::vector<std::string> warnings{};   ///< what a prediction will not see
    std::vector<std::string> left_out{};   ///< settings that change the run, with LeaveOut::All

    bool operator==(const TrainingRun&) const = default;
};

/// pipeline.recompute of another program's run.
struct RecomputeWord {
    std::string word;                         ///< as a scenario has it
    int blocks = 1;                           ///< pipeline.recompute_blocks, with "block"
    int only = 0;                             ///< pipeline.recompute_only, with "block"
    std::vector<std::string_view> modules{};  ///< pipeline.recompute_modules, with "none"
    /// What the word says otherwise than the run has it, for a warning; empty: nothing.
    std::string left_out{};

    bool operator==(const RecomputeWord&) const = default;
};

/// The lines of a scenario's [pipeline] for a word of recompute, and so many blocks to a group.
/// Other programs than GPipe recompute once the gradient has arrived.
std::string recompute_lines(const std::string& word, int blocks = 1);

/// Takes the settings of a file one by one; what no reader takes and no list calls harmless is a
/// problem.
class SettingReader {
  public:
    explicit SettingReader(const LaunchFile& file) : file_(file), taken_(file.settings.size()) {}

    /// The first word of a setting; none: the file does not have it. Throws Error(BadInput) where
    /// it has no word.
    std::optional<std::string> text(std::string_view written);
    /// All words of a setting, as of a list.
    std::optional<std::vector<std::string>> texts(std::string_view written);
    /// A whole number from `least` to `most`; none also for the word "auto". Throws
    /// Error(BadInput).
    std::optional<int> whole(std::string_view written, int least, int most = largest_setting);
    /// A number that is not negative. Throws Error(BadInput).
    std::optional<double> real(std::string_view written);
    /// true or false; none also for "auto". Throws Error(BadInput).
    std::optional<bool> answer(std::string_view written);
    /// Whether a setting is there with the word "auto": another program fills it in.
    bool is_auto(std::string_view written) const;
    /// Whether a setting is there.
    bool has(std::string_view written) const;
    /// One of `words`, which are apart by blanks. Throws Error(BadInput).
    std::optional<std::string> word(std::string_view written, std::string_view words);

    /// Reports a setting that changes the run in a way that no scenario can say.
    void problem(std::string_view written, std::string_view what);

    /// Takes all settings below a table ("data_efficiency"), which has one answer: returns the
    /// settings among them whose name is `name` and whose word is "true", as written.
    std::vector<std::string> take_below(std::string_view table, std::string_view name);

    /// Reports each setting of the groups that is there, unless its value is one of the group's
    /// harmless ones; of a group without them, each whose answer is true.
    void refuse(std::span<const SettingGroup> groups);

    /// Settings with the word "auto" that were asked for.
    const std::vector<std::string>& open_settings() const { return open_; }

    /// Calls every setting that nothing has taken harmless if it is listed (apart by blanks), and
    /// else a problem. Throws Error(BadInput) naming all problems that `leave_out` does not add to
    /// the warnings of `run`.
    void finish(std::string_view harmless, LeaveOut leave_out, TrainingRun& run);

    /// Throws Error(Infeasible) at a setting, for what no run can have.
    [[noreturn]] void infeasible(std::string_view written,
                                 std::string what,
                                 std::string hint) const;

    /// The place of a setting in errors; that of the file's first where there is none.
    std::string place(std::string_view written) const;

  private:
    const Setting* find(std::string_view written);

    /// A setting, but for one whose word is "auto", which it notes; null: none.
    const Setting* certain(std::string_view written);

    const LaunchFile& file_;
    std::vector<bool> taken_;
    std::vector<std::string> open_;
    SettingProblems problems_;
};

/// A run of torchtitan from its TOML file: of today's, or of those until spring 2025, which had the
/// pipeline in [experimental] and the degrees in [training]. The blocks follow from the flavour of
/// the model where it is a known one.
/// Throws Error(BadInput) and Error(Infeasible) with the place of a setting.
TrainingRun torchtitan_run(const LaunchFile& file, LeaveOut leave_out);

/// A run of DeepSpeed from its JSON file, with its pipeline engine: as many micro-batches as steps
/// of gradient accumulation. What is "auto" there stays open, with a warning. Throws
/// Error(BadInput) and Error(Infeasible) with the JSON pointer of a setting.
TrainingRun deepspeed_run(const LaunchFile& file, LeaveOut leave_out);

/// A run of Hugging Face's Trainer on replicas, with FSDP, DeepSpeed or neither, from its arguments
/// as YAML or JSON, or accelerate's configuration, or both in one. `deepspeed`: the file that they
/// name (`trainer_deepspeed_file`); null: they name none, or have its settings in them. The Trainer
/// fills in what is "auto" there. Throws Error(BadInput) and Error(Infeasible) with the place of a
/// setting.
TrainingRun trainer_run(const LaunchFile& file,
                        LeaveOut leave_out,
                        const LaunchFile* deepspeed = nullptr);

/// The file of DeepSpeed's settings that arguments of the Trainer name, as written; empty: none.
std::string trainer_deepspeed_file(const LaunchFile& file);

/// A run of MaxText from its YAML file, whose defaults are those of base.yml, or from what it
/// prints. Throws Error(BadInput) and Error(Infeasible) with the place of a setting.
TrainingRun maxtext_run(const LaunchFile& file, LeaveOut leave_out);

/// Whether a log has the settings that MaxText prints when it begins.
bool has_maxtext_log(std::string_view text);

/// The settings of a log of MaxText: of its lines "Config param NAME: VALUE", and the number of
/// devices.
LaunchFile parse_maxtext_log(std::string_view text, std::string_view place);

}  // namespace pipetwin
