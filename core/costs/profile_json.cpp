// SPDX-License-Identifier: Apache-2.0
#include "core/costs/profile_json.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/estimate_source.h"
#include "core/costs/profile_csv.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr int profile_schema_version = 1;
constexpr std::int64_t most_layers = 100'000;
constexpr std::int64_t most_output_rows = 100'000;  // as a model has blocks
/// Most bytes that all layers take once `repeat` is written out: a short file may ask for more than
/// there is.
constexpr std::size_t most_memory = std::size_t{256} << 20;
constexpr std::array all_sources{
    CostSource::Measured, CostSource::Imported, CostSource::Datasheet, CostSource::Estimated};

CostSource read_source(const JsonObject& object) {
    const std::string word = object.text("source");
    const auto found = std::ranges::find_if(
        all_sources, [&word](CostSource source) { return to_string(source) == word; });
    if (found == all_sources.end()) {
        object.refuse("source", "measured, imported, datasheet or estimated");
    }
    return *found;
}

/// The two parts of the backward, or the whole of it, halved.
void read_backward(const JsonObject& object, LayerSample& sample) {
    const bool has_parts = object.has("backward_input_ns") || object.has("backward_weight_ns");
    if (!object.has("backward_ns")) {
        sample.backward_input = Duration{object.whole("backward_input_ns")};
        sample.backward_weight = Duration{object.whole("backward_weight_ns")};
        return;
    }
    if (has_parts) {
        object.refuse("backward_ns",
                      "either backward_ns or backward_input_ns and backward_weight_ns");
    }
    const Duration whole{object.whole("backward_ns")};
    sample.backward_input = whole / 2;
    sample.backward_weight = whole - sample.backward_input;
}

int read_kernels(const JsonObject& object, string_view key) {
    constexpr std::int64_t most = 1'000'000;
    const std::int64_t count = object.whole_or(key, 0);
    if (count > most) {
        object.refuse(key, fmt::format("at most {} kernels", most));
    }
    return static_cast<int>(count);
}

/// Counts of the two parts of the backward, or of the whole of it, halved as its time.
void read_kernels(const JsonObject& object, LayerSample& sample) {
    sample.forward_kernels = read_kernels(object, "forward_kernels");
    sample.backward_input_kernels = read_kernels(object, "backward_input_kernels");
    sample.backward_weight_kernels = read_kernels(object, "backward_weight_kernels");
    if (!object.has("backward_kernels")) {
        return;
    }
    if (object.has("backward_input_kernels") || object.has("backward_weight_kernels")) {
        object.refuse("backward_kernels",
                      "either backward_kernels or backward_input_kernels and "
                      "backward_weight_kernels");
    }
    const int whole = read_kernels(object, "backward_kernels");
    sample.backward_input_kernels = whole / 2;
    sample.backward_weight_kernels = whole - whole / 2;
}

