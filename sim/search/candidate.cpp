#include "sim/search/candidate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin::sim {

namespace {

std::vector<int> divisors(int number) {
    std::vector<int> result;
    for (int divisor = 1; divisor <= number; ++divisor) {
        if (number % divisor == 0) {
            result.push_back(divisor);
        }
    }
    return result;
}

int device_count(const Scenario& scenario) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (scenario.cluster.count > 0) {
        return scenario.cluster.count;
    }
    if (!pipeline.stages || !pipeline.data_parallel || !pipeline.tensor_parallel) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    "nothing says how many devices there are to plan for",
                    "set cluster.count, as in --set cluster.count=8");
    }
    return *pipeline.stages * *pipeline.data_parallel * *pipeline.tensor_parallel;
}

std::vector<int> stage_counts(const Scenario& scenario, int devices, int layers) {
    if (scenario.pipeline.stages) {
        return {*scenario.pipeline.stages};
    }
    std::vector<int> result;
    for (int stages = 1; stages <= std::min(devices, layers); ++stages) {
        result.push_back(stages);
    }
    return result;
}

std::vector<int> tensor_counts(const Scenario& scenario, int devices) {
    if (scenario.pipeline.tensor_parallel) {
        return {*scenario.pipeline.tensor_parallel};
    }
    std::vector<int> result;
    for (const int divisor : divisors(std::max(1, scenario.cluster.per_node))) {
        if (divisor <= devices && std::has_single_bit(static_cast<unsigned>(divisor))) {
            result.push_back(divisor);
        }
    }
    return result;
}

std::vector<int> replica_counts(const Scenario& scenario, int most) {
    if (scenario.pipeline.data_parallel) {
        return {*scenario.pipeline.data_parallel};
    }
    std::vector<int> result = divisors(scenario.training.batch);
    std::erase_if(result, [most](int replicas) { return replicas > most; });
    return result;
}

std::vector<int> micro_batch_counts(const Scenario& scenario, int replicas) {
    if (const std::optional<int> written = scenario.pipeline.micro_batches) {
        // Replicas of which each has fewer samples than that would change what is written.
        const bool stays = scenario.pipeline.data_parallel || scenario.training.batch < *written ||
                           replica_batch(scenario, replicas) >= *written;
        return stays ? std::vector{*written} : std::vector<int>{};
    }
    constexpr int most = 65536;
    std::vector<int> result = divisors(replica_batch(scenario, replicas));
    std::erase_if(result, [](int count) { return count > most; });
    return result;
}

/// More than eight chunks of one rank are never seen in practice.
constexpr std::array several_chunks{2, 3, 4, 6, 8};

std::vector<int> chunk_counts(const Scenario& scenario, ChunkCounts chunks, int most) {
    const std::optional<int> fixed = scenario.pipeline.chunks;
    std::vector<int> result;
    switch (chunks) {
        case ChunkCounts::One:
            result = {1};
            break;
        case ChunkCounts::Two:
            result = {2};
            break;
        case ChunkCounts::Several:
            result.assign(several_chunks.begin(), several_chunks.end());
            if (fixed && *fixed > 1) {
                result = {*fixed};
            }
            break;
    }
    std::erase_if(result, [&](int count) { return count > most || (fixed && *fixed != count); });
    return result;
}

std::vector<Recompute> recomputes_of(const Scenario& scenario, const Shape& shape) {
    if (!scenario.pipeline.recompute_auto) {
        const RecomputeRules written = scenario.pipeline.recompute.value_or(Recompute::None);
        return written.everywhere() ? std::vector{*written.everywhere()} : std::vector<Recompute>{};
    }
    if (shape.micro_batches == 1) {
        return {Recompute::None, Recompute::Always};
    }
    return {Recompute::None, Recompute::ExceptLast, Recompute::Always};
}

/// A written list does. Else, on one rank that is one of the three; ranks of two pipelines share
/// their weights with another one; and where stashes are copied away, what fits depends on times.
bool may_recompute_by_rank(const Scenario& scenario,
                           const ScheduleChoice& choice,
                           const Shape& shape) {
    if (!scenario.pipeline.recompute_auto) {
        return scenario.pipeline.recompute && !scenario.pipeline.recompute->everywhere();
    }
    const ScheduleTraits& row = schedule_traits(choice.schedule);
    return shape.stages > 1 && row.placement != StagePlacement::BothWays &&
           scenario.pipeline.offload == Offload::None && row.searched != Searched::No;
}

