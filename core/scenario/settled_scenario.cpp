// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/settled_scenario.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/stack.h"
#include "core/scenario/division.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/shard_group.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/schedule/schedule_csv.h"
#include "core/schedule/validate.h"

namespace pipetwin {

namespace {

/// A scenario with a value to set for every key that may be open.
Scenario suggested(const Scenario& open) {
    Scenario plain;
    const int stages = open.pipeline.stages.value_or(std::max(1, open.cluster.count));
    plain.pipeline.stages = stages;
    plain.pipeline.micro_batches = 4 * stages;
    plain.pipeline.recompute = Recompute::Always;
    RecomputeModules modules;
    modules.add(RecomputeModule::CoreAttention);
    plain.pipeline.recompute_modules = ModuleLists{.of_piece = {modules}};
    return plain;
}

}  // namespace

Scenario SettledScenario::as_scenario() const {
    Scenario scenario;
    static_cast<ScenarioParts&>(scenario) = *this;
    static_cast<PipelineSettings&>(scenario.pipeline) = pipeline;
    pipeline.each_searched(scenario.pipeline, [](const auto& value, auto& open) { open = value; });
    scenario.pipeline.recompute_timing = pipeline.recompute_timing;
    return scenario;
}

bool is_open(const Scenario& scenario) {
    return std::ranges::any_of(pipeline_keys(),
                               [&](const ScenarioKey& key) { return key.is_open_in(scenario); });
}

SettledScenario settle(const Scenario& scenario) {
    std::vector<std::string> keys;
    std::vector<KeyValue> settings;
    for (const ScenarioKey& key : pipeline_keys()) {
        if (key.is_open_in(scenario)) {
            keys.push_back(fmt::format("pipeline.{}", key.name));
            const std::string value = written_value(key, suggested(scenario));
            settings.push_back({keys.back(), value.empty() ? "1" : value});  // a degree not written
        }
    }
    if (!keys.empty()) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("\"auto\" has to be planned first for {}", fmt::join(keys, ", ")),
                    {fmt::format("'pipetwin plan' finds the best values; or in [pipeline] set {}",
                                 fmt::join(std::vector<std::string>(settings.size(), "{}"), ", ")),
                     settings})
            .about(settings.front().key);
    }
    return with_defaults(scenario);
}

SettledScenario with_defaults(const Scenario& scenario) {
    SettledScenario settled;
    static_cast<ScenarioParts&>(settled) = scenario;
    static_cast<PipelineSettings&>(settled.pipeline) = scenario.pipeline;
    scenario.pipeline.each_searched(
        settled.pipeline, [](const auto& open, auto& value) { value = open.value_or(value); });
    settled.pipeline.recompute_timing = scenario.pipeline.recompute_timing.value_or(
        schedule_traits(settled.pipeline.schedule).recompute_timing);
    return settled;
}

int replica_batch(const SettledScenario& scenario) {
    return replica_batch(scenario, scenario.pipeline.data_parallel);
}

Shard divided_all_step(const SettledScenario& scenario, const Stack* stack) {
    const Shard written = scenario.pipeline.shard;
    if (stack == nullptr || written != Shard::Weights) {
        return written;
    }
    switch (stack->stored.reshard) {
        case Reshard::Always:
            break;
        case Reshard::LastMicroBatch:
        case Reshard::LastOfRun:
            return scenario.pipeline.stages > 1 ? Shard::Optimizer : written;
        case Reshard::Never:
            return Shard::Gradients;
    }
    return written;
}

namespace {

/// Whether replicas divide gradients between runs of micro-batches, and not all step long.
bool divides_between_runs(const SettledScenario& scenario, const Stack* stack) {
    return stack != nullptr && stack->stored.reshard == Reshard::LastOfRun &&
           scenario.pipeline.shard == Shard::Weights &&
           divided_all_step(scenario, stack) == Shard::Optimizer;
}

}  // namespace

StateShards shards_among(int group, const SettledScenario& scenario, const Stack* stack) {
    const Shard divided = divided_all_step(scenario, stack);
    const auto from = [divided, group](Shard shard) { return divided >= shard ? group : 1; };
    StateShards shards{.weights = from(Shard::Weights),
                       .gradients = from(Shard::Gradients),
                       .optimizer = from(Shard::Optimizer)};
    if (group > 1 && divides_between_runs(scenario, stack)) {
        shards.gradients = group;
        shards.whole_gradients = scenario.pipeline.chunks > 1 ? 2 : 1;
    }
    return shards;
}

StateShards state_shards(const SettledScenario& scenario, const Profile& profile) {
    return shards_among(
        sharing_devices(scenario, profile).dense, scenario, stack_of(scenario, profile).get());
}

bool has_schedule_file(const SettledScenario& scenario) {
    return is_schedule_file(scenario.pipeline.schedule);
}

bool has_stale_gradients(const SettledScenario& scenario) {
    return schedule_traits(scenario.pipeline.schedule).stale_gradients;
}

namespace {

/// The error; where its hint asks for as many micro-batches as there are, but the batch has fewer
/// samples, with the hint of a larger batch.
Error with_batch_for_hint(const Error& error, const SettledScenario& scenario) {
    const int batch = replica_batch(scenario);
    for (const KeyValue& setting : error.advice().settings) {
        const bool is_of_number = setting.key == "pipeline.micro_batches";
        const int wanted = is_of_number ? std::stoi(setting.value) : 0;
        if (wanted > batch && wanted <= scenario.pipeline.micro_batches) {
            const int samples = wanted * scenario.pipeline.data_parallel;
            return error
                .with_text(
                    fmt::format("{}, as a replica has {}", error.text(), counted(batch, "sample")))
                .with_hint({fmt::format("set training.batch to {} or more", samples),
                            {{"training.batch", fmt::to_string(samples)}}});
        }
    }
    return error;
}

}  // namespace

Schedule scenario_schedule(const SettledScenario& scenario, const GeneratorOptions& options) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    const int batch = replica_batch(scenario);
    if (!has_schedule_file(scenario)) {
        GeneratorOptions own = options;
        own.group_size = pipeline.group_size;
        try {
            return generate(schedule_kind(pipeline.schedule),
                            {.ranks = pipeline.stages,
                             .chunks = pipeline.chunks,
                             .micro_batches = std::min(pipeline.micro_batches, batch)},
                            own);
        } catch (const Error& error) {
            throw with_batch_for_hint(error, scenario);
        }
    }
    const std::string& place = pipeline.schedule;
    Schedule schedule = read_schedule_csv(place);
    require_valid(schedule, place);
    if (schedule.micro_batches > batch) {
        throw Error(
            ErrorKind::Infeasible,
            place,
            fmt::format("it has {}, but a mini-batch has {} for it",
                        counted(schedule.micro_batches, "micro-batch"),
                        counted(batch, "sample")),
            {fmt::format("set training.batch to {} or more",
                         schedule.micro_batches * pipeline.data_parallel),
             {{"training.batch", fmt::to_string(schedule.micro_batches * pipeline.data_parallel)}}})
            .about("training.batch");
    }
    // In channels of a stated size a receive makes room where it stands.
    const bool waits = pipeline.receives == Receives::Posted && pipeline.channel_capacity.is_auto();
    return waits ? wait_where_used(std::move(schedule)) : schedule;
}

std::optional<Partition> scenario_partition(const SettledScenario& scenario, const Model& model) {
    const auto& written = scenario.pipeline.partition.known();
    return written ? std::optional(written_partition(*written, scenario.pipeline.pieces(), model))
                   : std::nullopt;
}

}  // namespace pipetwin