LayerSample read_sample(const JsonObject& object) {
    object.expect_keys(std::array<string_view, 33>{"micro_batch_size",
                                                   "forward_ns",
                                                   "backward_ns",
                                                   "backward_input_ns",
                                                   "backward_weight_ns",
                                                   "input_bytes",
                                                   "output_bytes",
                                                   "saved_bytes",
                                                   "workspace_bytes",
                                                   "split_bytes",
                                                   "spread",
                                                   "forward_kernels",
                                                   "backward_kernels",
                                                   "backward_input_kernels",
                                                   "backward_weight_kernels",
                                                   "input_saved_bytes",
                                                   "core_forward_ns",
                                                   "core_saved_bytes",
                                                   "whole_forward_ns",
                                                   "whole_backward_ns",
                                                   "whole_saved_bytes",
                                                   "accumulation_ns",
                                                   "tail_forward_ns",
                                                   "unread_gradient_bytes",
                                                   "first_forward_ns",
                                                   "first_input_ns",
                                                   "first_weight_ns",
                                                   "last_forward_ns",
                                                   "last_input_ns",
                                                   "devices_forward_ns",
                                                   "devices_backward_ns",
                                                   "replicas_forward_ns",
                                                   "replicas_backward_ns"});
    LayerSample sample;
    const std::int64_t size = object.whole("micro_batch_size");
    if (size < 1 || size > std::numeric_limits<int>::max()) {
        object.refuse("micro_batch_size", "a number of samples, at least 1");
    }
    sample.micro_batch_size = static_cast<int>(size);
    sample.forward = Duration{object.whole("forward_ns")};
    read_backward(object, sample);
    sample.input = Bytes{object.whole_or("input_bytes", 0)};
    sample.output = Bytes{object.whole("output_bytes")};
    sample.saved = Bytes{object.whole("saved_bytes")};
    sample.workspace = Bytes{object.whole_or("workspace_bytes", 0)};
    sample.split = Bytes{object.whole_or("split_bytes", 0)};
    sample.input_saved = Bytes{object.whole_or("input_saved_bytes", 0)};
    sample.unread_gradient = Bytes{object.whole_or("unread_gradient_bytes", 0)};
    sample.core_forward = Duration{object.whole_or("core_forward_ns", 0)};
    sample.core_saved = Bytes{object.whole_or("core_saved_bytes", 0)};
    sample.whole_forward = Duration{object.whole_or("whole_forward_ns", 0)};
    sample.whole_backward = Duration{object.whole_or("whole_backward_ns", 0)};
    sample.whole_saved = Bytes{object.whole_or("whole_saved_bytes", 0)};
    sample.tail_forward = Duration{object.whole_or("tail_forward_ns", 0)};
    sample.accumulation = Duration{object.whole_or("accumulation_ns", 0)};
    sample.first_forward = Duration{object.whole_or("first_forward_ns", 0)};
    sample.first_input = Duration{object.whole_or("first_input_ns", 0)};
    sample.first_weight = Duration{object.whole_or("first_weight_ns", 0)};
    sample.last_forward = Duration{object.whole_or("last_forward_ns", 0)};
    sample.last_input = Duration{object.whole_or("last_input_ns", 0)};
    sample.devices_forward = Duration{object.whole_or("devices_forward_ns", 0)};
    sample.devices_backward = Duration{object.whole_or("devices_backward_ns", 0)};
    sample.replicas_forward = Duration{object.whole_or("replicas_forward_ns", 0)};
    sample.replicas_backward = Duration{object.whole_or("replicas_backward_ns", 0)};
    sample.spread = object.number_or("spread", 0);
    read_kernels(object, sample);
    return sample;
}

/// [{"devices": 2, "samples": [...]}, ...]
void read_shared(const JsonObject& object, LayerCost& layer) {
    constexpr std::int64_t most = 4096;
    for (const JsonObject& entry : object.objects("shared")) {
        entry.expect_keys(std::array<string_view, 2>{"devices", "samples"});
        const std::int64_t devices = entry.whole("devices");
        const bool ascends = layer.shared.empty() || devices > layer.shared.rbegin()->first;
        if (devices < 2 || devices > most || !ascends) {
            entry.refuse("devices", fmt::format("2 to {}, ascending, each once", most));
        }
        std::vector<LayerSample>& samples = layer.shared[static_cast<int>(devices)];
        for (const JsonObject& sample : entry.objects("samples")) {
            samples.push_back(read_sample(sample));
        }
    }
}

LayerCost read_layer(const JsonObject& object) {
    object.expect_keys(std::array<string_view, 22>{"name",
                                                   "repeat",
                                                   "kind",
                                                   "inputs",
                                                   "parameter_count",
                                                   "parameter_bytes",
                                                   "expert_bytes",
                                                   "whole_bytes",
                                                   "running_bytes",
                                                   "frozen_bytes",
                                                   "frozen_expert_bytes",
                                                   "optimizer_ns",
                                                   "replicas_update_ns",
                                                   "weight_cast_ns",
                                                   "weight_copy_bytes",
                                                   "source",
                                                   "samples",
                                                   "shared",
                                                   "tensor_sums",
                                                   "output_rows",
                                                   "operations_per_sample",
                                                   "masked_operations_per_sample"});
    LayerCost layer;
    layer.name = object.text("name");
    layer.kind = object.text_or("kind", "");
    layer.inputs = object.texts("inputs");
    layer.parameter_count = object.whole_or("parameter_count", 0);
    layer.parameter_bytes = Bytes{object.whole("parameter_bytes")};
    layer.expert_bytes = Bytes{object.whole_or("expert_bytes", 0)};
    layer.whole_bytes = Bytes{object.whole_or("whole_bytes", 0)};
    layer.running_bytes = Bytes{object.whole_or("running_bytes", 0)};
    layer.frozen_bytes = Bytes{object.whole_or("frozen_bytes", 0)};
    layer.frozen_expert_bytes = Bytes{object.whole_or("frozen_expert_bytes", 0)};
    layer.optimizer = Duration{object.whole_or("optimizer_ns", 0)};
    layer.replicas_update = Duration{object.whole_or("replicas_update_ns", 0)};
    layer.weight_cast = Duration{object.whole_or("weight_cast_ns", 0)};
    layer.weight_copies = Bytes{object.whole_or("weight_copy_bytes", 0)};
    if (object.has("source")) {
        layer.source = read_source(object);
    }
    for (const JsonObject& sample : object.objects("samples")) {
        layer.samples.push_back(read_sample(sample));
    }
    read_shared(object, layer);
    const std::int64_t sums = object.whole_or("tensor_sums", 1);
    if (sums > 16) {
        object.refuse("tensor_sums", "0 to 16");
    }
    layer.tensor_sums = static_cast<int>(sums);
    const std::int64_t rows = object.whole_or("output_rows", 1);
    if (rows < 1 || rows > most_output_rows) {
        object.refuse("output_rows", fmt::format("1 to {}", most_output_rows));
    }
    layer.output_rows = static_cast<int>(rows);
    if (object.has("operations_per_sample")) {
        layer.operations = object.number_or("operations_per_sample", 0);
    }
    if (object.has("masked_operations_per_sample")) {
        layer.masked_operations = object.number_or("masked_operations_per_sample", 0);
    }
    return layer;
}

