// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/planner.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/partition/partition_search.h"
#include "core/plan/layer_recompute.h"
#include "core/plan/plan_order.h"
#include "core/plan/routes.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/cluster/pipeline_contention.h"
#include "core/scenario/kept_messages.h"
#include "core/scenario/plan_refusals.h"
#include "core/scenario/plan_rows.h"
#include "core/scenario/plan_settings.h"
#include "core/scenario/replica_messages.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/edge.h"

namespace pipetwin {

namespace {

// --- What no partition changes. ---

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
    Schedule grid = given.rows == nullptr ? plan_grid(scenario) : (*given.rows)->schedule;
    require_recompute_fits(settings.recompute, grid, scenario);
    require_modules_fit(scenario, grid);
    Cluster cluster(scenario, profile, grid.rank_count(), given.links);
    DeviceKinds kinds = device_kinds(cluster);
    return {.micro_batches = cost_classes(settings.micro_batch_sizes),
            .grid = std::move(grid),
            .cluster = std::move(cluster),
            .kinds = std::move(kinds)};
}

// --- Cut: the layers of each piece, and the messages between pieces. ---

struct Cut {
    Partition partition;
    std::vector<Route> routes{};  ///< empty for a chain
    ModuleLists modules{};        ///< that are computed again
};

// --- Costs: of any run of layers. ---

/// Costs of the layers as stages. They refer to the samples.
struct RunCosts {
    RunCosts(const Model& model, const CostTable& samples) {
        for (const std::vector<LayerSamples>& of_kind : samples) {
            std::vector<StageCosts>& costs = stages.emplace_back();
            for (const LayerSamples& of_layer : of_kind) {
                costs.emplace_back(model, of_layer);
            }
            sizes.push_back(of_kind.front());
        }
    }

