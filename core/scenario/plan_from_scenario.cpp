// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/model/batch_norms.h"
#include "core/plan/cost_notes.h"
#include "core/plan/plan.h"
#include "core/plan/plan_order.h"
#include "core/plan/routes.h"
#include "core/plan/shape_notes.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/cluster.h"
#include "core/scenario/cost_table.h"
#include "core/scenario/replan.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/edge.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/generators.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"

/// A plan from a scenario: layer costs at the sizes of its micro-batches, summed into stages.
namespace pipetwin {

namespace {

// --- What the scenario, the model and the profile must agree on. ---

/// K <= devices.
void require_devices(const SettledScenario& scenario) {
    const int count = scenario.cluster.count;
    const int stages = scenario.pipeline.stages;
    const int replicas = scenario.pipeline.data_parallel;
    const int tensor = scenario.pipeline.tensor_parallel;
    if (count > 0 && std::int64_t{stages} * replicas * tensor > count) {
        std::string text = fmt::format("pipeline.stages = {}", stages);
        if (replicas > 1) {
            text += fmt::format(" in pipeline.data_parallel = {} replicas", replicas);
        }
        if (tensor > 1) {
            text += fmt::format(" of pipeline.tensor_parallel = {} devices each", tensor);
        }
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("{}, but cluster.count = {}", text, count),
                    "use as many stages as devices at most, with partition = \"auto\"")
            .about("pipeline.stages");
    }
}

/// Where stages are planned, a reader does not know of how many pieces a list is to speak.
void require_recompute_fits(const RecomputeRules& recompute,
                            const Schedule& grid,
                            const SettledScenario& scenario) {
    if (!recompute.fits(model_stage_count(grid))) {
        require_mode_of_each_piece(
            recompute.modes().size(), model_stage_count(grid), scenario.file.string());
    }
}

// --- From pieces of the model to stages. ---

/// Room for the gradients of the other pipeline's copy of the same weights.
void double_shared_gradients(const Schedule& order, std::vector<StageState>& states) {
    for (std::size_t stage = 0; stage < states.size(); ++stage) {
        if (weight_sharing_stage(order, static_cast<int>(stage))) {
            states[stage].gradients += states[stage].gradients;
        }
    }
}

/// From pieces of the model to stages: two pipelines of one model have each piece twice.
template <class T>
std::vector<T> of_stages(const Schedule& order, const std::vector<T>& of_pieces) {
    std::vector<T> result;
    result.reserve(order.weights_of_stage.size());
    for (const int piece : order.weights_of_stage) {
        result.push_back(of_pieces[as_index(piece)]);
    }
    return result;
}

/// "1f1b", or the name of the schedule file.
std::string schedule_name(const SettledScenario& scenario) {
    const std::string& schedule = scenario.pipeline.schedule;
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

// --- Order. ---

bool has_order_from_costs(const SettledScenario& scenario) {
    return schedule_traits(scenario.pipeline.schedule).order_from_costs;
}

/// The order, or the empty grid of one that is searched for: which is best there follows from the
/// costs of the stages that the grid places.
Schedule grid_of(const SettledScenario& scenario) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    if (!has_order_from_costs(scenario)) {
        return scenario_schedule(scenario);
    }
    return schedules::loop_placement(
        {.ranks = pipeline.stages,
         .chunks = pipeline.chunks,
         .micro_batches = std::min(pipeline.micro_batches, replica_batch(scenario))});
}

/// The rows as they are run, made for the costs and links of `parts`.
Schedule lowered_order(const SettledScenario& scenario, Schedule grid, const PlanParts& parts) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    std::vector<StagePair> skips = grid.skips;
    Schedule order =
        has_order_from_costs(scenario)
            ? scenario_schedule(scenario, {.zero_bubble = zero_bubble_costs(parts, grid)})
            : std::move(grid);
    order.skips = std::move(skips);
    if (pipeline.deferred_weights > 0) {
        order = with_deferred_weights(order, parts, pipeline.deferred_weights);
    }
    order.tied_ends = parts.tied_gradient > Bytes{} && model_stage_count(order) > 1;
    const std::optional<Schedule> written =
        has_schedule_file(scenario) ? std::optional(order) : std::nullopt;
    Schedule rows = lower(std::move(order),
                          {.recompute = parts.recompute,
                           .timing = parts.recompute_timing,
                           .messages = pipeline.message_order,
                           .updates = true,
                           .replicas = parts.replicas > 1,
                           .norms = scenario.training.clip_norm > 0},
                          parts.schedule_name);
    if (written) {
        require_valid(rows, parts.schedule_name, violations_shown, &*written);
        require_deadlock_free(rows, parts.channel_capacity, parts.schedule_name, &*written);
    }
    return rows;
}

