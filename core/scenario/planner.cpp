// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/planner.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/partition/partition_search.h"
#include "core/plan/cost_notes.h"
#include "core/plan/layer_recompute.h"
#include "core/plan/plan_order.h"
#include "core/plan/routes.h"
#include "core/plan/shape_notes.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/plan_refusals.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/edge.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/generators.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"

namespace pipetwin {

int optimizer_slots(const ScenarioParts& scenario) {
    return traits(scenario.training.optimizer).state_slots +
           (scenario.training.average_decay > 0 ? 1 : 0);
}

namespace {

// --- What no partition changes. ---

/// "1f1b", or the name of the schedule file.
std::string schedule_name(const SettledScenario& scenario) {
    const std::string& schedule = scenario.pipeline.schedule;
    return has_schedule_file(scenario) ? std::filesystem::path(schedule).filename().string()
                                       : schedule;
}

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

/// Messages beside products go through buffers as large as the input of a block.
void add_tensor_buffers(PlanParts& parts, const Profile& profile, const Cluster& cluster) {
    const Bytes input = samples_at(profile, parts.micro_batch_sizes.front()).front().output;
    const Bytes buffers{
        static_cast<std::int64_t>(cluster.tensor_buffers() * static_cast<double>(input.count))};
    for (std::size_t rank = 0; rank < parts.context.size(); ++rank) {
        parts.context_parts[rank].tensor_buffers = buffers;
        parts.context[rank] += buffers;
    }
}

/// What the devices of the ranks have room for.
void add_memory(PlanParts& parts,
                const SettledScenario& scenario,
                const Profile& profile,
                const Cluster& cluster) {
    const Scenario::ClusterPart& written = scenario.cluster;
    bool any_profile = false;
    bool any_context = false;
    for (const RankDevice& device : cluster.devices()) {
        parts.context.push_back(device.context);
        parts.context_parts.push_back(device.parts);
        any_profile = any_profile || device.profile != nullptr;
        any_context = any_context || device.context > Bytes{};
    }
    if (!any_profile && !any_context) {
        parts.context.clear();
        parts.context_parts.clear();
    } else {
        add_tensor_buffers(parts, profile, cluster);
    }
    parts.allocator_reserve =
        allocator_reserve(written.allocator_reserve, stack_of(scenario, profile).get());
    const bool no_limits = !written.memory_limit && written.memory_limits.empty() && !any_profile;
    if (no_limits || (written.memory_limit && parts.allocator_reserve == 0)) {
        parts.memory_limit = written.memory_limit;
        return;
    }
    for (const RankDevice& device : cluster.devices()) {
        parts.memory_limits.push_back(device.memory_limit.value());
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
            .tensor_overlap = pipeline.tensor_overlap == true,
            .scatter_boundaries = pipeline.scatter_boundaries,
            .shard = to_string(pipeline.shard),
            .shard_group = !pipeline.shard_group.is_all(),
            .overlap_gather = pipeline.overlap_gather == true,
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

// --- Placed: which rank has which piece, on which device. ---

struct RankPlacement {
    CostClasses micro_batches;
    Schedule grid;  ///< with the rows, where they are given
    Cluster cluster;
    DeviceKinds kinds;
};

RankPlacement rank_placement(const PlanParts& settings,
                             const SettledScenario& scenario,
                             const Profile& profile,
                             const Planner::Given& given) {
    Schedule grid = given.rows == nullptr ? grid_of(scenario) : (*given.rows)->schedule;
    require_recompute_fits(settings.recompute, grid, scenario);
    Cluster cluster(scenario, profile, grid.rank_count(), given.links);
    DeviceKinds kinds = device_kinds(cluster);
    return {.micro_batches = cost_classes(settings.micro_batch_sizes),
            .grid = std::move(grid),
            .cluster = std::move(cluster),
            .kinds = std::move(kinds)};
}

// --- Costed: what each layer takes. ---

/// True if one rank has both ends of the model in several stages. Our executor gives each stage a
/// copy of weights that the ends share; others have them once on a rank.
bool is_tied_on_one_rank(const Model& model, const Schedule& grid) {
    return !model.is_executable() && model_stage_count(grid) == grid.stage_count() &&
           grid.stage_count() > 1 && grid.rank_of_stage.front() == grid.rank_of_stage.back();
}

WeightRules weight_rules(const SettledScenario& scenario,
                         const Model& model,
                         const Profile& profile,
                         const LayerCosts& costs) {
    const bool tied_once = costs.counted_once.has_value();
    return {.optimizer_slots = optimizer_slots(scenario),
            .devices = scenario.pipeline.tensor_parallel,
            .fp32_gradients = has_fp32_gradients(scenario, profile),
            .shards = state_shards(scenario, profile),
            .prefetch = 2 * scenario.pipeline.prefetch,  // a block has two layers
            .tied = tied_once ? Bytes{} : tied_bytes(model, profile),
            .tied_room = model.is_executable(),
            .tied_update = tied_once ? Duration{} : tied_update(model, profile)};
}

/// Micro-batches of a row that are alive at once, from F to B or W; at least one.
int alive_at_once(const std::vector<Action>& row) {
    int alive = 0;
    int most = 1;
    for (const Action& action : row) {
        alive += action.op == Op::Forward ? 1 : 0;
        most = std::max(most, alive);
        alive -= action.op == Op::Backward || action.op == Op::BackwardWeight ? 1 : 0;
    }
    return most;
}

/// Whether one stage with these costs fits into the memory of its device.
bool fits_on_one_stage(const SettledScenario& scenario,
                       const Model& model,
                       const Profile& profile,
                       const Cluster& cluster,
                       const LayerCosts& costs,
                       const std::vector<Action>& row) {
    const int layers = model.layer_count();
    const int others = alive_at_once(row) - 1;
    const std::vector<LayerSamples>& samples = costs.samples.front();
    const StageState state = stage_states(tied_counted_once(model, profile),
                                          samples,
                                          Partition({layers}, layers),
                                          weight_rules(scenario, model, profile, costs))
                                 .front();
    Bytes most;
    for (const LayerSamples& of_class : samples) {
        const StageCost cost = StageCosts(model, of_class).of(0, layers);
        most = std::max(
            most,
            cost.saved * others + std::max({cost.saved, cost.forward_peak, cost.backward_peak}));
    }
    const RankDevice& device = cluster.devices().front();
    return device.context + kept_state(state) + state.workspace + most <=
           device.memory_limit.value();
}

/// Costs of the layers for the micro-batches, devices and pieces of a plan. As few blocks as needed
/// are offloaded where the stack does that.
LayerCosts costs_of_layers(const SettledScenario& scenario,
                           const Model& model,
                           const Profile& profile,
                           const std::vector<int>& micro_batch_sizes,
                           const Cluster& cluster,
                           const Schedule& grid) {
    LayerRules rules = cluster.layer_rules();
    const bool tied_once = is_tied_on_one_rank(model, grid);
    const auto costs_with = [&](int blocks) {
        rules.offloaded_blocks = blocks;
        LayerCosts costs{
            .samples = cost_table(model, profile, micro_batch_sizes, device_kinds(cluster), rules),
            .counted_once = {},
            .offloaded_blocks = blocks};
        if (tied_once) {
            costs.counted_once = tied_counted_once(model, profile);
        }
        return costs;
    };
    const OrAuto<int>& written = scenario.pipeline.offload_blocks;
    LayerCosts costs = costs_with(written.value_or(0));
    const auto fits = [&] {
        return fits_on_one_stage(scenario, model, profile, cluster, costs, grid.ranks.front());
    };
    if (!written.is_auto() || !model.is_chain() || !cluster.offloads_as_needed() || fits()) {
        return costs;
    }
    int too_few = 0;
    int enough = static_cast<int>(recomputed_blocks(model).size());
    while (enough - too_few > 1) {
        const int blocks = too_few + (enough - too_few) / 2;
        costs = costs_with(blocks);
        (fits() ? enough : too_few) = blocks;
    }
    return costs_with(enough);
}

// --- Cut: the layers of each piece, and the messages between pieces. ---

struct Cut {
    Partition partition;
    std::vector<Route> routes{};  ///< empty for a chain
};

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

// --- Summed: what stages take and hold. ---

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

// --- Lowered: the rows. ---

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

}  // namespace

/// What the plans of one scenario have in common, and the steps that they do not.
struct Planner::Common {
    Common(const SettledScenario& of,
           const Model& layers,
           const Profile& of_layers,
           const Given& given);

    Cut cut(Partition partition) const;
    Partition own_partition(const RecomputeRules& recompute) const;
    /// The grid with the messages of a cut.
    Schedule with_skips(const Cut& cut) const;
    /// The layers as stages; `grid` has the skips of the cut.
    PlanParts summed(const Cut& cut, const Schedule& grid) const;
    /// Links and what shares them.
    void join(PlanParts& of, const Schedule& grid) const;
    void add_all_reduce(PlanParts& of, const Schedule& grid) const;
    std::vector<int> stage_buckets(const PlanParts& of, int each) const;
    /// How sums over replicas go on beside backwards; the parts have their rows.
    void add_buckets(PlanParts& of) const;

    Plan plan(PlanParts summed,
              Schedule grid,
              const RecomputeRules& recompute,
              RowsFrom rows) const;
    Plan plan(const Cut& cut, const RecomputeRules& recompute) const;
    /// With the rows of another plan; none where these have other messages.
    std::optional<PlanParts> with_rows_of(const Plan& other, const Cut& cut) const;
    /// What readers of a plan want to know.
    void add_texts(PlanParts& of) const;

    const SettledScenario& scenario;
    const Model& model;
    const Profile& profile;
    LinkFactors factors;
    std::optional<Plan> rows;  ///< that were given
    bool is_chain;
    PlanParts parts;                   ///< of every plan, those that no cut changes
    std::vector<std::string> names{};  ///< of the layers
    std::vector<std::string> notes{};
    RankPlacement place;
    LayerCosts costs;
    std::vector<std::vector<StageCosts>> stage_costs{};  ///< [cost class][kind of device]
    std::vector<LayerSamples> sizes{};  ///< [cost class]: bytes are the same on every device
    WeightRules rules{};
    int gradient = 1;  ///< bytes for each byte of its weight
    ModelParameters weights{};
    std::vector<ReplicaGroups> replicas{};  ///< [stage]; empty: there is one
    std::optional<Cut> own{};               ///< of the scenario
};

namespace {

/// The settings, after what has to be checked before anything else.
PlanParts checked_settings(const SettledScenario& scenario,
                           const Model& model,
                           const Profile& profile) {
    require_same_layers(model, profile);
    require_devices(scenario);
    return settings_of(scenario, profile);
}

}  // namespace

Planner::Common::Common(const SettledScenario& of,
                        const Model& layers,
                        const Profile& of_layers,
                        const Given& given)
    : scenario(of),
      model(layers),
      profile(of_layers),
      factors(given.links),
      rows(given.rows == nullptr ? std::nullopt : std::optional(*given.rows)),
      is_chain(model.is_chain()),
      parts(checked_settings(scenario, model, profile)),
      place(rank_placement(parts, scenario, profile, given)) {
    parts.cost_class = place.micro_batches.of_micro_batch;
    Schedule& grid = place.grid;
    require_costs_at(place.micro_batches.sizes, scenario, profile);
    costs =
        costs_of_layers(scenario, model, profile, place.micro_batches.sizes, place.cluster, grid);
    for (const std::vector<LayerSamples>& of_kind : costs.samples) {
        std::vector<StageCosts>& costs_of_kind = stage_costs.emplace_back();
        for (const LayerSamples& of_layer : of_kind) {
            costs_of_kind.emplace_back(model, of_layer);
        }
        sizes.push_back(of_kind.front());
    }
    own = cut(own_partition(parts.recompute));
    grid.skips = skips_of(own->routes, grid);

    add_memory(parts, scenario, profile, place.cluster);
    rules = weight_rules(scenario, model, profile, costs);
    gradient = gradient_bytes_per_byte(profile.precision, rules.fp32_gradients);
    weights = costs.counted_once ? *costs.counted_once : parameters_of(profile);
    parts.tied_gradient = rules.tied * gradient;
    refuse_tied_twins(parts, grid, model);
    refuse_batch_norms(parts, grid, model);
    grid.tied_ends = parts.tied_gradient > Bytes{} && model_stage_count(grid) > 1;
    join(parts, grid);
    refuse_replicas_of_twins(parts, grid);
    if (parts.replicas > 1) {
        for (const int rank : grid.rank_of_stage) {
            replicas.push_back(place.cluster.replica_groups(rank));
        }
    }
    require_known_attention(scenario, profile);
    add_notes(parts, scenario, profile, place.cluster, place.micro_batches.sizes);
    if (costs.offloaded_blocks > 0) {
        parts.notes.push_back(fmt::format(
            "activations of the first {} are in host memory until their backward "
            "(pipeline.offload_blocks{}); the copies are taken to be hidden",
            counted(costs.offloaded_blocks, "block"),
            scenario.pipeline.offload_blocks.is_auto() ? ": as many as are needed" : ""));
    }
    const bool sets_interference =
        scenario.cluster.interference || !scenario.cluster.pair_interference.empty();
    add(parts.notes, share_notes(profile, parts.tensor_parallel));
    add(parts.notes, gpu_notes(profile, grid, parts.schedule_name, sets_interference));
    if (grid.tied_ends) {
        parts.notes.push_back(tied_note(profile.precision, rules));
    }
    notes = std::exchange(parts.notes, {});
    names = layer_names(model);
}

/// In a chain no output skips a stage, and a message is all that a stage sends.
Cut Planner::Common::cut(Partition partition) const {
    PIPETWIN_EXPECT(partition.stage_count() == model_stage_count(place.grid),
                    "one piece of the partition per piece of the schedule");
    std::vector<Route> routes = is_chain ? std::vector<Route>() : routes_of(model, partition);
    return {.partition = std::move(partition), .routes = std::move(routes)};
}

Schedule Planner::Common::with_skips(const Cut& cut) const {
    Schedule grid = place.grid;
    grid.skips = skips_of(cut.routes, grid);
    return grid;
}

Partition Planner::Common::own_partition(const RecomputeRules& recompute) const {
    const std::optional<Partition> written = scenario_partition(scenario, model);
    if (written) {
        return *written;
    }
    try {
        const int pieces = model_stage_count(place.grid);
        // Two pipelines of one model have each piece on two ranks: no number of chunks changes it.
        check_stage_count(
            pieces, model.layer_count(), std::max(1, pieces / place.grid.rank_count()));
        return partition_for(rank_chain(costs.samples.front(), place.kinds, place.grid, recompute));
    } catch (const Error& error) {  // fewer layers than stages
        throw has_schedule_file(scenario)
            ? error.about("pipeline.schedule").with_hint("take a schedule file of fewer stages")
            : error;
    }
}

void Planner::Common::join(PlanParts& of, const Schedule& grid) const {
    of.links = pair_links(place.cluster, grid);
    of.reductions = reduction_links(place.cluster, grid);
    if (scenario.pipeline.offload == Offload::Stash) {
        of.host_link = host_link(scenario.cluster, profile);
        if (!of.host_link) {
            throw Error(ErrorKind::BadInput,
                        KeyValue{"pipeline.offload", "\"stash\""},
                        "neither scenario nor profile says how fast the link to host memory is",
                        "set cluster.host_link = \"pcie-4\", or another of its kind, or "
                        "cluster.host_link_gbps; or measure with 'pipetwin profile'");
        }
    }
    of.transfer = scenario.cluster.transfer;
    of.contention = contention(place.cluster, scenario.cluster, grid, profile.ranks, of.host_link);
}

/// Every stage sums its gradients, `gradient` bytes for each of its weights. Of either half of that
/// the first leaves each replica with the sums of its share, and the second gives them to all
/// others: the sums themselves, or, where the optimizer is sharded, the weights that came of them
/// (core/costs/replica_sums.h).
/// Gradients that go on to another stage are needed everywhere.
void Planner::Common::add_all_reduce(PlanParts& of, const Schedule& grid) const {
    const Shard divided = divided_all_step(scenario, stack_of(scenario, profile).get());
    for (std::size_t stage = 0; stage < replicas.size(); ++stage) {
        if (divided == Shard::Weights) {  // all is done micro-batch by micro-batch
            of.all_reduce.emplace_back();
            of.weight_gather.emplace_back();
            continue;
        }
        const ReplicaGroups& groups = replicas[stage];
        const Bytes bytes = of.states[stage].weights;
        const std::int64_t numbers = bytes.count / bytes_per_number(profile.precision);
        const SentNumbers gradients{.count = numbers, .bytes = bytes * gradient};
        const bool stays =
            divided != Shard::None && !gradient_source(grid, static_cast<int>(stage));
        of.all_reduce.push_back(divided == Shard::Gradients ? Duration{}
                                : stays                     ? share_sums_time(groups, gradients)
                                                            : whole_sums_time(groups, gradients));
        if (divided != Shard::None) {
            of.weight_gather.push_back(weights_time(groups, {.count = numbers, .bytes = bytes}));
        }
    }
}

/// [stage]: buckets in which replicas send so many bytes for each byte of its weights. Without a
/// stack each layer is one.
std::vector<int> Planner::Common::stage_buckets(const PlanParts& of, int each) const {
    std::vector<int> buckets;
    for (std::size_t stage = 0; stage < replicas.size(); ++stage) {
        if (!replicas[stage].stack) {
            const int piece = of.schedule.weights_of_stage[stage];
            buckets.push_back(of.partition->layers_in(piece));
            continue;
        }
        const Bytes bytes = of.states[stage].weights;
        buckets.push_back(buckets_of(
            replicas[stage],
            {.count = bytes.count / bytes_per_number(profile.precision), .bytes = bytes * each}));
    }
    return buckets;
}

/// Messages of replicas go on beside backwards and forwards, as the stack and the scenario say.
void Planner::Common::add_buckets(PlanParts& of) const {
    const std::optional<MessageLanes> lanes = place.cluster.message_lanes();
    if (lanes && of.overlap_reduction && !of.all_reduce.empty()) {
        add_bucketed_sums(of, stage_buckets(of, gradient), lanes->gradients.share);
    }
    const bool as_stack = lanes && lanes->hides_weights && of.overlap_reduction;
    if (!of.weight_gather.empty() && scenario.pipeline.overlap_gather.value_or(as_stack)) {
        const MessageLanes known = lanes.value_or(MessageLanes{});
        hide_weight_gathers(of, stage_buckets(of, 1), known.weights.share);
    }
}

PlanParts Planner::Common::summed(const Cut& cut, const Schedule& grid) const {
    PlanParts of = parts;
    of.partition = cut.partition;
    const double longer = profile.halves_over_whole.value_or(1);
    for (const std::vector<StageCosts>& of_kind : stage_costs) {
        std::vector<StageCost>& of_stage = of.costs.emplace_back();
        for (int stage = 0; stage < grid.stage_count(); ++stage) {
            const int piece = grid.weights_of_stage[as_index(stage)];
            const int first = cut.partition.first_layer(piece);
            const std::size_t kind = place.kinds.of(grid.rank_of_stage[as_index(stage)]);
            of_stage.push_back(of_kind[kind].of(first, first + cut.partition.layers_in(piece)));
            lengthen_halves(of_stage.back(), longer);
        }
    }
    if (!is_chain) {
        if (grid.skips != place.grid.skips) {
            join(of, grid);
        }
        for (const LayerSamples& of_class : sizes) {
            of.message_bytes.push_back(message_bytes(cut.routes, grid, of_class));
        }
        add_skip_note(of, grid, cut.routes, sizes.front());
    }
    of.states = of_stages(grid, stage_states(weights, sizes, cut.partition, rules));
    for (std::size_t stage = 0; stage < of.states.size(); ++stage) {
        const double factor = place.kinds.speeds[place.kinds.of(grid.rank_of_stage[stage])].factor;
        for (Duration* const time : {&of.states[stage].optimizer, &of.states[stage].norm}) {
            *time = scaled(*time, factor);
        }
    }
    double_shared_gradients(grid, of.states);
    add_all_reduce(of, grid);
    return of;
}

void Planner::Common::add_texts(PlanParts& of) const {
    of.layer_names = names;
    add(of.notes, notes);
}

Plan Planner::Common::plan(PlanParts summed,
                           Schedule grid,
                           const RecomputeRules& recompute,
                           RowsFrom from) const {
    summed.recompute = recompute;
    summed.schedule = lowered_order(scenario, std::move(grid), summed);
    const bool generated = !has_schedule_file(scenario) && scenario.pipeline.deferred_weights == 0;
    if (!generated ||
        is_forward_only(summed.schedule)) {  // others recompute what they are asked to
        summed.recompute = lowered_recompute(summed.schedule, summed.recompute);
    }
    require_reductions(summed);
    require_norms(scenario, summed);
    add_buckets(summed);
    return Plan::make(std::move(summed), generated ? from : RowsFrom::Anywhere);
}

Plan Planner::Common::plan(const Cut& cut, const RecomputeRules& recompute) const {
    Schedule grid = with_skips(cut);
    PlanParts of = summed(cut, grid);
    return plan(std::move(of), std::move(grid), recompute, RowsFrom::Generator);
}

std::optional<PlanParts> Planner::Common::with_rows_of(const Plan& other, const Cut& cut) const {
    Schedule grid = other->schedule;
    if (skips_of(cut.routes, grid) != grid.skips) {
        return std::nullopt;
    }
    PlanParts of = summed(cut, grid);
    grid.tied_ends = place.grid.tied_ends;
    of.schedule = std::move(grid);
    of.recompute = other->recompute;
    add_buckets(of);
    return of;
}

Planner::Planner(const SettledScenario& scenario,
                 const Model& model,
                 const Profile& profile,
                 const Given& given)
    : common_(std::make_unique<const Common>(scenario, model, profile, given)) {}

Planner::Planner(Planner&&) noexcept = default;
Planner::~Planner() = default;

const LayerCosts& Planner::layer_costs() const {
    return common_->costs;
}

Plan Planner::plan(RowsFrom rows) const {
    const Common& of = *common_;
    if (!of.rows) {
        PlanParts parts = of.summed(*of.own, of.place.grid);
        of.add_texts(parts);
        return of.plan(std::move(parts), of.place.grid, of.parts.recompute, rows);
    }
    if (std::optional<PlanParts> parts = of.with_rows_of(*of.rows, *of.own)) {
        of.add_texts(*parts);
        return Plan::make(*std::move(parts), RowsFrom::Generator);
    }
    return Planner(of.scenario, of.model, of.profile, {.links = of.factors}).plan(rows);
}

Plan Planner::plan(const std::optional<std::vector<int>>& layers_per_piece,
                   const RecomputeRules& recompute) const {
    const Common& of = *common_;
    require_recompute_fits(recompute, of.place.grid, of.scenario);
    return of.plan(of.cut(layers_per_piece ? Partition(*layers_per_piece, of.model.layer_count())
                                           : of.own_partition(recompute)),
                   recompute);
}

Plan Planner::plan_with_rows_of(const Plan& other, const std::vector<int>& layers_per_piece) const {
    const Common& of = *common_;
    const Cut cut = of.cut(Partition(layers_per_piece, of.model.layer_count()));
    if (!rows_follow_costs(of.scenario)) {
        if (std::optional<PlanParts> parts = of.with_rows_of(other, cut)) {
            return Plan::make(*std::move(parts), RowsFrom::Generator);
        }
    }
    return of.plan(cut, of.parts.recompute);
}

Plan make_plan(const SettledScenario& scenario,
               const Model& model,
               const Profile& profile,
               RowsFrom rows) {
    return Planner(scenario, model, profile).plan(rows);
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
    return costs_of_layers(scenario,
                           model,
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
                            const Profile& profile) {
    PIPETWIN_EXPECT(!rows_follow_costs(scenario), "the rows are those of any costs");
    return Planner(scenario, model, profile, {.rows = &other}).plan(RowsFrom::Generator);
}

Plan make_plan_with_faster_links(const Plan& plan,
                                 const SettledScenario& scenario,
                                 const Model& model,
                                 const Profile& profile,
                                 const LinkFactors& factors) {
    SettledScenario same = scenario;
    same.pipeline.partition = plan->partition.value().layers_per_stage();
    return Planner(same, model, profile, {.rows = &plan, .links = factors})
        .plan(RowsFrom::Generator);
}

}  // namespace pipetwin
