#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/plan.h"
#include "core/plan_order.h"
#include "core/scenario.h"

/// A plan from a scenario: layer costs at the sizes of its micro-batches, summed into stages.
namespace pipetwin {

namespace {

// --- What the scenario, the model and the profile must agree on. ---

/// K <= devices (C26).
void require_devices(const Scenario& scenario, int stages) {
    const int count = scenario.cluster.count;
    if (count > 0 && stages > count) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("pipeline.stages = {}, but cluster.count = {}", stages, count),
                    "use as many stages as devices at most, with partition = \"auto\"");
    }
}

void require_same_layers(const Model& model, const Profile& profile) {
    const auto profiled = static_cast<int>(profile.layers.size());
    if (profiled != model.layer_count()) {
        throw Error(ErrorKind::BadInput,
                    "profile",
                    fmt::format("it has the costs of {} layers, but the model has {}",
                                profiled,
                                model.layer_count()),
                    "profile this model, or name the profile that belongs to it");
    }
    for (int layer = 0; layer < profiled; ++layer) {
        const std::string& expected = model.layer(layer).spec.name;
        const std::string& found = profile.layers[static_cast<std::size_t>(layer)].name;
        if (found != expected) {
            throw Error(
                ErrorKind::BadInput,
                "profile",
                fmt::format("layer {} is '{}', but '{}' in the model", layer, found, expected),
                "profile this model, or name the profile that belongs to it");
        }
    }
}

// --- Costs of layers. ---

/// Every layer at one micro-batch size.
using Samples = std::vector<LayerSample>;

Samples samples_at(const Profile& profile, int micro_batch_size) {
    Samples samples;
    samples.reserve(profile.layers.size());
    for (const LayerCost& layer : profile.layers) {
        samples.push_back(cost_at(layer, micro_batch_size));
    }
    return samples;
}

Partition balanced(const Samples& samples, int stages, Recompute recompute) {
    std::vector<Duration> costs;
    costs.reserve(samples.size());
    for (const LayerSample& layer : samples) {
        const Duration again = recompute == Recompute::None ? Duration{} : layer.forward;
        costs.push_back(layer.forward + again + layer.backward());
    }
    return balanced_partition(costs, stages);
}

// --- From layers to stages. ---

/// What crosses a cut before layer `cut`: each output made before it and read behind it, once.
Bytes boundary_bytes(const Model& model, const Samples& samples, int cut) {
    std::vector<bool> crosses(samples.size(), false);
    for (int reader = cut; reader < model.layer_count(); ++reader) {
        for (const int source : model.inputs_of(reader)) {
            crosses[static_cast<std::size_t>(source)] = source < cut;
        }
    }
    Bytes sum;
    for (std::size_t layer = 0; layer < samples.size(); ++layer) {
        sum += crosses[layer] ? samples[layer].output : Bytes{};
    }
    return sum;
}

/// Gradients that a layer hands to the layers it reads; nobody asks a layer of the model's input
/// for one.
Bytes input_gradient(const Model& model, const Samples& samples, int layer) {
    Bytes sum;
    for (const int source : model.inputs_of(layer)) {
        sum += samples[static_cast<std::size_t>(source)].output;
    }
    return sum;
}

/// Layers `first` to `end` - 1 as one stage. `input` and `output` of the cost are set before.
class StageSum {
  public:
    StageSum(const Model& model, const Samples& samples, int first, int end)
        : model_(model), samples_(samples), first_(first), end_(end) {}

    void add_to(StageCost& cost) const {
        for (int layer = first_; layer < end_; ++layer) {
            cost.forward += sample(layer).forward;
            cost.backward_input += sample(layer).backward_input;
            cost.backward_weight += sample(layer).backward_weight;
            cost.backward += sample(layer).backward();
            cost.saved += sample(layer).saved;
            cost.split += sample(layer).split;
            if (layer > first_) {
                cost.split += input_gradient(model_, samples_, layer);
            }
        }
        cost.recompute = cost.forward;
        cost.forward_drop_peak = forward_drop_peak(cost.input);
        cost.backward_peak = backward_peak();
    }

  private:
    const LayerSample& sample(int layer) const { return samples_[static_cast<std::size_t>(layer)]; }

    /// A forward that keeps the stage's input only holds one layer at a time beside it:
    ///
    ///     layer 0   [input of the stage = in its saved | saved | output]
    ///     layer 1   [input of the stage] [saved | output]
    ///     layer 2   [input of the stage] [saved | output]
    Bytes forward_drop_peak(Bytes stage_input) const {
        Bytes peak;
        for (int layer = first_; layer < end_; ++layer) {
            const Bytes beside = layer == first_ ? Bytes{} : stage_input;
            peak = std::max(peak, beside + sample(layer).saved + sample(layer).output);
        }
        return peak;
    }