/// The rows that are searched for a shape: by their chunks, then as they are listed.
std::vector<const ScheduleTraits*> searched_rows(const Shape& shape) {
    std::vector<const ScheduleTraits*> rows;
    for (const ScheduleName& known : known_schedules()) {
        if (const ScheduleTraits& row = schedule_traits(known.kind); is_searched(row, shape)) {
            rows.push_back(&row);
        }
    }
    std::ranges::stable_sort(rows, {}, [](const ScheduleTraits* row) {
        return std::pair(row->searched != Searched::First, row->chunks);
    });
    return rows;
}

/// Schedules with their chunks.
std::vector<ScheduleChoice> orders_of(const Scenario& scenario,
                                      const Model& model,
                                      const Shape& shape) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    const int most_chunks = std::max(1, model.layer_count() / shape.stages);
    if (pipeline.schedule && pipeline.chunks) {
        return {{.schedule = *pipeline.schedule, .chunks = *pipeline.chunks}};
    }
    const std::vector<const ScheduleTraits*> rows =
        pipeline.schedule ? std::vector{&schedule_traits(*pipeline.schedule)}
                          : searched_rows(shape);
    std::vector<ScheduleChoice> orders;
    for (const ScheduleTraits* const row : rows) {
        for (const int chunks : chunk_counts(scenario, row->chunks, most_chunks)) {
            orders.push_back(
                {.schedule = pipeline.schedule.value_or(std::string(row->name)), .chunks = chunks});
        }
    }
    return orders;
}

}  // namespace

bool is_searched(const ScheduleTraits& row, const Shape& shape) {
    if (shape.stages == 1) {
        return row.searched == Searched::First;
    }
    const bool shares_weights = row.placement == StagePlacement::BothWays;
    return row.searched != Searched::No && !(shares_weights && shape.data_parallel > 1);
}

SettledScenario with_candidate(const Scenario& scenario, const Candidate& candidate) {
    SettledScenario settled;
    static_cast<ScenarioParts&>(settled) = scenario;
    SettledScenario::PipelinePart& pipeline = settled.pipeline;
    static_cast<PipelineSettings&>(pipeline) = scenario.pipeline;
    pipeline.stages = candidate.shape.stages;
    pipeline.data_parallel = candidate.shape.data_parallel;
    pipeline.tensor_parallel = candidate.shape.tensor_parallel;
    pipeline.micro_batches = candidate.shape.micro_batches;
    pipeline.schedule = candidate.choice.schedule;
    pipeline.chunks = candidate.choice.chunks;
    pipeline.recompute_timing = scenario.pipeline.recompute_timing.value_or(
        schedule_traits(pipeline.schedule).recompute_timing);
    pipeline.recompute = candidate.choice.recompute;
    if (candidate.choice.recompute_by_rank) {
        pipeline.recompute = scenario.pipeline.recompute.value_or(Recompute::None);
    }
    return settled;
}

std::vector<Shape> shapes_of(const Scenario& scenario, const Model& model) {
    const int devices = device_count(scenario);
    std::vector<Shape> shapes;
    for (const int stages : stage_counts(scenario, devices, model.layer_count())) {
        for (const int tensor : tensor_counts(scenario, devices)) {
            if (std::int64_t{stages} * tensor > devices) {
                continue;
            }
            for (const int replicas : replica_counts(scenario, devices / (stages * tensor))) {
                for (const int micro_batches : micro_batch_counts(scenario, replicas)) {
                    shapes.push_back({.stages = stages,
                                      .data_parallel = replicas,
                                      .tensor_parallel = tensor,
                                      .micro_batches = micro_batches});
                }
            }
        }
    }
    std::ranges::sort(shapes);
    return shapes;
}

std::vector<int> telling_stage_counts(const std::vector<Shape>& shapes, int layers) {
    constexpr std::size_t few = 40;
    std::set<int> counts;
    int devices = 1;
    for (const Shape& shape : shapes) {
        counts.insert(shape.stages);
        devices = std::max(devices, shape.devices());
    }
    const auto largest = [layers](int stages) { return (layers + stages - 1) / stages; };
    if (counts.size() > few) {
        std::erase_if(counts, [&](int stages) {
            return devices % stages != 0 && largest(stages) == largest(stages - 1);
        });
    }
    return {counts.begin(), counts.end()};
}

std::vector<ScheduleChoice> choices_of(const Scenario& scenario,
                                       const Model& model,
                                       const Shape& shape) {
    std::vector<ScheduleChoice> choices;
    for (ScheduleChoice order : orders_of(scenario, model, shape)) {
        order.layer_recompute = scenario.pipeline.layer_recompute;
        for (const Recompute recompute : recomputes_of(scenario, shape)) {
            order.recompute = recompute;
            choices.push_back(order);
        }
        if (may_recompute_by_rank(scenario, order, shape)) {
            order.recompute = Recompute::None;
            order.recompute_by_rank = true;
            choices.push_back(order);
        }
    }
    return choices;
}

}  // namespace pipetwin::sim
