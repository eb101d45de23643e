#include <algorithm>
#include <iterator>
#include <string>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/model/layer_kinds.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_words.h"

/// Writing of scenarios: the same tables in the same order as the reader, every default written
/// out.
namespace pipetwin {

namespace {

/// A TOML basic string.
std::string quoted(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        const auto code = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            result += '\\';
            result += c;
        } else if (code < 0x20 || code == 0x7f) {
            result += fmt::format("\\u{:04X}", code);
        } else {
            result += c;
        }
    }
    return result + '"';
}

class Writer {
  public:
    void table(std::string_view name) {
        fmt::format_to(out(), "{}[{}]\n", text_.empty() ? "" : "\n", name);
    }
    void list_entry(std::string_view name) { fmt::format_to(out(), "\n[[{}]]\n", name); }

    void string(std::string_view key, std::string_view value) {
        fmt::format_to(out(), "{} = {}\n", key, quoted(value));
    }
    template <class Number>
    void number(std::string_view key, Number value) {
        fmt::format_to(out(), "{} = {}\n", key, value);
    }
    template <class Number>
    void list(std::string_view key, const std::vector<Number>& values) {
        fmt::format_to(out(), "{} = [{}]\n", key, fmt::join(values, ", "));
    }
    template <class Number>
    void lists(std::string_view key, const std::vector<std::vector<Number>>& rows) {
        std::vector<std::string> all;
        for (const std::vector<Number>& row : rows) {
            all.push_back(fmt::format("[{}]", fmt::join(row, ", ")));
        }
        list(key, all);
    }
    void strings(std::string_view key, const std::vector<std::string>& values) {
        std::vector<std::string> all;
        std::ranges::transform(values, std::back_inserter(all), quoted);
        list(key, all);
    }
    void planned(std::string_view key, std::optional<int> value) {
        if (value) {
            number(key, *value);
        } else {
            string(key, "auto");
        }
    }

    std::string take() { return std::move(text_); }

  private:
    std::back_insert_iterator<std::string> out() { return std::back_inserter(text_); }

    std::string text_;
};

void print_layers(Writer& writer, const std::vector<LayerSpec>& layers, const std::string& path) {
    for (const LayerSpec& layer : layers) {
        writer.list_entry(path);
        writer.string("type", to_string(layer.type));
        if (!layer.name.empty()) {
            writer.string("name", layer.name);
        }
        const LayerKind& kind = layer_kind(layer.type);
        for (const LayerKey& key : kind.keys()) {
            std::visit([&](auto field) { writer.number(key.name, layer.*field); }, key.value);
        }
        print_layers(writer, layer.inner, path + ".layer");
    }
}

void print_model(Writer& writer, const Scenario::ModelPart& model) {
    writer.table("model");
    writer.string("kind", to_string(model.kind));
    switch (model.kind) {
        case ModelKind::Gpt:
            writer.number("layers", model.gpt.layers);
            writer.number("d_model", model.gpt.d_model);
            writer.number("heads", model.gpt.heads);
            writer.number("context", model.gpt.context);
            writer.number("vocabulary", model.gpt.vocabulary);
            writer.number("feed_forward", model.gpt.feed_forward);
            writer.number("tied", model.gpt.tied);
            writer.number("dropout", model.gpt.dropout);
            break;
        case ModelKind::Mlp:
            writer.list("sizes", model.sizes);
            break;
        case ModelKind::Layers:
            if (!model.input.token_ids) {
                writer.number("input", model.input.width);
            }
            print_layers(writer, model.layers, "model.layer");
            break;
        case ModelKind::Profile:
            writer.string("file", model.profile.string());
            break;
    }
}

void print_data(Writer& writer, const Scenario::DataPart& data) {
    writer.table("data");
    // Where no data was named, the kind is the model's own, and stays so.
    if (!data.path.empty() || data.kind == DataKind::Synthetic) {
        writer.string("kind", to_string(data.kind));
    }
    if (!data.path.empty()) {
        writer.string("path", data.path.string());
    }
    if (data.validation_path.empty()) {
        writer.number("validation", data.validation_share);
    } else {
        writer.string("validation", data.validation_path.string());
    }
}

void print_training(Writer& writer, const Scenario::TrainingPart& training) {
    writer.table("training");
    writer.number("batch", training.batch);
    writer.number("steps", training.steps);
    writer.string("optimizer", to_string(training.optimizer));
    writer.number("learning_rate", training.learning_rate);
    writer.string("learning_rate_schedule", to_string(training.learning_rate_schedule));
    writer.number("warmup_steps", training.warmup_steps);
    writer.number("final_learning_rate", training.final_learning_rate);
    writer.number("clip_norm", training.clip_norm);
    writer.string("precision", to_string(training.precision));
    writer.number("seed", training.seed);
    writer.number("validate_every", training.validate_every);
    writer.number("validation_batches", training.validation_batches);
}