    /// Backward goes from the last layer to the first and gives back `saved` on its way:
    ///
    ///     layer 2   [saved 0] [saved 1] [saved 2] [gradients of 2's output and input]
    ///     layer 1   [saved 0] [saved 1] [gradients of 1's output and input]
    ///     layer 0   [saved 0] [gradients of 0's output and input]
    Bytes backward_peak() const {
        Bytes peak;
        Bytes saved_up_to_here;
        for (int layer = first_; layer < end_; ++layer) {
            saved_up_to_here += sample(layer).saved;
            const Bytes gradients = sample(layer).output + input_gradient(model_, samples_, layer);
            peak = std::max(peak, saved_up_to_here + gradients);
        }
        return peak;
    }

    const Model& model_;
    const Samples& samples_;
    int first_;
    int end_;
};

std::vector<StageCost> stage_costs(const Model& model,
                                   const Samples& samples,
                                   const Partition& partition) {
    std::vector<StageCost> costs(static_cast<std::size_t>(partition.stage_count()));
    for (int stage = 0; stage < partition.stage_count(); ++stage) {
        const int first = partition.first_layer(stage);
        const int end = first + partition.layers_in(stage);
        StageCost& cost = costs[static_cast<std::size_t>(stage)];
        cost.input = stage == 0 ? samples.front().input : boundary_bytes(model, samples, first);
        cost.output = boundary_bytes(model, samples, end);
        StageSum(model, samples, first, end).add_to(cost);
    }
    return costs;
}

std::vector<StageState> stage_states(const Profile& profile,
                                     const std::vector<Samples>& samples_of_class,
                                     const Partition& partition,
                                     int optimizer_bytes_per_weight_byte) {
    std::vector<StageState> states(static_cast<std::size_t>(partition.stage_count()));
    for (std::size_t layer = 0; layer < profile.layers.size(); ++layer) {
        const int stage = partition.stage_of_layer(static_cast<int>(layer));
        StageState& state = states[static_cast<std::size_t>(stage)];
        state.weights += profile.layers[layer].parameter_bytes;
        state.optimizer += profile.layers[layer].optimizer;
        for (const Samples& samples : samples_of_class) {
            state.workspace = std::max(state.workspace, samples[layer].workspace);
        }
    }
    for (StageState& state : states) {
        state.gradients = state.weights;
        state.optimizer_state = state.weights * optimizer_bytes_per_weight_byte;
    }
    return states;
}

/// Room for the gradients of the other pipeline's copy of the same weights.
void double_shared_gradients(const Schedule& order, std::vector<StageState>& states) {
    for (std::size_t stage = 0; stage < states.size(); ++stage) {
        if (twin_of(order, static_cast<int>(stage))) {
            states[stage].gradients += states[stage].weights;
        }
    }
}

/// From pieces of the model to stages: two pipelines of one model have each piece twice.
template <class T>
std::vector<T> of_stages(const Schedule& order, const std::vector<T>& of_pieces) {
    std::vector<T> result;
    for (const int piece : order.weights_of_stage) {
        result.push_back(of_pieces[static_cast<std::size_t>(piece)]);
    }
    return result;
}

// --- Links. ---

LinkCost profiled_link(const Profile& profile,
                       std::string_view between,
                       const LinkCost& otherwise) {
    const auto found = std::ranges::find(profile.links, between, &LinkCost::between);
    return found == profile.links.end() ? otherwise : *found;
}

/// What the scenario says about a link takes the place of what the profile measured.
LinkCost overridden(LinkCost link, double gigabits_per_second, double latency_us) {
    if (gigabits_per_second > 0) {
        link.bytes_per_second = gigabits_per_second * 1e9 / 8;
        link.half_bandwidth = {};
    }
    if (latency_us > 0) {
        link.latency = from_milliseconds(latency_us / 1e3, "link latency");
    }
    return link;
}

/// The way from any rank to any other. Ranks fill the nodes in order, `per_node` to each:
///
///     | rank 0 - rank 1 | - - | rank 2 - rank 3 |      per_node = 2
///           inside       between       inside
class Links {
  public:
    Links(const Scenario::ClusterPart& cluster, const Profile& profile)
        : per_node_(std::max(1, cluster.per_node)) {
        const LinkCost first = profile.links.empty() ? LinkCost{} : profile.links.front();
        inside_ = overridden(
            profiled_link(profile, "ranks", first), cluster.link_gbps, cluster.link_latency_us);
        between_ = overridden(profiled_link(profile, "nodes", inside_),
                              cluster.node_link_gbps,
                              cluster.node_link_latency_us);
    }

    const LinkCost& from(int rank, int other) const {
        return rank / per_node_ == other / per_node_ ? inside_ : between_;
    }

  private:
    int per_node_;
    LinkCost inside_;
    LinkCost between_;
};