/// Rows of a file may have updates of their own, which do not know of the norm.
void require_norms(const SettledScenario& scenario, const PlanParts& parts) {
    if (scenario.training.clip_norm > 0 && !is_forward_only(parts.schedule) &&
        !has_gradient_norms(parts.schedule)) {
        throw Error(ErrorKind::Infeasible,
                    parts.schedule_name,
                    "training.clip_norm needs the norm of all gradients before any update, but "
                    "the rows have OPT without NORM",
                    "leave updates out of the rows: they are added then")
            .about("pipeline.schedule");
    }
}

/// The gradients of both ends of both pipelines would have to be summed.
void refuse_tied_twins(const PlanParts& parts, const Schedule& grid, const Model& model) {
    if (parts.tied_gradient > Bytes{} && weight_sharing_stage(grid, 0)) {
        const bool own = model.is_executable();
        Hint hint("take another schedule: all but 'chimera' have one pipeline");
        if (own) {
            hint = {"set {}, or take another schedule", {{"model.tied", "false"}}};
        }
        throw Error(
            ErrorKind::BadInput,
            parts.schedule_name,
            fmt::format(
                "{}, which a schedule of two pipelines with the same weights does not support",
                own ? "model.tied = true"
                    : "the profile's last layer shares weights with the first (tied_bytes)"),
            std::move(hint))
            .about("pipeline.schedule");
    }
}

/// Refuses batch norms that the plan's micro-batches, replicas or pipelines leave without what they
/// need.
void refuse_batch_norms(const PlanParts& parts, const Schedule& grid, const Model& model) {
    const int smallest = std::ranges::min(parts.micro_batch_sizes);
    const bool is_shared = parts.replicas > 1 || weight_sharing_stage(grid, 0).has_value();
    for (int index = 0; index < model.layer_count(); ++index) {
        for (const PlacedBatchNorm& norm : batch_norms_of(model.layer(index))) {
            const std::string place = fmt::format("model, layer '{}'", norm.name);
            if (std::int64_t{smallest} * norm.input.positions < 2) {
                throw Error(ErrorKind::BadInput,
                            place,
                            fmt::format("micro-batches of {} sample of {} give batch_norm one "
                                        "value per channel, expected 2 or more: one value has no "
                                        "variance",
                                        smallest,
                                        to_string(norm.input)),
                            "set a larger training.batch or fewer pipeline.micro_batches")
                    .about("training.batch");
            }
            if (!norm.spec.deferred && is_shared) {
                throw Error(ErrorKind::BadInput,
                            place,
                            fmt::format("deferred = false with {}, which would all have running "
                                        "statistics of their own",
                                        parts.replicas > 1 ? "several replicas"
                                                           : "two pipelines of one model"),
                            "set deferred = true, which joins the statistics of all of them");
            }
        }
    }
}

/// True if one rank has both ends of the model in several stages. Our executor gives each stage a
/// copy of weights that the ends share; others have them once on a rank.
bool is_tied_on_one_rank(const Model& model, const Schedule& grid) {
    return !model.is_executable() && model_stage_count(grid) == grid.stage_count() &&
           grid.stage_count() > 1 && grid.rank_of_stage.front() == grid.rank_of_stage.back();
}

/// Rows of a file may have updates of their own, without what replicas need.
void require_reductions(const PlanParts& parts) {
    if (parts.replicas == 1 || is_forward_only(parts.schedule)) {
        return;
    }
    std::vector<bool> reduced(parts.schedule.rank_of_stage.size(), false);
    for (const auto& row : parts.schedule.ranks) {
        for (const Action& action : row) {
            if (action.op == Op::ReduceGradient) {
                reduced.at(as_index(action.stage)) = true;
            }
        }
    }
    const auto missing = std::ranges::find(reduced, false);
    if (missing != reduced.end()) {
        throw Error(ErrorKind::Infeasible,
                    parts.schedule_name,
                    fmt::format("{} replicas share their gradients, but stage {} has no "
                                "REDUCE_GRAD",
                                parts.replicas,
                                missing - reduced.begin()),
                    "leave updates out of the rows: they are added then")
            .about("pipeline.schedule");
    }
}

