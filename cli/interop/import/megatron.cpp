// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/input.h"
#include "cli/interop/import/importers.h"
#include "cli/interop/import/launch_tables.h"
#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/version.h"
#include "core/costs/device_profile.h"
#include "core/costs/estimate.h"
#include "core/costs/profile_json.h"
#include "core/costs/shipped_profiles.h"
#include "core/costs/stack_choice.h"
#include "core/costs/whole_blocks.h"
#include "core/interop/launch/shell_words.h"
#include "core/interop/megatron_flags.h"
#include "core/interop/megatron_layout.h"
#include "core/interop/megatron_memory.h"
#include "core/interop/megatron_model.h"
#include "core/interop/megatron_stack.h"
#include "core/scenario/choices.h"
#include "core/scenario/scenario_writer.h"
#include "core/schedule/generators/generate.h"
#include "core/text/file_damage.h"
#include "sim/questions/estimated_model.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_layout_file = std::size_t{1} << 20;
constexpr int most_base_files = 32;

[[noreturn]] void refuse(const std::string& place, std::string what, std::string hint) {
    throw Error(ErrorKind::Infeasible, place, std::move(what), std::move(hint));
}

LayoutPartition partition_of(const MegatronLayout& layout, const std::string& place) {
    try {
        return layout_partition(layout);
    } catch (const Error& error) {
        throw error.at(place);
    }
}

Imported with_counts(std::string content, int ranks, int stages) {
    Imported imported{.content = std::move(content), .result = {}};
    imported.result.ranks = ranks;
    imported.result.stages = stages;
    return imported;
}

// --- A layout alone. ---

int ranks_of(const MegatronLayout& layout, int chunks, const std::string& place) {
    const auto stages = static_cast<int>(layout.stages.size());
    if (stages % chunks != 0) {
        refuse(place,
               fmt::format("{} {} not a multiple of {}",
                           counted(stages, "stage"),
                           verb_for(stages, "is", "are"),
                           counted(chunks, "chunk")),
               "--chunks is what Megatron calls the virtual pipeline size");
    }
    return stages / chunks;
}

/// The unit of the partition's numbers in words, for a reader of the fragment.
std::string unit_words(const LayoutPartition& partition) {
    if (partition.unit == LayoutUnit::Blocks) {
        return fmt::format("whole blocks, {} in all; embedding and head go with the ends",
                           partition.decoder_layers);
    }
    return fmt::format("layers one by one, E, {} m and L among them", partition.prediction_layers);
}

Imported import_layout(const MegatronLayout& layout, int chunks, const std::string& place) {
    const int ranks = ranks_of(layout, chunks, place);
    const LayoutPartition partition = partition_of(layout, place);
    Imported imported = with_counts(
        fmt::format("# Megatron's pipeline layout {}\n# partition counts {}\n[pipeline]\n"
                    "stages = {}\nchunks = {}\npartition = [{}]\n",
                    print_megatron_layout(layout),
                    unit_words(partition),
                    ranks,
                    chunks,
                    fmt::join(partition.sizes, ", ")),
        ranks,
        static_cast<int>(layout.stages.size()));
    if (partition.prediction_layers > 0) {
        imported.notes.emplace_back(
            "warning: the layout has layers m, which predict further tokens: the partition fits "
            "only a model that has a layer for each letter, m included");
    }
    return imported;
}

// --- Flags. ---

/// Reads the flags of one file; one object for each.
class FlagsImport {
  public:
    FlagsImport(const MegatronFlags& flags, const ImportOptions& options, std::string place)
        : flags_(flags),
          options_(options),
          place_(std::move(place)),
          ranks_(flags.pipeline_size.value_or(1)) {
        check_layout(flags_, place_);
        if (flags_.torch_fsdp && ranks_ > 1) {
            refuse(
                place_,
                fmt::format("--use-torch-fsdp2 beside --pipeline-model-parallel-size {}", ranks_),
                "Megatron refuses this, too");
        }
        chunks_ = megatron_chunks(flags_, ranks_, place_);
        replicas_ = replicas();
        shard_group_ = shard_group();
        for (const std::string& warning : flags_.warnings) {
            warn(warning);
        }
        expect_known_stages();
    }

