// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "cli/base/input.h"
#include "cli/base/output_file.h"
#include "cli/base/schedule_file.h"
#include "cli/commands/commands.h"
#include "cli/interop/exchange.h"
#include "cli/interop/import/importers.h"
#include "cli/interop/import/launch_tables.h"
#include "core/base/error.h"
#include "core/schedule/lower.h"
#include "core/schedule/schedule_csv.h"
#include "sim/questions/schedule_rows.h"

namespace pipetwin::cli {

namespace {

/// True if some stage's gradients would stay undivided in PyTorch.
bool lacks_a_reduction(const Schedule& schedule) {
    std::size_t reductions = 0;
    for (const auto& row : schedule.ranks) {
        reductions +=
            static_cast<std::size_t>(std::ranges::count(row, Op::ReduceGradient, &Action::op));
    }
    return has_communication(schedule) && !is_forward_only(schedule) &&
           reductions < schedule.rank_of_stage.size();
}

/// Refuses what `check` refuses, and messages that `check --one-queue-per-ranks` refuses; the file
/// itself stays as it is, with or without communication.
Imported torch_csv(const ImportOptions& options) {
    const Schedule schedule = read_schedule_file(options.file);
    const std::string place = input_name(options.file);
    if (has_communication(schedule)) {
        static_cast<void>(
            sim::runnable(schedule, sim::timing_of_files(), place, MessageQueues::PerRanks));
    }
    static_cast<void>(sim::runnable(schedule, sim::timing_of_files(), place));
    Imported imported{.content = print_schedule_csv(schedule), .result = {}};
    imported.result.ranks = schedule.rank_count();
    imported.result.stages = schedule.stage_count();
    imported.result.micro_batches = schedule.micro_batches;
    if (lacks_a_reduction(schedule)) {
        imported.notes.emplace_back(
            "not every stage has REDUCE_GRAD, where PyTorch divides gradients by the number of "
            "micro-batches: in PyTorch these rows train with gradients as many times too large; "
            "'pipetwin export torch-csv' adds it");
    }
    return imported;
}

/// One format, and which options mean something to it.
struct Importer {
    std::string_view name;
    Imported (*read)(const ImportOptions& options);
    bool chunks = false;
    bool micro_batch_size = false;
    bool hf = false;
    bool traces = false;   ///< a file per rank, with named ranges
    bool unknown = false;  ///< --ignore-unknown and --insist
};

constexpr std::array importers{
    Importer{.name = "torch-csv", .read = &torch_csv},
    Importer{
        .name = "megatron", .read = &import_megatron, .chunks = true, .hf = true, .unknown = true},
    Importer{.name = "torchtitan", .read = &import_torchtitan, .unknown = true},
    Importer{.name = "deepspeed", .read = &import_deepspeed, .unknown = true},
    Importer{.name = "csv", .read = &import_csv},
    Importer{.name = "hf", .read = &import_hf, .micro_batch_size = true, .hf = true},
    Importer{.name = "pipedream", .read = &import_pipedream, .micro_batch_size = true},
    Importer{.name = "torch-trace",
             .read = &import_torch_trace,
             .micro_batch_size = true,
             .traces = true},
    Importer{.name = "nsys", .read = &import_torch_trace, .micro_batch_size = true, .traces = true},
    Importer{.name = "chrome-trace", .read = &import_chrome_trace, .micro_batch_size = true},
};

constexpr auto names = [] {
    std::array<std::string_view, importers.size()> all;
    std::ranges::transform(importers, all.begin(), &Importer::name);
    return all;
}();

/// Throws Error(Usage) for an option that means nothing to the format.
void expect_options(const Importer& importer, const ImportOptions& options) {
    const auto refuse = [](std::string_view option, std::string why) {
        throw Error(ErrorKind::Usage, std::string(option), std::move(why), "leave it out");
    };
    if (options.chunks && !importer.chunks) {
        refuse("--chunks",
               fmt::format("a file of format '{}' says itself which rank holds which stage",
                           importer.name));
    }
    if (!options.hf.given().empty() && !importer.hf) {
        refuse(options.hf.given(),
               fmt::format("a file of format '{}' has its costs, or none", importer.name));
    }
    if (options.micro_batch_size && !importer.micro_batch_size) {
        refuse("--micro-batch-size",
               fmt::format("format '{}' does not use a number of samples", importer.name));
    }
    if (!options.ranges.given().empty() && !importer.traces) {
        refuse(options.ranges.given(),
               fmt::format("a file of format '{}' has no named ranges", importer.name));
    }
    if ((options.ignore_unknown || options.insist) && !importer.unknown) {
        refuse(options.insist ? "--insist" : "--ignore-unknown",
               fmt::format("'import {}' understands a file or refuses it", importer.name));
    }
    if (!options.more_files.empty() && !importer.traces) {
        refuse(options.more_files.front().string(),
               fmt::format("'import {}' reads one file, but {} is given, too",
                           importer.name,
                           input_name(options.file)));
    }
}

}  // namespace

int required_micro_batch_size(const ImportOptions& options, std::string why) {
    if (!options.micro_batch_size) {
        throw Error(ErrorKind::Usage,
                    "",
                    fmt::format("'import {}' needs --micro-batch-size N", options.format),
                    std::move(why));
    }
    return *options.micro_batch_size;
}

void execute(const ImportOptions& options, Console& console) {
    const std::size_t index = format_index("import", options.format, options.file.string(), names);
    const Importer& importer = importers.at(index);
    expect_options(importer, options);
    require_free(options.common.out, options.common.force);
    Imported imported = importer.read(options);
    write_output(options.common.out, imported.content, console);
    if (imported.profile) {
        const std::filesystem::path file = profile_beside(options.common.out);
        write_output(file, *imported.profile, console);
        imported.notes.push_back(fmt::format("the costs of the model are in {}", file.string()));
    }
    imported.result.format = options.format;
    imported.result.source = input_name(options.file);
    imported.result.out = options.common.out;
    for (const std::string& note : imported.notes) {
        console.note(note);
    }
    report(imported.result, options.common, console);
}

}  // namespace pipetwin::cli
