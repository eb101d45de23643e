#include <algorithm>

#include <fmt/format.h>

#include "core/cluster.h"
#include "core/error.h"
#include "core/plan.h"
#include "core/plan_order.h"
#include "core/scenario.h"
#include "core/schedules/generators.h"
#include "core/stage_costs.h"

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

Partition balanced(const LayerSamples& samples, int stages, Recompute recompute) {
    std::vector<Duration> costs;
    costs.reserve(samples.size());
    for (const LayerSample& layer : samples) {
        const Duration again = recompute == Recompute::None ? Duration{} : layer.forward;
        costs.push_back(layer.forward + again + layer.backward());
    }
    return balanced_partition(costs, stages);
}

// --- From pieces of the model to stages. ---

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

std::vector<LayerSamples> samples_of(const Profile& profile, const CostClasses& classes) {
    std::vector<LayerSamples> result;
    for (const int size : classes.sizes) {
        result.push_back(samples_at(profile, size));
    }
    return result;
}

// --- Order. ---

bool is_zb_auto(const Scenario& scenario) {
    return *scenario.pipeline.schedule == to_string(ScheduleKind::ZbAuto);
}

/// The order, or for zb-auto its empty grid: which order is best there follows from the costs of
/// the stages that the grid places.
Schedule grid_of(const Scenario& scenario) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (!is_zb_auto(scenario)) {
        return scenario_schedule(scenario);
    }
    return schedules::loop_placement(
        {.ranks = *pipeline.stages,
         .chunks = *pipeline.chunks,
         .micro_batches = std::min(*pipeline.micro_batches, scenario.training.batch)});
}

/// The rows as they are run, made for the costs and links of `parts`.
Schedule lowered_order(const Scenario& scenario, Schedule grid, const PlanParts& parts) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    Schedule order = is_zb_auto(scenario)
                         ? scenario_schedule(scenario, {.zero_bubble = zero_bubble_costs(parts)})
                         : std::move(grid);
    if (pipeline.deferred_weights > 0) {
        order = with_deferred_weights(order, parts, pipeline.deferred_weights);
    }
    return lower(std::move(order),
                 {.recompute = parts.recompute,
                  .timing = parts.recompute_timing,
                  .messages = pipeline.message_order,
                  .updates = true},
                 parts.schedule_name);
}

// --- The parts of a plan. ---

/// What stands in the scenario and the profile as it is.
PlanParts settings_of(const Scenario& scenario, const Profile& profile) {
    PlanParts parts;
    parts.schedule_name = schedule_name(scenario);
    parts.stale_gradients = has_stale_gradients(scenario);
    parts.chunks = *scenario.pipeline.chunks;
    parts.recompute = scenario.pipeline.recompute.value_or(Recompute::None);
    parts.recompute_timing = scenario.pipeline.recompute_timing;
    parts.channel_capacity = scenario.pipeline.channel_capacity;
    parts.memory_limit = scenario.cluster.memory_limit;
    parts.dispatch = profile.dispatch;
    // For a mini-batch smaller than their number there are as many as samples (C17).
    parts.micro_batch_sizes =
        micro_batch_sizes(scenario.training.batch, *scenario.pipeline.micro_batches);
    return parts;
}

std::vector<std::string> layer_names(const Model& model) {
    std::vector<std::string> names;
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        names.push_back(model.layer(layer).spec.name);
    }
    return names;
}

void add_costs(PlanParts& parts,
               const Schedule& grid,
               const Model& model,
               const std::vector<LayerSamples>& samples_of_class) {
    for (const LayerSamples& samples : samples_of_class) {
        parts.costs.push_back(of_stages(grid, stage_costs(model, samples, *parts.partition)));
    }
}

void add_links(PlanParts& parts, const Schedule& grid, const Cluster& cluster) {
    parts.links = boundary_links(cluster, grid);
    parts.reductions = reduction_links(cluster, grid);
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
    require_devices(scenario, *scenario.pipeline.stages);

    PlanParts parts = settings_of(scenario, profile);
    parts.layer_names = layer_names(model);
    CostClasses classes = cost_classes(parts.micro_batch_sizes);
    const std::vector<LayerSamples> samples_of_class = samples_of(profile, classes);
    parts.cost_class = std::move(classes.of_micro_batch);

    Schedule grid = grid_of(scenario);
    const std::optional<Partition> written = scenario_partition(scenario, model);
    parts.partition =
        written ? *written
                : balanced(samples_of_class.front(), scenario.pipeline.pieces(), parts.recompute);
    add_costs(parts, grid, model, samples_of_class);
    parts.states = of_stages(grid,
                             stage_states(profile,
                                          samples_of_class,
                                          *parts.partition,
                                          optimizer_slots(to_string(scenario.training.optimizer))));
    double_shared_gradients(grid, parts.states);
    add_links(parts, grid, Cluster(scenario.cluster, profile));
    parts.schedule = lowered_order(scenario, std::move(grid), parts);
    parts.recompute = lowered_recompute(parts.schedule, parts.recompute);
    return Plan::make(std::move(parts));
}

}  // namespace pipetwin