    Imported imported() {
        std::string text = "# Megatron's flags\n" + left_out_comment(left_out_);
        if (!flags_.unseen.empty()) {
            text += toml_comment(
                fmt::format("flags that {} {} were not seen: what no line says, and Megatron's "
                            "defaults for recompute, clip_norm and precision, may be otherwise",
                            fmt::join(flags_.unseen, ", "),
                            flags_.unseen.size() == 1 ? "holds" : "hold"));
        }
        if (!flags_.unused.empty()) {
            text += toml_comment(
                fmt::format("without effect on a prediction: {}", fmt::join(flags_.unused, " ")));
        }
        text += model_table();
        text += training_table();
        text += pipeline_table();
        text += cluster_table();
        Imported result = with_counts(std::move(text), ranks_, ranks_ * chunks_);
        result.result.parameters = parameters_;
        result.result.left_out = left_out_;
        result.profile = std::move(profile_);
        say_what_is_left_out();
        result.notes = std::move(notes_);
        return result;
    }

  private:
    void warn(std::string_view text) { notes_.push_back(fmt::format("warning: {}", text)); }

    /// A flag that the reader has not seen may be there: its default is no fact then.
    void expect_known_stages() const {
        if (flags_.pipeline_size || flags_.unseen.empty() || leave_out(options_) == LeaveOut::All) {
            return;
        }
        throw Error(
            ErrorKind::BadInput,
            place_,
            fmt::format("no --pipeline-model-parallel-size among the flags that are seen, and "
                        "those that {} {} are not",
                        fmt::join(flags_.unseen, ", "),
                        flags_.unseen.size() == 1 ? "holds" : "hold"),
            "write the flags in place of the variable; --insist takes Megatron's defaults for "
            "what is not seen, such as one stage");
    }

    /// Replicas of the pipeline: what tensor, context and pipeline parallelism leave of the
    /// devices.
    std::optional<int> replicas() const {
        if (!flags_.processes) {
            return std::nullopt;
        }
        // Divided one by one, as the product of the three may be larger than any number here.
        int left = *flags_.processes;
        for (const int size :
             {ranks_, flags_.tensor_size.value_or(1), flags_.context_size.value_or(1)}) {
            if (left % size != 0) {
                refuse(place_,
                       fmt::format("{} cannot be shared out to replicas of {} x {} x {} "
                                   "devices: pipeline x tensor x context parallelism",
                                   counted(*flags_.processes, "process"),
                                   ranks_,
                                   flags_.tensor_size.value_or(1),
                                   flags_.context_size.value_or(1)),
                       "Megatron refuses this, too");
            }
            left /= size;
        }
        return left;
    }

    /// What of groups of replicas, of which each divides the state, a scenario cannot say; empty:
    /// nothing.
    std::string_view fault_of_groups(int groups) const {
        if (megatron_shard(flags_) == Shard::None) {
            return "without --use-distributed-optimizer there is nothing to divide in groups";
        }
        if (flags_.context_size.value_or(1) > 1) {
            return "the devices of context parallelism are in the groups, too";
        }
        if (!replicas_) {
            return "the flags do not say how many GPUs there are, so the groups have no size";
        }
        return *replicas_ / groups < 2 ? "a group has one replica, and divides nothing" : "";
    }

    /// Replicas of a group that divides the state: Megatron makes groups of ranks that follow each
    /// other. None: all replicas are one group, or --insist leaves the groups out.
    std::optional<int> shard_group() {
        const int groups = flags_.optimizer_groups.value_or(1);
        if (groups == 1) {
            return std::nullopt;
        }
        const std::string flag = fmt::format("--num-distributed-optimizer-instances {}", groups);
        const std::string_view fault = fault_of_groups(groups);
        if (fault.empty() && *replicas_ % groups == 0) {
            return *replicas_ / groups;
        }
        if (fault.empty()) {
            refuse(place_,
                   fmt::format("{} do not make {} alike", counted(*replicas_, "replica"), flag),
                   "Megatron refuses this, too");
        }
        if (leave_out(options_) != LeaveOut::All) {
            throw Error(ErrorKind::BadInput,
                        place_,
                        fmt::format("{}: {}", flag, fault),
                        "take it out; --insist leaves it out, and says so in the result");
        }
        left_out_.push_back(flag);
        return std::nullopt;
    }

    // --- [model] ---