/// The best partition. Throws Error(Infeasible) for fewer layers than stages.
Partition partition_of(const RankChain& chain, const SettledScenario& scenario) {
    try {
        return partition_for(chain);
    } catch (const Error& error) {
        throw has_schedule_file(scenario)
            ? error.about("pipeline.schedule").with_hint("take a schedule file of fewer stages")
            : error;
    }
}

// --- The parts of a plan. ---

/// What stands in the scenario and the profile as it is.
PlanParts settings_of(const SettledScenario& scenario, const Profile& profile) {
    PlanParts parts;
    parts.schedule_name = schedule_name(scenario);
    parts.stale_gradients = has_stale_gradients(scenario);
    parts.chunks = scenario.pipeline.chunks;
    parts.recompute = scenario.pipeline.recompute;
    parts.recompute_timing = scenario.pipeline.recompute_timing;
    parts.layer_recompute = scenario.pipeline.layer_recompute;
    parts.recompute_blocks = scenario.pipeline.recompute_blocks;
    parts.channel_capacity = scenario.pipeline.channel_capacity.known();
    parts.dispatch = profile.dispatch;
    parts.replicas = scenario.pipeline.data_parallel;
    parts.tensor_parallel = scenario.pipeline.tensor_parallel;
    parts.overlap_reduction = scenario.pipeline.overlap_reduction;
    // For a mini-batch smaller than their number there are as many as samples.
    parts.micro_batch_sizes =
        micro_batch_sizes(replica_batch(scenario), scenario.pipeline.micro_batches);
    return parts;
}

std::vector<std::string> layer_names(const Model& model) {
    std::vector<std::string> names;
    names.reserve(as_index(model.layer_count()));
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        names.push_back(model.layer(layer).spec.name);
    }
    return names;
}

/// What the devices of the ranks have room for.
void add_memory(PlanParts& parts, const SettledScenario& scenario, const Cluster& cluster) {
    const Scenario::ClusterPart& written = scenario.cluster;
    bool any_profile = false;
    bool any_context = false;
    for (const RankDevice& device : cluster.devices()) {
        parts.context.push_back(device.context);
        parts.communication.push_back(device.communication);
        any_profile = any_profile || device.profile != nullptr;
        any_context = any_context || device.context > Bytes{};
    }
    if (!any_profile && !any_context) {
        parts.context.clear();
        parts.communication.clear();
    }
    parts.allocator_reserve = written.allocator_reserve / 100;
    const bool no_limits = !written.memory_limit && written.memory_limits.empty() && !any_profile;
    if (no_limits || (written.memory_limit && parts.allocator_reserve == 0)) {
        parts.memory_limit = written.memory_limit;
        return;
    }
    for (const RankDevice& device : cluster.devices()) {
        parts.memory_limits.push_back(device.memory_limit.value());
    }
}

void add_costs(PlanParts& parts,
               const Schedule& grid,
               const Model& model,
               const CostTable& samples,
               const DeviceKinds& kinds,
               double halves_over_whole) {
    for (const std::vector<LayerSamples>& of_kind : samples) {
        std::vector<StageCosts> costs_of_kind;
        for (const LayerSamples& of_layer : of_kind) {
            costs_of_kind.emplace_back(model, of_layer);
        }
        std::vector<StageCost>& costs = parts.costs.emplace_back();
        for (int stage = 0; stage < grid.stage_count(); ++stage) {
            const std::size_t index = as_index(stage);
            const int piece = grid.weights_of_stage[index];
            const int first = parts.partition->first_layer(piece);
            costs.push_back(costs_of_kind[kinds.of(grid.rank_of_stage[index])].of(
                first, first + parts.partition->layers_in(piece)));
            lengthen_halves(costs.back(), halves_over_whole);
        }
    }
}

