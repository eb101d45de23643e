// SPDX-License-Identifier: Apache-2.0
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
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/layer_costs.h"
#include "core/scenario/plan_rows.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/scenario_words.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/generators/generate.h"
#include "core/timeline/memory_limits.h"
#include "exec/data/batch.h"
#include "exec/executor/backend.h"
#include "exec/gpu/gpu_parts.h"
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

/// Throws Error(Infeasible) if weights, gradients and optimizer state alone, each there once, are
/// more than the ranks have room for.
void refuse_states_without_room(const ScenarioParts& scenario,
                                const Model& model,
                                const Profile& sizes,
                                const StateShards& shards,
                                const Room& room) {
    const WeightRules rules{.optimizer = optimizer_state(scenario),
                            .fp32_gradients = has_fp32_gradients(scenario, sizes),
                            .shards = shards};
    const int layers = model.layer_count();
    const Partition each(std::vector<int>(as_index(layers), 1), layers);
    const std::vector<StageState> of_layers =
        stage_states(tied_counted_once(model, sizes), {}, each, rules);
    const auto largest = std::ranges::max_element(
        of_layers, {}, [](const StageState& state) { return kept_state(state); });
    if (kept_state(*largest) > room.most) {
        throw Error(
            ErrorKind::Infeasible,
            "memory",
            fmt::format("layer '{}' needs {} for its weights, their gradients and the optimizer's "
                        "state, more than the limit of {} of a rank",
                        model.layer(static_cast<int>(largest - of_layers.begin())).spec.name,
                        format_bytes(kept_state(*largest)),
                        format_bytes(room.most)),
            "no number of stages helps: raise cluster.memory_limit, or make this layer smaller")
            .about("cluster.memory_limit")
            .because(ErrorReason::Memory);
    }
    const Bytes all = kept_state(model, sizes, rules);
    if (all > room.all) {
        throw Error(ErrorKind::Infeasible,
                    "memory",
                    fmt::format("weights, gradients and the optimizer's state of all layers need "
                                "{}, but {} {} room for {} by cluster.memory_limit",
                                format_bytes(all),
                                counted(room.ranks, "rank"),
                                room.ranks == 1 ? "has" : "together have",
                                format_bytes(room.all)),
                    "use more stages, raise cluster.memory_limit, or make the model smaller")
            .about("cluster.memory_limit")
            .because(ErrorReason::Memory);
    }
}

/// Whether every costs give the same partition and rows.
bool is_known_without_costs(const SettledScenario& scenario, const Model& model) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    const int pieces = pipeline.pieces();
    const bool one_partition =
        !pipeline.partition.is_auto() || pieces == 1 || pieces == model.layer_count();
    return one_partition && !rows_follow_costs(scenario) && pipeline.offload == Offload::None;
}

/// What describes machines that are not this one.
void refuse_other_machines(const ScenarioParts& scenario,
                           const Degrees& degrees,
                           const Processes& processes) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    const auto refuse = [](std::string_view key, std::string_view what, std::string hint) {
        throw Error(ErrorKind::Unavailable,
                    KeyValue{std::string(key)},
                    fmt::format("{}: it can be simulated, but not trained with here", what),
                    std::move(hint));
    };
    const bool are_threads = processes.is_alone();
    const bool can_be_threads = exec::traits(cluster.backend).groups_share_process;
    if (degrees.replicas > 1 && are_threads && !can_be_threads) {
        refuse("pipeline.data_parallel",
               fmt::format("{} replicas on GPUs of one process", degrees.replicas),
               "start a process for each rank of each replica: mpirun, srun or 'pipetwin launch'; "
               "or set data_parallel = 1");
    }
    if (degrees.devices > 1 && are_threads && !can_be_threads) {
        refuse("pipeline.tensor_parallel",
               fmt::format("{} GPUs of a rank in one process", degrees.devices),
               "start a process for each GPU of each rank: mpirun, srun or 'pipetwin launch'; or "
               "set tensor_parallel = 1");
    }
    if (cluster.device != this_machine || !cluster.devices.empty()) {
        refuse(cluster.devices.empty() ? "cluster.device" : "cluster.devices",
               cluster.devices.empty() ? cluster.device : cluster.devices.front(),
               "'pipetwin simulate' predicts it; to train, leave the device out");
    }
    if (!cluster.speeds.empty() && !exec::traits(cluster.backend).is_emulated) {
        refuse("cluster.speeds",
               "ranks of unequal speed",
               fmt::format("cluster.backend = {} emulates them",
                           exec::backends_where(&exec::BackendTraits::is_emulated)));
    }
}

}  // namespace

