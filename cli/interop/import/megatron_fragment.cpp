// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/megatron_fragment.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/shell_word.h"
#include "cli/interop/import/launch_tables.h"
#include "cli/interop/import/megatron_warnings.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/version.h"
#include "core/base/word_list.h"
#include "core/costs/devices/device_profile.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_choice.h"
#include "core/costs/estimate.h"
#include "core/costs/profile_json.h"
#include "core/costs/whole_blocks.h"
#include "core/interop/launch/tokenizers.h"
#include "core/interop/megatron_division.h"
#include "core/interop/megatron_memory.h"
#include "core/interop/megatron_model.h"
#include "core/interop/megatron_sizes.h"
#include "core/interop/megatron_stack.h"
#include "core/scenario/choices.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_writer.h"
#include "core/schedule/generators/generate.h"
#include "sim/questions/estimated_model.h"

namespace pipetwin::cli {

namespace {

/// Devices that NVLink joins in the racks that a device comes in; 0: it comes in none.
int nvlink_domain(const std::string& device) {
    const std::string racks = device + "-nvl72";
    const std::vector<std::string> known = cluster_names();
    if (std::ranges::count(known, racks) == 0) {
        return 0;
    }
    const std::string text = fmt::format(
        "model = {{kind = \"profile\", file = \"{0}.json\"}}\n"
        "cluster = {{profile = \"{0}\"}}\n",
        racks);
    return parse_scenario(text, racks).cluster.nvlink_domain;
}

/// Writes the fragment of the flags of one file; one object for each.
class FlagsImport {
  public:
    FlagsImport(const MegatronFlags& flags, const ImportOptions& options, std::string place)
        : flags_(flags),
          options_(options),
          place_(std::move(place)),
          sizes_(megatron_sizes(flags, leave_out(options), place_)) {
        left_out_.insert(left_out_.end(), sizes_.left_out.begin(), sizes_.left_out.end());
        for (const std::string& warning : flags_.warnings) {
            warn(warning);
        }
    }

    Imported imported() {
        std::string text = (flags_.program.empty()
                                ? "# Megatron's flags\n"
                                : toml_comment(fmt::format("{}'s configuration", flags_.program))) +
                           left_out_comment(left_out_);
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
        Imported result{.content = std::move(text), .result = {}};
        result.result.ranks = sizes_.ranks;
        result.result.stages = sizes_.ranks * sizes_.chunks;
        result.result.parameters = parameters_;
        result.result.left_out = left_out_;
        result.profile = std::move(profile_);
        for (const std::string& warning : unsaid_warnings(flags_, options_.hf.device.has_value())) {
            warn(warning);
        }
        for (const std::string& warning : division_warnings(flags_)) {
            warn(warning);
        }
        result.notes = std::move(notes_);
        return result;
    }

  private:
    /// An empty text is no warning.
    void warn(std::string_view text) {
        if (!text.empty()) {
            notes_.push_back(fmt::format("warning: {}", text));
        }
    }

    /// Blocks whose activations go to host memory, or modules whose inputs do.
    std::string offload_lines() {
        const OffloadWords offload = megatron_offload(flags_);
        warn(offload.left_out);
        if (const int blocks = flags_.offloaded_layers.value_or(0); blocks > 0) {
            return fmt::format("offload_blocks = {}\n", blocks);
        }
        if (offload.modules.empty()) {
            return {};
        }
        const std::string fraction =
            offload.fraction == 1 ? "" : fmt::format("offload_fraction = {}\n", offload.fraction);
        return fmt::format(
            "offload_modules = [\"{}\"]\n{}", fmt::join(offload.modules, "\", \""), fraction);
    }

    // --- [model] ---

    /// What the command can add to a file that describes no whole model.
    std::string how_to_add_a_model() const {
        return has_word("megatron swift", options_.format)
                   ? fmt::format("--model NAME adds it, which is one of {}, or a config.json",
                                 fmt::join(model_names(), ", "))
                   : std::string("write the sizes into the file");
    }

