// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/word_list.h"
#include "core/costs/layer_division.h"
#include "core/interop/launch/log_lines.h"
#include "core/interop/launch/maxtext_settings.h"
#include "core/interop/launch/training_run.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin {

namespace {

constexpr std::int64_t most_samples_of_maxtext = 1 << 30;
constexpr int most_devices = 1 << 22;

struct NamedModel {
    std::string_view theirs;
    std::string_view ours;  ///< in profiles/models
};

/// MaxText's names (src/maxtext/configs/models) of models that come with this program.
constexpr auto maxtext_models = std::to_array<NamedModel>({
    {"llama2-7b", "llama-2-7b"},
    {"llama2-13b", "llama-2-13b"},
    {"llama2-70b", "llama-2-70b"},
    {"llama3-8b", "llama-3-8b"},
    {"llama3-70b", "llama-3-70b"},
    {"llama3-405b", "llama-3.1-405b"},
    {"llama3.1-8b", "llama-3.1-8b"},
    {"llama3.1-70b", "llama-3.1-70b"},
    {"llama3.1-405b", "llama-3.1-405b"},
    {"llama3.3-70b", "llama-3.1-70b"},
    {"mistral-7b", "mistral-7b"},
    {"mixtral-8x7b", "mixtral-8x7b"},
    {"mixtral-8x22b", "mixtral-8x22b"},
    {"qwen2.5-7b", "qwen2.5-7b"},
    {"qwen2.5-14b", "qwen2.5-14b"},
    {"qwen3-8b", "qwen3-8b"},
    {"qwen3-30b-a3b", "qwen3-30b-a3b"},
    {"qwen3-235b-a22b", "qwen3-235b-a22b"},
});

bool means_nothing(std::string_view text) {
    const std::string lower = lower_case(text);
    return lower.empty() || lower == "none" || lower == "null" || lower == "[]" || lower == "{}" ||
           lower == "''" || lower == "\"\"";
}

std::optional<double> real_in(std::string_view text) {
    double number = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    return status == std::errc{} && end == text.data() + text.size() ? std::optional(number)
                                                                     : std::nullopt;
}

/// Whether two values mean the same: 12 and 12.0, True and true, None and nothing.
bool is_same_value(std::string_view a, std::string_view b) {
    const std::optional<double> first = real_in(a);
    const std::optional<double> second = real_in(b);
    return (first && second && *first == *second) || lower_case(a) == lower_case(b) ||
           (means_nothing(a) && means_nothing(b));
}

/// A value as files have it: MaxText prints "OptimizerType.ADAMW" for adamw.
std::string plain_value(std::string_view printed) {
    const std::size_t dot = printed.find('.');
    const bool is_word = dot != std::string_view::npos && !printed.empty() &&
                         printed.front() >= 'A' && printed.front() <= 'Z' &&
                         printed.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789",
                                                   dot + 1) == std::string_view::npos;
    return is_word ? lower_case(printed.substr(dot + 1)) : std::string(printed);
}

bool is_harmless(std::string_view name) {
    return has_word(harmless_maxtext, name) || has_word(maxtext_derived, name);
}

/// The value of a setting with which it changes nothing; none: every one changes the run.
std::optional<std::string_view> neutral_value(std::string_view name) {
    for (const std::string_view word : words_in(maxtext_defaults)) {
        const std::size_t equal = word.find('=');
        if (word.substr(0, equal) == name) {
            return word.substr(equal + 1);
        }
    }
    return std::nullopt;
}

/// Whether MaxText's model of this name has no experts (src/maxtext/configs/models).
bool is_dense_model(std::string_view name) {
    constexpr std::string_view begins =
        "llama2- llama3 mistral- gemma- gemma2- gemma3- gpt3- qwen2.5- qwen3-0.6b qwen3-1.7b "
        "qwen3-4b qwen3-8b qwen3-14b qwen3-32b gemma4-31b";
    return std::ranges::any_of(words_in(begins),
                               [name](std::string_view begin) { return name.starts_with(begin); });
}

/// Reads a configuration of MaxText; one object for each.
class MaxtextReader {
  public:
    MaxtextReader(const LaunchFile& file, LeaveOut leave_out)
        : file_(file), reader_(file), leave_out_(leave_out) {}

    TrainingRun read() {
        read_model();
        read_axes();
        read_batch();
        read_numbers();
        read_experts();
        read_recompute();
        expect_plain_run();
        reader_.finish(harmless_maxtext, leave_out_, run_);
        return std::move(run_);
    }

  private:
    // --- The model. ---