    std::string model_table() {
        const std::vector<std::string_view> missing = missing_sizes(flags_);
        if (!missing.empty()) {
            warn(
                fmt::format("the file describes no whole model, {} {} missing: the fragment has no "
                            "table [model]",
                            fmt::join(missing, ", "),
                            missing.size() == 1 ? "is" : "are"));
            return {};
        }
        const DecoderModel model = megatron_model(flags_, place_);
        const std::optional<int> vocabulary = padded_vocabulary(flags_);
        if (vocabulary) {
            parameters_ = parameter_count(model);
        }
        if (const int context = flags_.context_size.value_or(1); context > 1) {
            warn(fmt::format(
                "--context-parallel-size {}: {} devices share each sample, so costs are "
                "those of one of them; keys and values that they exchange, and the sum "
                "of their gradients, are not predicted",
                context,
                context));
        }
        const std::string more = more_than_gpt(flags_, model);
        warn_of_attention();
        if (more.empty() && !options_.hf.device) {
            return gpt_table(model, vocabulary);
        }
        if (!vocabulary) {
            refuse(place_,
                   "no --vocab-size, expected the number of words: the tokenizer alone knows it",
                   "add --vocab-size N to the flags");
        }
        return profile_table(model, more);
    }

    /// Separate kernels of attention take other time, and keep all scores.
    void warn_of_attention() {
        if (options_.hf.has_attention || attention_.reason.empty()) {
            return;
        }
        if (attention_.is_standard && options_.hf.device) {
            warn(
                fmt::format("{}: attention is estimated as separate kernels over all scores, "
                            "which are kept; --attention flash estimates fused kernels",
                            attention_.reason));
        } else if (attention_.is_standard) {
            warn(
                fmt::format("{}: attention is separate kernels over all scores, which are kept: "
                            "a profile of the model has to be one with --attention standard",
                            attention_.reason));
        } else if (!attention_.is_certain && options_.hf.device) {
            warn(
                fmt::format("{}: fused attention is estimated, which is Megatron's default since "
                            "June 2024; for an older version add --attention standard",
                            attention_.reason));
        }
    }

    std::string gpt_table(const DecoderModel& model, std::optional<int> vocabulary) {
        std::string text = fmt::format(
            "[model]\nkind = \"gpt\"\nlayers = {}\nd_model = {}\nheads = {}\ncontext = {}\n",
            model.blocks,
            model.width,
            model.attention.heads,
            *flags_.sequence);
        if (vocabulary) {
            text += fmt::format("vocabulary = {}\n", *vocabulary);
        } else {
            text += "# vocabulary = N, which the tokenizer knows; the default is 256\n";
            warn(
                "no --vocab-size: the tokenizer alone knows the number of words; set "
                "model.vocabulary (default 256)");
        }
        text += fmt::format("feed_forward = {}\ntied = {}\n", model.feed_forward, model.tied);
        if (const double dropout = flags_.hidden_dropout.value_or(0.1); dropout > 0) {
            text += fmt::format("dropout = {}\n", dropout);
        }
        const bool has_exact_gelu = flags_.no_gelu_fusion && !flags_.openai_gelu;
        return has_exact_gelu ? text : text + "gelu = \"tanh\"\n";
    }

    std::string profile_table(const DecoderModel& model, const std::string& more) {
        const std::filesystem::path file = profile_beside(options_.common.out);
        const std::string reason =
            more.empty() ? std::string() : fmt::format("# more than a gpt: {}\n", more);
        std::string text = fmt::format("[model]\n{}kind = \"profile\"\nfile = {}\n",
                                       reason,
                                       toml_string(file.filename().string()));
        if (options_.hf.device) {
            profile_ = print_profile(estimated(model));
        } else {
            warn(
                fmt::format("the model is more than a gpt ({}): its costs are a profile, which the "
                            "fragment calls {}; 'pipetwin import megatron {} --device NAME' "
                            "estimates and writes it ('pipetwin devices' lists the names)",
                            more,
                            file.filename().string(),
                            options_.file.string()));
        }
        return text;
    }

