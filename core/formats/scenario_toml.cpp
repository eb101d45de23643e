#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/formats/json_text.h"
#include "core/formats/scenario_words.h"
#include "core/formats/schedule_csv.h"
#include "core/formats/toml_table.h"
#include "core/scenario.h"
#include "core/schedule.h"
#include "core/shipped_profiles.h"
#include "core/suggest.h"

/// Reading of scenarios. One function per table; docs/scenario.md describes every key.
namespace pipetwin {

namespace {

using std::string_view;

constexpr Range any_size{1, 1 << 30};
constexpr Range layer_range{1, 100'000};
constexpr Range stage_range{1, 4096};
constexpr Range micro_batch_range{1, 65'536};
constexpr std::size_t largest_file = std::size_t{16} << 20;

int as_int(std::optional<std::int64_t> value, int otherwise) {
    return value ? static_cast<int>(*value) : otherwise;
}

/// Paths of a scenario are relative to its folder, those of overrides, too.
std::filesystem::path resolve(const std::filesystem::path& file, const std::string& path) {
    return (std::filesystem::absolute(file).parent_path() / path).lexically_normal();
}

/// What users may write, but this version cannot do yet: anything but `only`.
void expect_only(const TomlTable& table, string_view key, int value, int only, string_view what) {
    if (value != only) {
        table.refuse(key,
                     fmt::format("{}", only),
                     fmt::format("{} is not built yet; leave the key out", what));
    }
}

struct LayerWord {
    string_view word;
    LayerType type;
    std::array<string_view, 3> keys;  ///< besides those of every layer; empty where fewer
};

constexpr std::array<LayerWord, 8> layer_words{{
    {"embedding", LayerType::Embedding, {"outputs", "vocabulary", "context"}},
    {"layer_norm", LayerType::LayerNorm, {}},
    {"linear", LayerType::Linear, {"outputs", "bias"}},
    {"gelu", LayerType::Gelu, {}},
    {"attention", LayerType::Attention, {"heads"}},
    {"residual", LayerType::Residual, {"layer"}},
    {"sequence", LayerType::Sequence, {"layer"}},
    {"cross_entropy", LayerType::CrossEntropy, {}},
}};

const LayerWord& layer_word(const TomlTable& table) {
    std::array<string_view, layer_words.size()> names;
    std::ranges::transform(layer_words, names.begin(), &LayerWord::word);
    const std::optional<std::size_t> index = table.choice("type", names);
    if (!index) {
        table.missing("type", "the type of the layer, as in type = \"linear\"");
    }
    return layer_words.at(*index);
}

std::size_t count_layers(const LayerSpec& spec) {
    std::size_t count = 1;
    for (const LayerSpec& inner : spec.inner) {
        count += count_layers(inner);
    }
    return count;
}

std::vector<LayerSpec> read_layers(const TomlTable& parent);

LayerSpec read_layer(const TomlTable& table) {
    const LayerWord& word = layer_word(table);
    std::vector<string_view> keys{"type", "name", "repeat"};
    std::ranges::copy_if(
        word.keys, std::back_inserter(keys), [](string_view key) { return !key.empty(); });
    table.expect_keys(keys);

    LayerSpec spec{.name = table.text("name").value_or(""), .type = word.type};
    switch (word.type) {
        case LayerType::Embedding:
            spec.outputs = table.required_int("outputs", any_size);
            spec.vocabulary = as_int(table.integer("vocabulary", any_size), 256);
            spec.context = table.required_int("context", any_size);
            break;
        case LayerType::Linear:
            spec.outputs = table.required_int("outputs", any_size);
            spec.bias = table.boolean("bias").value_or(true);
            break;
        case LayerType::Attention:
            spec.heads = table.required_int("heads", any_size);
            break;
        case LayerType::Residual:
        case LayerType::Sequence:
            spec.inner = read_layers(table);
            break;
        default:
            break;
    }
    return spec;
}

/// The layers of `[[...layer]]`, each as often as its `repeat` says.
std::vector<LayerSpec> read_layers(const TomlTable& parent) {
    std::vector<LayerSpec> layers;
    std::size_t total = 0;
    for (const TomlTable& table : parent.tables("layer")) {
        LayerSpec spec = read_layer(table);
        const int repeat = as_int(table.integer("repeat", layer_range), 1);
        total += static_cast<std::size_t>(repeat) * count_layers(spec);
        if (total > static_cast<std::size_t>(layer_range.high)) {
            table.refuse("repeat", fmt::format("at most {} layers in all", layer_range.high));
        }
        for (int copy = 0; copy + 1 < repeat; ++copy) {
            layers.push_back(spec);
        }
        layers.push_back(std::move(spec));
        if (repeat > 1 && !layers.back().name.empty()) {
            for (int copy = 0; copy < repeat; ++copy) {
                LayerSpec& named = layers[layers.size() - static_cast<std::size_t>(repeat - copy)];
                named.name += fmt::to_string(copy);
            }
        }
    }
    if (layers.empty()) {
        parent.missing("layer", "layers, each in a table of its own");
    }
    return layers;
}

void read_gpt(const TomlTable& table, Scenario::ModelPart& model) {
    table.expect_keys(std::array<string_view, 8>{
        "kind", "layers", "d_model", "heads", "context", "vocabulary", "feed_forward", "tied"});
    model.gpt.layers = table.required_int("layers", {1, (layer_range.high - 2) / 2});
    model.gpt.d_model = table.required_int("d_model", {1, any_size.high / 4});
    model.gpt.heads = table.required_int("heads", any_size);
    model.gpt.context = table.required_int("context", any_size);
    model.gpt.vocabulary = as_int(table.integer("vocabulary", any_size), 256);
    model.gpt.feed_forward = as_int(table.integer("feed_forward", any_size), 4 * model.gpt.d_model);
    model.tied = table.boolean("tied").value_or(false);
    if (model.tied) {
        table.refuse("tied", "false", "tied embeddings are not built yet; leave the key out");
    }
}

void read_mlp(const TomlTable& table, Scenario::ModelPart& model) {
    table.expect_keys(std::array<string_view, 2>{"kind", "sizes"});
    if (!table.has("sizes")) {
        table.missing("sizes", "inputs, hidden sizes and classes, as in sizes = [784, 512, 10]");
    }
    model.sizes = *table.integers("sizes", any_size);
    if (model.sizes.size() < 2 || std::ssize(model.sizes) > layer_range.high) {
        table.refuse("sizes", fmt::format("2 to {} sizes", layer_range.high));
    }
}

/// A model that begins with an embedding reads `context` token ids, any other `input` numbers.
void read_layers_model(const TomlTable& table, Scenario::ModelPart& model) {
    table.expect_keys(std::array<string_view, 3>{"kind", "input", "layer"});
    model.layers = read_layers(table);
    const LayerSpec* first = &model.layers.front();
    while (first->type == LayerType::Sequence && !first->inner.empty()) {
        first = &first->inner.front();
    }
    if (first->type != LayerType::Embedding) {
        model.input = {.positions = 1, .width = table.required_int("input", any_size)};
        return;
    }
    if (table.has("input")) {
        table.refuse(
            "input", "no such key", "the embedding's context says how many tokens it reads");
    }
    model.input = {.token_ids = true, .positions = first->context};
}

void read_profile_model(const TomlTable& table, Scenario& scenario) {
    table.expect_keys(std::array<string_view, 2>{"kind", "file"});
    const std::optional<std::string> file = table.text("file");
    if (!file || file->empty()) {
        table.missing("file", "the path of a *.profile.json");
    }
    scenario.model.profile = resolve(scenario.file, *file);
}

void read_model(const TomlTable& table, Scenario& scenario) {
    const std::optional<std::size_t> kind =
        table.choice("kind", words::model_kinds, words::later_model_kinds);
    if (!kind) {
        table.missing("kind", "gpt, mlp, layers or profile");
    }
    scenario.model.kind = static_cast<ModelKind>(*kind);
    switch (scenario.model.kind) {
        case ModelKind::Gpt:
            return read_gpt(table, scenario.model);
        case ModelKind::Mlp:
            return read_mlp(table, scenario.model);
        case ModelKind::Layers:
            return read_layers_model(table, scenario.model);
        case ModelKind::Profile:
            return read_profile_model(table, scenario);
    }
}

bool reads_tokens(const Scenario::ModelPart& model) {
    return model.kind == ModelKind::Gpt ||
           (model.kind == ModelKind::Layers && model.input.token_ids);
}

/// Rows of the token table; 0 for a model that reads no tokens.
int vocabulary(const Scenario::ModelPart& model) {
    if (model.kind == ModelKind::Gpt) {
        return model.gpt.vocabulary;
    }
    if (!reads_tokens(model)) {
        return 0;
    }
    const LayerSpec* first = &model.layers.front();
    while (first->type == LayerType::Sequence) {
        first = &first->inner.front();
    }
    return first->vocabulary;
}

void read_data(const TomlTable& table, Scenario& scenario) {
    table.expect_keys(std::array<string_view, 2>{"kind", "path"});
    const bool tokens = reads_tokens(scenario.model);
    const auto kind = table.choice("kind", words::data_kinds, words::later_data_kinds);
    scenario.data.kind = kind     ? static_cast<DataKind>(*kind)
                         : tokens ? DataKind::Text
                                  : DataKind::Synthetic;
    if (const std::optional<std::string> path = table.text("path"); path && !path->empty()) {
        scenario.data.path = resolve(scenario.file, *path);
    }
    if (!kind) {
        return;
    }
    const bool from_files = scenario.data.kind != DataKind::Synthetic;
    if (from_files && scenario.data.path.empty()) {
        table.missing("path", "the file or folder of the data");
    }
    if (scenario.model.kind == ModelKind::Profile) {
        return;
    }
    if (scenario.data.kind == DataKind::Text && !tokens) {
        table.refuse("kind",
                     "mnist or synthetic",
                     "text gives token ids, and this model reads real numbers");
    }
    if (scenario.data.kind == DataKind::Mnist && tokens) {
        table.refuse("kind", "text", "mnist gives real numbers, and this model reads token ids");
    }
    if (scenario.data.kind == DataKind::Text && vocabulary(scenario.model) < 256) {
        table.refuse("kind",
                     "a model with a vocabulary of at least 256",
                     fmt::format("the bytes of a text are its tokens; the model knows {}",
                                 vocabulary(scenario.model)));
    }
}

void read_training(const TomlTable& table, Scenario::TrainingPart& training) {
    table.expect_keys(std::array<string_view, 6>{
        "batch", "steps", "optimizer", "learning_rate", "precision", "seed"});
    constexpr std::int64_t exact_in_json = std::int64_t{1} << 53;
    training.batch = as_int(table.integer("batch", {1, 1 << 24}), training.batch);
    training.steps = as_int(table.integer("steps", any_size), training.steps);
    if (const auto optimizer = table.choice("optimizer", words::optimizers)) {
        training.optimizer = static_cast<OptimizerKind>(*optimizer);
    }
    training.learning_rate =
        table.number("learning_rate", {0, 1'000'000}).value_or(training.learning_rate);
    if (const auto precision =
            table.choice("precision", words::precisions, words::later_precisions)) {
        training.precision = static_cast<Precision>(*precision);
    }
    if (const auto seed = table.integer("seed", {0, exact_in_json})) {
        training.seed = static_cast<std::uint64_t>(*seed);
    }
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
    pipeline.file_pieces = piece_count(schedule);
    const int chunks = std::max(1, pipeline.file_pieces / schedule.rank_count());
    pipeline.chunks = as_in_file(table, "chunks", {1, 64}, chunks);
}

void read_order(const TomlTable& table,
                const std::filesystem::path& scenario,
                Scenario::PipelinePart& pipeline) {
    pipeline.stages = read_planned(table, "stages", stage_range, 1);
    pipeline.micro_batches = read_planned(table, "micro_batches", micro_batch_range, 1);
    pipeline.chunks = read_planned(table, "chunks", {1, 64}, 1);
    if (table.is_auto("schedule")) {
        pipeline.schedule = std::nullopt;
        return;
    }
    const std::string name = table.text("schedule").value_or("gpipe");
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

void read_recompute(const TomlTable& table, Scenario::PipelinePart& pipeline) {
    pipeline.recompute_auto = table.is_auto("recompute");
    if (!pipeline.recompute_auto) {
        const auto recompute = table.choice("recompute", words::recomputes);
        if (recompute) {
            pipeline.recompute = static_cast<Recompute>(*recompute);
        } else if (pipeline.schedule) {
            pipeline.recompute =
                *pipeline.schedule == "gpipe" ? Recompute::Always : Recompute::None;
        }
    }
    if (const auto timing = table.choice("recompute_timing", words::recompute_timings)) {
        pipeline.recompute_timing = static_cast<RecomputeTiming>(*timing);
    }
}

void read_pipeline(const TomlTable& table,
                   const std::filesystem::path& scenario,
                   Scenario::PipelinePart& pipeline) {
    table.expect_keys(std::array<string_view, 16>{"stages",
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
    pipeline.data_parallel = read_planned(table, "data_parallel", stage_range, 1);
    if (const auto kind = table.choice("all_reduce", words::all_reduces)) {
        pipeline.all_reduce = static_cast<AllReduceKind>(*kind);
    }
    pipeline.overlap_reduction = table.boolean("overlap_reduction").value_or(false);
    pipeline.tensor_parallel = read_planned(table, "tensor_parallel", stage_range, 1);
    expect_only(
        table, "tensor_parallel", pipeline.tensor_parallel.value_or(1), 1, "tensor parallelism");
}

void expect_device(const TomlTable& table, string_view key, const std::string& name) {
    if (name == this_machine) {
        return;
    }
    const std::vector<std::string> shipped = device_names();
    if (std::ranges::find(shipped, name) != shipped.end()) {
        return;
    }
    std::vector<string_view> known{this_machine};
    known.insert(known.end(), shipped.begin(), shipped.end());
    const string_view near = nearest_word(name, known);
    table.refuse(key,
                 fmt::format("devices out of {}", fmt::join(known, ", ")),
                 shipped.empty()
                     ? fmt::format("there are no device profiles in {}; PIPETWIN_PROFILES names "
                                   "another folder",
                                   profiles_folder().string())
                 : near.empty() ? "'pipetwin devices' lists what is known of each"
                                : fmt::format("did you mean '{}'?", near));
}

/// One device for all ranks, or one for each; or how fast each rank is.
void read_devices(const TomlTable& table, Scenario::ClusterPart& cluster) {
    cluster.device = table.text("device").value_or(cluster.device);
    expect_device(table, "device", cluster.device);
    cluster.devices = table.texts("devices").value_or(cluster.devices);
    for (const std::string& name : cluster.devices) {
        expect_device(table, "devices", name);
    }
    cluster.speeds = table.numbers("speeds", {0, 1'000'000}).value_or(cluster.speeds);
    if (std::ranges::any_of(cluster.speeds, [](double speed) { return speed < 1e-6; })) {
        table.refuse("speeds", "speeds from 0.000001 to 1000000, 1 being that of the costs");
    }
    if (const auto how = table.choice("scale_costs", words::scale_costs)) {
        cluster.scale_costs = static_cast<ScaleCosts>(*how);
    }
    if (table.has("devices") && (table.has("device") || table.has("speeds"))) {
        table.refuse("devices",
                     table.has("device") ? "either device or devices" : "either speeds or devices",
                     "devices names one for each rank");
    }
}

void read_placement(const TomlTable& table, Scenario::ClusterPart& cluster) {
    cluster.per_node = as_int(table.integer("per_node", {1, 1 << 20}), cluster.per_node);
    if (table.is_list("placement")) {
        cluster.placement = Placement::Written;
        cluster.nodes = *table.integers("placement", {0, 1 << 20});
    } else if (const auto placement = table.choice("placement", words::placements)) {
        cluster.placement = static_cast<Placement>(*placement);
    }
}

std::string read_link_name(const TomlTable& table, string_view key) {
    const std::optional<std::string> name = table.text(key);
    if (name) {
        try {
            find_link(*name);
        } catch (const Error& error) {
            throw error.at(table.place(key));
        }
    }
    return name.value_or("");
}

void read_links(const TomlTable& table, Scenario::ClusterPart& cluster) {
    cluster.link = read_link_name(table, "link");
    cluster.node_link = read_link_name(table, "node_link");
    cluster.host_link = read_link_name(table, "host_link");
    constexpr Range rate{0, 1'000'000'000};
    const auto number = [&](string_view key, double& value) {
        value = table.number(key, rate).value_or(value);
    };
    number("link_gbps", cluster.link_gbps);
    number("node_link_gbps", cluster.node_link_gbps);
    number("link_latency_us", cluster.link_latency_us);
    number("node_link_latency_us", cluster.node_link_latency_us);
    number("host_link_gbps", cluster.host_link_gbps);
    number("host_link_latency_us", cluster.host_link_latency_us);
}

/// What ranks and messages take from each other.
void read_sharing(const TomlTable& table, Scenario::ClusterPart& cluster) {
    if (const auto transfer = table.choice("transfer", words::transfers)) {
        cluster.transfer = static_cast<TransferMode>(*transfer);
    }
    cluster.cores = as_int(table.integer("cores", {0, 1 << 20}), cluster.cores);
    constexpr Range share{0, 100};
    if (table.is_list("interference")) {
        cluster.pair_interference = *table.rows_of_numbers("interference", share);
    } else {
        cluster.interference = table.number("interference", share).value_or(cluster.interference);
    }
    const auto sharing = table.choice("link_sharing", words::link_sharings);
    if (sharing && words::link_sharings.at(*sharing) != "none") {
        cluster.link_sharing = static_cast<LinkSharing>(*sharing);
    }
}

void read_memory_limit(const TomlTable& table, Scenario::ClusterPart& cluster) {
    if (table.is_list("memory_limit")) {
        cluster.memory_limits = *table.all_bytes("memory_limit");
    } else {
        cluster.memory_limit = table.bytes("memory_limit");
    }
}

/// Lists that have an entry for every rank.
void expect_one_per_rank(const TomlTable& table, const Scenario& scenario) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    const auto expect = [&](string_view key, std::size_t entries, std::int64_t ranks) {
        if (table.is_list(key) && static_cast<std::int64_t>(entries) != ranks) {
            table.refuse(key,
                         fmt::format("{} entries, one for each rank", ranks),
                         fmt::format("it has {}", entries));
        }
    };
    if (const std::optional<int> stages = scenario.pipeline.stages) {
        expect("devices", cluster.devices.size(), *stages);
        expect("speeds", cluster.speeds.size(), *stages);
        expect("memory_limit", cluster.memory_limits.size(), *stages);
        expect("interference", cluster.pair_interference.size(), *stages);
        for (const std::vector<double>& row : cluster.pair_interference) {
            expect("interference", row.size(), *stages);
        }
        if (const std::optional<int> replicas = scenario.pipeline.data_parallel) {
            expect("placement", cluster.nodes.size(), std::int64_t{*stages} * *replicas);
        }
    }
}

void expect_enough_devices(const TomlTable& table, const Scenario& scenario) {
    const int count = scenario.cluster.count;
    const int stages = scenario.pipeline.stages.value_or(1);
    const int replicas = scenario.pipeline.data_parallel.value_or(1);
    if (count > 0 && std::int64_t{stages} * replicas > count) {
        table.refuse(
            "count",
            replicas == 1 ? fmt::format("at least the {} of pipeline.stages", stages)
                          : fmt::format("at least {}, for the {} stages of {} replicas",
                                        std::int64_t{stages} * replicas,
                                        stages,
                                        replicas),
            replicas == 1
                ? fmt::format(
                      "every stage needs a device: set stages = {} or count = {}", count, stages)
                : "every stage of every replica needs a device");
    }
}

void read_cluster(const TomlTable& table, Scenario& scenario) {
    table.expect_keys(std::array<string_view, 22>{"backend",
                                                  "device",
                                                  "devices",
                                                  "speeds",
                                                  "scale_costs",
                                                  "count",
                                                  "per_node",
                                                  "placement",
                                                  "link",
                                                  "node_link",
                                                  "link_gbps",
                                                  "node_link_gbps",
                                                  "link_latency_us",
                                                  "node_link_latency_us",
                                                  "host_link",
                                                  "host_link_gbps",
                                                  "host_link_latency_us",
                                                  "memory_limit",
                                                  "transfer",
                                                  "cores",
                                                  "interference",
                                                  "link_sharing"});
    Scenario::ClusterPart& cluster = scenario.cluster;
    if (const auto backend = table.choice("backend", words::backends)) {
        cluster.backend = static_cast<Backend>(*backend);
    }
    cluster.count = as_int(table.integer("count", {0, 1 << 20}), cluster.count);
    read_devices(table, cluster);
    read_placement(table, cluster);
    read_links(table, cluster);
    read_memory_limit(table, cluster);
    read_sharing(table, cluster);
    expect_one_per_rank(table, scenario);
    expect_enough_devices(table, scenario);
}

/// What is offloaded has to go somewhere.
void expect_host_link(const TomlTable& pipeline, const Scenario& scenario) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    if (scenario.pipeline.offload != Offload::None && cluster.host_link.empty() &&
        cluster.host_link_gbps <= 0) {
        pipeline.refuse("offload",
                        "a link to host memory that the stashes go over",
                        "set cluster.host_link = \"pcie-4\", or another of its kind, or "
                        "cluster.host_link_gbps");
    }
}

void read_output(const TomlTable& table, Scenario::OutputPart& output) {
    table.expect_keys(std::array<string_view, 1>{"checkpoint_every"});
    output.checkpoint_every = as_int(table.integer("checkpoint_every", {0, any_size.high}), 0);
    expect_only(table, "checkpoint_every", output.checkpoint_every, 0, "writing of checkpoints");
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

}  // namespace

Scenario parse_scenario(std::string_view text,
                        const std::filesystem::path& file,
                        const std::vector<Override>& overrides) {
    if (text.size() > largest_file) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    fmt::format("{} bytes, a scenario has at most {}", text.size(), largest_file));
    }
    const TomlDocument document(text, file.string(), overrides);
    const TomlTable root = document.root();
    root.expect_keys(
        std::array<string_view, 6>{"model", "data", "training", "pipeline", "cluster", "output"});

    Scenario scenario;
    scenario.file = file;
    if (!root.has("model")) {
        root.missing("model", "a table [model] with the kind of the model");
    }
    read_model(root.table("model"), scenario);
    read_data(root.table("data"), scenario);
    read_training(root.table("training"), scenario.training);
    read_pipeline(root.table("pipeline"), file, scenario.pipeline);
    read_cluster(root.table("cluster"), scenario);
    expect_host_link(root.table("pipeline"), scenario);
    read_output(root.table("output"), scenario.output);
    check_whole(scenario);
    return scenario;
}

Scenario read_scenario(const std::filesystem::path& file, const std::vector<Override>& overrides) {
    return parse_scenario(read_file(file, largest_file), file, overrides);
}

}  // namespace pipetwin
