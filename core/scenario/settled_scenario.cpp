// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/settled_scenario.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/schedule/schedule_csv.h"
#include "core/schedule/validate.h"

namespace pipetwin {

namespace {

/// Throws for every "auto" that is left, all in one error.
void require_settled(const Scenario& scenario) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    const int stages = pipeline.stages.value_or(std::max(1, scenario.cluster.count));
    std::vector<std::string> keys;
    std::vector<KeyValue> settings;
    const auto expect = [&](bool settled, std::string_view key, const std::string& value) {
        if (!settled) {
            keys.push_back(fmt::format("pipeline.{}", key));
            settings.push_back({keys.back(), value});
        }
    };
    expect(pipeline.stages.has_value(), "stages", fmt::to_string(stages));
    expect(pipeline.micro_batches.has_value(), "micro_batches", fmt::to_string(4 * stages));
    expect(pipeline.schedule.has_value(), "schedule", fmt::format("\"{}\"", default_schedule));
    expect(pipeline.chunks.has_value(), "chunks", "1");
    expect(!pipeline.recompute_auto, "recompute", "\"always\"");
    expect(pipeline.data_parallel.has_value(), "data_parallel", "1");
    expect(pipeline.tensor_parallel.has_value(), "tensor_parallel", "1");
    expect(!pipeline.shard_auto, "shard", "\"none\"");
    expect(!pipeline.sequence_parallel_auto, "sequence_parallel", "false");
    expect(!pipeline.scatter_boundaries_auto, "scatter_boundaries", "false");
    if (!keys.empty()) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("\"auto\" has to be planned first for {}", fmt::join(keys, ", ")),
                    {fmt::format("'pipetwin plan' finds the best values; or in [pipeline] set {}",
                                 fmt::join(std::vector<std::string>(settings.size(), "{}"), ", ")),
                     settings})
            .about(settings.front().key);
    }
}

}  // namespace

Scenario SettledScenario::as_scenario() const {
    Scenario scenario;
    static_cast<ScenarioParts&>(scenario) = *this;
    Scenario::PipelinePart& open = scenario.pipeline;
    static_cast<PipelineSettings&>(open) = pipeline;
    open.stages = pipeline.stages;
    open.micro_batches = pipeline.micro_batches;
    open.schedule = pipeline.schedule;
    open.chunks = pipeline.chunks;
    open.recompute = pipeline.recompute;
    open.recompute_timing = pipeline.recompute_timing;
    open.data_parallel = pipeline.data_parallel;
    open.tensor_parallel = pipeline.tensor_parallel;
    return scenario;
}

SettledScenario settle(const Scenario& scenario) {
    require_settled(scenario);
    SettledScenario settled;
    static_cast<ScenarioParts&>(settled) = scenario;
    const Scenario::PipelinePart& written = scenario.pipeline;
    SettledScenario::PipelinePart& pipeline = settled.pipeline;
    static_cast<PipelineSettings&>(pipeline) = written;
    pipeline.stages = *written.stages;
    pipeline.micro_batches = *written.micro_batches;
    pipeline.schedule = *written.schedule;
    pipeline.chunks = *written.chunks;
    pipeline.recompute = written.recompute.value_or(Recompute::None);
    pipeline.recompute_timing =
        written.recompute_timing.value_or(schedule_traits(pipeline.schedule).recompute_timing);
    pipeline.data_parallel = *written.data_parallel;
    pipeline.tensor_parallel = *written.tensor_parallel;
    return settled;
}

int replica_batch(const SettledScenario& scenario) {
    return replica_batch(scenario, scenario.pipeline.data_parallel);
}

StateShards state_shards(const SettledScenario& scenario) {
    const auto from = [&scenario](Shard shard) {
        return scenario.pipeline.shard >= shard ? scenario.pipeline.data_parallel : 1;
    };
    return {.weights = from(Shard::Weights),
            .gradients = from(Shard::Gradients),
            .optimizer = from(Shard::Optimizer)};
}

bool has_schedule_file(const SettledScenario& scenario) {
    return is_schedule_file(scenario.pipeline.schedule);
}

bool has_stale_gradients(const SettledScenario& scenario) {
    return schedule_traits(scenario.pipeline.schedule).stale_gradients;
}

Schedule scenario_schedule(const SettledScenario& scenario, const GeneratorOptions& options) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    const int batch = replica_batch(scenario);
    if (!has_schedule_file(scenario)) {
        GeneratorOptions own = options;
        own.group_size = pipeline.group_size;
        return generate(schedule_kind(pipeline.schedule),
                        {.ranks = pipeline.stages,
                         .chunks = pipeline.chunks,
                         .micro_batches = std::min(pipeline.micro_batches, batch)},
                        own);
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
    const bool waits = pipeline.receives == Receives::Posted && !pipeline.channel_capacity;
    return waits ? wait_where_used(std::move(schedule)) : schedule;
}

std::optional<Partition> scenario_partition(const SettledScenario& scenario, const Model& model) {
    const auto& written = scenario.pipeline.partition;
    return written ? std::optional(written_partition(*written, scenario.pipeline.pieces(), model))
                   : std::nullopt;
}

}  // namespace pipetwin