/// The layers in their order, each as often as its `repeat` says.
class LayerList {
  public:
    void add(const JsonObject& object) {
        LayerCost layer = read_layer(object);
        const std::int64_t repeat = object.whole_or("repeat", 1);
        reserve(object, layer, repeat);
        const std::string name = layer.name;
        for (std::int64_t copy = 0; copy + 1 < repeat; ++copy) {
            layer.name = fmt::format("{}{}", name, copy);
            layers_.push_back(layer);
        }
        if (repeat > 1) {
            layer.name = fmt::format("{}{}", name, repeat - 1);
        }
        layers_.push_back(std::move(layer));
        entry_of_layer_.resize(layers_.size(), entries_++);
    }

    std::vector<LayerCost> take() { return std::move(layers_); }

    /// For each layer the index of its entry in the file.
    const std::vector<std::size_t>& entry_of_layer() const { return entry_of_layer_; }

  private:
    /// Refuses what would be too much before there is any of it.
    void reserve(const JsonObject& object, const LayerCost& layer, std::int64_t repeat) {
        if (repeat < 1 || repeat > most_layers) {
            object.refuse("repeat", fmt::format("1 to {}", most_layers));
        }
        if (repeat > 1 && !layer.inputs.empty()) {
            object.refuse("repeat", "1 where there are inputs: copies read the layer before them");
        }
        const std::size_t copies = as_index(repeat);
        if (layers_.size() + copies > as_index(most_layers)) {
            object.refuse("repeat", fmt::format("at most {} layers in all", most_layers));
        }
        std::size_t samples = layer.samples.size();
        for (const auto& [devices, of_one] : layer.shared) {
            samples += of_one.size();
        }
        memory_ += copies * (sizeof(LayerCost) + layer.name.size() + layer.kind.size() +
                             samples * sizeof(LayerSample));
        if (memory_ > most_memory) {
            object.refuse("repeat",
                          fmt::format("layers that take at most {} MiB in all", most_memory >> 20));
        }
    }

    std::vector<LayerCost> layers_;
    std::vector<std::size_t> entry_of_layer_;
    std::size_t entries_ = 0;
    std::size_t memory_ = 0;
};

LinkCost read_link(const JsonObject& object) {
    object.expect_keys(std::array<string_view, 4>{
        "between", "latency_ns", "bytes_per_second", "half_bandwidth_bytes"});
    return {.between = object.text_or("between", "ranks"),
            .latency = Duration{object.whole_or("latency_ns", 0)},
            .bytes_per_second = object.number_or("bytes_per_second", 0),
            .half_bandwidth = Bytes{object.whole_or("half_bandwidth_bytes", 0)}};
}

RankInterference read_rank(const JsonObject& object) {
    object.expect_keys(std::array<string_view, 2>{"device", "interference"});
    const std::int64_t device = object.whole("device");
    if (device > std::numeric_limits<int>::max()) {
        object.refuse("device", "the number of a device, below 2^31");
    }
    return {.device = static_cast<int>(device),
            .interference = object.number_or("interference", 0)};
}