    std::vector<std::vector<StageCosts>> stages{};  ///< [cost class][kind of device]
    std::vector<LayerSamples> sizes{};  ///< [cost class]: bytes are the same on every device
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
    PlanParts summed(const Cut& cut, const Schedule& grid, const RunCosts& of_layers) const;
    /// The layers' costs where modules are chosen piece by piece.
    CostTable costs_of_modules(const Cut& cut) const;
    /// Links and what shares them.
    void join(PlanParts& of, const Schedule& grid) const;

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
    PlanParts parts;  ///< of every plan, those that no cut changes
    std::vector<std::string> notes{};
    RankPlacement place;
    LayerCosts costs;
    std::optional<RunCosts> run_costs{};
    WeightRules rules{};
    ModelParameters weights{};
    StageReplicas replicas{};
    std::optional<KeptMessages> kept_messages{};
    std::optional<Cut> own{};  ///< of the scenario
};

namespace {

/// The settings, after what has to be checked before anything else.
PlanParts checked_settings(const SettledScenario& scenario,
                           const Model& model,
                           const Profile& profile) {
    require_same_layers(model, profile);
    require_devices(scenario);
    return plan_settings(scenario, profile);
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
    run_costs.emplace(model, costs.samples);
    own = cut(own_partition(parts.recompute));
    grid.skips = skips_of(own->routes, grid);

    add_memory(parts, scenario, profile, place.cluster);
    rules = weight_rules(scenario, model, profile, costs);
    const int gradient = gradient_bytes_per_byte(profile.precision, rules.fp32_gradients);
    weights = costs.counted_once ? *costs.counted_once : parameters_of(profile);
    parts.tied_gradient = rules.tied * gradient;
    refuse_tied_twins(parts, grid, model);
    refuse_batch_norms(parts, grid, model);
    grid.tied_ends = parts.tied_gradient > Bytes{} && model_stage_count(grid) > 1;
    join(parts, grid);
    refuse_replicas_of_twins(parts, grid);
    replicas = stage_replicas(scenario, profile, place.cluster, grid, gradient);
    kept_messages.emplace(scenario, profile, rules.shards, place.micro_batches.sizes.front());
    require_known_attention(scenario, profile);
    add_notes(parts,
              {.scenario = scenario,
               .profile = profile,
               .cluster = place.cluster,
               .grid = grid,
               .micro_batch_sizes = place.micro_batches.sizes,
               .offloaded_blocks = costs.offloaded_blocks,
               .in_host_memory = costs.in_host_memory,
               .rules = rules});
    notes = std::exchange(parts.notes, {});
}

/// In a chain no output skips a stage, and a message is all that a stage sends.
Cut Planner::Common::cut(Partition partition) const {
    PIPETWIN_EXPECT(partition.stage_count() == model_stage_count(place.grid),
                    "one piece of the partition per piece of the schedule");
    std::vector<Route> routes = is_chain ? std::vector<Route>() : routes_of(model, partition);
    return {.partition = std::move(partition),
            .routes = std::move(routes),
            .modules = scenario.pipeline.recompute_modules};
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

CostTable Planner::Common::costs_of_modules(const Cut& cut) const {
    ModuleRules modules = costs.rules.modules;
    modules.recompute = cut.modules;
    CostTable table = costs.whole;
    for (std::vector<LayerSamples>& of_kind : table) {
        for (LayerSamples& samples : of_kind) {
            const std::vector<ModulesOfLayer> of_layers =
                modules_of_layers(model, samples, cut.partition, modules);
            samples = under_rules(model, profile, std::move(samples), costs.rules, of_layers);
        }
    }
    return table;
}

PlanParts Planner::Common::summed(const Cut& cut, const Schedule& grid) const {
    if (costs.whole.empty()) {
        return summed(cut, grid, *run_costs);
    }
    const CostTable own_costs = costs_of_modules(cut);
    return summed(cut, grid, RunCosts(model, own_costs));
}

PlanParts Planner::Common::summed(const Cut& cut,
                                  const Schedule& grid,
                                  const RunCosts& of_layers) const {
    PlanParts of = parts;
    of.partition = cut.partition;
    const double longer = profile.halves_over_whole.value_or(1);
    for (const std::vector<StageCosts>& of_kind : of_layers.stages) {
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
        for (const LayerSamples& of_class : of_layers.sizes) {
            of.message_bytes.push_back(message_bytes(cut.routes, grid, of_class));
        }
        add_skip_note(of, grid, cut.routes, of_layers.sizes.front());
    }
    of.states = of_stages(grid, stage_states(weights, of_layers.sizes, cut.partition, rules));
    for (std::size_t stage = 0; stage < of.states.size(); ++stage) {
        const double factor = place.kinds.speeds[place.kinds.of(grid.rank_of_stage[stage])].factor;
        for (Duration* const time : {&of.states[stage].optimizer, &of.states[stage].norm}) {
            *time = scaled(*time, factor);
        }
    }
    double_shared_gradients(grid, of.states);
    add_replica_messages(of, replicas, grid);
    return of;
}

void Planner::Common::add_texts(PlanParts& of) const {
    of.layer_names = model.layer_names();
    of.notes.insert(of.notes.end(), notes.begin(), notes.end());
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
    kept_messages->add_to(summed);
    add_buckets(summed, replicas);
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
    kept_messages->add_to(of);
    add_buckets(of, replicas);
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
    return plan(layers_per_piece, recompute, common_->scenario.pipeline.recompute_modules);
}

Plan Planner::plan(const std::optional<std::vector<int>>& layers_per_piece,
                   const RecomputeRules& recompute,
                   const ModuleLists& modules) const {
    const Common& of = *common_;
    require_recompute_fits(recompute, of.place.grid, of.scenario);
    Cut cut = of.cut(layers_per_piece ? Partition(*layers_per_piece, of.model.layer_count())
                                      : of.own_partition(recompute));
    cut.modules = modules;
    return of.plan(cut, recompute);
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
    const Schedule grid = plan_grid(scenario);
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
