#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands/commands.h"
#include "cli/exchange.h"
#include "cli/importers/importers.h"
#include "cli/input.h"
#include "cli/schedule_source.h"
#include "core/error.h"
#include "core/formats/json_text.h"
#include "core/formats/megatron_layout.h"
#include "core/formats/schedule_csv.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_layout_file = std::size_t{1} << 20;

/// Refuses what `check` refuses; the file itself stays as it is, with or without communication.
Imported torch_csv(const ImportOptions& options) {
    const Schedule schedule = read_schedule_file(options.file);
    static_cast<void>(runnable(schedule, RecomputeTiming::Eager, input_name(options.file)));
    Imported imported{.content = print_schedule_csv(schedule), .result = {}};
    imported.result.ranks = schedule.rank_count();
    imported.result.stages = schedule.stage_count();
    imported.result.micro_batches = schedule.micro_batches;
    return imported;
}

/// What the numbers of the partition count, for whoever reads the fragment.
std::string unit_words(const LayoutPartition& partition) {
    switch (partition.unit) {
        case LayoutUnit::Blocks:
            return fmt::format("whole blocks of a gpt with layers = {}", partition.decoder_layers);
        case LayoutUnit::GptUnits:
            return fmt::format(
                "units of a gpt with layers = {}: embedding, two halves of each "
                "block, head",
                partition.decoder_layers);
        case LayoutUnit::AllLayers:
            return "layers one by one, E and m and L among them: for a model of kind \"profile\" "
                   "or \"layers\", since a gpt has no m";
    }
    PIPETWIN_EXPECT(false, "unit of a layout out of range");
}

int ranks_of(const MegatronLayout& layout, const ImportOptions& options) {
    const auto stages = static_cast<int>(layout.stages.size());
    const int chunks = options.chunks.value_or(1);
    if (stages % chunks != 0) {
        throw Error(ErrorKind::Infeasible,
                    input_name(options.file),
                    fmt::format("{} stages are not a multiple of {} chunks", stages, chunks),
                    "--chunks is what Megatron calls the virtual pipeline size");
    }
    return stages / chunks;
}

Imported megatron(const ImportOptions& options) {
    const std::string place = input_name(options.file);
    const MegatronLayout layout =
        parse_megatron_layout(read_input(options.file, largest_layout_file), place);
    const int ranks = ranks_of(layout, options);
    LayoutPartition partition;
    try {
        partition = layout_partition(layout);
    } catch (const Error& error) {
        throw error.at(place);
    }
    Imported imported;
    imported.content = fmt::format(
        "# Megatron's pipeline layout {}\n# partition counts {}\n[pipeline]\nstages = {}\nchunks = "
        "{}\npartition = [{}]\n",
        print_megatron_layout(layout),
        unit_words(partition),
        ranks,
        options.chunks.value_or(1),
        fmt::join(partition.sizes, ", "));
    imported.result.ranks = ranks;
    imported.result.stages = static_cast<int>(layout.stages.size());
    return imported;
}

/// One format, and which options mean something to it.
struct Importer {
    std::string_view name;
    Imported (*read)(const ImportOptions& options);
    bool chunks = false;
    bool micro_batch_size = false;
    bool hf = false;
    bool several_files = false;
};

constexpr std::array importers{
    Importer{.name = "torch-csv", .read = &torch_csv},
    Importer{.name = "megatron", .read = &megatron, .chunks = true},
    Importer{.name = "csv", .read = &import_csv},
    Importer{.name = "hf", .read = &import_hf, .micro_batch_size = true, .hf = true},
    Importer{.name = "pipedream", .read = &import_pipedream, .micro_batch_size = true},
    Importer{.name = "torch-trace",
             .read = &import_torch_trace,
             .micro_batch_size = true,
             .several_files = true},
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
               fmt::format("format '{}' has no use for a number of samples", importer.name));
    }
    if (!options.more_files.empty() && !importer.several_files) {
        refuse(options.more_files.front().string(),
               fmt::format("'import {}' reads one file, and {} was given before",
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
    const std::size_t index =
        format_index(options.format, {.command = "import", .built = names, .later = {}});
    const Importer& importer = importers.at(index);
    expect_options(importer, options);
    require_free(options.common.out, options.common.force);
    Imported imported = importer.read(options);
    write_file(options.common.out, imported.content);
    imported.result.format = options.format;
    imported.result.source = input_name(options.file);
    imported.result.out = options.common.out;
    for (const std::string& note : imported.notes) {
        console.note(note);
    }
    report(imported.result, options.common, console);
}

}  // namespace pipetwin::cli