    /// The stack that the flags speak of, which a note says; none: there is none for the device.
    std::optional<std::string> stack_of_flags(const std::string& device,
                                              const std::string& precision) {
        CoreAttention attention = attention_;
        if (options_.hf.has_attention) {
            attention = {.is_standard = options_.hf.attention == "standard",
                         .reason = fmt::format("--attention {}", options_.hf.attention)};
        }
        const auto [stack, why] = megatron_stack(flags_, attention, device, precision);
        if (stack.empty()) {
            return std::nullopt;
        }
        notes_.push_back(fmt::format("stack {}: {} (--stack NAME changes this)", stack, why));
        return stack;
    }

    Profile estimated(const DecoderModel& model) {
        sim::EstimateQuestion question;
        EstimateOptions& estimate = question.estimate;
        estimate.sequence = *flags_.sequence;
        estimate.micro_batch_size = flags_.micro_batch_size.value_or(1);
        estimate.precision = flags_.fp8 ? std::string(megatron_narrow_type(flags_))
                                        : model.precision.value_or("fp32");
        set_rates(options_.hf, question);
        const DeviceProfile device = find_device(*options_.hf.device, "--device");
        if (!question.stack) {
            question.stack = stack_of_flags(device.name, estimate.precision);
        }
        sim::set_stack(question, device.name, estimate);
        const bool flags_say = attention_.is_certain && !attention_.reason.empty();
        if (!options_.hf.has_attention && (attention_.is_standard || flags_say)) {
            estimate.attention =
                attention_.is_standard ? AttentionKernels::Standard : AttentionKernels::Flash;
        }
        estimate.selective = SelectiveRecompute::CoreAttention;
        sim::product_rate(device, estimate, "choose another device with --device");
        Profile profile = estimated_profile(model, device, estimate);
        profile.tool_version = program_version();
        if (const int context = flags_.context_size.value_or(1); context > 1) {
            profile = with_context_parallel(std::move(profile), context);
        }
        if (options_.hf.whole_blocks) {
            profile = with_whole_blocks(profile);
        }
        check_profile(profile, place_);
        return profile;
    }

    // --- [training] ---

    std::optional<int> batch() const {
        if (flags_.global_batch_size || !flags_.micro_batch_size || !replicas_) {
            return flags_.global_batch_size;
        }
        constexpr std::int64_t most = 1 << 30;
        const std::int64_t samples = std::int64_t{*flags_.micro_batch_size} * *replicas_;
        if (samples > most) {
            refuse(place_,
                   fmt::format("--micro-batch-size {} on {} replicas are {} samples, expected at "
                               "most {}",
                               *flags_.micro_batch_size,
                               *replicas_,
                               samples,
                               most),
                   "is there a digit too many in --micro-batch-size?");
        }
        return static_cast<int>(samples);  // Megatron's default
    }

    std::string training_table() {
        std::string text = "[training]\n";
        if (const std::optional<int> samples = batch()) {
            text += fmt::format("batch = {}\n", *samples);
            if (!flags_.micro_batch_size) {
                warn(
                    "no --micro-batch-size: the fragment does not say micro_batches, so a "
                    "prediction has one of the whole batch");
            }
        } else if (flags_.micro_batch_size) {
            warn(
                "neither --global-batch-size nor a number of processes: the fragment says neither "
                "batch nor micro_batches, so a prediction has a scenario's defaults, one "
                "micro-batch of 32 samples");
        }
        if (flags_.bf16 || flags_.fp16) {
            text += "precision = \"bf16\"\n";
        }
        if (flags_.fp16) {
            warn("--fp16: the fragment says bf16, whose sizes are the same");
        }
        if (flags_.optimizer == "sgd") {
            text += "optimizer = \"momentum\"\n";
        }
        const double norm = flags_.clip_norm.value_or(1);
        if (norm > 0) {
            text += fmt::format("clip_norm = {}\n", norm);
        }
        if (const std::optional<GradientType> gradients = megatron_gradients(flags_)) {
            text += fmt::format("gradients = \"{}\"\n", to_string(*gradients));
        }
        if (flags_.separate_accumulation) {
            text += "accumulation = \"separate\"\n";
        }
        return text;
    }

    // --- [pipeline] ---