CalibrationNote read_calibration(const JsonObject& object) {
    object.expect_keys(std::array<string_view, 5>{
        "clean_steps", "dropped_steps", "p90_over_p10", "interference", "ladder"});
    const auto count = [&object](string_view key) {
        const std::int64_t steps = object.whole(key);
        if (steps < 0 || steps > std::numeric_limits<int>::max()) {
            object.refuse(key, "a number of steps");
        }
        return static_cast<int>(steps);
    };
    CalibrationNote note{.clean_steps = count("clean_steps"),
                         .dropped_steps = count("dropped_steps"),
                         .p90_over_p10 = object.number_or("p90_over_p10", 1)};
    if (object.has("interference") && !object.is_null("interference")) {
        note.interference = object.number_or("interference", 0);
        if (*note.interference < 0) {
            object.refuse("interference", "a share that is not negative, or null");
        }
    }
    if (object.has("ladder")) {
        for (const JsonObject& rung : object.objects("ladder")) {
            rung.expect_keys(std::array<string_view, 2>{"message_bytes", "ns"});
            note.ladder.push_back({.message = Bytes{rung.whole("message_bytes")},
                                   .time = Duration{rung.whole("ns")}});
        }
    }
    return note;
}

/// Time of messages over that of their links; 1 where the key is missing.
double message_time(const JsonObject& object, string_view key) {
    const double time = object.number_or(key, 1);
    if (!(time > 0)) {
        object.refuse(key, "a factor above 0");
    }
    return time;
}

/// A whole number from 1 up; 1 where the key is missing.
int count_or_one(const JsonObject& object, string_view key) {
    const std::int64_t count = object.whole_or(key, 1);
    if (count < 1 || count > std::numeric_limits<int>::max()) {
        object.refuse(key, "a whole number from 1 to 2^31 - 1");
    }
    return static_cast<int>(count);
}

MeasuredLayout read_layout(const JsonObject& object) {
    object.expect_keys(measured_layout_keys);
    MeasuredLayout layout{.name = object.text("name"),
                          .parameters = object.whole("parameters"),
                          .sequence = static_cast<int>(object.whole("sequence")),
                          .device = object.text("device"),
                          .precision = object.text("precision"),
                          .devices = count_or_one(object, "devices"),
                          .stages = count_or_one(object, "stages"),
                          .chunks = count_or_one(object, "chunks"),
                          .tensor_parallel = count_or_one(object, "tensor_parallel"),
                          .context_parallel = count_or_one(object, "context_parallel"),
                          .expert_parallel = count_or_one(object, "expert_parallel"),
                          .micro_batch_size = count_or_one(object, "micro_batch_size"),
                          .recompute = object.text("recompute"),
                          .shard = object.text("shard"),
                          .schedule = object.text("schedule")};
    if (object.has("left_out")) {
        layout.left_out = object.number_or("left_out", 0);
    }
    return layout;
}

RunCalibration read_run_calibration(const JsonObject& object) {
    object.expect_keys(
        std::array<string_view, 4>{"compute_factor", "memory_factor", "runs", "layouts"});
    RunCalibration calibration{.compute_factor = object.number_or("compute_factor", 1)};
    if (object.has("memory_factor") && !object.is_null("memory_factor")) {
        calibration.memory_factor = object.number_or("memory_factor", 1);
    }
    const std::int64_t runs = object.whole("runs");
    if (runs < 1 || runs > std::numeric_limits<int>::max()) {
        object.refuse("runs", "a number of runs, at least 1");
    }
    calibration.runs = static_cast<int>(runs);
    for (const JsonObject& layout : object.objects("layouts")) {
        calibration.layouts.push_back(read_layout(layout));
    }
    return calibration;
}

MeasuredGroups read_groups(const JsonObject& object) {
    object.expect_keys(
        std::array<string_view, 4>{"devices", "sequence_parallel", "replicas", "shard"});
    MeasuredGroups groups{.sequence_parallel = object.flag("sequence_parallel"),
                          .shard = object.text("shard")};
    for (const auto& [key, number] : {std::pair("devices", &MeasuredGroups::devices),
                                      std::pair("replicas", &MeasuredGroups::replicas)}) {
        const std::int64_t members = object.whole(key);
        constexpr std::int64_t most = 4096;
        if (members < 1 || members > most) {
            object.refuse(key, fmt::format("1 to {}", most));
        }
        groups.*number = static_cast<int>(members);
    }
    constexpr std::array words{"none", "optimizer", "gradients", "weights"};
    if (std::ranges::find(words, groups.shard) == words.end()) {
        object.refuse("shard", "none, optimizer, gradients or weights");
    }
    return groups;
}

}  // namespace