    void read_model() {
        run_.model = reader_.text("model_name").value_or("default");
        const auto* const known =
            std::ranges::find(maxtext_models, run_.model, &NamedModel::theirs);
        run_.shipped_model = known == maxtext_models.end() ? "" : std::string(known->ours);
        is_dense_ = is_dense_model(run_.model);
        const bool overrides = reader_.answer("override_model_config").value_or(false);
        for (const std::string_view size : words_in(maxtext_of_model)) {
            if (!reader_.has(size)) {
                continue;
            }
            if (overrides) {
                reader_.problem(size, "it changes the model of that name");
                run_.shipped_model.clear();
                is_dense_ = false;
            } else {
                reader_.texts(size);  // as the model of that name has it
            }
        }
    }

    // --- How devices share the work. ---

    /// Devices along an axis, inside of a slice and over all of them; -1 stands for those that are
    /// left, which come to the axis when the others are known.
    std::int64_t degree(std::string_view axis, int inside, int over) {
        std::int64_t devices = 1;
        for (const auto& [prefix, otherwise] : {std::pair("ici", inside), std::pair("dcn", over)}) {
            const std::string key = fmt::format("{}_{}_parallelism", prefix, axis);
            const int written = reader_.whole(key, -1).value_or(otherwise);
            if (written == 0 || written > most_devices) {
                reader_.infeasible(
                    key,
                    fmt::format("{} = {}, expected -1 or 1 to {}", key, written, most_devices),
                    "-1 is what is left of the devices");
            }
            if (written == -1 && (open_axis_.empty() || prefix == std::string_view("ici"))) {
                open_axis_ = axis;  // of several the one inside of a slice, as for one slice
            }
            devices *= std::max(1, written);
        }
        written_ *= devices;
        if (written_ > most_devices) {
            reader_.infeasible(
                fmt::format("ici_{}_parallelism", axis),
                fmt::format("{} devices, expected at most {}", written_, most_devices),
                "is there a digit too many?");
        }
        return devices;
    }

    void read_axes() {
        std::int64_t data = degree("data", 1, -1);
        std::int64_t fsdp = degree("fsdp", -1, 1) * degree("fsdp_transpose", 1, 1);
        std::int64_t expert = degree("expert", 1, 1);
        std::int64_t sequence = degree("tensor_sequence", 1, 1);
        std::int64_t tensor = sequence * degree("tensor", 1, 1) * degree("tensor_transpose", 1, 1);
        std::int64_t context = degree("context_usp_ulysses", 1, 1) * degree("context", 1, 1) *
                               degree("sequence", 1, 1);
        std::int64_t stages = degree("pipeline", 1, 1);
        for (const std::string_view axis : {"diloco", "autoregressive", "context_autoregressive"}) {
            if (degree(axis, 1, 1) != 1 || open_axis_ == axis) {
                reader_.problem(
                    fmt::format(
                        "{}_{}_parallelism",
                        reader_.has(fmt::format("ici_{}_parallelism", axis)) ? "ici" : "dcn",
                        axis),
                    "devices share the work in a way that no scenario says");
            }
        }
        const std::int64_t left = left_devices();
        const bool is_data_open = open_axis_ == "data";
        (is_data_open                                                    ? data
         : open_axis_ == "expert"                                        ? expert
         : open_axis_ == "pipeline"                                      ? stages
         : open_axis_.starts_with("tensor")                              ? tensor
         : open_axis_.starts_with("context") || open_axis_ == "sequence" ? context
                                                                         : fsdp) *= left;
        sequence *= open_axis_ == "tensor_sequence" ? left : 1;
        run_.stages = static_cast<int>(stages);
        run_.data_parallel = static_cast<int>(data * fsdp * expert);
        run_.tensor_parallel = static_cast<int>(tensor);
        run_.sequence_parallel = sequence > 1;
        devices_ = written_ * left;
        if (expert > 1) {
            run_.expert_parallel = static_cast<int>(expert);
            run_.expert_tensor_parallel = static_cast<int>(tensor);
        }
        if (context > 1) {
            run_.context_parallel = static_cast<int>(context);
        }
        read_context_method(context > 1);
        const bool shards_states =
            reader_.answer("shard_optimizer_over_data").value_or(false) && data > 1;
        if (fsdp * expert * context > 1) {
            run_.shard = "weights";
            if (data > 1 || (is_data_open && run_.has_open_devices)) {
                run_.shard_group = static_cast<int>(fsdp * expert);
            }
        } else if (shards_states) {
            run_.shard = "optimizer";
        }
        read_pipeline();
    }