/// Says what the placement of stages saves of the outputs that skip stages.
void add_skip_note(PlanParts& parts,
                   const Schedule& grid,
                   const std::vector<Route>& routes,
                   const LayerSamples& samples) {
    Bytes stays;
    Bytes sent;
    for (const Route& route : routes) {
        if (distance(route.stages) > 1) {
            const auto rank_of = [&grid](int stage) { return grid.rank_of_stage[as_index(stage)]; };
            const bool on_one_rank = rank_of(route.stages.from) == rank_of(route.stages.to);
            (on_one_rank ? stays : sent) += samples.at(as_index(route.layer)).output;
        }
    }
    if (stays > Bytes{}) {
        parts.notes.push_back(fmt::format(
            "outputs that skip stages: {} a micro-batch stay on their rank, {} are sent "
            "to another",
            format_bytes(stays),
            format_bytes(sent)));
    }
}

/// What each message has, where some lead over stages that do not read them.
void add_messages(PlanParts& parts,
                  const Schedule& grid,
                  const Model& model,
                  const CostTable& samples) {
    if (model.is_chain()) {
        return;
    }
    const std::vector<Route> routes = routes_of(model, *parts.partition);
    for (const std::vector<LayerSamples>& of_kind : samples) {  // bytes are those of any device
        parts.message_bytes.push_back(message_bytes(routes, grid, of_kind.front()));
    }
    add_skip_note(parts, grid, routes, samples.front().front());
}

void add_states(PlanParts& parts,
                const Schedule& grid,
                const ModelParameters& weights,
                const CostTable& samples,
                const DeviceKinds& kinds,
                const WeightRules& rules) {
    std::vector<LayerSamples> sizes;  // bytes are the same on every device
    for (const std::vector<LayerSamples>& of_kind : samples) {
        sizes.push_back(of_kind.front());
    }
    parts.states = of_stages(grid, stage_states(weights, sizes, *parts.partition, rules));
    for (std::size_t stage = 0; stage < parts.states.size(); ++stage) {
        const double factor = kinds.speeds[kinds.of(grid.rank_of_stage[stage])].factor;
        for (Duration* const time : {&parts.states[stage].optimizer, &parts.states[stage].norm}) {
            *time = scaled(*time, factor);
        }
    }
    double_shared_gradients(grid, parts.states);
}

void add_links(PlanParts& parts,
               const Schedule& grid,
               const Cluster& cluster,
               const SettledScenario& scenario,
               const Profile& profile) {
    parts.links = pair_links(cluster, grid);
    parts.reductions = reduction_links(cluster, grid);
    if (scenario.pipeline.offload == Offload::Stash) {
        parts.host_link = host_link(scenario.cluster, profile);
        if (!parts.host_link) {
            throw Error(ErrorKind::BadInput,
                        KeyValue{"pipeline.offload", "\"stash\""},
                        "neither scenario nor profile says how fast the link to host memory is",
                        "set cluster.host_link = \"pcie-4\", or another of its kind, or "
                        "cluster.host_link_gbps; or measure with 'pipetwin profile'");
        }
    }
}

/// What ranks and messages take from each other.
void add_sharing(PlanParts& parts,
                 const Schedule& grid,
                 const Cluster& cluster,
                 const Scenario::ClusterPart& part,
                 const Profile& profile) {
    parts.transfer = part.transfer;
    parts.contention = contention(cluster, part, grid, profile.ranks, parts.host_link);
}

