#include <array>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule.h"
#include "core/schedule/schedule_csv.h"
#include "core/text/json_text.h"

/// Reading of scenarios. One function per table; docs/scenario.md describes every key.
namespace pipetwin {

using std::string_view;

std::filesystem::path resolve(const std::filesystem::path& file, const std::string& path) {
    return (std::filesystem::absolute(file).parent_path() / path).lexically_normal();
}

void expect_only(const TomlTable& table, string_view key, int value, int only, string_view what) {
    if (value != only) {
        table.refuse(key,
                     fmt::format("{}", only),
                     fmt::format("{} is not built yet; leave the key out", what));
    }
}

namespace {

constexpr Range stage_range{1, 4096};
constexpr Range micro_batch_range{1, 65'536};
constexpr std::size_t largest_file = std::size_t{16} << 20;

void read_validation(const TomlTable& table,
                     const Scenario::DataPart& data,
                     Scenario::TrainingPart& training) {
    training.validate_every = as_int(table.integer("validate_every", {0, any_size.high}), 0);
    if (training.validate_every > 0 && !data.has_validation()) {
        table.refuse("validate_every",
                     "0, as there is nothing to validate on",
                     "set data.validation = 0.1, a share of the data, or a path");
    }
    training.validation_batches =
        as_int(table.integer("validation_batches", any_size), training.validation_batches);
}

void read_training(const TomlTable& table,
                   const Scenario::DataPart& data,
                   Scenario::TrainingPart& training) {
    table.expect_keys(std::array<string_view, 12>{"batch",
                                                  "steps",
                                                  "optimizer",
                                                  "learning_rate",
                                                  "learning_rate_schedule",
                                                  "warmup_steps",
                                                  "final_learning_rate",
                                                  "clip_norm",
                                                  "precision",
                                                  "seed",
                                                  "validate_every",
                                                  "validation_batches"});
    constexpr std::int64_t exact_in_json = std::int64_t{1} << 53;
    training.batch = as_int(table.integer("batch", {1, 1 << 24}), training.batch);
    training.steps = as_int(table.integer("steps", any_size), training.steps);
    if (const auto optimizer = table.choice("optimizer", words::optimizers)) {
        training.optimizer = static_cast<OptimizerKind>(*optimizer);
    }
    constexpr Range rates{0, 1'000'000};
    training.learning_rate = table.number("learning_rate", rates).value_or(training.learning_rate);
    if (const auto schedule = table.choice("learning_rate_schedule", words::rate_schedules)) {
        training.learning_rate_schedule = static_cast<RateSchedule>(*schedule);
    }
    training.warmup_steps = as_int(table.integer("warmup_steps", {0, any_size.high}), 0);
    training.final_learning_rate = table.number("final_learning_rate", rates).value_or(0);
    if (training.final_learning_rate > 0 &&
        training.learning_rate_schedule == RateSchedule::Constant) {
        table.refuse("final_learning_rate",
                     "0",
                     "a constant rate does not go anywhere; set learning_rate_schedule = "
                     "\"linear\" or \"cosine\"");
    }
    training.clip_norm = table.number("clip_norm", rates).value_or(0);
    if (const auto precision = table.choice("precision", words::precisions)) {
        training.precision = static_cast<Precision>(*precision);
    }
    if (const auto seed = table.integer("seed", {0, exact_in_json})) {
        training.seed = static_cast<std::uint64_t>(*seed);
    }
    read_validation(table, data, training);
}

/// A number of [pipeline], or none for "auto".
std::optional<int> read_planned(const TomlTable& table,
                                string_view key,
                                Range range,
                                std::optional<int> otherwise) {
    if (table.is_auto(key)) {
        return std::nullopt;
    }
    if (table.has(key)) {
        return table.required_int(key, range);
    }
    return otherwise;
}

std::string generator_name(const TomlTable& table, const std::string& name) {
    try {
        return std::string(to_string(schedule_kind(name)));
    } catch (const Error& error) {
        throw Error(error.kind(),
                    table.place("schedule"),
                    error.text(),
                    error.hint() + "; a file of your own ends in .csv");
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
    const Schedule schedule = read_schedule_csv(file);
    pipeline.schedule = file.string();
    pipeline.stages = as_in_file(table, "stages", stage_range, schedule.rank_count());
    pipeline.micro_batches =
        as_in_file(table, "micro_batches", micro_batch_range, schedule.micro_batches);
    pipeline.file_pieces = model_stage_count(schedule);
    const int chunks = std::max(1, pipeline.file_pieces / schedule.rank_count());
    pipeline.chunks = as_in_file(table, "chunks", {1, 64}, chunks);
}

void read_order(const TomlTable& table,
                const std::filesystem::path& scenario,
                Scenario::PipelinePart& pipeline) {
    pipeline.stages = read_planned(table, "stages", stage_range, pipeline.stages);
    pipeline.micro_batches =
        read_planned(table, "micro_batches", micro_batch_range, pipeline.micro_batches);
    pipeline.chunks = read_planned(table, "chunks", {1, 64}, pipeline.chunks);
    if (!table.has("schedule")) {
        return;
    }
    if (table.is_auto("schedule")) {
        pipeline.schedule = std::nullopt;
        return;
    }
    const std::string name = *table.text("schedule");
    if (is_schedule_file(name)) {
        read_schedule_file(table, resolve(scenario, name), pipeline);
    } else {
        pipeline.schedule = generator_name(table, name);
    }
}

void read_order_options(const TomlTable& table, Scenario::PipelinePart& pipeline) {
    pipeline.group_size = as_int(table.integer("group_size", {0, micro_batch_range.high}), 0);
    pipeline.deferred_weights =
        as_int(table.integer("deferred_weights", {0, micro_batch_range.high}), 0);
    if (const auto order = table.choice("message_order", words::message_orders)) {
        pipeline.message_order = static_cast<MessageOrder>(*order);
    }
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

void read_recompute(const TomlTable& table, Scenario::PipelinePart& pipeline) {
    if (table.has("recompute")) {
        pipeline.recompute_auto = table.is_auto("recompute");
    }
    if (!pipeline.recompute_auto) {
        if (table.is_list("recompute")) {
            pipeline.recompute = read_recompute_list(table, pipeline);
        } else if (const auto recompute = table.choice("recompute", words::recomputes)) {
            pipeline.recompute = static_cast<Recompute>(*recompute);
        } else if (pipeline.schedule) {
            pipeline.recompute = schedule_traits(*pipeline.schedule).recompute;
        }
    }
    if (const auto timing = table.choice("recompute_timing", words::recompute_timings)) {
        pipeline.recompute_timing = static_cast<RecomputeTiming>(*timing);
    }
}

void read_pipeline(const TomlTable& table,
                   const std::filesystem::path& scenario,
                   Scenario::PipelinePart& pipeline) {
    table.expect_keys(std::array<string_view, 17>{"stages",
                                                  "micro_batches",
                                                  "schedule",
                                                  "chunks",
                                                  "group_size",
                                                  "deferred_weights",
                                                  "message_order",
                                                  "recompute",
                                                  "recompute_timing",
                                                  "offload",
                                                  "partition",
                                                  "channel_capacity",
                                                  "data_parallel",
                                                  "all_reduce",
                                                  "overlap_reduction",
                                                  "shard_optimizer",
                                                  "tensor_parallel"});
    read_order(table, scenario, pipeline);
    read_order_options(table, pipeline);
    read_recompute(table, pipeline);
    if (const auto offload = table.choice("offload", words::offloads)) {
        pipeline.offload = static_cast<Offload>(*offload);
    }
    if (!table.is_auto("partition")) {
        pipeline.partition = table.integers("partition", layer_range);
    }
    pipeline.channel_capacity =
        read_planned(table, "channel_capacity", {0, micro_batch_range.high}, std::nullopt);
    pipeline.data_parallel =
        read_planned(table, "data_parallel", stage_range, pipeline.data_parallel);
    if (const auto kind = table.choice("all_reduce", words::all_reduces)) {
        pipeline.all_reduce = static_cast<AllReduceKind>(*kind);
    }
    pipeline.overlap_reduction = table.boolean("overlap_reduction").value_or(false);
    pipeline.shard_optimizer = table.boolean("shard_optimizer").value_or(false);
    pipeline.tensor_parallel =
        read_planned(table, "tensor_parallel", stage_range, pipeline.tensor_parallel);
}

void read_output(const TomlTable& table, Scenario::OutputPart& output) {
    table.expect_keys(std::array<string_view, 1>{"checkpoint_every"});
    output.checkpoint_every = as_int(table.integer("checkpoint_every", {0, any_size.high}), 0);
}

/// Shapes and sums that no single key can be wrong about.
void check_whole(const Scenario& scenario) {
    if (scenario.model.kind == ModelKind::Profile) {
        return;
    }
    try {
        scenario_partition(scenario, scenario_model(scenario));
    } catch (const Error& error) {
        throw error.at(scenario.file.string());
    }
}

/// Whatever is not written is planned.
void leave_open(Scenario::PipelinePart& pipeline) {
    pipeline.stages.reset();
    pipeline.micro_batches.reset();
    pipeline.schedule.reset();
    pipeline.chunks.reset();
    pipeline.recompute_auto = true;
    pipeline.data_parallel.reset();
}

}  // namespace

Scenario parse_scenario(std::string_view text,
                        const std::filesystem::path& file,
                        const std::vector<Override>& overrides,
                        Unwritten unwritten) {
    if (text.size() > largest_file) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    fmt::format("{} bytes, a scenario has at most {}", text.size(), largest_file));
    }
    TomlDocument document(text, file.string(), overrides);
    fill_in_cluster(document, file);
    const TomlTable root = document.root();
    root.expect_keys(
        std::array<string_view, 6>{"model", "data", "training", "pipeline", "cluster", "output"});

    Scenario scenario;
    scenario.file = file;
    if (unwritten == Unwritten::Auto) {
        leave_open(scenario.pipeline);
    }
    if (!root.has("model")) {
        root.missing("model", "a table [model] with the kind of the model");
    }
    read_model(root.table("model"), scenario);
    read_data(root.table("data"), scenario);
    read_training(root.table("training"), scenario.data, scenario.training);
    read_pipeline(root.table("pipeline"), file, scenario.pipeline);
    read_cluster(root.table("cluster"), scenario);
    expect_host_link(root.table("pipeline"), scenario);
    read_output(root.table("output"), scenario.output);
    check_whole(scenario);
    return scenario;
}

Scenario read_scenario(const std::filesystem::path& file,
                       const std::vector<Override>& overrides,
                       Unwritten unwritten) {
    return parse_scenario(read_file(file, largest_file), file, overrides, unwritten);
}

}  // namespace pipetwin