    std::string model_table() {
        const std::vector<std::string_view> missing = missing_sizes(flags_);
        if (!missing.empty() && flags_.adapters) {
            throw Error(
                ErrorKind::Infeasible,
                place_,
                fmt::format("adapters are trained, which belong to the costs of a model, "
                            "and the file describes no whole one: {} {} missing",
                            fmt::join(missing, ", "),
                            missing.size() == 1 ? "is" : "are"),
                "write the sizes, as in --num-layers; models of profiles/models are known by "
                "their names");
        }
        if (!missing.empty()) {
            warn(
                fmt::format("the file describes no whole model, {} {} missing: the fragment has no "
                            "table [model]; {}",
                            fmt::join(missing, ", "),
                            missing.size() == 1 ? "is" : "are",
                            how_to_add_a_model()));
            return {};
        }
        const DecoderModel model = megatron_model(flags_, place_);
        const std::optional<int> vocabulary = padded_vocabulary(flags_);
        if (vocabulary) {
            parameters_ = parameter_count(model);
        }
        if (model.adapters) {
            notes_.push_back(fmt::format("{} parameters are trained, of adapters of rank {}{}",
                                         with_separators(trained_parameters(model)),
                                         model.adapters->rank,
                                         model.adapters->ends ? ", embedding and head" : ""));
        }
        const std::string more = more_than_gpt(flags_, model);
        if (!options_.hf.has_attention) {
            warn(attention_warning(attention_, options_.hf.device.has_value()));
        }
        if (more.empty() && !options_.hf.device) {
            return gpt_table(model, vocabulary);
        }
        if (!vocabulary && options_.hf.device) {
            throw Error(
                ErrorKind::Infeasible,
                place_,
                "the file does not say how many words the vocabulary has: the tokenizer alone "
                "knows it",
                "add --vocabulary N to the command");
        }
        return profile_table(model, more, vocabulary.has_value());
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
                "the file does not say how many words the vocabulary has, which the tokenizer "
                "alone knows: set model.vocabulary (default 256)");
        }
        text += fmt::format("feed_forward = {}\ntied = {}\n", model.feed_forward, model.tied);
        if (const double dropout = flags_.hidden_dropout.value_or(0.1); dropout > 0) {
            text += fmt::format("dropout = {}\n", dropout);
        }
        const bool has_exact_gelu = flags_.no_gelu_fusion && !flags_.openai_gelu;
        return has_exact_gelu ? text : text + "gelu = \"tanh\"\n";
    }

    std::string profile_table(const DecoderModel& model,
                              const std::string& more,
                              bool knows_vocabulary) {
        const std::filesystem::path file = profile_beside(options_.common.out);
        const std::string reason =
            more.empty() ? std::string() : fmt::format("# more than a gpt: {}\n", more);
        std::string text = fmt::format("[model]\n{}kind = \"profile\"\nfile = {}\n",
                                       reason,
                                       toml_string(file.filename().string()));
        if (options_.hf.device) {
            profile_ = print_profile(estimated(model));
        } else {
            warn(fmt::format(
                "the model is more than a gpt ({}): its costs are a profile, which the "
                "fragment calls {}; 'pipetwin import {} {} --device NAME{} --out {} "
                "--force' estimates and writes it ('pipetwin devices' lists the "
                "names){}",
                more,
                file.filename().string(),
                options_.format,
                shell_word(options_.file.string()),
                knows_vocabulary ? "" : " --vocabulary N",
                shell_word(options_.common.out.string()),
                knows_vocabulary ? ""
                                 : "; N is the number of words, which the tokenizer alone knows"));
        }
        return text;
    }

    /// The newest stack of the program, which a note says; none: there is none for the device.
    std::optional<std::string> stack_of_program(const std::string& device,
                                                const std::string& precision) {
        const std::string stack = newest_stack(flags_.program, device, precision);
        if (stack.empty()) {
            notes_.push_back(fmt::format(
                "no stack: none of {} knows {} in {}", flags_.program, device, precision));
            return std::nullopt;
        }
        notes_.push_back(
            fmt::format("stack {}: the newest of {} that knows {} (--stack NAME "
                        "changes this)",
                        stack,
                        flags_.program,
                        device));
        return stack;
    }

    /// The stack that the flags speak of, which a note says; none: there is none for the device.
    std::optional<std::string> stack_of_flags(const std::string& device,
                                              const std::string& precision) {
        if (!flags_.program.empty()) {
            return stack_of_program(device, precision);
        }
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
        if (options_.hf.whole_blocks) {
            profile = with_whole_blocks(profile);
        }
        check_profile(profile, place_);
        return profile;
    }

    // --- [training] ---