    std::string pipeline_table() {
        const std::string micro_batches_text = micro_batches_line();
        check_group_size(flags_, ranks_, chunks_, micro_batches(), place_);
        std::string text = fmt::format(
            "[pipeline]\nstages = {}\nchunks = {}\nschedule = \"{}\"\n",
            ranks_,
            chunks_,
            to_string(chunks_ > 1 ? ScheduleKind::Interleaved1F1B : ScheduleKind::OneFOneB));
        if (chunks_ > 1 && flags_.group_size) {
            text += fmt::format("group_size = {}\n", *flags_.group_size);
        }
        text += micro_batches_text;
        const RecomputeWord recompute = megatron_recompute(flags_);
        text += recompute_lines(recompute.word, recompute.blocks);
        if (!recompute.left_out.empty()) {
            warn(recompute.left_out);
        }
        if (flags_.tensor_size) {
            text += fmt::format("tensor_parallel = {}\n", *flags_.tensor_size);
        }
        if (divides_sequence(flags_)) {
            text += "sequence_parallel = true\n";
        }
        // The command line says all; a YAML file may continue another one.
        if (divides_sequence(flags_) && (flags_.tensor_overlap || !flags_.is_key_file)) {
            text += fmt::format("tensor_overlap = {}\n", flags_.tensor_overlap);
        }
        if (scatters_boundaries(flags_)) {
            text += "scatter_boundaries = true\n";
        }
        const Shard shard = megatron_shard(flags_);
        if (shard != Shard::None) {
            text += fmt::format("shard = \"{}\"\n", to_string(shard));
        }
        if (shard_group_) {
            text += fmt::format("shard_group = {}\n", *shard_group_);
        }
        if (flags_.overlap_reduction) {
            text += "overlap_reduction = true\n";
        }
        const bool gathers = shard == Shard::Optimizer || shard == Shard::Gradients;
        if (gathers && (flags_.overlap_reduction || flags_.overlap_gather)) {
            text += fmt::format("overlap_gather = {}\n", flags_.overlap_gather);
        }
        return text + partition_line();
    }

    /// Micro-batches of a pipeline in a step; none where the flags do not say all that they follow
    /// from.
    std::optional<std::int64_t> micro_batches() const {
        const std::optional<int> samples = batch();
        if (!samples || !flags_.micro_batch_size || !replicas_) {
            return std::nullopt;
        }
        return *samples / (std::int64_t{*flags_.micro_batch_size} * *replicas_);
    }

    std::string micro_batches_line() {
        const std::optional<int> samples = batch();
        if (!samples || !flags_.micro_batch_size) {
            return {};
        }
        const std::int64_t size = std::int64_t{*flags_.micro_batch_size} * replicas_.value_or(1);
        if (*samples % size != 0) {
            refuse(
                place_,
                fmt::format("--global-batch-size {} is not a multiple of --micro-batch-size {}{}",
                            *samples,
                            *flags_.micro_batch_size,
                            replicas_ ? fmt::format(" x {}", counted(*replicas_, "replica")) : ""),
                "Megatron refuses this, too");
        }
        const std::int64_t count = *samples / size;
        warn_of_default_group(count);
        if (!replicas_) {
            notes_.push_back(fmt::format(
                "one replica: the flags do not say how many GPUs there are; where each of N "
                "replicas "
                "has {}, set pipeline.data_parallel = N and pipeline.micro_batches = {} / N",
                counted(std::int64_t{ranks_} * flags_.tensor_size.value_or(1) *
                            flags_.context_size.value_or(1),
                        "GPU"),
                count));
        }
        return replicas_
                   ? fmt::format("micro_batches = {}\ndata_parallel = {}\n", count, *replicas_)
                   : fmt::format(
                         "# {} in all; with data_parallel = N a pipeline has an N-th "
                         "of them\nmicro_batches = {}\n",
                         count,
                         count);
    }

    /// Megatron takes groups of as many micro-batches as ranks unless a flag says otherwise; the
    /// fragment leaves the size of the groups open.
    void warn_of_default_group(std::int64_t count) {
        const std::int64_t last = count % ranks_;
        if (chunks_ > 1 && !flags_.group_size && replicas_ && last > 0) {
            warn(fmt::format(
                "Megatron refuses {} in groups of {}, because the last group has fewer than "
                "the {} ranks; --microbatch-group-size-per-virtual-pipeline-stage sets "
                "the groups",
                counted(count, "micro-batch"),
                ranks_,
                ranks_));
        }
    }

