#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/input.h"
#include "cli/interop/import/importers.h"
#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/interop/megatron_flags.h"
#include "core/interop/megatron_layout.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_layout_file = std::size_t{1} << 20;

/// The unit of the partition's numbers in words, for a reader of the fragment.
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

[[noreturn]] void refuse(const std::string& place, std::string what, std::string hint) {
    throw Error(ErrorKind::Infeasible, place, std::move(what), std::move(hint));
}

int ranks_of(const MegatronLayout& layout, int chunks, const std::string& place) {
    const auto stages = static_cast<int>(layout.stages.size());
    if (stages % chunks != 0) {
        refuse(place,
               fmt::format("{} stages are not a multiple of {} chunks", stages, chunks),
               "--chunks is what Megatron calls the virtual pipeline size");
    }
    return stages / chunks;
}

LayoutPartition partition_of(const MegatronLayout& layout, const std::string& place) {
    try {
        return layout_partition(layout);
    } catch (const Error& error) {
        throw error.at(place);
    }
}

/// The partition in units where it counts whole blocks, which a profile does not know; else empty.
std::string in_units(const LayoutPartition& partition) {
    if (partition.unit != LayoutUnit::Blocks) {
        return {};
    }
    std::vector<int> units;
    for (const int blocks : partition.sizes) {
        units.push_back(2 * blocks);
    }
    ++units.front();
    ++units.back();
    return fmt::format("# of a profile by 'import hf', which counts units: [{}]\n",
                       fmt::join(units, ", "));
}

Imported with_counts(std::string content, int ranks, int stages) {
    Imported imported{.content = std::move(content), .result = {}};
    imported.result.ranks = ranks;
    imported.result.stages = stages;
    return imported;
}

Imported import_layout(const MegatronLayout& layout, int chunks, const std::string& place) {
    const int ranks = ranks_of(layout, chunks, place);
    const LayoutPartition partition = partition_of(layout, place);
    return with_counts(
        fmt::format("# Megatron's pipeline layout {}\n# partition counts {}\n{}[pipeline]\n"
                    "stages = {}\nchunks = {}\npartition = [{}]\n",
                    print_megatron_layout(layout),
                    unit_words(partition),
                    in_units(partition),
                    ranks,
                    chunks,
                    fmt::join(partition.sizes, ", ")),
        ranks,
        static_cast<int>(layout.stages.size()));
}

// --- Flags. ---

/// Stages per rank, as any of three flags says it.
int chunks_of(const MegatronFlags& flags, int ranks, const std::string& place) {
    if (flags.layout) {
        const auto stages = static_cast<int>(flags.layout->stages.size());
        if (stages % ranks != 0) {
            refuse(place,
                   fmt::format("a layout of {} stages on {} ranks", stages, ranks),
                   "its stages have to be a multiple of --pipeline-model-parallel-size");
        }
        return stages / ranks;
    }
    if (flags.virtual_stages) {
        return *flags.virtual_stages;
    }
    if (!flags.virtual_stage_layers) {
        return 1;
    }
    const std::int64_t layers_per_round = std::int64_t{ranks} * *flags.virtual_stage_layers;
    if (!flags.layers || *flags.layers % layers_per_round != 0) {
        refuse(place,
               fmt::format("--num-layers-per-virtual-pipeline-stage {} on {} ranks needs "
                           "--num-layers, a multiple of {}",
                           *flags.virtual_stage_layers,
                           ranks,
                           layers_per_round),
               "");
    }
    return static_cast<int>(*flags.layers / layers_per_round);
}

/// Lines of the table [model], where the flags describe one.
std::string model_table(const MegatronFlags& flags) {
    if (!flags.layers || !flags.hidden_size || !flags.heads || !flags.sequence) {
        return {};
    }
    std::string text = fmt::format(
        "[model]\nkind = \"gpt\"\nlayers = {}\nd_model = {}\nheads = {}\ncontext = {}\n",
        *flags.layers,
        *flags.hidden_size,
        *flags.heads,
        *flags.sequence);
    if (flags.vocabulary) {
        text += fmt::format("vocabulary = {}\n", *flags.vocabulary);
    }
    if (flags.feed_forward) {
        text += fmt::format("feed_forward = {}\n", *flags.feed_forward);
    }
    return text;
}