/// Every stage sums its gradients, `gradient` bytes for each of its weights. Of either half of that
/// the first leaves each replica with the sums of its share, and the second gives them to all
/// others: the sums themselves, or, where the optimizer is sharded, the weights that came of them.
/// Gradients that go on to another stage are needed everywhere.
void add_all_reduce(PlanParts& parts,
                    const Schedule& grid,
                    const Cluster& cluster,
                    const SettledScenario::PipelinePart& pipeline,
                    int gradient) {
    if (parts.replicas == 1) {
        return;
    }
    if (weight_sharing_stage(grid, 0)) {
        throw Error(ErrorKind::BadInput,
                    parts.schedule_name,
                    fmt::format("pipeline.data_parallel = {}, which a schedule of two pipelines "
                                "with the same weights does not support",
                                parts.replicas),
                    {"set {}, or take another schedule", {{"pipeline.data_parallel", "1"}}})
            .about("pipeline.schedule");
    }
    for (std::size_t stage = 0; stage < parts.states.size(); ++stage) {
        if (pipeline.shard == Shard::Weights) {  // all is done micro-batch by micro-batch
            parts.all_reduce.emplace_back();
            parts.weight_gather.emplace_back();
            continue;
        }
        const ReplicaGroup group = cluster.replicas_of(grid.rank_of_stage[stage]);
        const Bytes weights = parts.states[stage].weights;
        const Duration both = all_reduce_time(pipeline.all_reduce, group, weights * gradient);
        const bool stays =
            pipeline.shard != Shard::None && !gradient_source(grid, static_cast<int>(stage));
        parts.all_reduce.push_back(pipeline.shard == Shard::Gradients ? Duration{}
                                   : stays                            ? both - both / 2
                                                                      : both);
        if (pipeline.shard != Shard::None) {
            parts.weight_gather.push_back(all_reduce_time(pipeline.all_reduce, group, weights) / 2);
        }
    }
}

/// Refuses a recompute of core attention if the profile does not know what attention takes.
void require_known_attention(const SettledScenario& scenario, const Profile& profile) {
    if (scenario.pipeline.layer_recompute == LayerRecompute::Selective &&
        !knows_core_attention(profile)) {
        throw Error(
            ErrorKind::BadInput,
            KeyValue{"pipeline.recompute", "\"selective\""},
            "the profile does not say what core attention takes, so nothing would change",
            "profiles by 'pipetwin import hf' say it; or set pipeline.recompute = \"block\"");
    }
}

AskedShape asked_shape(const SettledScenario& scenario) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    return {.schedule = pipeline.schedule,
            .chunks = pipeline.chunks,
            .group_size = pipeline.group_size,
            .micro_batches = pipeline.micro_batches,
            .samples = replica_batch(scenario),
            .data_parallel = pipeline.data_parallel,
            .tensor_parallel = pipeline.tensor_parallel,
            .stages = pipeline.stages,
            .sequence_parallel = pipeline.sequence_parallel,
            .scatter_boundaries = pipeline.scatter_boundaries,
            .shard = to_string(pipeline.shard),
            .prefetch = pipeline.prefetch};
}

void add(std::vector<std::string>& notes, std::vector<std::string> more) {
    std::ranges::move(more, std::back_inserter(notes));
}

void add_notes(PlanParts& parts,
               const SettledScenario& scenario,
               const Profile& profile,
               const Cluster& cluster,
               const std::vector<int>& sizes) {
    add(parts.notes, device_notes(scenario, profile, cluster.devices()));
    add(parts.notes, spread_notes(profile));
    add(parts.notes, shape_notes(asked_shape(scenario)));
    std::vector<std::string> scaled = size_notes(profile, sizes);
    const bool estimated = !scaled.empty() ||
                           std::ranges::any_of(cluster.devices(), &RankDevice::scaled) ||
                           std::ranges::any_of(profile.layers, [](const LayerCost& layer) {
                               return layer.source == CostSource::Estimated;
                           });
    add(parts.notes, std::move(scaled));
    parts.cost_source = estimated ? CostSource::Estimated : profile.source;
}

}  // namespace

int optimizer_slots(const ScenarioParts& scenario) {
    return traits(scenario.training.optimizer).state_slots +
           (scenario.training.average_decay > 0 ? 1 : 0);
}