    std::vector<int> blocks() const {
        if (!flags_.layout) {
            return megatron_blocks(flags_, ranks_, chunks_, place_);
        }
        partition_of(*flags_.layout, place_);  // refuses empty stages
        std::vector<int> counts;
        for (const std::string& stage : flags_.layout->stages) {
            counts.push_back(static_cast<int>(std::ranges::count(stage, 't')));
            const bool is_end = counts.size() == 1 || counts.size() == flags_.layout->stages.size();
            if (counts.back() == 0 && !is_end) {
                refuse(place_,
                       fmt::format("stage {} has nothing but layers m, which are left out",
                                   counts.size() - 1),
                       "put a layer t there, or leave the stage out");
            }
        }
        return counts;
    }

    std::string partition_line() const {
        const std::vector<int> counts = blocks();
        if (counts.empty()) {
            return {};
        }
        return fmt::format(
            "# whole blocks, {} in all; embedding and head go with the ends\n"
            "partition = [{}]\n",
            std::accumulate(counts.begin(), counts.end(), 0),
            fmt::join(counts, ", "));
    }

    // --- [cluster], and what has no key. ---

    std::string cluster_table() const {
        std::string text;
        if (options_.hf.device) {
            text += fmt::format("device = {}\n", toml_string(*options_.hf.device));
        }
        if (options_.hf.stack && *options_.hf.stack != no_stack) {
            const std::string& stack = find_stack(*options_.hf.stack, "--stack")->name;
            text += fmt::format("stack = {}\n", toml_string(stack));
        }
        if (flags_.per_node) {
            text += fmt::format("per_node = {}\n", *flags_.per_node);
        }
        return text.empty() ? text : "[cluster]\n" + text;
    }

    void say_what_is_left_out() {
        if (flags_.sequence_parallel && !divides_sequence(flags_)) {
            warn(
                "--sequence-parallel: Megatron turns it off where --tensor-model-parallel-size is "
                "1, and the fragment leaves it out");
        }
        if (has_whole_boundaries(flags_) && !flags_.is_before_2023 && !flags_.whole_boundaries) {
            warn(
                "boundaries between stages: each device of tensor parallelism sends them whole, as "
                "Megatron does since March 2023; for an older version, which sends parts, set "
                "pipeline.scatter_boundaries = true");
        }
        if (flags_.megatron_fsdp && !flags_.sharding) {
            warn(
                "no --data-parallel-sharding-strategy: the fragment says shard = \"weights\", as "
                "Megatron core 0.19 takes it; older versions share nothing then");
        }
        if (flags_.processes && flags_.per_node && *flags_.processes > *flags_.per_node) {
            warn(
                "several nodes: set cluster.node_link, as the flags do not say what connects them");
        }
        if (!flags_.pipeline_size) {
            warn("no --pipeline-model-parallel-size: one stage, as in Megatron");
        }
    }

    const MegatronFlags& flags_;
    const ImportOptions& options_;
    std::vector<std::string> left_out_ = flags_.left_out;
    CoreAttention attention_ = megatron_attention(flags_);
    std::string place_;
    int ranks_;
    int chunks_ = 1;
    std::optional<int> replicas_;
    std::optional<int> shard_group_;
    std::optional<std::int64_t> parameters_;
    std::optional<std::string> profile_;
    std::vector<std::string> notes_;
};

// --- Files. ---

/// Where a base file of a YAML file may lie: beside it, or where Primus keeps its models.
std::optional<std::filesystem::path> base_file(const std::filesystem::path& file,
                                               const std::string& name) {
    std::error_code ignored;
    const std::filesystem::path folder = std::filesystem::absolute(file, ignored).parent_path();
    if (std::filesystem::is_regular_file(folder / name, ignored)) {
        return folder / name;
    }
    for (std::filesystem::path above = folder; above.has_relative_path();
         above = above.parent_path()) {
        const std::filesystem::path inside = above / "primus/configs/models/megatron" / name;
        if (std::filesystem::is_regular_file(inside, ignored)) {
            return inside;
        }
    }
    return std::nullopt;
}

