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
#include "core/schedule/generators/schedule_traits.h"
#include "core/schedule/schedule.h"
#include "core/schedule/schedule_csv.h"

/// [pipeline].
namespace pipetwin {

using std::string_view;

namespace {

constexpr Range stage_range{1, largest_shape.ranks};
constexpr Range micro_batch_range{1, largest_shape.micro_batches};
constexpr Range micro_batches_or_none{0, micro_batch_range.high};
constexpr Range chunk_range{1, largest_shape.chunks};
constexpr Range prefetch_range{0, 1000};
constexpr Range replica_range{1, 1 << 17};

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
        std::vector<std::string> names = read_schedule_list(table);
        if (names.size() > 1) {
            pipeline.schedule.open(std::move(names));
        } else {
            pipeline.schedule = names.front();
        }
        return;
    }
    if (table.is_auto(key.name)) {
        pipeline.schedule.open();
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
    const OrAuto<std::string>& schedule = scenario.pipeline.schedule;
    if (!schedule.choices().empty()) {
        writer.strings(key.name, schedule.choices());
        return;
    }
    writer.string(key.name, schedule.value_or("auto"));
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
    if (table.is_auto(key.name)) {
        pipeline.recompute.open();
        return;
    }
    if (table.is_list(key.name)) {
        pipeline.recompute = read_recompute_list(table, pipeline);
    } else if (const auto recompute = table.or_auto().choice(key.name, key.words)) {
        const bool of_stages = *recompute < words::recomputes.size();
        pipeline.recompute = of_stages ? static_cast<Recompute>(*recompute) : Recompute::None;
        pipeline.layer_recompute =
            of_stages ? LayerRecompute::None
                      : static_cast<LayerRecompute>(1 + *recompute - words::recomputes.size());
    } else if (!pipeline.recompute.is_auto() && !pipeline.schedule.is_auto()) {
        pipeline.recompute = schedule_traits(*pipeline.schedule).recompute;
    }
}

void print_recompute(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (pipeline.recompute.is_auto()) {
        writer.string(key.name, "auto");
    } else if (pipeline.layer_recompute != LayerRecompute::None) {
        writer.string(key.name, to_string(pipeline.layer_recompute));
    } else if (pipeline.recompute->everywhere()) {
        writer.string(key.name, to_string(*pipeline.recompute));
    } else {
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
    } else if (!pipeline.schedule.is_auto()) {
        pipeline.recompute_timing = schedule_traits(*pipeline.schedule).recompute_timing;
    }
}

void print_recompute_timing(const ScenarioKey& key,
                            ScenarioWriter& writer,
                            const Scenario& scenario) {
    if (!scenario.pipeline.recompute_timing.is_auto()) {
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

void refuse_first_of_nothing(const TomlTable& table, const Scenario& scenario) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (pipeline.recompute_only == 0) {
        return;
    }
    if (pipeline.layer_recompute != LayerRecompute::Block) {
        table.refuse("recompute_only",
                     "0 where no blocks are recomputed",
                     "set recompute = \"block\", or recompute_only = 0");
    }
    if (pipeline.recompute_blocks > 1) {
        table.refuse("recompute_only",
                     "0 beside groups of several blocks",
                     "set recompute_blocks = 1, or recompute_only = 0");
    }
}

void read_partition(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    if (table.has(key.name) && !table.is_auto(key.name)) {
        scenario.pipeline.partition = *table.or_auto().integers(key.name, key.range);
    }
}

void print_partition(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (!scenario.pipeline.partition.is_auto()) {
        writer.list(key.name, *scenario.pipeline.partition);
    } else {
        writer.string(key.name, "auto");
    }
}

/// Prints a flag or a number that is not auto.
template <auto Member>
void print_unless_auto(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (const auto& value = scenario.pipeline.*Member; !value.is_auto()) {
        writer.number(key.name, *value);
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
    const std::string_view said = pipeline.shard.is_auto() ? "auto" : to_string(*pipeline.shard);
    if (table.has("shard") && said != to_string(meant)) {
        table.refuse(key.name,
                     fmt::format("what shard says, \"{}\"", said),
                     "shard_optimizer is the old word for shard = \"optimizer\": leave it out");
    }
    pipeline.shard = meant;
}

void read_shard_group(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    ShardGroup& group = scenario.pipeline.shard_group;
    if (table.is_text(key.name)) {
        group.of_node = table.choice(key.name, key.words).has_value();
    } else if (const auto replicas = table.integer(key.name, key.range)) {
        group = {.of_node = false, .replicas = static_cast<int>(*replicas)};
    }
}

void print_shard_group(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const ShardGroup& group = scenario.pipeline.shard_group;
    if (group.of_node) {
        writer.string(key.name, words::shard_groups.front());
    } else if (!group.is_all()) {
        writer.number(key.name, group.replicas);
    }
}

/// Refuses lists of modules that are not one for all stages or one for each piece of the model.
void expect_list_of_each_piece(const ScenarioKey& key,
                               const TomlTable& table,
                               const Scenario& scenario,
                               std::size_t lists) {
    const std::optional<int> pieces = scenario.pipeline.pieces();
    if (pieces && table.is_list_of_lists(key.name)) {
        require_list_of_each_piece(
            fmt::format("pipeline.{}", key.name), lists, *pieces, table.place(key.name));
    }
}

void read_recompute_modules(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    Scenario::PipelinePart& pipeline = scenario.pipeline;
    ModuleLists lists;
    if (table.is_auto(key.name)) {
        pipeline.recompute_modules.open();
    } else if (const auto written =
                   table.or_auto().rows_of_choices(key.name, key.words, key.range)) {
        for (const std::vector<TomlTable::CountedWord>& row : *written) {
            RecomputeModules& list = lists.of_piece.emplace_back();
            for (const TomlTable::CountedWord& word : row) {
                list.add(static_cast<RecomputeModule>(word.word),
                         word.count.value_or(RecomputeModules::all_blocks));
            }
        }
        expect_list_of_each_piece(key, table, scenario, lists.of_piece.size());
        pipeline.recompute_modules = lists.empty() ? ModuleLists{} : std::move(lists);
    }
    const bool of_layers = pipeline.layer_recompute != LayerRecompute::None;
    const bool has_any =
        pipeline.recompute_modules.is_auto() || !pipeline.recompute_modules->empty();
    if (of_layers && has_any && table.has(key.name)) {
        table.refuse(key.name,
                     fmt::format("an empty list where recompute = \"{}\"",
                                 to_string(pipeline.layer_recompute)),
                     pipeline.layer_recompute == LayerRecompute::Selective
                         ? "write recompute = \"none\", and core_attn into the list"
                         : "write recompute = \"none\": whole blocks have all modules");
    }
}

/// Prints a list of words for all stages, or one for each.
void print_lists(const ScenarioKey& key,
                 ScenarioWriter& writer,
                 const std::vector<std::vector<std::string>>& lists) {
    if (lists.size() == 1) {
        writer.strings(key.name, lists.front());
        return;
    }
    std::vector<std::vector<std::string>> rows = lists;
    for (std::vector<std::string>& row : rows) {
        std::ranges::transform(row, row.begin(), toml_string);
    }
    writer.lists(key.name, rows);
}

void print_recompute_modules(const ScenarioKey& key,
                             ScenarioWriter& writer,
                             const Scenario& scenario) {
    const OrAuto<ModuleLists>& modules = scenario.pipeline.recompute_modules;
    if (modules.is_auto()) {
        writer.string(key.name, "auto");
    } else if (!modules->empty()) {
        std::vector<std::vector<std::string>> lists;
        for (const RecomputeModules& list : modules->of_piece) {
            lists.push_back(words_of(list));
        }
        print_lists(key, writer, lists);
    }
}

void read_offload_modules(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    const auto written = table.rows_of_choices(key.name, key.words);
    if (!written) {
        return;
    }
    std::vector<OffloadModules> lists;
    bool has_any = false;
    for (const std::vector<TomlTable::CountedWord>& row : *written) {
        OffloadModules& list = lists.emplace_back();
        for (const TomlTable::CountedWord& word : row) {
            list.add(static_cast<OffloadModule>(word.word));
            has_any = true;
        }
    }
    expect_list_of_each_piece(key, table, scenario, lists.size());
    scenario.pipeline.offload_modules = has_any ? std::move(lists) : std::vector<OffloadModules>{};
}

void print_offload_modules(const ScenarioKey& key,
                           ScenarioWriter& writer,
                           const Scenario& scenario) {
    std::vector<std::vector<std::string>> lists;
    for (const OffloadModules& modules : scenario.pipeline.offload_modules) {
        lists.push_back(words_of(modules));
    }
    if (!lists.empty()) {
        print_lists(key, writer, lists);
    }
}

void print_fraction(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (const double fraction = scenario.pipeline.offload_fraction; fraction != 1) {
        writer.number(key.name, fraction);
    }
}

void read_order(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    if (const std::optional<std::string> order = table.text(key.name)) {
        scenario.pipeline.order = parse_axis_order(*order, table.place(key.name));
    }
}

void print_order(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (const auto& order = scenario.pipeline.order) {
        writer.string(key.name, to_string(*order));
    }
}

/// Prints a number that is not `usual`, or auto.
template <auto Member, int Usual>
void print_unless(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const OrAuto<int>& value = scenario.pipeline.*Member;
    if (value.is_auto()) {
        writer.string(key.name, "auto");
    } else if (*value != Usual) {
        writer.number(key.name, *value);
    }
}

/// Prints a word that is not the first of its key.
template <auto Member>
void print_unless_first(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const std::string_view word = to_string(scenario.pipeline.*Member);
    if (word != key.words.front()) {
        writer.string(key.name, word);
    }
}

using Pipeline = Scenario::PipelinePart;

constexpr std::array<ScenarioKey, 38> keys_of_pipeline{{
    keys::number<&Pipeline::stages>("stages", stage_range)
        .as_option("P[,P...]",
                   "Number P of ranks (devices) in the pipeline; a list compares several numbers")
        .says("stages along the pipeline, one per rank"),
    keys::number<&Pipeline::micro_batches>("micro_batches", micro_batch_range)
        .as_option("M[,M...]",
                   "Number M of micro-batches per step; a list compares several numbers")
        .says("parts of a mini-batch, whose sizes differ by at most 1. A mini-batch of fewer "
              "samples has fewer parts"),
    // A file says what the keys before it say, and has the last word.
    keys::own("schedule", read_schedule, print_schedule)
        .as_option("NAME[,NAME...]")
        .searched<&Pipeline::schedule>()
        .read_after("chunks")
        .typed("text, list or auto")
        .takes(Form::Text | Form::Texts | Form::Auto)
        .says("name of a [schedule](schedules.md), PyTorch's names included; a list of names, such "
              "as `[\"1f1b\", \"interleaved-1f1b\"]`, of which `plan` takes the best; or a "
              "schedule file of your own, `\"mine.csv\"`, relative to the scenario. A file also "
              "determines stages, chunks and micro-batches",
              "`gpipe`"),
    keys::number<&Pipeline::chunks>("chunks", chunk_range)
        .as_option("V",
                   "Number V of stages per rank (chunks, virtual stages; default 1, or 2 for "
                   "schedules that are meant for several)")
        .says("chunks per rank (virtual stages); the model is cut into stages x chunks pieces"),
    keys::number<&Pipeline::group_size>("group_size", micro_batches_or_none)
        .as_option("G")
        .says("for `interleaved-1f1b`: micro-batches that a chunk takes before the next chunk's "
              "turn; 0: the smallest number, from the number of ranks on, whose last group has at "
              "least as many micro-batches as there are ranks. Fewer micro-batches than ranks are "
              "one group"),
    keys::number<&Pipeline::deferred_weights>("deferred_weights", micro_batches_or_none)
        .as_option("N")
        .says("weight gradients that a rank may defer into its waits at a time; 0: where the "
              "schedule has them"),
    keys::choice<&Pipeline::message_order>("message_order", words::message_orders)
        .as_option("HOW")
        .says("order of two messages that cross. `plain`: as scheduled; `lower-rank-first`: the "
              "lower rank receives before it sends"),
    keys::choice<&Pipeline::receives>("receives", words::receives)
        .as_option("HOW")
        .says("meaning of the receives in a schedule file. `posted`: a receive begins at its place "
              "in the row, and the rank waits where it uses the tensor, as in PyTorch's runtime "
              "(with a `channel_capacity` receives block). `blocking`: the rank waits at the "
              "receive"),
    ScenarioKey{.name = "recompute",
                .read = read_recompute,
                .print = print_recompute,
                .words = words::all_recomputes}
        .as_option("MODE[,MODE...]",
                   "none (default), always, or except-last (recompute every micro-batch but the "
                   "last); give one mode for all stages, or one for each stage")
        .searched<&Pipeline::recompute>()
        .typed("text, list or auto")
        .takes(Form::Text | Form::Texts | Form::Auto)
        .says("whole stages, which keep their input: `none`, `always`, `except-last` (all but the "
              "last micro-batch); a list has one of these words per stage: `[\"always\", "
              "\"none\"]`. `block`: every block keeps its input, embedding and head keep "
              "everything (Megatron's *full* and *uniform*). `selective`, for simulation and "
              "planning: [core attention](devices.md#what-selective-recompute-computes-again) "
              "(Megatron's *selective*), or with FlashAttention single operators (PyTorch's). With "
              "`block` and `selective` the recompute is part of the backward",
              "`always` for `gpipe`, else `none`"),
    ScenarioKey{.name = "recompute_modules",
                .read = read_recompute_modules,
                .print = print_recompute_modules,
                .range = {1, layer_range.high},
                .words = recompute_module_words}
        .searched<&Pipeline::recompute_modules>()
        .typed("list of text, lists of text or auto")
        .takes(Form::Texts | Form::TextLists | Form::Auto)
        .says("parts of blocks that a forward drops and a backward computes again, in "
              "Megatron-LM's words: `core_attn`, `layernorm`, `mla_up_proj`, `mlp`, `moe_act`, "
              "`moe`, `shared_experts`; with a number, as in `\"mlp:3\"`, those of the first three "
              "blocks of a stage that have any. One list for all stages, or one for each, "
              "`[[\"mlp\"], []]`, in the order of the model. See [memory by "
              "module](experts.md#memory-by-module). Simulation and planning only, with estimated "
              "costs",
              "none"),
    ScenarioKey{.name = "offload_modules",
                .read = read_offload_modules,
                .print = print_offload_modules,
                .words = offload_module_words}
        .typed("list of text or lists of text")
        .takes(Form::Texts | Form::TextLists)
        .says("modules of every block whose inputs go to host memory in the forward and come back "
              "in the backward, in Megatron-LM's words: `attn_norm`, `qkv_linear`, `core_attn`, "
              "`attn_proj`, `mlp_norm`, `expert_fc1`, `moe_act`; one list for all stages, or one "
              "for each. Copies go over `cluster.host_link`, or the device's own, beside "
              "computation. See [memory by module](experts.md#inputs-in-host-memory). Simulation "
              "and planning only, with estimated costs",
              "none"),
    keys::number<&Pipeline::offload_fraction>("offload_fraction", {0, 1})
        .printed_by(print_fraction)
        .says("for `offload_modules`: share of the blocks of a stage, its first ones", "1"),
    keys::number<&Pipeline::recompute_blocks>("recompute_blocks", {1, layer_range.high})
        .checked_by(refuse_groups_of_nothing)
        .says("for `recompute = \"block\"`: blocks in a group, counted from the first block of the "
              "stage; at most all blocks of a stage. Only the first block of a group keeps its "
              "input, and a backward computes the whole group again. Larger groups keep less "
              "between forward and backward, and need more memory during the backward. Megatron's "
              "`--recompute-num-layers`"),
    keys::number<&Pipeline::recompute_only>("recompute_only", {0, layer_range.high})
        .checked_by(refuse_first_of_nothing)
        .says("for `recompute = \"block\"` with groups of one block: how many blocks of each stage "
              "are computed again, its first ones; the others keep everything. 0: all. Megatron's "
              "`--recompute-num-layers` with `--recompute-method block`. Simulation and planning "
              "only, for models without branches"),
    keys::boolean<&Pipeline::recompute_early_stop>("recompute_early_stop")
        .says("for `recompute = \"block\"` with groups of one block: the recompute stops once the "
              "backward has all that it reads, so it leaves out the block's last product, as "
              "PyTorch's checkpoints without `use_reentrant` do since 2.1 (`early_stop`). "
              "Megatron-LM, torchtitan and the executor compute the whole block. Simulation and "
              "planning only"),
    ScenarioKey{.name = "recompute_timing",
                .read = read_recompute_timing,
                .print = print_recompute_timing,
                .words = words::recompute_timings}
        .as_option("WHEN")
        .takes(Form::Text)
        .says(
            "for recomputed stages: `eager`: before the gradient has arrived, as in GPipe; `lazy`: "
            "after that, as in Megatron-LM and PyTorch. Without effect on `block` and `selective`",
            "`eager` for `gpipe`, else `lazy`"),
    keys::choice<&Pipeline::offload>("offload", words::offloads)
        .says("`stash`: stashes are copied to host memory and back over `cluster.host_link`, see "
              "[stashes in host memory](simulation.md#stashes-in-host-memory). Training with it "
              "needs `backend = \"cuda\"` or `\"paced\"`"),
    keys::number<&Pipeline::offload_blocks>("offload_blocks", {0, layer_range.high})
        .printed_by(print_unless_auto<&Pipeline::offload_blocks>)
        .says("blocks, from the first of a model without branches on, whose activations go to host "
              "memory until their backward, as Transformer Engine's `cpu_offloading` does; two of "
              "them are on the device at a time, and a block takes the longer of its computation "
              "and its copies over `cluster.host_link`, or the device's own. auto: as many as "
              "are needed to fit, where the [stack](devices.md#stacks) offloads and one stage has "
              "replicas that divide the weights, else none. Simulation and planning only",
              "auto"),
    ScenarioKey{.name = "partition",
                .read = read_partition,
                .print = print_partition,
                .range = {0, layer_range.high}}
        .typed("list or auto")
        .takes(Form::Integers | Form::Auto)
        .says("layers per stage, one entry for each stage, in the order of the model (entry c x "
              "`stages` + r is chunk c of rank r where chunks go round the ranks). Where the model "
              "has numbered blocks, as a `gpt` and a profile by `import hf` have, a list that sums "
              "to their number counts whole blocks: the embedding belongs to the first stage and "
              "the head to the last, and these two entries may be 0. See [automatic "
              "partition](#automatic-partition)",
              "auto"),
    keys::number<&Pipeline::channel_capacity>("channel_capacity", micro_batches_or_none)
        .says("messages that wait in a channel before a send blocks; each takes memory on the "
              "receiving rank. auto: the smallest capacity whose step is at most 0.1 % longer than "
              "with unlimited capacity, or the largest smaller one that fits into memory where "
              "that one does not",
              "auto"),
    keys::number<&Pipeline::data_parallel>("data_parallel", replica_range)
        .says("replicas of the whole pipeline, each with `batch / data_parallel` samples of a "
              "mini-batch; it must divide `batch`. On CPUs, replicas train in threads or in "
              "[processes](cluster.md); on GPUs, in processes"),
    keys::choice<&Pipeline::all_reduce>("all_reduce", words::all_reduces)
        .says("how replicas sum their gradients: `ring`, `tree`, `two-level` (inside a node, "
              "between nodes, inside), `rings` (as NCCL: as many rings at once as a node has "
              "replicas, each over a link of its own between nodes), or the `fastest` of these; "
              "see [replicas](cluster.md#replicas)"),
    keys::boolean<&Pipeline::overlap_reduction>("overlap_reduction")
        .says("a rank continues while its gradients are summed, up to the stage's update"),
    keys::boolean<&Pipeline::overlap_gather>("overlap_gather")
        .printed_by(print_unless_auto<&Pipeline::overlap_gather>)
        .says("with `shard = \"optimizer\"` or `\"gradients\"`: weights that replicas have updated "
              "are gathered beside the first forwards of the next step, and an update takes what "
              "is waited for (in the schedule's order of a rank, as steps repeat). auto: with "
              "`overlap_reduction`, where the [stack](devices.md#stacks) does so",
              "auto"),
    keys::choice<&Pipeline::shard>("shard", words::shards)
        .says("what replicas divide among them; each word includes those before it (ZeRO-1, -2 and "
              "-3, FSDP). `optimizer`: its state and the update; updated weights are gathered. "
              "`gradients`: every micro-batch reduce-scatters its gradients, overlapped with its "
              "backward. `weights`: gathered layer by layer in forward and backward, overlapped "
              "with the computation of other layers ([how](internals/"
              "executor.md#replicas-that-divide-weights)). `shard_optimizer = true` is an old name "
              "for `optimizer`. See [replicas](cluster.md#replicas)"),
    keys::own("shard_optimizer", read_shard_optimizer, nullptr).takes(Form::Boolean),
    ScenarioKey{.name = "shard_group",
                .read = read_shard_group,
                .print = print_shard_group,
                .range = {2, stage_range.high},
                .words = words::shard_groups}
        .takes(Form::Integer | Form::Text)
        .says("replicas of a group that divides among them what `shard` says; it divides "
              "`data_parallel`. `node`: the replicas of a rank that are on one node, as many on "
              "each. Every group has a whole copy: gradients are summed inside a group, and each "
              "share of them between groups, with `gradients` and `weights` for every micro-batch "
              "(HSDP, ZeRO-1 inside of nodes). Trained with `gradients` and `weights`; then "
              "neighbouring replicas are a group",
              "all replicas"),
    keys::number<&Pipeline::prefetch>("prefetch", prefetch_range)
        .says("for `shard = \"weights\"`: number of blocks whose weights are gathered ahead; 0: "
              "each block waits for its own"),
    keys::number<&Pipeline::tensor_parallel>("tensor_parallel", stage_range)
        .says("devices per rank, which share every layer; a divisor or a multiple of "
              "`cluster.per_node`. Trained in one process, or one for each device; GPUs have one "
              "each ([what each has](internals/executor.md#devices-of-a-rank))"),
    keys::number<&Pipeline::context_parallel>("context_parallel", stage_range)
        .printed_by(print_unless<&Pipeline::context_parallel, 1>)
        .says("devices that have parts of every sample, each a chunk from its front and one from "
              "its back, so that a causal mask leaves all the same work; twice as many chunks "
              "divide the tokens of a sample. A rank has `tensor_parallel` x `context_parallel` "
              "devices. See [context parallelism](experts.md#parts-of-a-sample). Simulation and "
              "planning only",
              "1"),
    keys::choice<&Pipeline::context_method>("context_method", context_methods)
        .printed_by(print_unless_first<&Pipeline::context_method>)
        .says("how these devices bring queries and keys together. `ring`: keys and values go "
              "round beside the attention of those before; `all-gather`: each gathers all keys and "
              "values first; `all-to-all`: each has whole samples of some heads; "
              "`ring+all-to-all`: heads inside a node, a ring of nodes",
              "`ring`"),
    keys::number<&Pipeline::expert_parallel>("expert_parallel", replica_range)
        .printed_by(print_unless<&Pipeline::expert_parallel, 1>)
        .says("parts into which the experts of a layer are divided, each on devices of its own: a "
              "token's row is sent to those of its experts and back. They lie over the devices of "
              "`tensor_parallel` x `context_parallel` x `data_parallel`, which "
              "`expert_tensor_parallel` x `expert_parallel` divides. See "
              "[experts](experts.md). Simulation and planning only",
              "1"),
    keys::number<&Pipeline::expert_tensor_parallel>("expert_tensor_parallel", stage_range)
        .printed_by(print_unless<&Pipeline::expert_tensor_parallel, 0>)
        .says("devices that share each expert", "`tensor_parallel`"),
    keys::choice<&Pipeline::expert_dispatch>("expert_dispatch", expert_dispatches)
        .printed_by(print_unless_first<&Pipeline::expert_dispatch>)
        .says("what sends rows to experts. `nccl`: an all-to-all, a row for each expert of a "
              "token; `deepep`, `hybridep`: a token crosses once to each node that has experts of "
              "it, and is spread there",
              "`nccl`"),
    keys::own("order", read_order, print_order)
        .takes(Form::Text)
        .says("axes along which devices are numbered, the fastest first: `tp-cp-ep-dp-pp` is the "
              "default of Megatron-LM, `tp-cp-ep-pp-dp` its other one. See [the "
              "grid](internals/grid.md)",
              "as `cluster.placement`"),
    keys::boolean<&Pipeline::sequence_parallel>("sequence_parallel")
        .says("the devices of a rank divide the sequence in norms, residuals, dropout, and "
              "messages between layers and stages. Each all-reduce becomes a reduce-scatter and an "
              "all-gather, which take as long; a backward gathers a layer's input once more, which "
              "can take as much time as sequence parallelism saves"),
    keys::boolean<&Pipeline::tensor_overlap>("tensor_overlap")
        .printed_by(print_unless_auto<&Pipeline::tensor_overlap>)
        .says("gathers and reduce-scatters among the devices of a rank go on beside matrix "
              "products, so that only their first or last part is waited for; with "
              "`sequence_parallel`. auto: as the [stack](devices.md#stacks) of the costs does; "
              "costs without one hide nothing. See [messages beside "
              "products](devices.md#messages-beside-products)",
              "auto"),
    keys::boolean<&Pipeline::scatter_boundaries>("scatter_boundaries")
        .says("each device of a rank sends its part of a message between stages, over a link of "
              "its own"),
}};

}  // namespace

std::span<const ScenarioKey> pipeline_keys() {
    return keys_of_pipeline;
}

}  // namespace pipetwin