    /// How many times as many devices there are as the written degrees have together.
    std::int64_t left_devices() {
        if (open_axis_.empty()) {
            return 1;
        }
        if (!file_.all_processes) {
            run_.has_open_devices = true;
            run_.warnings.push_back(fmt::format(
                "{}_parallelism is -1, all devices that are left, and nothing says how many there "
                "are: the fragment has one; --devices N says it",
                open_axis_));
            return 1;
        }
        if (*file_.all_processes % written_ != 0) {
            reader_.infeasible(
                fmt::format("ici_{}_parallelism", open_axis_),
                fmt::format("{} cannot be shared out to the {} of the written degrees",
                            counted(*file_.all_processes, "device"),
                            written_),
                "compare the degrees with the number of devices");
        }
        return *file_.all_processes / written_;
    }

    void read_context_method(bool divides) {
        const std::string method =
            reader_.word("context_parallel_strategy", "all_gather ring ulysses usp")
                .value_or("all_gather");
        if (!divides) {
            return;
        }
        run_.context_method = to_string(method == "ring"      ? ContextMethod::Ring
                                        : method == "ulysses" ? ContextMethod::AllToAll
                                                              : ContextMethod::AllGather);
        if (method == "usp") {
            reader_.problem("context_parallel_strategy",
                            "a ring of groups that share heads has devices that are not written");
        }
    }

    /// MaxText's pipeline computes all forwards, and then all backwards.
    void read_pipeline() {
        run_.schedule = to_string(*run_.stages > 1 ? ScheduleKind::GPipe : ScheduleKind::OneFOneB);
        const int rounds = reader_.whole("num_pipeline_repeats", -1).value_or(-1);
        const int layers = reader_.whole("num_layers_per_pipeline_stage", 1).value_or(1);
        pipeline_parts_ = reader_.whole("num_pipeline_microbatches", -1).value_or(-1);
        if (*run_.stages == 1) {
            return;
        }
        // Without their number it follows from the layers of the model.
        const int all_layers = reader_.whole("base_num_decoder_layers", 1).value_or(0);
        const bool is_one = rounds == 1 || (rounds == -1 && all_layers == *run_.stages * layers);
        if (!is_one) {
            reader_.problem(
                reader_.has("num_pipeline_repeats") ? "num_pipeline_repeats"
                                                    : "num_layers_per_pipeline_stage",
                rounds > 1 ? "micro-batches go around the stages several times, all forwards first"
                           : "how often micro-batches go around the stages is not said: write "
                             "num_pipeline_repeats = 1 where it is once");
        }
    }

    // --- Samples. ---

    void read_batch() {
        const double of_device = reader_.real("per_device_batch_size").value_or(12);
        const int accumulated = reader_.whole("gradient_accumulation_steps", 1).value_or(1);
        const double pass = of_device * static_cast<double>(devices_);
        const double batch = pass * accumulated;
        if (pass < 1 || pass != std::floor(pass) ||
            batch > static_cast<double>(most_samples_of_maxtext)) {
            reader_.infeasible(
                "per_device_batch_size",
                fmt::format("{} samples on each of {} are {}, expected a whole number up to {}",
                            of_device,
                            counted(devices_, "device"),
                            pass,
                            most_samples_of_maxtext),
                run_.has_open_devices ? "write the degrees that are -1"
                                      : "MaxText refuses a part of a sample, too");
        }
        run_.batch = static_cast<int>(batch);
        run_.micro_batches = accumulated;
        if (*run_.stages > 1) {
            if (accumulated > 1) {
                reader_.problem("gradient_accumulation_steps",
                                "passes through the pipeline are repeated before an update");
            }
            run_.micro_batches = pipeline_parts_ > 0 ? pipeline_parts_ : *run_.stages;
        }
        if (*run_.batch % (*run_.data_parallel * *run_.micro_batches) != 0) {
            reader_.infeasible("per_device_batch_size",
                               fmt::format("{} cannot be shared out to {} with {} each",
                                           counted(*run_.batch, "sample"),
                                           counted(*run_.data_parallel, "replica"),
                                           counted(*run_.micro_batches, "micro-batch")),
                               "take a per_device_batch_size that can be");
        }
        run_.sequence = reader_.whole("max_target_length", 1).value_or(2048);
    }

    // --- Numbers. ---

