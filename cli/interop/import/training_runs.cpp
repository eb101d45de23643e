// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/input.h"
#include "cli/interop/import/importers.h"
#include "cli/interop/import/launch_tables.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_choice.h"
#include "core/interop/launch/table_settings.h"
#include "core/interop/launch/training_run.h"
#include "core/scenario/scenario_writer.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_config_file = std::size_t{1} << 20;

std::string line(std::string_view key, const std::optional<int>& value) {
    return value ? fmt::format("{} = {}\n", key, *value) : std::string();
}

std::string quoted_line(std::string_view key, const std::string& value) {
    return value.empty() ? std::string() : fmt::format("{} = {}\n", key, toml_string(value));
}

/// The stack that costs of the run are to have; empty: none. Says which, and what it does not know
/// of the run.
std::string stack_of_run(const TrainingRun& run,
                         const HfOptions& options,
                         std::string_view framework,
                         std::vector<std::string>& notes) {
    const std::string device = options.device.value_or("");
    const std::string precision = run.precision.empty() ? "bf16" : run.precision;
    std::string stack = chosen_stack(options.stack, framework, device, precision);
    const std::string where = device.empty() ? "" : fmt::format(" that knows {}", device);
    if (stack.empty() && !options.stack) {
        notes.push_back(
            fmt::format("no stack: there is none of {}{} in {}", framework, where, precision));
    }
    if (stack.empty()) {
        return stack;
    }
    const std::shared_ptr<const Stack> known = find_stack(stack, "--stack");
    if (!device.empty()) {
        expect_products(*known, device, precision, "--stack");
    }
    if (!options.stack) {
        notes.push_back(fmt::format(
            "stack {}, the newest of {}{}: costs of the model have to be estimated with --stack "
            "{}; --stack NAME changes this",
            stack,
            framework,
            where,
            stack));
    }
    if (run.compiles == false && known->kernels.blocks == BlockKernels::Compiled) {
        notes.push_back(
            fmt::format("warning: the file does not compile the model (compile.enable), and the "
                        "stack does: estimate its costs with --stack {} --kernels eager",
                        stack));
    }
    return stack;
}

/// The table [cluster]; empty where nothing is known of it.
std::string cluster_table(const TrainingRun& run,
                          const HfOptions& options,
                          std::string_view framework,
                          std::vector<std::string>& notes) {
    const std::string device =
        options.device ? find_device(*options.device, "--device").name : std::string();
    const std::string text = quoted_line("device", device) +
                             quoted_line("stack", stack_of_run(run, options, framework, notes));
    return text.empty() ? text : "[cluster]\n" + text;
}

/// The tables of a scenario; [model] is left to its user.
Imported tables_of(const TrainingRun& run,
                   std::string_view origin,
                   const HfOptions& options,
                   std::string_view framework) {
    std::string text =
        toml_comment(fmt::format("{}{}", origin, run.model.empty() ? "" : ", model " + run.model)) +
        left_out_comment(run.left_out);
    if (run.sequence) {
        text +=
            toml_comment(fmt::format("samples of {} tokens: costs of the model need --sequence {}",
                                     *run.sequence,
                                     *run.sequence));
    }
    if (!run.harmless.empty()) {
        text += toml_comment(
            fmt::format("without effect on a prediction: {}", fmt::join(run.harmless, " ")));
    }
    text += "[training]\n" + line("batch", run.batch) + quoted_line("precision", run.precision) +
            quoted_line("optimizer", run.optimizer);
    if (run.clip_norm && *run.clip_norm > 0) {
        text += fmt::format("clip_norm = {}\n", *run.clip_norm);
    }
    text += quoted_line("gradients", run.gradients);
    if (run.balances_experts) {
        text += "expert_load = \"balanced\"\n";
    }
    if (run.optimizer_state_bytes) {
        text += fmt::format("optimizer_state_bytes = {}\n", *run.optimizer_state_bytes);
    }
    text += "[pipeline]\n" + line("stages", run.stages) + fmt::format("chunks = {}\n", run.chunks) +
            quoted_line("schedule", run.schedule) + line("micro_batches", run.micro_batches) +
            line("data_parallel", run.data_parallel) +
            recompute_lines(run.recompute, run.recompute_blocks) +
            (run.recompute_early_stop ? "recompute_early_stop = true\n" : "") +
            line("tensor_parallel", run.tensor_parallel) +
            line("context_parallel", run.context_parallel) +
            quoted_line("context_method", run.context_method) +
            line("expert_parallel", run.expert_parallel) +
            line("expert_tensor_parallel", run.expert_tensor_parallel) +
            quoted_line("expert_dispatch", run.expert_dispatch);
    if (run.sequence_parallel) {
        text += "sequence_parallel = true\n";
    }
    if (run.tensor_overlap) {
        text += fmt::format("tensor_overlap = {}\n", *run.tensor_overlap);
    }
    text += quoted_line("shard", run.shard) + line("shard_group", run.shard_group) +
            line("prefetch", run.prefetch);
    if (!run.blocks.empty()) {
        text +=
            fmt::format("# whole blocks; embedding and head go with the ends\npartition = [{}]\n",
                        fmt::join(run.blocks, ", "));
    }
    std::vector<std::string> notes;
    text += cluster_table(run, options, framework, notes);
    Imported imported{.content = std::move(text), .result = {}, .notes = std::move(notes)};
    imported.result.ranks = run.stages.value_or(0);
    imported.result.stages = run.stages.value_or(0) * run.chunks;
    imported.result.micro_batches = run.micro_batches;
    imported.result.left_out = run.left_out;
    for (const std::string& warning : run.warnings) {
        imported.notes.push_back("warning: " + warning);
    }
    return imported;
}

}  // namespace

Imported import_torchtitan(const ImportOptions& options) {
    const std::string place = input_name(options.file);
    const std::string text = read_input(options.file, largest_config_file);
    expect_known_program(text, place);
    const LaunchFile file = parse_toml_settings(text, place);
    return tables_of(torchtitan_run(file, leave_out(options)),
                     "torchtitan's configuration",
                     options.hf,
                     "torchtitan");
}

Imported import_deepspeed(const ImportOptions& options) {
    const std::string place = input_name(options.file);
    const std::string text = read_input(options.file, largest_config_file);
    expect_known_program(text, place);
    const LaunchFile file = parse_json_settings(text, place);
    return tables_of(deepspeed_run(file, leave_out(options)),
                     "DeepSpeed's configuration",
                     options.hf,
                     "deepspeed");
}

}  // namespace pipetwin::cli