std::vector<LinkCost> boundary_links(const Links& links, const Schedule& order) {
    std::vector<LinkCost> result;
    for (std::size_t stage = 0; stage + 1 < order.rank_of_stage.size(); ++stage) {
        result.push_back(links.from(order.rank_of_stage[stage], order.rank_of_stage[stage + 1]));
    }
    return result;
}

std::vector<LinkCost> reduction_links(const Links& links, const Schedule& order) {
    std::vector<LinkCost> result;
    for (int stage = 0; stage < order.stage_count(); ++stage) {
        if (const auto twin = twin_of(order, stage)) {
            result.push_back(links.from(order.rank_of_stage[static_cast<std::size_t>(stage)],
                                        order.rank_of_stage[static_cast<std::size_t>(*twin)]));
        }
    }
    return result;
}

/// "1f1b", or the name of the schedule file.
std::string schedule_name(const Scenario& scenario) {
    const std::string& schedule = *scenario.pipeline.schedule;
    return has_schedule_file(scenario) ? std::filesystem::path(schedule).filename().string()
                                       : schedule;
}

// --- Micro-batches. ---

/// Micro-batches of one size share their costs. Sizes differ by 1 at most, so there are one or two
/// classes.
struct CostClasses {
    std::vector<int> sizes;  ///< [class]
    std::vector<int> of_micro_batch;
};

CostClasses cost_classes(const std::vector<int>& micro_batch_sizes) {
    CostClasses classes;
    for (const int size : micro_batch_sizes) {
        if (classes.sizes.empty() || classes.sizes.back() != size) {
            classes.sizes.push_back(size);
        }
        classes.of_micro_batch.push_back(static_cast<int>(classes.sizes.size()) - 1);
    }
    return classes;
}

}  // namespace

int optimizer_slots(std::string_view optimizer) {
    if (optimizer == "sgd") {
        return 0;
    }
    if (optimizer == "momentum" || optimizer == "rmsprop") {
        return 1;
    }
    PIPETWIN_EXPECT(optimizer == "adam" || optimizer == "adamw", "unknown optimizer");
    return 2;
}

Plan make_plan(const Scenario& scenario, const Model& model, const Profile& profile) {
    require_settled(scenario);
    require_same_layers(model, profile);
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    require_devices(scenario, *pipeline.stages);

    PlanParts parts;
    parts.schedule_name = schedule_name(scenario);
    parts.stale_gradients = has_stale_gradients(scenario);
    parts.recompute_timing = pipeline.recompute_timing;
    parts.channel_capacity = pipeline.channel_capacity;
    parts.memory_limit = scenario.cluster.memory_limit;
    parts.dispatch = profile.dispatch;

    // Micro-batches: for a mini-batch smaller than their number there are as many as samples (C17).
    parts.micro_batch_sizes = micro_batch_sizes(scenario.training.batch, *pipeline.micro_batches);
    CostClasses classes = cost_classes(parts.micro_batch_sizes);
    parts.cost_class = std::move(classes.of_micro_batch);
    std::vector<Samples> samples_of_class;
    for (const int size : classes.sizes) {
        samples_of_class.push_back(samples_at(profile, size));
    }

    parts.chunks = *pipeline.chunks;
    parts.recompute = pipeline.recompute.value_or(Recompute::None);
    const std::optional<Partition> written = scenario_partition(scenario, model);
    parts.partition =
        written ? *written : balanced(samples_of_class.front(), pipeline.pieces(), parts.recompute);
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        parts.layer_names.push_back(model.layer(layer).spec.name);
    }

    Schedule order = scenario_schedule(scenario);
    for (const Samples& samples : samples_of_class) {
        parts.costs.push_back(of_stages(order, stage_costs(model, samples, *parts.partition)));
    }
    parts.states = of_stages(order,
                             stage_states(profile,
                                          samples_of_class,
                                          *parts.partition,
                                          optimizer_slots(to_string(scenario.training.optimizer))));
    double_shared_gradients(order, parts.states);
    const Links links(scenario.cluster, profile);
    parts.links = boundary_links(links, order);
    parts.reductions = reduction_links(links, order);

    if (*pipeline.schedule == to_string(ScheduleKind::ZbAuto)) {
        order = scenario_schedule(scenario, {.zero_bubble = zero_bubble_costs(parts)});
    }
    if (pipeline.deferred_weights > 0) {
        order = with_deferred_weights(order, parts, pipeline.deferred_weights);
    }
    parts.schedule = lower(std::move(order),
                           {.recompute = parts.recompute,
                            .timing = parts.recompute_timing,
                            .messages = pipeline.message_order,
                            .updates = true},
                           parts.schedule_name);
    parts.recompute = lowered_recompute(parts.schedule, parts.recompute);
    return Plan::make(std::move(parts));
}

}  // namespace pipetwin