    void read_numbers() {
        const std::string type = reader_.word("dtype", "bfloat16 float32").value_or("bfloat16");
        const std::string weights =
            reader_.word("weight_dtype", "bfloat16 float32").value_or("float32");
        const std::string gradients =
            reader_.word("grad_dtype", "bfloat16 float32").value_or("float32");
        run_.precision = type == "bfloat16" ? "bf16" : "fp32";
        if (run_.precision == "bf16") {
            run_.gradients = gradients == "float32" ? "fp32" : "same";
        }
        const std::string moments = reader_.text("mu_dtype").value_or("");
        if (!means_nothing(moments) && moments != weights) {
            reader_.problem("mu_dtype", "one of the optimizer's moments has another width");
        }
        if (weights == "bfloat16" && run_.precision == "bf16") {
            run_.optimizer_state_bytes = 4;  // two moments, and no weights in fp32
        }
        const std::string quantization = reader_.text("quantization").value_or("");
        // Experts that are computed as products with masks have those of the type, too
        // (src/maxtext/layers/moe.py, get_einsum); AMD's and Transformer Engine's have none for it.
        const bool is_of_masks = !is_dense_ && has_masks() && has_word("fp8 fp8_gpu", quantization);
        if (is_of_masks ||
            (is_dense_ && has_word("fp8 fp8_full fp8_gpu nanoo_fp8 te_fp8_delayedscaling "
                                   "te_fp8_currentscaling",
                                   quantization))) {
            run_.narrow = "fp8";
        } else if (!means_nothing(quantization)) {
            reader_.problem("quantization", "products in 8 bits take other time and memory");
        }
        run_.optimizer = "adamw";
        const std::string optimizer = reader_.text("opt_type").value_or("adamw");
        if (optimizer != "adamw" && optimizer != "adam_pax") {
            reader_.problem("opt_type", "keeps another state than Adam");
        }
        run_.clip_norm = reader_.real("gradient_clipping_threshold").value_or(1);
    }

    /// Whether experts take so many tokens at most, which are multiplied by masks to reach them.
    bool has_masks() { return !reader_.answer("sparse_matmul").value_or(true) && capacity() > 0; }

    double capacity() {
        const std::string text = reader_.text("capacity_factor").value_or("-1");
        const std::optional<double> factor = real_in(text);
        if (!factor) {
            throw Error(ErrorKind::BadInput,
                        reader_.place("capacity_factor"),
                        fmt::format("capacity_factor = '{}', expected a number", text),
                        "-1, the default, drops no token");
        }
        return *factor;
    }

    /// Experts as src/maxtext/layers/moe.py computes them.
    void read_experts() {
        const bool is_sparse = reader_.answer("sparse_matmul").value_or(true);
        const bool has_kernel = reader_.answer("megablox").value_or(true);
        const bool has_exchange = reader_.answer("moe_dispatch_no_expert_sharding").value_or(false);
        const double factor = capacity();
        if (is_dense_) {
            return;
        }
        if (is_sparse && !has_kernel) {
            run_.warnings.emplace_back(
                "megablox = false: the prediction computes the experts of a device in one grouped "
                "product; XLA's own (ragged_dot) may take longer");
        }
        if (is_sparse) {
            return;
        }
        if (factor <= 0) {
            reader_.problem("sparse_matmul", "every expert computes every token");
            return;
        }
        run_.expert_capacity = factor;
        run_.warnings.emplace_back(
            "sparse_matmul = false: the run multiplies tokens by masks to reach their experts, and "
            "to come back; the prediction sorts and sends rows, so a step is at least as long");
        if (run_.expert_parallel.value_or(1) > 1 && !has_exchange) {
            run_.warnings.emplace_back(
                "moe_dispatch_no_expert_sharding = false: XLA may gather experts where the "
                "prediction sends rows to them");
        }
    }

    /// MaxText keeps what its policies name (src/maxtext/layers/decoders.py, get_remat_policy).
    void read_recompute() {
        const std::string policy = reader_.text("remat_policy").value_or("full");
        run_.recompute = policy == "full" || policy == "none" ? "block" : "none";
        if (policy.find("offload") != std::string::npos || policy == "custom") {
            reader_.problem("remat_policy", "what is kept is chosen by name, or in host memory");
        } else if (policy == "none") {
            run_.warnings.emplace_back(
                "remat_policy = none keeps nothing but inputs of blocks in the versions that wrap "
                "blocks without a policy, as the fragment says; in others it keeps all: recompute "
                "= \"none\"");
        } else if (policy != "full") {
            run_.warnings.push_back(fmt::format(
                "remat_policy = {} keeps what products make and computes the rest again: the "
                "fragment says recompute = \"none\", which keeps all; \"block\" keeps less than "
                "the run",
                policy));
        }
    }