namespace {

/// With the rows of `other`, where there is one, else with new ones.
/// Throws Error(BadInput) as `samples_at` for sizes at which the profile has no costs, with the
/// numbers of micro-batches that it has costs for.
void require_costs_at(const std::vector<int>& sizes,
                      const SettledScenario& scenario,
                      const Profile& profile) {
    const int tensor = scenario.pipeline.tensor_parallel;
    const int devices = knows_shares(profile, tensor) ? tensor : 1;
    const int batch = replica_batch(scenario);
    int smallest = 1;
    std::int64_t largest = batch;
    for (const LayerCost& layer : profile.layers) {
        const std::vector<LayerSample>& samples = *layer.shared_by(devices);
        smallest = std::max(smallest, (samples.front().micro_batch_size + 1) / 2);
        largest = std::min(largest, 2 * std::int64_t{samples.back().micro_batch_size});
    }
    const auto bad =
        std::ranges::find_if(sizes, [&](int size) { return size < smallest || size > largest; });
    if (bad == sizes.end()) {
        return;
    }
    const std::int64_t most = batch / smallest;
    const std::int64_t fewest = (batch + largest - 1) / largest;
    try {
        samples_at(profile, *bad, devices);
    } catch (const Error& error) {
        const std::string numbers = fewest == most
                                        ? fmt::format("{}", most)
                                        : fmt::format("a number from {} to {}", fewest, most);
        Hint hint("profile the layers at that size");
        if (fewest <= most) {
            hint = {fmt::format("set pipeline.micro_batches to {}, or profile the layers with this "
                                "number",
                                numbers),
                    {{"pipeline.micro_batches", fmt::to_string(most)}}};
        }
        throw error.with_hint(std::move(hint));
    }
}

/// Costs of the layers for the micro-batches, devices and pieces of a plan.
LayerCosts layer_costs(const Model& model,
                       const Profile& profile,
                       const std::vector<int>& micro_batch_sizes,
                       const Cluster& cluster,
                       const Schedule& grid) {
    LayerCosts costs{
        .samples = cost_table(
            model, profile, micro_batch_sizes, device_kinds(cluster), cluster.layer_rules()),
        .counted_once = {}};
    if (is_tied_on_one_rank(model, grid)) {
        costs.counted_once = tied_counted_once(model, profile);
    }
    return costs;
}

/// What a plan takes over in place of making it.
struct Known {
    const Plan* rows = nullptr;         ///< the plan that has the rows; null: they are made
    const LayerCosts* costs = nullptr;  ///< of the layers; null: they are computed
    LinkFactors factors{};              ///< of the links
};

/// The plan of a scenario.
Plan planned(const SettledScenario& scenario,
             const Model& model,
             const Profile& profile,
             RowsFrom rows,
             const Known& given = {}) {
    const Plan* const other = given.rows;
    require_same_layers(model, profile);
    require_devices(scenario);

    PlanParts parts = settings_of(scenario, profile);
    parts.layer_names = layer_names(model);
    CostClasses classes = cost_classes(parts.micro_batch_sizes);
    parts.cost_class = std::move(classes.of_micro_batch);

    Schedule grid = other == nullptr ? grid_of(scenario) : (*other)->schedule;
    const std::vector<StagePair> skips_of_rows = grid.skips;
    require_recompute_fits(parts.recompute, grid, scenario);
    const Cluster cluster(scenario, profile, grid.rank_count(), given.factors);
    const DeviceKinds kinds = device_kinds(cluster);
    require_costs_at(classes.sizes, scenario, profile);
    const LayerCosts* known = given.costs;
    std::optional<LayerCosts> own;
    if (known == nullptr) {
        known = &own.emplace(layer_costs(model, profile, classes.sizes, cluster, grid));
    }
    const CostTable& samples = known->samples;
    const std::optional<Partition> written = scenario_partition(scenario, model);
    parts.partition =
        written ? *written
                : partition_of(rank_chain(samples.front(), kinds, grid, parts.recompute), scenario);
    grid.skips = skips_of(routes_of(model, *parts.partition), grid);
    if (other != nullptr && grid.skips != skips_of_rows) {
        // Other messages, so other rows.
        return planned(scenario, model, profile, rows, {.factors = given.factors});
    }

    add_memory(parts, scenario, cluster);
    add_costs(parts, grid, model, samples, kinds, profile.halves_over_whole.value_or(1));
    add_messages(parts, grid, model, samples);
    const bool tied_once = known->counted_once.has_value();
    const WeightRules rules{.optimizer_slots = optimizer_slots(scenario),
                            .devices = parts.tensor_parallel,
                            .fp32_gradients = scenario.training.gradients == GradientType::Fp32,
                            .shards = state_shards(scenario),
                            .prefetch = 2 * scenario.pipeline.prefetch,  // a block has two layers
                            .tied = tied_once ? Bytes{} : tied_bytes(model, profile),
                            .tied_room = model.is_executable(),
                            .tied_update = tied_once ? Duration{} : tied_update(model, profile)};
    const int gradient = gradient_bytes_per_byte(profile.precision, rules.fp32_gradients);
    parts.tied_gradient = rules.tied * gradient;
    refuse_tied_twins(parts, grid, model);
    refuse_batch_norms(parts, grid, model);
    grid.tied_ends = parts.tied_gradient > Bytes{} && model_stage_count(grid) > 1;
    add_states(parts,
               grid,
               tied_once ? *known->counted_once : parameters_of(profile),
               samples,
               kinds,
               rules);
    add_links(parts, grid, cluster, scenario, profile);
    add_sharing(parts, grid, cluster, scenario.cluster, profile);
    add_all_reduce(parts, grid, cluster, scenario.pipeline, gradient);
    require_known_attention(scenario, profile);
    add_notes(parts, scenario, profile, cluster, classes.sizes);
    const bool sets_interference =
        scenario.cluster.interference || !scenario.cluster.pair_interference.empty();
    add(parts.notes, share_notes(profile, parts.tensor_parallel));
    add(parts.notes, gpu_notes(profile, grid, parts.schedule_name, sets_interference));
    if (grid.tied_ends) {
        parts.notes.push_back(tied_note(profile.precision, rules));
    }
    if (other != nullptr) {
        parts.schedule = std::move(grid);
        parts.recompute = (*other)->recompute;
        return Plan::make(std::move(parts), RowsFrom::Generator);
    }
    parts.schedule = lowered_order(scenario, std::move(grid), parts);
    const bool generated = !has_schedule_file(scenario) && scenario.pipeline.deferred_weights == 0;
    if (!generated || is_forward_only(parts.schedule)) {  // others recompute what they are asked to
        parts.recompute = lowered_recompute(parts.schedule, parts.recompute);
    }
    require_reductions(parts);
    require_norms(scenario, parts);
    return Plan::make(std::move(parts), generated ? rows : RowsFrom::Anywhere);
}

}  // namespace