void refuse_what_cannot_run(const RunOptions& options,
                            const ScenarioParts& scenario,
                            const Degrees& degrees,
                            const Processes& processes) {
    if (options.resume && options.common.out.empty()) {
        throw Error(ErrorKind::Usage,
                    "--resume",
                    "the run to continue is not named",
                    "name its folder with --out DIR");
    }
    if (options.resume && options.common.force) {
        throw Error(ErrorKind::Usage,
                    "--resume",
                    "--force would remove the run that --resume continues",
                    "leave one of them out");
    }
    if (options.resume && !options.weights.empty()) {
        throw Error(ErrorKind::Usage,
                    "--weights",
                    "with --resume a run continues with the weights of its checkpoint",
                    "leave one of them out");
    }
    if (scenario.model.kind == ModelKind::Profile) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"model.kind"},
                    "a model of kind 'profile' has only costs, so it cannot be trained",
                    "'pipetwin simulate' predicts it; to train, describe it as gpt, mlp or layers");
    }
    refuse_other_machines(scenario, degrees, processes);
    const exec::BackendTraits& backend = exec::traits(scenario.cluster.backend);
    if (backend.require != nullptr) {
        backend.require(processes.gpu());
    }
    if (backend.needs_gpu) {
        processes.expect_a_gpu_each();
    }
}

/// Devices that divide the layers of a rank in a way that is not trained.
void refuse_devices_that_only_simulate(const Scenario& scenario) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    const int devices = pipeline.tensor_parallel.value_or(1);
    if (devices == 1) {
        return;
    }
    if (pipeline.scatter_boundaries == true && pipeline.sequence_parallel != true) {
        throw Error(ErrorKind::Infeasible,
                    KeyValue{"pipeline.scatter_boundaries", "true"},
                    "devices that send parts of what they have whole can only be simulated",
                    "'pipetwin simulate' predicts it; to train, set pipeline.scatter_boundaries = "
                    "false, or pipeline.sequence_parallel = true, with which they have parts");
    }
}

bool has_experts(const LayerSpec& layer) {
    return layer.type == LayerType::Experts || std::ranges::any_of(layer.inner, has_experts);
}

void refuse_experts_where_none_are_trained(const Scenario& scenario) {
    const exec::BackendTraits& backend = exec::traits(scenario.cluster.backend);
    const bool is_there = scenario.model.kind == ModelKind::Moe ||
                          std::ranges::any_of(scenario.model.layers, has_experts);
    if (is_there && !backend.trains_experts) {
        throw Error(
            ErrorKind::Infeasible,
            KeyValue{"cluster.backend", fmt::format("\"{}\"", to_string(scenario.cluster.backend))},
            fmt::format("{} has no kernels of experts yet", backend.device),
            fmt::format("to train, set cluster.backend = {}",
                        exec::backends_where(&exec::BackendTraits::trains_experts)));
    }
}

void refuse_what_is_only_simulated(const Scenario& scenario) {
    refuse_experts_where_none_are_trained(scenario);
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    const Shard shard = pipeline.shard.value_or(Shard::None);
    if (pipeline.offload != Offload::None && !exec::traits(scenario.cluster.backend).offloads) {
        throw Error(
            ErrorKind::Infeasible,
            KeyValue{"pipeline.offload", "\"stash\""},
            "the stashes of a CPU lie in host memory already",
            fmt::format("'pipetwin simulate' predicts it for a device with memory of its own; to "
                        "train, set pipeline.offload = \"none\", or cluster.backend = {}",
                        exec::backends_where(&exec::BackendTraits::offloads)));
    }
    if (pipeline.recompute_early_stop) {
        throw Error(ErrorKind::Infeasible,
                    KeyValue{"pipeline.recompute_early_stop", "true"},
                    "recompute that leaves out a block's end can only be simulated",
                    "'pipetwin simulate' predicts it; to train, leave it out");
    }
    if (pipeline.recompute_only > 0) {
        throw Error(ErrorKind::Infeasible,
                    KeyValue{"pipeline.recompute_only", fmt::to_string(pipeline.recompute_only)},
                    "recompute of some blocks of a stage can only be simulated",
                    "'pipetwin simulate' predicts it; to train, leave it out");
    }
    if (shard != Shard::None && scenario.training.average_decay > 0) {
        throw Error(
            ErrorKind::Infeasible,
            KeyValue{"training.average_decay", fmt::format("{}", scenario.training.average_decay)},
            "with pipeline.shard each replica would average its share of the weights alone, "
            "and none could validate with the averages: this can only be simulated",
            "'pipetwin simulate' predicts it; to train, set pipeline.shard = \"none\", or "
            "training.average_decay = 0");
    }
    if (pipeline.offload_blocks.value_or(0) > 0) {
        throw Error(ErrorKind::Infeasible,
                    KeyValue{"pipeline.offload_blocks",
                             fmt::to_string(pipeline.offload_blocks.value_or(0))},
                    "activations of blocks in host memory can only be simulated",
                    "'pipetwin simulate' predicts it; to train, set pipeline.offload_blocks = 0, "
                    "or pipeline.offload = \"stash\"");
    }
    if (scenario.training.gradients == GradientType::Same &&
        scenario.training.precision == Precision::Bf16) {
        throw Error(
            ErrorKind::Infeasible,
            KeyValue{"training.gradients", "\"same\""},
            "gradients of bf16 weights are summed in fp32; in bf16 they can only be simulated",
            "'pipetwin simulate' predicts it; to train, set training.gradients = \"fp32\"");
    }
    if (!pipeline.offload_modules.empty()) {
        throw Error(ErrorKind::Infeasible,
                    "pipeline.offload_modules",
                    "inputs of modules in host memory can only be simulated",
                    "'pipetwin simulate' predicts it; to train, leave it out, or set "
                    "pipeline.offload = \"stash\"");
    }
    const OptimizerState state = optimizer_state(scenario);
    if (state.bytes && *state.bytes != 4 * (1 + state.numbers) &&
        scenario.training.precision == Precision::Bf16) {
        throw Error(ErrorKind::Infeasible,
                    KeyValue{"training.optimizer_state_bytes",
                             fmt::to_string(*scenario.training.optimizer_state_bytes)},
                    "the optimizer's state beside bf16 weights is in fp32; a narrower one can only "
                    "be simulated",
                    "'pipetwin simulate' predicts it; to train, leave it out");
    }
    if (pipeline.recompute_modules.is_auto() || !pipeline.recompute_modules->empty()) {
        throw Error(ErrorKind::Infeasible,
                    "pipeline.recompute_modules",
                    "modules of blocks that are computed again can only be simulated",
                    "'pipetwin simulate' predicts it; to train, leave it out, and set "
                    "pipeline.recompute = \"block\"");
    }
    for (const auto& [key, devices] :
         {std::pair("pipeline.context_parallel", pipeline.context_parallel.value_or(1)),
          std::pair("pipeline.expert_parallel", pipeline.expert_parallel.value_or(1))}) {
        if (devices == 1) {
            continue;
        }
        throw Error(ErrorKind::Infeasible,
                    KeyValue{key, fmt::format("{}", devices)},
                    "devices that divide samples or experts can only be simulated",
                    fmt::format("'pipetwin simulate' predicts it; to train, set {} = 1", key));
    }
    refuse_devices_that_only_simulate(scenario);
}