std::string partition_lines(const MegatronFlags& flags, int pieces, const std::string& place) {
    if (flags.layout) {
        const LayoutPartition partition = partition_of(*flags.layout, place);
        return fmt::format("# partition counts {}\n{}partition = [{}]\n",
                           unit_words(partition),
                           in_units(partition),
                           fmt::join(partition.sizes, ", "));
    }
    if (!flags.layers) {
        return {};
    }
    if (*flags.layers % pieces != 0) {
        refuse(
            place,
            fmt::format("--num-layers {} cannot be shared out to {} stages", *flags.layers, pieces),
            "give a multiple, or --pipeline-model-parallel-layout");
    }
    const LayoutPartition partition{
        .unit = LayoutUnit::Blocks,
        .sizes = std::vector<int>(as_index(pieces), *flags.layers / pieces),
        .decoder_layers = *flags.layers};
    return fmt::format(
        "{}partition = [{}]\n", in_units(partition), fmt::join(partition.sizes, ", "));
}

/// Micro-batches of one replica: as many as there are, for one replica.
std::string micro_batches_line(const MegatronFlags& flags, const std::string& place) {
    if (!flags.global_batch_size || !flags.micro_batch_size) {
        return {};
    }
    const int batch = *flags.global_batch_size;
    const int size = *flags.micro_batch_size;
    if (batch % size != 0) {
        refuse(place,
               fmt::format(
                   "--global-batch-size {} is no multiple of --micro-batch-size {}", batch, size),
               "Megatron refuses this, too");
    }
    return fmt::format(
        "# {} in all; with data_parallel = N a pipeline has an N-th of them\nmicro_batches = {}\n",
        batch / size,
        batch / size);
}

Imported import_flags(const MegatronFlags& flags,
                      const ImportOptions& options,
                      const std::string& place) {
    if (options.chunks) {
        throw Error(ErrorKind::Usage,
                    "--chunks",
                    "the flags say themselves how many stages a rank holds",
                    "leave it out");
    }
    if (!flags.pipeline_size) {
        throw Error(ErrorKind::BadInput,
                    place,
                    "no --pipeline-model-parallel-size, expected how many ranks a pipeline has",
                    "for a layout alone leave all flags out: Et|tL");
    }
    const int ranks = *flags.pipeline_size;
    const int chunks = chunks_of(flags, ranks, place);
    std::string text = "# Megatron's flags\n";
    if (!flags.unused.empty()) {
        text += fmt::format("# not looked at: {}\n", fmt::join(flags.unused, " "));
    }
    text += model_table(flags);
    if (flags.global_batch_size) {
        text += fmt::format("[training]\nbatch = {}\n", *flags.global_batch_size);
    }
    text +=
        fmt::format("[pipeline]\nstages = {}\nchunks = {}\nschedule = \"{}\"\n",
                    ranks,
                    chunks,
                    to_string(chunks > 1 ? ScheduleKind::Interleaved1F1B : ScheduleKind::OneFOneB));
    text += micro_batches_line(flags, place);
    text += fmt::format("recompute = \"{}\"\n", flags.recompute_full ? "always" : "none");
    if (flags.tensor_size) {
        text += fmt::format("tensor_parallel = {}\n", *flags.tensor_size);
    }
    if (flags.shard_optimizer) {
        text += "shard_optimizer = true\n";
    }
    text += partition_lines(flags, ranks * chunks, place);
    Imported imported = with_counts(std::move(text), ranks, ranks * chunks);
    if (flags.recompute_selective) {
        imported.notes.emplace_back(
            "selective recompute has no word here: the fragment says recompute = \"none\", which "
            "keeps more and recomputes nothing");
    }
    return imported;
}

}  // namespace

Imported import_megatron(const ImportOptions& options) {
    const std::string place = input_name(options.file);
    const std::string text = read_input(options.file, largest_layout_file);
    return are_megatron_flags(text)
               ? import_flags(parse_megatron_flags(text, place), options, place)
               : import_layout(
                     parse_megatron_layout(text, place), options.chunks.value_or(1), place);
}

}  // namespace pipetwin::cli