Profile parse_profile(std::string_view text, std::string_view place) {
    const nlohmann::json root = parse_json(text, place);
    const JsonObject object(root, place, "");
    object.expect_keys(std::array<string_view, 22>{"schema_version",
                                                   "source",
                                                   "device",
                                                   "precision",
                                                   "stack",
                                                   "messages_inside",
                                                   "messages_between",
                                                   "tool_version",
                                                   "date",
                                                   "dispatch_ns",
                                                   "launch_ns",
                                                   "tied_bytes",
                                                   "tokens_per_sample",
                                                   "layers",
                                                   "links",
                                                   "groups",
                                                   "ranks",
                                                   "whole_backwards",
                                                   "halves_over_whole",
                                                   "calibration",
                                                   "run_calibrations",
                                                   "estimated_from"});
    if (object.whole("schema_version") != profile_schema_version) {
        object.refuse("schema_version", fmt::format("{}", profile_schema_version));
    }
    Profile profile;
    profile.source = read_source(object);
    profile.device = object.text_or("device", "");
    profile.precision = object.text_or("precision", "fp32");
    profile.stack = object.text_or("stack", "");
    profile.tool_version = object.text_or("tool_version", "");
    profile.date = object.text_or("date", "");
    profile.messages_inside = message_time(object, "messages_inside");
    profile.messages_between = message_time(object, "messages_between");
    profile.dispatch = Duration{object.whole_or("dispatch_ns", 0)};
    profile.launch = Duration{object.whole_or("launch_ns", 0)};
    profile.tied_bytes = Bytes{object.whole_or("tied_bytes", 0)};
    const std::int64_t tokens = object.whole_or("tokens_per_sample", 0);
    if (tokens > std::numeric_limits<int>::max()) {
        object.refuse("tokens_per_sample", "a number of tokens below 2^31");
    }
    profile.tokens_per_sample = static_cast<int>(tokens);
    if (!object.has("layers")) {
        object.missing("layers", "a list of layers");
    }
    LayerList layers;
    for (const JsonObject& layer : object.objects("layers")) {
        layers.add(layer);
    }
    profile.layers = layers.take();
    for (const JsonObject& link : object.objects("links")) {
        profile.links.push_back(read_link(link));
    }
    if (object.has("groups")) {
        profile.groups = read_groups(object.object("groups"));
    }
    for (const JsonObject& rank : object.objects("ranks")) {
        profile.ranks.push_back(read_rank(rank));
    }
    profile.whole_backwards = object.has("whole_backwards") && object.flag("whole_backwards");
    if (object.has("halves_over_whole")) {
        profile.halves_over_whole = object.number_or("halves_over_whole", 1);
    }
    if (object.has("calibration")) {
        profile.calibration = read_calibration(object.object("calibration"));
    }
    for (const JsonObject& entry : object.objects("run_calibrations")) {
        profile.run_calibrations.push_back(read_run_calibration(entry));
    }
    if (object.has("estimated_from")) {
        profile.estimated_from = EstimatedFrom(std::make_shared<const EstimateSource>(
            read_source_json(object.object("estimated_from"))));
    }
    check_profile(profile, place, layers.entry_of_layer());
    return profile;
}