    std::string training_table() {
        std::string text = "[training]\n";
        if (const std::optional<int> samples = megatron_batch(flags_, sizes_, place_)) {
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
        if (const std::optional<int> bytes = megatron_state_bytes(flags_)) {
            text += fmt::format("optimizer_state_bytes = {}\n", *bytes);
        }
        if (flags_.separate_accumulation) {
            text += "accumulation = \"separate\"\n";
        }
        return text + expert_lines(flags_);
    }

    // --- [pipeline] ---

    std::string pipeline_table() {
        const std::optional<std::int64_t> count = megatron_micro_batches(flags_, sizes_, place_);
        const std::string micro_batches_text = count ? micro_batches_lines(*count) : "";
        check_group_size(
            flags_, sizes_.ranks, sizes_.chunks, sizes_.replicas ? count : std::nullopt, place_);
        std::string text =
            fmt::format("[pipeline]\nstages = {}\nchunks = {}\nschedule = \"{}\"\n",
                        sizes_.ranks,
                        sizes_.chunks,
                        to_string(sizes_.chunks > 1           ? ScheduleKind::Interleaved1F1B
                                  : flags_.all_forwards_first ? ScheduleKind::GPipe
                                                              : ScheduleKind::OneFOneB));
        if (sizes_.chunks > 1 && flags_.group_size) {
            text += fmt::format("group_size = {}\n", *flags_.group_size);
        }
        text += micro_batches_text;
        const RecomputeWord recompute = megatron_recompute(flags_, place_);
        text += recompute_lines(recompute.word, recompute.blocks);
        if (recompute.only > 0) {
            text += fmt::format("recompute_only = {}\n", recompute.only);
        }
        if (!recompute.modules.empty()) {
            text += fmt::format("recompute_modules = [\"{}\"]\n",
                                fmt::join(recompute.modules, "\", \""));
        }
        if (!recompute.left_out.empty()) {
            warn(recompute.left_out);
        }
        text += offload_lines();
        if (flags_.tensor_size) {
            text += fmt::format("tensor_parallel = {}\n", *flags_.tensor_size);
        }
        text += division_lines(flags_);
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
        if (sizes_.shard_group) {
            text += fmt::format("shard_group = {}\n", *sizes_.shard_group);
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

    /// `count`: micro-batches of a pipeline, or of all where the replicas are not known.
    std::string micro_batches_lines(std::int64_t count) {
        warn(group_warning(flags_, sizes_, count));
        if (sizes_.replicas) {
            return fmt::format("micro_batches = {}\ndata_parallel = {}\n", count, *sizes_.replicas);
        }
        notes_.push_back(fmt::format(
            "one replica: the flags do not say how many GPUs there are; where each of N replicas "
            "has {}, set pipeline.data_parallel = N and pipeline.micro_batches = {} / N",
            counted(std::int64_t{sizes_.ranks} * flags_.tensor_size.value_or(1) *
                        flags_.context_size.value_or(1),
                    "GPU"),
            count));
        return fmt::format(
            "# {} in all; with data_parallel = N a pipeline has an N-th of them\n"
            "micro_batches = {}\n",
            count,
            count);
    }

    std::string partition_line() const {
        const std::vector<int> counts = megatron_stage_blocks(flags_, sizes_, place_);
        if (counts.empty()) {
            return {};
        }
        return fmt::format(
            "# whole blocks, {} in all; embedding and head go with the ends\n"
            "partition = [{}]\n",
            std::accumulate(counts.begin(), counts.end(), 0),
            fmt::join(counts, ", "));
    }

    // --- [cluster] ---

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
            if (const int domain = nvlink_domain(options_.hf.device.value_or(""));
                domain > *flags_.per_node && domain % *flags_.per_node == 0) {
                text += fmt::format("nvlink_domain = {}\n", domain);
            }
        }
        return text.empty() ? text : "[cluster]\n" + text;
    }

    const MegatronFlags& flags_;
    const ImportOptions& options_;
    std::vector<std::string> left_out_ = flags_.left_out;
    CoreAttention attention_ = megatron_attention(flags_);
    std::string place_;
    MegatronSizes sizes_;
    std::optional<std::int64_t> parameters_;
    std::optional<std::string> profile_;
    std::vector<std::string> notes_;
};

}  // namespace

Imported megatron_fragment(const MegatronFlags& flags,
                           const ImportOptions& options,
                           const std::string& place) {
    return FlagsImport(flags, options, place).imported();
}

void expect_flag_options(const ImportOptions& options) {
    const auto refuse_option = [](std::string_view option, std::string why) {
        throw Error(ErrorKind::Usage, std::string(option), std::move(why), "leave it out");
    };
    if (options.chunks) {
        refuse_option("--chunks", "the file already says the number of stages per rank");
    }
    if (options.hf.sequence) {
        refuse_option("--sequence", "the file already says it");
    }
    if (options.hf.precision) {
        refuse_option("--precision", "the file already says it");
    }
    if (!options.hf.weights.empty() || !options.hf.calibration.empty()) {
        refuse_option(options.hf.weights.empty() ? "--calibrate" : "--weights",
                      "it belongs to 'import hf'");
    }
}

namespace {

/// Says which words a model has whose file names a tokenizer alone.
void note_words_of_tokenizer(MegatronFlags& flags) {
    if (flags.vocabulary || flags.padded_vocabulary) {
        return;
    }
    for (const std::optional<std::string>& name : {flags.tokenizer, flags.tokenizer_model}) {
        const std::optional<int> words = name ? tokenizer_words(*name) : std::nullopt;
        if (words && *name != "GPT2BPETokenizer") {
            flags.warnings.push_back(
                fmt::format("{} words, those of the tokenizer '{}': --vocabulary N changes this",
                            *words,
                            *name));
            return;
        }
        if (words) {
            return;
        }
    }
}

}  // namespace

void take_vocabulary(MegatronFlags& flags, const ImportOptions& options) {
    if (!options.vocabulary) {
        note_words_of_tokenizer(flags);
        return;
    }
    if (flags.vocabulary || flags.padded_vocabulary) {
        throw Error(ErrorKind::Usage,
                    "--vocabulary",
                    fmt::format("the file says the number of words, {}",
                                flags.padded_vocabulary.value_or(flags.vocabulary.value_or(0))),
                    "leave it out");
    }
    flags.vocabulary = options.vocabulary;
}

}  // namespace pipetwin::cli
