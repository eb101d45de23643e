#include "cli/training/early_refusals.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "cli/run_folder/run_folder.h"
#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/plan/plan.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/replan.h"
#include "core/scenario/scenario_words.h"
#include "core/timeline/memory_limits.h"
#include "exec/data/batch.h"
#include "exec/profiling/profiler.h"
#include "exec/training/trainer.h"

namespace pipetwin::cli {

namespace {

/// Bytes that the ranks of one pipeline have, as the scenario limits them.
struct Room {
    int ranks = 1;
    Bytes all;
    Bytes most;  ///< of one rank
};

/// The room of `ranks` ranks; none where the scenario limits nothing.
std::optional<Room> room_of(const Scenario::ClusterPart& cluster, int ranks) {
    std::vector<Bytes> limits = cluster.memory_limits;
    if (cluster.memory_limit) {
        limits.assign(as_index(ranks), *cluster.memory_limit);
    }
    if (limits.empty()) {
        return std::nullopt;
    }
    Room room{.ranks = static_cast<int>(limits.size()), .all = {}, .most = {}};
    for (const Bytes limit : limits) {
        room.all += limit;
        room.most = std::max(room.most, limit);
    }
    return room;
}

Bytes kept(const StageState& state) {
    return state.weights + state.running + state.gradients + state.optimizer_state;
}

/// Throws Error(Infeasible) if weights, gradients and optimizer state alone, each there once, are
/// more than the ranks have room for.
void refuse_states_without_room(const ScenarioParts& scenario,
                                const Model& model,
                                const Profile& sizes,
                                const StateShards& shards,
                                const Room& room) {
    const Profile once = tied_counted_once(model, sizes);
    const WeightRules rules{.optimizer_slots = optimizer_slots(scenario),
                            .fp32_gradients = scenario.training.gradients == GradientType::Fp32,
                            .shards = shards};
    const int layers = model.layer_count();
    const Partition each(std::vector<int>(as_index(layers), 1), layers);
    const std::vector<StageState> of_layers = stage_states(once, {}, each, rules);
    const auto largest = std::ranges::max_element(of_layers, {}, kept);
    if (kept(*largest) > room.most) {
        throw Error(
            ErrorKind::Infeasible,
            "memory",
            fmt::format("layer '{}' needs {} for its weights, their gradients and the optimizer's "
                        "state, more than the limit of {} of a rank",
                        model.layer(static_cast<int>(largest - of_layers.begin())).spec.name,
                        format_bytes(kept(*largest)),
                        format_bytes(room.most)),
            "no number of stages helps: raise cluster.memory_limit, or make this layer smaller");
    }
    const Bytes all = kept(stage_states(once, {}, Partition({layers}, layers), rules).front());
    if (all > room.all) {
        throw Error(ErrorKind::Infeasible,
                    "memory",
                    fmt::format("weights, gradients and the optimizer's state of all layers need "
                                "{}, but {} {} room for {} by cluster.memory_limit",
                                format_bytes(all),
                                counted(room.ranks, "rank"),
                                room.ranks == 1 ? "has" : "together have",
                                format_bytes(room.all)),
                    "use more stages, raise cluster.memory_limit, or make the model smaller");
    }
}

/// Whether every costs give the same partition and rows.
bool is_known_without_costs(const SettledScenario& scenario, const Model& model) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    const int pieces = pipeline.pieces();
    const bool one_partition = pipeline.partition || pieces == 1 || pieces == model.layer_count();
    return one_partition && !rows_follow_costs(scenario) && pipeline.offload == Offload::None;
}

}  // namespace

void refuse_what_no_costs_help(const SettledScenario& scenario, const Model& model) {
    const Plan plan = exec::unmeasured_plan(scenario, model);
    if (is_known_without_costs(scenario, model)) {
        check_memory(plan);
        return;
    }
    if (const std::optional<Room> room = room_of(scenario.cluster, scenario.pipeline.stages)) {
        const Profile sizes = exec::unmeasured_profile(model, exec::profiler_options(scenario));
        refuse_states_without_room(scenario, model, sizes, state_shards(scenario), *room);
    }
}

void refuse_what_no_costs_help(const Scenario& space, const Model& model) {
    const int layers = model.layer_count();
    const int devices = space.cluster.count > 0 ? space.cluster.count : layers;
    const int replicas = space.pipeline.data_parallel.value_or(1);
    // The plainest plan of as many stages as are asked for: what is wrong with it is so with any.
    Scenario plainest = space;
    plainest.cluster.memory_limit.reset();
    plainest.cluster.memory_limits.clear();
    plainest.pipeline = {};
    plainest.pipeline.stages = space.pipeline.stages.value_or(1);
    plainest.pipeline.schedule = std::string(to_string(ScheduleKind::OneFOneB));
    plainest.pipeline.chunks = 1;
    plainest.pipeline.micro_batches = 1;
    plainest.pipeline.data_parallel = replicas;
    plainest.pipeline.shard = space.pipeline.shard_auto ? Shard::Optimizer : space.pipeline.shard;
    plainest.pipeline.tensor_parallel = 1;
    const SettledScenario settled = settle(plainest);
    static_cast<void>(exec::unmeasured_plan(settled, model));
    const int ranks = space.pipeline.stages.value_or(std::min(devices, layers));
    if (const std::optional<Room> room = room_of(space.cluster, ranks)) {
        const Profile sizes = exec::unmeasured_profile(model, exec::profiler_options(settled));
        refuse_states_without_room(space, model, sizes, state_shards(settled), *room);
    }
}

void refuse_unusable_data(const ScenarioParts& scenario, const Model& model) {
    static_cast<void>(exec::open_data(scenario, model));
    if (scenario.training.validate_every > 0) {
        static_cast<void>(exec::open_data(scenario, model, exec::DataUse::Validation));
    }
}

void refuse_other_checkpoints(const ScenarioParts& scenario,
                              const Model& model,
                              const std::filesystem::path& run) {
    exec::refuse_other_checkpoints(scenario, model, run / run_file::checkpoints);
}

}  // namespace pipetwin::cli