namespace {

using nlohmann::ordered_json;

/// What is not known, or is none, is left out.
ordered_json sample_json(const LayerSample& sample) {
    ordered_json object{{"micro_batch_size", sample.micro_batch_size},
                        {"forward_ns", sample.forward.count()},
                        {"backward_input_ns", sample.backward_input.count()},
                        {"backward_weight_ns", sample.backward_weight.count()},
                        {"input_bytes", sample.input.count},
                        {"output_bytes", sample.output.count},
                        {"saved_bytes", sample.saved.count},
                        {"workspace_bytes", sample.workspace.count},
                        {"split_bytes", sample.split.count},
                        {"spread", sample.spread}};
    for (const auto& [key, count] :
         {std::pair("forward_kernels", std::int64_t{sample.forward_kernels}),
          std::pair("backward_input_kernels", std::int64_t{sample.backward_input_kernels}),
          std::pair("backward_weight_kernels", std::int64_t{sample.backward_weight_kernels}),
          std::pair("input_saved_bytes", sample.input_saved.count),
          std::pair("core_forward_ns", sample.core_forward.count()),
          std::pair("core_saved_bytes", sample.core_saved.count),
          std::pair("whole_forward_ns", sample.whole_forward.count()),
          std::pair("whole_backward_ns", sample.whole_backward.count()),
          std::pair("whole_saved_bytes", sample.whole_saved.count),
          std::pair("accumulation_ns", sample.accumulation.count()),
          std::pair("tail_forward_ns", sample.tail_forward.count()),
          std::pair("unread_gradient_bytes", sample.unread_gradient.count),
          std::pair("first_forward_ns", sample.first_forward.count()),
          std::pair("first_input_ns", sample.first_input.count()),
          std::pair("first_weight_ns", sample.first_weight.count()),
          std::pair("last_forward_ns", sample.last_forward.count()),
          std::pair("last_input_ns", sample.last_input.count()),
          std::pair("devices_forward_ns", sample.devices_forward.count()),
          std::pair("devices_backward_ns", sample.devices_backward.count()),
          std::pair("replicas_forward_ns", sample.replicas_forward.count()),
          std::pair("replicas_backward_ns", sample.replicas_backward.count())}) {
        if (count > 0) {
            object[key] = count;
        }
    }
    return object;
}

/// Keys that say nothing about the layer are left out.
ordered_json layer_json(const LayerCost& layer) {
    ordered_json object{{"name", layer.name}};
    if (!layer.kind.empty()) {
        object["kind"] = layer.kind;
    }
    if (!layer.inputs.empty()) {
        object["inputs"] = layer.inputs;
    }
    object["parameter_count"] = layer.parameter_count;
    object["parameter_bytes"] = layer.parameter_bytes.count;
    if (layer.expert_bytes > Bytes{}) {
        object["expert_bytes"] = layer.expert_bytes.count;
    }
    if (layer.whole_bytes > Bytes{}) {
        object["whole_bytes"] = layer.whole_bytes.count;
    }
    if (layer.running_bytes > Bytes{}) {
        object["running_bytes"] = layer.running_bytes.count;
    }
    if (layer.frozen_bytes > Bytes{}) {
        object["frozen_bytes"] = layer.frozen_bytes.count;
    }
    if (layer.frozen_expert_bytes > Bytes{}) {
        object["frozen_expert_bytes"] = layer.frozen_expert_bytes.count;
    }
    object["optimizer_ns"] = layer.optimizer.count();
    if (layer.replicas_update > Duration{}) {
        object["replicas_update_ns"] = layer.replicas_update.count();
    }
    if (layer.weight_cast > Duration{}) {
        object["weight_cast_ns"] = layer.weight_cast.count();
    }
    if (layer.weight_copies > Bytes{}) {
        object["weight_copy_bytes"] = layer.weight_copies.count;
    }
    if (layer.source) {
        object["source"] = to_string(*layer.source);
    }
    object["samples"] = ordered_json::array();
    for (const LayerSample& sample : layer.samples) {
        object["samples"].push_back(sample_json(sample));
    }
    for (const auto& [devices, of_one] : layer.shared) {
        ordered_json samples = ordered_json::array();
        for (const LayerSample& sample : of_one) {
            samples.push_back(sample_json(sample));
        }
        object["shared"].push_back({{"devices", devices}, {"samples", std::move(samples)}});
    }
    if (layer.tensor_sums != 1) {
        object["tensor_sums"] = layer.tensor_sums;
    }
    if (layer.output_rows != 1) {
        object["output_rows"] = layer.output_rows;
    }
    if (layer.operations) {
        object["operations_per_sample"] = *layer.operations;
    }
    if (layer.masked_operations) {
        object["masked_operations_per_sample"] = *layer.masked_operations;
    }
    return object;
}

ordered_json link_json(const LinkCost& link) {
    return {{"between", link.between},
            {"latency_ns", link.latency.count()},
            {"bytes_per_second", link.bytes_per_second},
            {"half_bandwidth_bytes", link.half_bandwidth.count}};
}

ordered_json calibration_json(const CalibrationNote& note) {
    ordered_json object{{"clean_steps", note.clean_steps},
                        {"dropped_steps", note.dropped_steps},
                        {"p90_over_p10", note.p90_over_p10},
                        {"interference", nullptr},
                        {"ladder", ordered_json::array()}};
    if (note.interference) {
        object["interference"] = *note.interference;
    }
    for (const CalibrationNote::Rung& rung : note.ladder) {
        object["ladder"].push_back(
            {{"message_bytes", rung.message.count}, {"ns", rung.time.count()}});
    }
    return object;
}

ordered_json layout_json(const MeasuredLayout& layout) {
    ordered_json object{{"name", layout.name},
                        {"parameters", layout.parameters},
                        {"sequence", layout.sequence},
                        {"device", layout.device},
                        {"precision", layout.precision},
                        {"devices", layout.devices},
                        {"stages", layout.stages},
                        {"chunks", layout.chunks},
                        {"tensor_parallel", layout.tensor_parallel}};
    for (const auto& [key, degree] : divided_degrees(layout)) {
        object[std::string(key)] = degree;
    }
    object["micro_batch_size"] = layout.micro_batch_size;
    object["recompute"] = layout.recompute;
    object["shard"] = layout.shard;
    object["schedule"] = layout.schedule;
    if (layout.left_out) {
        object["left_out"] = *layout.left_out;
    }
    return object;
}

ordered_json run_calibration_json(const RunCalibration& by) {
    ordered_json object{
        {"compute_factor", by.compute_factor},
        {"memory_factor",
         by.memory_factor ? ordered_json(*by.memory_factor) : ordered_json(nullptr)},
        {"runs", by.runs}};
    for (const MeasuredLayout& layout : by.layouts) {
        object["layouts"].push_back(layout_json(layout));
    }
    return object;
}

}  // namespace