    void expect_plain_run() {
        const std::string attention = reader_.text("attention").value_or("autoselected");
        if (attention == "dot_product") {
            run_.warnings.emplace_back(
                "attention = dot_product stores all scores: estimate the costs with --attention "
                "standard");
        }
        run_.balances_experts = reader_.answer("use_random_routing").value_or(false);
        if (reader_.whole("num_vocab_tiling", 1).value_or(1) > 1) {
            run_.warnings.emplace_back(
                "num_vocab_tiling: the loss is computed in parts; the prediction has all logits at "
                "once, and the run needs less memory");
        }
        for (const Setting& setting : file_.settings) {
            const std::optional<std::string_view> neutral = neutral_value(setting.written);
            if (!neutral) {
                continue;
            }
            const std::string text = reader_.text(setting.written).value_or("");
            if (!is_same_value(text, *neutral)) {
                reader_.problem(setting.written,
                                fmt::format("a step computes or keeps something else than with {}",
                                            *neutral == "none" ? "nothing" : *neutral));
            }
        }
        // What is off, of a name that is not known, changes nothing.
        for (const Setting& setting : file_.settings) {
            if (file_.is_printed && has_word("false 0 -1 -1.0 0.0", lower_case(text_of(setting)))) {
                reader_.texts(setting.written);
            }
        }
        // MaxText prints its sharding rules with every configuration. A run with rules of its own
        // names their file in "custom_mesh_and_rule", which is judged above.
        for (const std::string_view rules : {"mesh_axes",
                                             "logical_axis_rules",
                                             "data_sharding",
                                             "input_data_sharding_logical_axes"}) {
            if (reader_.has(rules) && file_.is_printed) {
                reader_.texts(rules);
            } else if (reader_.has(rules)) {
                reader_.problem(rules, "devices share the work by rules of its own");
            }
        }
    }

    static std::string text_of(const Setting& setting) {
        return setting.values.empty() ? std::string() : setting.values.front().text;
    }

    const LaunchFile& file_;
    SettingReader reader_;
    LeaveOut leave_out_;
    TrainingRun run_{};
    bool is_dense_ = false;     ///< the model is known to have no experts
    std::string open_axis_{};   ///< that has -1 devices; empty: none
    std::int64_t written_ = 1;  ///< devices of all written degrees together
    std::int64_t devices_ = 1;
    int pipeline_parts_ = -1;
};

}  // namespace

TrainingRun maxtext_run(const LaunchFile& file, LeaveOut leave_out) {
    return MaxtextReader(file, leave_out).read();
}

LaunchFile parse_maxtext_log(std::string_view text, std::string_view place) {
    constexpr std::string_view mark = "Config param ";
    constexpr std::string_view all_devices = "Num_devices: ";
    LaunchFile file{.settings = {}, .is_printed = true};
    for_each_log_line(text, [&](std::string_view line, int number) {
        if (const std::size_t at = line.find(all_devices); at != std::string_view::npos) {
            const std::string_view rest = line.substr(at + all_devices.size());
            int devices = 0;
            std::from_chars(rest.data(), rest.data() + rest.size(), devices);
            file.all_processes = devices > 0 ? std::optional(devices) : file.all_processes;
        }
        const std::size_t at = line.find(mark);
        const std::size_t colon =
            at == std::string_view::npos ? at : line.find(':', at + mark.size());
        if (colon == std::string_view::npos) {
            return;
        }
        const std::string name(line.substr(at + mark.size(), colon - at - mark.size()));
        const std::string value = plain_value(trimmed_line(line.substr(colon + 1)));
        const std::string at_line = fmt::format("{}:{}", place, number);
        const auto known = std::ranges::find(file.settings, name, &Setting::written);
        if (known != file.settings.end()) {  // of another rank, or another start
            if (known->values.front().text != value && !is_harmless(name)) {
                throw Error(ErrorKind::BadInput,
                            at_line,
                            fmt::format("{} = {}, but {} in {}",
                                        name,
                                        value,
                                        known->values.front().text,
                                        known->place),
                            "cut the log, so that it has one run");
            }
            return;
        }
        file.settings.push_back({.name = name,
                                 .written = name,
                                 .place = at_line,
                                 .values = {{.text = value, .place = at_line}},
                                 .is_key = true});
    });
    const auto devices = std::ranges::find(file.settings, "num_target_devices", &Setting::written);
    if (devices != file.settings.end() && !file.all_processes) {
        file.all_processes = whole_value(*devices, 1);
    }
    std::erase_if(file.settings, [](const Setting& setting) {
        return means_nothing(setting.values.front().text) ||
               has_word(maxtext_derived, setting.written);
    });
    return file;
}

bool has_maxtext_log(std::string_view text) {
    return text.find("Config param ") != std::string_view::npos &&
           text.find("Config param per_device_batch_size:") != std::string_view::npos;
}

}  // namespace pipetwin
