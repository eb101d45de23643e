// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/input.h"
#include "cli/interop/import/importers.h"
#include "cli/interop/import/launch_tables.h"
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

/// The tables of a scenario; [model] is left to its user.
Imported tables_of(const TrainingRun& run, std::string_view origin) {
    std::string text =
        toml_comment(fmt::format("{}{}", origin, run.model.empty() ? "" : ", model " + run.model)) +
        left_out_comment(run.left_out);
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
    text += "[pipeline]\n" + line("stages", run.stages) + fmt::format("chunks = {}\n", run.chunks) +
            quoted_line("schedule", run.schedule) + line("micro_batches", run.micro_batches) +
            line("data_parallel", run.data_parallel) +
            recompute_lines(run.recompute, run.recompute_blocks) +
            (run.recompute_early_stop ? "recompute_early_stop = true\n" : "") +
            line("tensor_parallel", run.tensor_parallel);
    if (run.sequence_parallel) {
        text += "sequence_parallel = true\n";
    }
    text += quoted_line("shard", run.shard) + line("shard_group", run.shard_group) +
            line("prefetch", run.prefetch);
    if (!run.blocks.empty()) {
        text +=
            fmt::format("# whole blocks; embedding and head go with the ends\npartition = [{}]\n",
                        fmt::join(run.blocks, ", "));
    }
    Imported imported{.content = std::move(text), .result = {}};
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
    return tables_of(torchtitan_run(file, leave_out(options)), "torchtitan's configuration");
}

Imported import_deepspeed(const ImportOptions& options) {
    const std::string place = input_name(options.file);
    const std::string text = read_input(options.file, largest_config_file);
    expect_known_program(text, place);
    const LaunchFile file = parse_json_settings(text, place);
    return tables_of(deepspeed_run(file, leave_out(options)), "DeepSpeed's configuration");
}

}  // namespace pipetwin::cli