/// Adds what the files that this one continues say.
void add_bases(LaunchFile& file,
               const std::filesystem::path& from,
               const ImportOptions& options,
               int& files,
               std::vector<std::string>& left_out) {
    for (const std::string& name : std::vector<std::string>(file.models)) {
        const std::optional<std::filesystem::path> found = base_file(from, name);
        if (!found || ++files > most_base_files) {
            const std::string what =
                found ? fmt::format("more than {} files that continue each other", most_base_files)
                      : fmt::format(
                            "the file '{}', which it continues, is neither beside it nor in "
                            "primus/configs/models/megatron",
                            name);
            if (leave_out(options) != LeaveOut::All) {
                throw Error(ErrorKind::BadInput,
                            input_name(from),
                            what,
                            "put it beside the file, as it may say what the model is; --insist "
                            "leaves it out, and says so in the result");
            }
            file.notes.push_back(what);
            left_out.push_back(fmt::format("the file '{}'", name));
            continue;
        }
        LaunchFile base =
            parse_launch_file(read_input(*found, largest_layout_file), found->string());
        add_bases(base, *found, options, files, left_out);
        add_base_settings(file, base);
    }
}

/// No layout begins with a brace or a bracket, and no file of flags does.
void expect_no_other_kind(std::string_view text, const std::string& place) {
    if (const FileDamage damage = damage_of_file(text, "a layout, flags or YAML");
        !damage.what.empty()) {
        throw Error(
            ErrorKind::BadInput, text_place(text, place, damage.index), damage.what, damage.hint);
    }
    const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    const std::string_view content = text.substr(begin);
    expect_known_program(text, place);
    const bool is_json = content.starts_with('{');
    if (is_json || content.starts_with('[')) {
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("the file looks like {}, expected a layout, flags or YAML",
                                is_json ? "JSON" : "TOML"),
                    is_json ? "'pipetwin import deepspeed' reads DeepSpeed's JSON"
                            : "'pipetwin import torchtitan' reads torchtitan's TOML");
    }
}

void expect_flag_options(const ImportOptions& options) {
    const auto refuse_option = [](std::string_view option, std::string why) {
        throw Error(ErrorKind::Usage, std::string(option), std::move(why), "leave it out");
    };
    if (options.chunks) {
        refuse_option("--chunks", "the flags already give the number of stages per rank");
    }
    if (options.hf.sequence) {
        refuse_option("--sequence", "the flags already give it, with --seq-length");
    }
    if (options.hf.precision) {
        refuse_option("--precision", "the flags already give it, with --bf16 or --fp16");
    }
    if (!options.hf.weights.empty() || !options.hf.calibration.empty()) {
        refuse_option(options.hf.weights.empty() ? "--calibrate" : "--weights",
                      "it belongs to 'import hf'");
    }
}

}  // namespace

Imported import_megatron(const ImportOptions& options) {
    const std::string place = input_name(options.file);
    const std::string text = read_input(options.file, largest_layout_file);
    expect_no_other_kind(text, place);
    if (!are_megatron_flags(text)) {
        if (!options.hf.given().empty()) {
            throw Error(ErrorKind::Usage,
                        std::string(options.hf.given()),
                        "a layout does not describe a model, so no costs can be estimated",
                        "leave it out");
        }
        return import_layout(parse_megatron_layout(text, place), options.chunks.value_or(1), place);
    }
    expect_flag_options(options);
    if (options.hf.device) {
        require_free(profile_beside(options.common.out), options.common.force);
    }
    LaunchFile file = parse_launch_file(text, place);
    int files = 0;
    std::vector<std::string> left_out;
    add_bases(file, options.file, options, files, left_out);
    const bool is_empty = std::ranges::all_of(file.settings, &Setting::is_unset);
    if (is_empty && !file.unseen.empty()) {
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("no flags of a training program are seen, those that {} holds are "
                                "not",
                                file.unseen.front()),
                    "write the flags in place of the variable: it has no value in this file, or "
                    "one under a condition or in a loop");
    }
    if (is_empty) {
        throw Error(ErrorKind::BadInput,
                    place,
                    "no flags of a training program, expected flags such as --num-layers 32",
                    "for a layout alone leave all flags out: Et|tL");
    }
    MegatronFlags flags = megatron_flags(file, leave_out(options));
    flags.left_out.insert(flags.left_out.end(), left_out.begin(), left_out.end());
    return FlagsImport(flags, options, place).imported();
}

}  // namespace pipetwin::cli