void print_pipeline(Writer& writer, const Scenario::PipelinePart& pipeline) {
    writer.table("pipeline");
    writer.planned("stages", pipeline.stages);
    writer.planned("micro_batches", pipeline.micro_batches);
    writer.string("schedule", pipeline.schedule.value_or("auto"));
    writer.planned("chunks", pipeline.chunks);
    writer.number("group_size", pipeline.group_size);
    writer.number("deferred_weights", pipeline.deferred_weights);
    writer.string("message_order", to_string(pipeline.message_order));
    if (pipeline.recompute_auto) {
        writer.string("recompute", "auto");
    } else if (pipeline.recompute && pipeline.recompute->everywhere()) {
        writer.string("recompute", to_string(*pipeline.recompute));
    } else if (pipeline.recompute) {
        std::vector<std::string> modes;
        std::ranges::transform(pipeline.recompute->modes(),
                               std::back_inserter(modes),
                               [](Recompute mode) { return std::string(to_string(mode)); });
        writer.strings("recompute", modes);
    }
    writer.string("recompute_timing", to_string(pipeline.recompute_timing));
    writer.string("offload", words::offloads.at(as_index(pipeline.offload)));
    if (pipeline.partition) {
        writer.list("partition", *pipeline.partition);
    } else {
        writer.string("partition", "auto");
    }
    writer.planned("channel_capacity", pipeline.channel_capacity);
    writer.planned("data_parallel", pipeline.data_parallel);
    writer.string("all_reduce", to_string(pipeline.all_reduce));
    writer.number("overlap_reduction", pipeline.overlap_reduction);
    writer.number("shard_optimizer", pipeline.shard_optimizer);
    writer.planned("tensor_parallel", pipeline.tensor_parallel);
}

void print_cluster(Writer& writer, const Scenario::ClusterPart& cluster) {
    writer.table("cluster");
    writer.string("backend", to_string(cluster.backend));
    if (cluster.devices.empty()) {
        writer.string("device", cluster.device);
    } else {
        writer.strings("devices", cluster.devices);
    }
    if (!cluster.speeds.empty()) {
        writer.list("speeds", cluster.speeds);
    }
    writer.string("scale_costs", to_string(cluster.scale_costs));
    writer.number("count", cluster.count);
    writer.number("per_node", cluster.per_node);
    if (cluster.placement == Placement::Written) {
        writer.list("placement", cluster.nodes);
    } else {
        writer.string("placement", to_string(cluster.placement));
    }
    for (const auto& [key, name] : {std::pair("link", cluster.link),
                                    std::pair("node_link", cluster.node_link),
                                    std::pair("host_link", cluster.host_link)}) {
        if (!name.empty()) {
            writer.string(key, name);
        }
    }
    writer.number("link_gbps", cluster.link_gbps);
    writer.number("node_link_gbps", cluster.node_link_gbps);
    writer.number("link_latency_us", cluster.link_latency_us);
    writer.number("node_link_latency_us", cluster.node_link_latency_us);
    writer.number("emulate_links", cluster.emulate_links);
    writer.number("host_link_gbps", cluster.host_link_gbps);
    writer.number("host_link_latency_us", cluster.host_link_latency_us);
    writer.string("transfer", to_string(cluster.transfer));
    writer.number("cores", cluster.cores);
    if (cluster.pair_interference.empty()) {
        writer.number("interference", cluster.interference);
    } else {
        writer.lists("interference", cluster.pair_interference);
    }
    writer.string("link_sharing",
                  words::link_sharings.at(cluster.link_sharing ? as_index(*cluster.link_sharing)
                                                               : words::link_sharings.size() - 1));
    if (cluster.gpu_units.empty()) {
        writer.string("gpu_shares", to_string(cluster.gpu_shares));
    } else {
        writer.list("gpu_shares", cluster.gpu_units);
    }
    if (cluster.memory_limit) {
        writer.number("memory_limit", cluster.memory_limit->count);
    } else if (!cluster.memory_limits.empty()) {
        std::vector<std::int64_t> limits;
        std::ranges::transform(cluster.memory_limits, std::back_inserter(limits), &Bytes::count);
        writer.list("memory_limit", limits);
    }
}

}  // namespace

std::string print_scenario(const Scenario& scenario) {
    Writer writer;
    print_model(writer, scenario.model);
    print_data(writer, scenario.data);
    print_training(writer, scenario.training);
    print_pipeline(writer, scenario.pipeline);
    print_cluster(writer, scenario.cluster);
    writer.table("output");
    writer.number("checkpoint_every", scenario.output.checkpoint_every);
    return writer.take();
}

}  // namespace pipetwin