std::string print_profile(const Profile& profile) {
    ordered_json root{{"schema_version", profile_schema_version},
                      {"source", to_string(profile.source)},
                      {"device", profile.device},
                      {"precision", profile.precision},
                      {"tool_version", profile.tool_version},
                      {"date", profile.date},
                      {"dispatch_ns", profile.dispatch.count()},
                      {"launch_ns", profile.launch.count()},
                      {"layers", ordered_json::array()},
                      {"links", ordered_json::array()}};
    if (!profile.stack.empty()) {
        root["stack"] = profile.stack;
    }
    for (const auto& [key, time] : {std::pair("messages_inside", profile.messages_inside),
                                    std::pair("messages_between", profile.messages_between)}) {
        if (time != 1) {
            root[key] = time;
        }
    }
    if (profile.tied_bytes > Bytes{}) {
        root["tied_bytes"] = profile.tied_bytes.count;
    }
    if (profile.tokens_per_sample > 0) {
        root["tokens_per_sample"] = profile.tokens_per_sample;
    }
    for (const LayerCost& layer : profile.layers) {
        root["layers"].push_back(layer_json(layer));
    }
    for (const LinkCost& link : profile.links) {
        root["links"].push_back(link_json(link));
    }
    if (profile.groups) {
        root["groups"] = {{"devices", profile.groups->devices},
                          {"sequence_parallel", profile.groups->sequence_parallel},
                          {"replicas", profile.groups->replicas},
                          {"shard", profile.groups->shard}};
    }
    for (const RankInterference& rank : profile.ranks) {
        root["ranks"].push_back({{"device", rank.device}, {"interference", rank.interference}});
    }
    if (profile.whole_backwards) {
        root["whole_backwards"] = true;
    }
    if (profile.halves_over_whole) {
        root["halves_over_whole"] = *profile.halves_over_whole;
    }
    if (profile.calibration) {
        root["calibration"] = calibration_json(*profile.calibration);
    }
    for (const RunCalibration& by : profile.run_calibrations) {
        root["run_calibrations"].push_back(run_calibration_json(by));
    }
    if (profile.estimated_from) {
        root["estimated_from"] = source_json(*profile.estimated_from.get());
    }
    return root.dump(1) + "\n";
}

Profile read_profile(const std::filesystem::path& file) {
    const std::string text = read_file(file, JsonLimits{}.max_bytes);
    if (file.extension() == ".csv") {
        return parse_profile_csv(text, file.string());
    }
    Profile profile = parse_profile(text, file.string());
    if (is_stack_file(profile.stack)) {
        const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
        profile.stack = (folder / profile.stack).lexically_normal().string();
    }
    return profile;
}

}  // namespace pipetwin
