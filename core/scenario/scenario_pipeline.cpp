// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iterator>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule.h"
#include "core/schedule/schedule_csv.h"

/// [pipeline].
namespace pipetwin {

using std::string_view;

namespace {

constexpr Range stage_range{1, 4096};
constexpr Range micro_batch_range{1, 65'536};
constexpr Range micro_batches_or_none{0, micro_batch_range.high};
constexpr Range chunk_range{1, 64};
constexpr Range prefetch_range{0, 1000};

std::string generator_name(const TomlTable& table, const std::string& name) {
    try {
        return std::string(to_string(schedule_kind(name)));
    } catch (const Error& error) {
        throw error.about("pipeline.schedule")
            .placed(table.place("schedule"))
            .with_hint(name.starts_with('[') ? "a list has quotes: [\"1f1b\", \"zb-h1\"]"
                       : !error.advice().meant.empty()
                           ? error.advice()
                           : error.hint() + "; a file of your own ends in .csv");
    }
}

/// What the file says; a key that says something else is refused.
int as_in_file(const TomlTable& table, string_view key, Range range, int in_file) {
    if (!table.is_auto(key) && table.integer(key, range).value_or(in_file) != in_file) {
        table.refuse(
            key, fmt::format("{}", in_file), "the schedule file has that many; leave the key out");
    }
    return in_file;
}

/// Ranks, chunks and micro-batches are those of the user's own schedule.
void read_schedule_file(const TomlTable& table,
                        const std::filesystem::path& file,
                        Scenario::PipelinePart& pipeline) {
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) {
        throw Error(ErrorKind::Io,
                    table.place("schedule"),
                    fmt::format("there is no file {}", file.string()),
                    "check the name; a relative path starts at the folder of the scenario");
    }
    const Schedule schedule = read_schedule_csv(file);
    pipeline.schedule = file.string();
    pipeline.stages = as_in_file(table, "stages", stage_range, schedule.rank_count());
    pipeline.micro_batches =
        as_in_file(table, "micro_batches", micro_batch_range, schedule.micro_batches);
    pipeline.file_pieces = model_stage_count(schedule);
    const int chunks = std::max(1, pipeline.file_pieces / schedule.rank_count());
    pipeline.chunks = as_in_file(table, "chunks", chunk_range, chunks);
}

/// Our names of the schedules in a list, each of them once.
std::vector<std::string> read_schedule_list(const TomlTable& table) {
    constexpr string_view key = "schedule";
    const std::vector<std::string> names = table.texts(key).value();
    std::vector<std::string> schedules;
    for (const std::string& name : names) {
        if (is_schedule_file(name)) {
            table.refuse(key,
                         "names of schedules: the shape of a file is its own",
                         fmt::format("plan with the file alone: schedule = \"{}\"", name));
        }
        std::string known = generator_name(table, name);
        if (std::ranges::find(schedules, known) == schedules.end()) {
            schedules.push_back(std::move(known));
        }
    }
    if (schedules.empty()) {
        table.refuse(key, "at least one schedule", "schedule = \"auto\" tries all of them");
    }
    return schedules;
}

void read_schedule(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (!table.has(key.name)) {
        return;
    }
    if (table.is_list(key.name)) {
        pipeline.schedules = read_schedule_list(table);
        const bool is_open = pipeline.schedules.size() > 1;
        pipeline.schedule = is_open ? std::nullopt : std::optional(pipeline.schedules.front());
        return;
    }
    if (table.is_auto(key.name)) {
        pipeline.schedule = std::nullopt;
        return;
    }
    const std::string name = *table.text(key.name);
    if (is_schedule_file(name)) {
        read_schedule_file(table, resolve(scenario.file, name), pipeline);
    } else {
        pipeline.schedule = generator_name(table, name);
    }
}

void print_schedule(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (!pipeline.schedule && !pipeline.schedules.empty()) {
        writer.strings(key.name, pipeline.schedules);
        return;
    }
    writer.string(key.name, pipeline.schedule.value_or("auto"));
}

/// One mode for each piece of the model, of which there may be any number yet.
RecomputeRules read_recompute_list(const TomlTable& table, const Scenario::PipelinePart& pipeline) {
    const auto written = table.choices("recompute", words::recomputes).value();
    if (const std::optional<int> pieces = pipeline.pieces()) {
        require_mode_of_each_piece(written.size(), *pieces, table.place("recompute"));
    } else if (written.empty()) {
        table.refuse("recompute", "one entry per stage");
    }
    std::vector<Recompute> modes;
    for (const std::size_t word : written) {
        modes.push_back(static_cast<Recompute>(word));
    }
    return RecomputeRules(std::move(modes));
}

void read_recompute(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (table.has(key.name)) {
        pipeline.recompute_auto = table.is_auto(key.name);
    }
    if (pipeline.recompute_auto) {
        return;
    }
    if (table.is_list(key.name)) {
        pipeline.recompute = read_recompute_list(table, pipeline);
    } else if (const auto recompute = table.choice(key.name, key.words)) {
        const bool of_stages = *recompute < words::recomputes.size();
        pipeline.recompute = of_stages ? static_cast<Recompute>(*recompute) : Recompute::None;
        pipeline.layer_recompute =
            of_stages ? LayerRecompute::None
                      : static_cast<LayerRecompute>(1 + *recompute - words::recomputes.size());
    } else if (pipeline.schedule) {
        pipeline.recompute = schedule_traits(*pipeline.schedule).recompute;
    }
}

void print_recompute(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (pipeline.recompute_auto) {
        writer.string(key.name, "auto");
    } else if (pipeline.layer_recompute != LayerRecompute::None) {
        writer.string(key.name, to_string(pipeline.layer_recompute));
    } else if (pipeline.recompute && pipeline.recompute->everywhere()) {
        writer.string(key.name, to_string(*pipeline.recompute));
    } else if (pipeline.recompute) {
        std::vector<std::string> modes;
        std::ranges::transform(pipeline.recompute->modes(),
                               std::back_inserter(modes),
                               [](Recompute mode) { return std::string(to_string(mode)); });
        writer.strings(key.name, modes);
    }
}

/// Where it is not written, the default of a schedule that is known; else it follows the schedule.
void read_recompute_timing(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (const auto timing = table.choice(key.name, key.words)) {
        pipeline.recompute_timing = static_cast<RecomputeTiming>(*timing);
    } else if (pipeline.schedule) {
        pipeline.recompute_timing = schedule_traits(*pipeline.schedule).recompute_timing;
    }
}

void print_recompute_timing(const ScenarioKey& key,
                            ScenarioWriter& writer,
                            const Scenario& scenario) {
    if (scenario.pipeline.recompute_timing) {
        writer.string(key.name, to_string(*scenario.pipeline.recompute_timing));
    }
}

void refuse_groups_of_nothing(const TomlTable& table, const Scenario& scenario) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (pipeline.recompute_blocks > 1 && pipeline.layer_recompute != LayerRecompute::Block) {
        table.refuse("recompute_blocks",
                     "1 where no blocks are recomputed",
                     "set recompute = \"block\", or recompute_blocks = 1");
    }
}

void read_partition(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    if (!table.is_auto(key.name)) {
        scenario.pipeline.partition = table.integers(key.name, key.range);
    }
}

void print_partition(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (scenario.pipeline.partition) {
        writer.list(key.name, *scenario.pipeline.partition);
    } else {
        writer.string(key.name, "auto");
    }
}

/// The old word for `shard = "optimizer"`: it cannot say something else than the new one.
void read_shard_optimizer(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    const std::optional<bool> written = table.boolean(key.name);
    if (!written) {
        return;
    }
    const Shard meant = *written ? Shard::Optimizer : Shard::None;
    Scenario::PipelinePart& pipeline = scenario.pipeline;
    const std::string_view said = pipeline.shard_auto ? "auto" : to_string(pipeline.shard);
    if (table.has("shard") && said != to_string(meant)) {
        table.refuse(key.name,
                     fmt::format("what shard says, \"{}\"", said),
                     "shard_optimizer is the old word for shard = \"optimizer\": leave it out");
    }
    pipeline.shard = meant;
    pipeline.shard_auto = false;
    pipeline.shard_up_to = Shard::Weights;
}

using Pipeline = Scenario::PipelinePart;

/// Reads a key that may be "auto": `is_auto` says so. Else `read` reads what is written.
template <auto is_auto>
void read_or_auto(const ScenarioKey& key,
                  const TomlTable& table,
                  Scenario& scenario,
                  ScenarioKey::Read read) {
    if (table.has(key.name)) {
        scenario.pipeline.*is_auto = table.is_auto(key.name);
    }
    if (!(scenario.pipeline.*is_auto)) {
        read(key, table, scenario);
    }
}

/// Prints a key that may be "auto"; `print` prints its value where it is not.
template <auto is_auto>
void print_or_auto(const ScenarioKey& key,
                   ScenarioWriter& writer,
                   const Scenario& scenario,
                   ScenarioKey::Print print) {
    if (scenario.pipeline.*is_auto) {
        writer.string(key.name, "auto");
    } else {
        print(key, writer, scenario);
    }
}

/// A key that is true, false or "auto".
template <auto member, auto is_auto>
constexpr ScenarioKey boolean_or_auto(string_view name) {
    return {.name = name,
            .read =
                [](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
                    read_or_auto<is_auto>(
                        key, table, scenario, keys::boolean<member>(key.name).read);
                },
            .print =
                [](const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
                    print_or_auto<is_auto>(
                        key, writer, scenario, keys::boolean<member>(key.name).print);
                }};
}

/// Reads a word, or "auto", which leaves all words open.
void read_shard(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    if (table.has(key.name)) {
        scenario.pipeline.shard_up_to = Shard::Weights;
    }
    read_or_auto<&Pipeline::shard_auto>(
        key, table, scenario, keys::choice<&Pipeline::shard>(key.name, key.words).read);
}

void print_shard(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    print_or_auto<&Pipeline::shard_auto>(
        key, writer, scenario, keys::choice<&Pipeline::shard>(key.name, key.words).print);
}

constexpr std::array<ScenarioKey, 24> keys_of_pipeline{{
    keys::planned<&Pipeline::stages>("stages", stage_range),
    keys::planned<&Pipeline::micro_batches>("micro_batches", micro_batch_range),
    // A file says what the keys before it say, and has the last word.
    keys::own("schedule", read_schedule, print_schedule).read_after("chunks"),
    keys::planned<&Pipeline::chunks>("chunks", chunk_range),
    keys::integer<&Pipeline::group_size>("group_size", micro_batches_or_none),
    keys::integer<&Pipeline::deferred_weights>("deferred_weights", micro_batches_or_none),
    keys::choice<&Pipeline::message_order>("message_order", words::message_orders),
    keys::choice<&Pipeline::receives>("receives", words::receives),
    {.name = "recompute",
     .read = read_recompute,
     .print = print_recompute,
     .words = words::all_recomputes},
    keys::integer<&Pipeline::recompute_blocks>("recompute_blocks", {1, layer_range.high})
        .checked_by(refuse_groups_of_nothing),
    keys::boolean<&Pipeline::recompute_early_stop>("recompute_early_stop"),
    {.name = "recompute_timing",
     .read = read_recompute_timing,
     .print = print_recompute_timing,
     .words = words::recompute_timings},
    keys::choice<&Pipeline::offload>("offload", words::offloads),
    {.name = "partition",
     .read = read_partition,
     .print = print_partition,
     .range = {0, layer_range.high}},
    keys::planned<&Pipeline::channel_capacity>("channel_capacity", micro_batches_or_none),
    keys::planned<&Pipeline::data_parallel>("data_parallel", stage_range),
    keys::choice<&Pipeline::all_reduce>("all_reduce", words::all_reduces),
    keys::boolean<&Pipeline::overlap_reduction>("overlap_reduction"),
    {.name = "shard", .read = read_shard, .print = print_shard, .words = words::shards},
    keys::own("shard_optimizer", read_shard_optimizer, nullptr),
    keys::integer<&Pipeline::prefetch>("prefetch", prefetch_range),
    keys::planned<&Pipeline::tensor_parallel>("tensor_parallel", stage_range),
    boolean_or_auto<&Pipeline::sequence_parallel, &Pipeline::sequence_parallel_auto>(
        "sequence_parallel"),
    boolean_or_auto<&Pipeline::scatter_boundaries, &Pipeline::scatter_boundaries_auto>(
        "scatter_boundaries"),
}};

}  // namespace

std::span<const ScenarioKey> pipeline_keys() {
    return keys_of_pipeline;
}

}  // namespace pipetwin