Plan make_plan(const SettledScenario& scenario,
               const Model& model,
               const Profile& profile,
               RowsFrom rows) {
    return planned(scenario, model, profile, rows);
}

RankChain rank_chain_of(const SettledScenario& scenario,
                        const Model& model,
                        const Profile& profile) {
    require_same_layers(model, profile);
    const Schedule grid = grid_of(scenario);
    const Cluster cluster(scenario, profile, grid.rank_count());
    const DeviceKinds kinds = device_kinds(cluster);
    const std::vector<int> sizes =
        micro_batch_sizes(replica_batch(scenario), scenario.pipeline.micro_batches);
    require_costs_at({sizes.front()}, scenario, profile);
    const CostTable samples =
        cost_table(model, profile, {sizes.front()}, kinds, cluster.layer_rules());
    return rank_chain(samples.front(), kinds, grid, scenario.pipeline.recompute);
}

LayerCosts layer_costs(const Plan& plan,
                       const SettledScenario& scenario,
                       const Model& model,
                       const Profile& profile) {
    return layer_costs(model,
                       profile,
                       cost_classes(plan->micro_batch_sizes).sizes,
                       Cluster(scenario, profile, plan.rank_count()),
                       plan->schedule);
}

bool rows_follow_costs(const SettledScenario& scenario) {
    return has_order_from_costs(scenario) || scenario.pipeline.deferred_weights > 0;
}

Plan make_plan_with_rows_of(const Plan& other,
                            const SettledScenario& scenario,
                            const Model& model,
                            const Profile& profile,
                            const LayerCosts* costs) {
    PIPETWIN_EXPECT(!rows_follow_costs(scenario), "the rows are those of any costs");
    return planned(scenario, model, profile, RowsFrom::Generator, {.rows = &other, .costs = costs});
}

Plan make_plan_with_faster_links(const Plan& plan,
                                 const SettledScenario& scenario,
                                 const Model& model,
                                 const Profile& profile,
                                 const LinkFactors& factors) {
    SettledScenario same = scenario;
    same.pipeline.partition = plan->partition.value().layers_per_stage();
    return planned(same, model, profile, RowsFrom::Generator, {.rows = &plan, .factors = factors});
}

}  // namespace pipetwin