void refuse_order_that_cannot_train(const SettledScenario& scenario) {
    const Schedule schedule = scenario_schedule(scenario);
    if (const auto why = why_not_trainable(schedule, has_stale_gradients(scenario))) {
        throw Error(
            ErrorKind::Infeasible,
            KeyValue{"pipeline.schedule", fmt::format("\"{}\"", scenario.pipeline.schedule)},
            *why,
            "'pipetwin simulate' predicts it; to train, use another, such as 1f1b");
    }
}

void refuse_what_does_not_fit(const SettledScenario& scenario, Processes& processes) {
    const auto check_memory = exec::traits(scenario.cluster.backend).check_memory;
    if (check_memory == nullptr) {
        return;
    }
    const Model model = scenario_model(scenario);
    const auto plan_of = [&model](const SettledScenario& other) {
        return exec::unmeasured_plan(other, model);
    };
    if (processes.is_alone()) {
        check_memory(scenario, plan_of, nullptr);
    } else {
        const exec::RankOnGpu own{.rank = processes.group().index() /
                                          scenario.pipeline.tensor_parallel %
                                          scenario.pipeline.stages,
                                  .gpu = processes.gpu()};
        check_memory(scenario, plan_of, &own);
    }
}

void refuse_what_cannot_train(const RunOptions& options,
                              const SettledScenario& scenario,
                              Processes& processes) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    refuse_what_cannot_run(
        options,
        scenario,
        {.replicas = pipeline.data_parallel, .devices = pipeline.tensor_parallel},
        processes);
    refuse_what_is_only_simulated(scenario.as_scenario());
    refuse_order_that_cannot_train(scenario);
    refuse_what_does_not_fit(scenario, processes);
}

void refuse_what_no_costs_help(const SettledScenario& scenario, const Model& model) {
    const Plan plan = exec::unmeasured_plan(scenario, model);
    if (is_known_without_costs(scenario, model)) {
        check_memory(plan);
        return;
    }
    if (const std::optional<Room> room = room_of(scenario.cluster, scenario.pipeline.stages)) {
        const Profile sizes = exec::unmeasured_profile(model, exec::profiler_options(scenario));
        refuse_states_without_room(scenario, model, sizes, state_shards(scenario, sizes), *room);
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
    plainest.pipeline.shard = space.pipeline.shard.value_or(Shard::Optimizer);
    plainest.pipeline.tensor_parallel = 1;
    const SettledScenario settled = settle(plainest);
    static_cast<void>(exec::unmeasured_plan(settled, model));
    const int ranks = space.pipeline.stages.value_or(std::min(devices, layers));
    if (const std::optional<Room> room = room_of(space.cluster, ranks)) {
        const Profile sizes = exec::unmeasured_profile(model, exec::profiler_options(settled));
        refuse_states_without_room(space, model, sizes, state_shards(settled, sizes), *room);
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
