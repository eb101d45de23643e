// SPDX-License-Identifier: Apache-2.0
#include "tests/support/small_training.h"

#include <ostream>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/model/transformers.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/settled_scenario.h"
#include "exec/device/device.h"
#include "exec/device/kernels.h"
#include "exec/executor/backend.h"
#include "exec/layers/make_layer.h"
#include "exec/profiling/profiler.h"

namespace pipetwin::test {

Model small_mlp() {
    return mlp_model({6, 9, 8, 10, 7, 9, 8, 8, 5});
}

Model small_gpt() {
    return small_gpt_with(0, false);
}

Model small_gpt_with(double dropout, bool tied) {
    return small_gpt_with(dropout, tied, tied ? GeluForm::Tanh : GeluForm::Exact);
}

Model small_gpt_with(double dropout, bool tied, GeluForm gelu) {
    return gpt_model({.layers = 3,
                      .d_model = 8,
                      .heads = 2,
                      .context = 6,
                      .vocabulary = 11,
                      .feed_forward = 16,
                      .tied = tied,
                      .dropout = dropout,
                      .gelu = gelu});
}

Model small_llama() {
    return small_llama_with(false);
}

Model small_llama_with(bool tied) {
    return llama_model({.layers = 2,
                        .d_model = 10,
                        .heads = 4,
                        .key_value_heads = 2,
                        .head_size = 6,
                        .context = 7,
                        .vocabulary = 11,
                        .feed_forward = 14,
                        .tied = tied,
                        .rotary = {.base = 30, .factor = 8, .context = 30}});
}

Model small_translation_with(TranslationTables tables, double dropout) {
    return translation_model({.layers = 2,
                              .d_model = 8,
                              .heads = 2,
                              .head_size = 3,
                              .feed_forward = 10,
                              .vocabulary = 11,
                              .source_context = 6,
                              .target_context = 5,
                              .tables = tables,
                              .learned_positions = tables == TranslationTables::Separate,
                              .label_smoothing = 0.1,
                              .dropout = dropout});
}

Model small_norms() {
    const auto layer = [](LayerType type) { return LayerSpec{.type = type}; };
    const LayerSpec norm = layer(LayerType::BatchNorm);
    const LayerSpec relu = layer(LayerType::Relu);
    const auto named = [](LayerSpec spec, const char* name) {
        spec.name = name;
        return spec;
    };
    LayerSpec wide = layer(LayerType::PadChannels);
    wide.outputs = 8;
    LayerSpec groups = layer(LayerType::GroupNorm);
    groups.groups = 2;
    LayerSpec channels = layer(LayerType::ChannelDropout);
    channels.dropout = 0.25;
    LayerSpec path = layer(LayerType::DropPath);
    path.dropout = 0.25;
    LayerSpec product = layer(LayerType::Linear);
    product.outputs = 5;
    return Model::chain(
        image_shape({3, 2}, 6),
        {named(norm, "bn1"),
         named(layer(LayerType::LeakyRelu), "leaky"),
         named({.type = LayerType::Sequence, .inner = {wide, norm, relu}}, "widen"),
         named({.type = LayerType::Residual, .inner = {norm, relu, channels, path}}, "branch"),
         named(layer(LayerType::InstanceNorm), "instance"),
         named({.type = LayerType::Sequence, .inner = {groups, layer(LayerType::Identity)}},
               "groups"),
         named(norm, "bn2"),
         named(layer(LayerType::Flatten), "flatten"),
         named(product, "product"),
         named(layer(LayerType::CrossEntropy), "loss")});
}

namespace {

LayerSpec linear(std::string name, int outputs, std::vector<std::string> inputs = {}) {
    return {.name = std::move(name),
            .type = LayerType::Linear,
            .outputs = outputs,
            .inputs = std::move(inputs)};
}

LayerSpec of_type(LayerType type, std::string name, std::vector<std::string> inputs = {}) {
    return {.name = std::move(name), .type = type, .inputs = std::move(inputs)};
}

LayerSpec tanh_gelu(std::string name, std::vector<std::string> inputs = {}) {
    LayerSpec spec = of_type(LayerType::Gelu, std::move(name), std::move(inputs));
    spec.gelu = GeluForm::Tanh;
    return spec;
}

LayerSpec sequence(std::string name,
                   std::vector<LayerSpec> inner,
                   std::vector<std::string> inputs = {}) {
    return {.name = std::move(name),
            .type = LayerType::Sequence,
            .inner = std::move(inner),
            .inputs = std::move(inputs)};
}

/// A cell that reads the output before it and the one before that, each several times, and makes
/// three times `width` numbers.
LayerSpec cell(std::string name, int width, std::vector<std::string> inputs) {
    return sequence(
        std::move(name),
        {sequence(
             "state0", {of_type(LayerType::Gelu, "gelu"), linear("linear", width)}, {"input0"}),
         linear("state1", width, {"input1"}),
         tanh_gelu("left2", {"state1"}),
         of_type(LayerType::Add, "state2", {"left2", "state1"}),
         linear("left3", width, {"input0"}),
         of_type(LayerType::LayerNorm, "right3", {"state0"}),
         of_type(LayerType::Add, "state3", {"left3", "right3"}),
         sequence("mix",
                  {linear("left", width),
                   linear("right", width, {"input1"}),
                   of_type(LayerType::Add, "sum", {"left", "right", "input0"})},
                  {"state2", "input1"}),
         of_type(LayerType::Concat, "out", {"state0", "state3", "mix"})},
        std::move(inputs));
}

/// A cell whose second input is read by sums alone, so that no backward reads it; `width` is that
/// of the second input.
LayerSpec cell_with_a_way_past(std::string name, int width, std::vector<std::string> inputs) {
    return sequence(std::move(name),
                    {linear("state0", width),
                     of_type(LayerType::Add, "state2", {"state0", "input1"}),
                     of_type(LayerType::Gelu, "state3", {"state2"}),
                     of_type(LayerType::Add, "sum", {"state3", "input1", "state0"})},
                    std::move(inputs));
}

}  // namespace

Model small_cells() {
    return Model::graph({.positions = 2, .width = 6},
                        {sequence("stem0",
                                  {linear("a", 6),
                                   of_type(LayerType::Gelu, "b", {"input0"}),
                                   of_type(LayerType::Add, "c", {"a", "b"})}),
                         sequence("stem1",
                                  {linear("a", 5),
                                   linear("b", 4, {"input0"}),
                                   of_type(LayerType::Concat, "c", {"a", "b", "input0"})}),
                         cell("cell0", 3, {"stem1", "stem0"}),
                         cell("cell1", 4, {"cell0", "stem1"}),
                         cell_with_a_way_past("cell2", 9, {"cell1", "cell0"}),
                         tanh_gelu("gelu"),
                         linear("classes", 4),
                         of_type(LayerType::CrossEntropy, "loss")});
}

std::string to_string(const Shape& shape) {
    return fmt::format("{} K={} V={} M={} B={} {}",
                       shape.schedule,
                       shape.stages,
                       shape.chunks,
                       shape.micro_batches,
                       shape.batch,
                       to_string(shape.recompute));
}

void PrintTo(const Shape& shape, std::ostream* out) {
    *out << to_string(shape);
}

std::vector<RecomputeRules> every_recompute(int pieces) {
    constexpr int modes = 3;
    std::vector<RecomputeRules> all{Recompute::None, Recompute::Always, Recompute::ExceptLast};
    for (int first = 0; pieces > 1 && first < modes; ++first) {
        std::vector<Recompute> mixed;
        for (int piece = 0; piece < pieces; ++piece) {
            mixed.push_back(static_cast<Recompute>((first + piece) % modes));
        }
        all.emplace_back(std::move(mixed));
    }
    return all;
}

SettledScenario scenario_of(const Shape& shape) {
    SettledScenario scenario;
    scenario.training.batch = shape.batch;
    scenario.training.precision = shape.precision;
    scenario.training.optimizer = shape.optimizer;
    scenario.training.learning_rate = 1e-2;
    scenario.training.clip_norm = shape.clip_norm;
    scenario.training.average_decay = shape.average_decay;
    scenario.pipeline.stages = shape.stages;
    scenario.pipeline.chunks = shape.chunks;
    scenario.pipeline.micro_batches = shape.micro_batches;
    scenario.pipeline.schedule = shape.schedule;
    scenario.pipeline.recompute = shape.recompute;
    scenario.pipeline.recompute_timing = shape.recompute_timing;
    scenario.pipeline.layer_recompute = shape.layer_recompute;
    scenario.pipeline.recompute_blocks = shape.recompute_blocks;
    scenario.pipeline.channel_capacity = shape.channel_capacity;
    scenario.pipeline.partition = shape.partition;
    scenario.pipeline.data_parallel = shape.replicas;
    scenario.pipeline.tensor_parallel = shape.tensor_parallel;
    scenario.pipeline.sequence_parallel = shape.sequence_parallel;
    scenario.pipeline.overlap_reduction = shape.overlap_reduction;
    scenario.pipeline.shard = shape.shard_optimizer ? Shard::Optimizer : shape.shard;
    scenario.pipeline.prefetch = shape.prefetch;
    if (shape.shard_group > 0) {
        scenario.pipeline.shard_group = ShardGroup{.replicas = shape.shard_group};
    }
    scenario.cluster.backend = shape.backend;
    if (shape.host_link_gbps > 0) {
        scenario.pipeline.offload = Offload::Stash;
        scenario.cluster.host_link_gbps = shape.host_link_gbps;
    }
    return scenario;
}

Profile even_profile(const Model& model, const Shape& shape, const LayerTimes& times) {
    const std::vector<int> sizes =
        micro_batch_sizes(shape.batch / shape.replicas, shape.micro_batches);
    const exec::NumberFormat format = exec::number_format(shape.precision, shape.backend);
    const auto width = static_cast<std::int64_t>(exec::size_of(format.real));
    Profile profile;
    profile.source = CostSource::Estimated;
    profile.precision = std::string(pipetwin::to_string(shape.precision));
    profile.links = {times.link};
    const Model kept = exec::model_on(shape.backend, model, shape.tensor_parallel);
    profile.tied_bytes = Bytes{kept.tied_count() * width};
    for (int index = 0; index < model.layer_count(); ++index) {
        const Layer& layer = kept.layer(index);
        LayerCost& cost = profile.layers.emplace_back();
        cost.name = layer.spec.name;
        cost.kind = std::string(pipetwin::to_string(layer.spec.type));
        cost.parameter_count = model.layer(index).parameter_count;
        cost.parameter_bytes = Bytes{layer.parameter_count * width};
        cost.running_bytes = exec::running_bytes(layer, format);
        for (const int size : std::set<int>(sizes.begin(), sizes.end())) {
            const exec::LayerBytes bytes = exec::layer_bytes(kept, index, size, format);
            cost.samples.push_back(
                exec::with_bytes({.micro_batch_size = size,
                                  .forward = times.forward,
                                  .backward_input = times.backward / 2,
                                  .backward_weight = times.backward - times.backward / 2},
                                 bytes));
        }
    }
    exec::add_shares(profile,
                     kept,
                     shape.tensor_parallel,
                     shape.sequence_parallel ? DividedSequence::Yes : DividedSequence::No,
                     format);
    if (shape.layer_recompute == LayerRecompute::Selective) {
        exec::add_core(profile, kept, shape.tensor_parallel, format);
    }
    return profile;
}

Plan plan_of(const Model& model, const Shape& shape, const LayerTimes& times) {
    return make_plan(scenario_of(shape), model, even_profile(model, shape, times));
}

std::vector<Backend> every_host_backend() {
    std::vector<Backend> backends = exec::every_backend();
    std::erase_if(backends, [](Backend backend) { return exec::traits(backend).has_memory; });
    return backends;
}

exec::ExecutorOptions options_of(const Shape& shape) {
    const SettledScenario scenario = scenario_of(shape);
    exec::ExecutorOptions options;
    options.backend = shape.backend;
    options.precision = shape.precision;
    options.optimizer = exec::optimizer_settings(scenario);
    return options;
}

std::vector<double> values_of(const exec::Tensor& tensor) {
    return exec::values(exec::cpu_kernels(), tensor);
}

void PrintTo(const NamedValues& values, std::ostream* out) {
    *out << values.name << " (" << values.values.size() << " numbers, the first "
         << values.values.front() << ")";
}

std::vector<NamedValues> gradients_of(const std::vector<exec::Parameter*>& parameters) {
    std::vector<NamedValues> all;
    for (const exec::Parameter* parameter : parameters) {
        all.push_back({.name = parameter->name, .values = values_of(parameter->gradient)});
    }
    return all;
}

std::vector<NamedValues> weights_of(const std::vector<exec::Parameter*>& parameters) {
    std::vector<NamedValues> all;
    for (const exec::Parameter* parameter : parameters) {
        all.push_back({.name = parameter->name, .values = values_of(parameter->value)});
    }
    return all;
}

}  // namespace pipetwin::test
